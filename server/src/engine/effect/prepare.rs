//! Prepares a run before its first model call: calls its `pre_run` hooks one after the other, then its context sources
//! all at once.

use std::sync::Arc;

use agentloop_core::extension::ExtensionCall;
use agentloop_core::limits::{CONTEXT_BYTES_MAX, CONTEXT_QUERY_BYTES_MAX, CONTEXT_TOTAL_BYTES_MAX};
use agentloop_core::message::{Message, Role, SharedMessage};
use agentloop_core::run::input::{Input, Prepared, SourcedMessage};
use futures_util::future::join_all;

use crate::engine::effect::extensions::{RunExtensions, SourceResult};
use crate::extension::{ContextItem, Occasion};

/// Calls all of the run's hooks and sources. The output is always [`Input::Prepared`].
pub(in crate::engine) async fn prepare(extensions: RunExtensions) -> Input {
    let messages = extensions.run.state.initial_messages().cloned().collect();
    let mut prepared = call_hooks(&extensions, messages).await;
    if prepared.failure.is_none() {
        add_context(&extensions, &mut prepared).await;
    }
    Input::Prepared(Box::new(prepared))
}

/// Calls the hooks in order. Each sees the messages as the one before it left them. An objection ends the run.
async fn call_hooks(extensions: &RunExtensions, brought: Vec<SharedMessage>) -> Prepared {
    let mut prepared = Prepared::default();
    for name in extensions.hook_names() {
        let messages = prepared.messages.as_ref().unwrap_or(&brought).clone();
        let Some(result) = extensions.call_hook(&name, Occasion::PreRun { messages }).await else { continue };
        let verdict = result.verdict.unwrap_or_default();
        prepared
            .applied
            .push(ExtensionCall { system_prompt: verdict.system_prompt_addition, ..result.applied });
        if result.objection.is_some() {
            prepared.failure = result.objection;
            return prepared;
        }
        if !verdict.input_messages.is_empty() {
            prepared.messages = Some(verdict.input_messages.into_iter().map(Arc::new).collect());
        }
    }
    prepared
}

/// Calls the context sources at once. Their messages stand in the order in which the run names the sources.
async fn add_context(extensions: &RunExtensions, prepared: &mut Prepared) {
    let sources = extensions.source_names();
    let max_bytes = CONTEXT_BYTES_MAX.min(CONTEXT_TOTAL_BYTES_MAX / sources.len().max(1));
    let query = match &prepared.messages {
        Some(messages) => query_of(messages.iter()),
        None => query_of(extensions.run.state.initial_messages()),
    };
    let calls = sources.iter().map(|name| extensions.call_source(name, query.clone(), max_bytes));
    let results = join_all(calls).await;
    for (name, SourceResult { applied, items }) in sources.into_iter().zip(results) {
        prepared.applied.push(applied);
        if !items.is_empty() {
            let message = Arc::new(Message::text(Role::User, context_text(&name, &items)));
            prepared.context.push(SourcedMessage { source: name, message });
        }
    }
}

/// The text of the caller's last message, cut to the most bytes that a source is sent.
fn query_of<'a>(messages: impl DoubleEndedIterator<Item = &'a SharedMessage>) -> String {
    let last = messages.rev().find(|message| message.role == Role::User);
    let mut query = last.map(|message| message.plain_text()).unwrap_or_default();
    query.truncate(query.floor_char_boundary(CONTEXT_QUERY_BYTES_MAX));
    query
}

/// The text of the message that shows a source's items. It is a user message, since not every provider takes a system
/// message within a conversation.
fn context_text(source: &str, items: &[ContextItem]) -> String {
    let texts: Vec<String> = items
        .iter()
        .map(|item| match item.origin.as_str() {
            "" => item.text.clone(),
            origin => format!("[{origin}]\n{}", item.text),
        })
        .collect();
    format!("<context source=\"{source}\">\n{}\n</context>", texts.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_says_where_it_comes_from() {
        let item =
            |text: &str, origin: &str| ContextItem { text: text.to_owned(), origin: origin.to_owned() };
        let text = context_text("wiki", &[item("Bonn is a city.", "page 1"), item("So is Ulm.", "")]);
        assert_eq!(text, "<context source=\"wiki\">\n[page 1]\nBonn is a city.\n\nSo is Ulm.\n</context>");
    }

    #[test]
    fn what_is_asked_is_the_users_last_message() {
        let message = |role, text: &str| Arc::new(Message::text(role, text));
        let messages =
            [message(Role::User, "one"), message(Role::User, "two"), message(Role::System, "be brief")];
        assert_eq!(query_of(messages.iter()), "two");
        assert_eq!(query_of([].iter()), "");
        let long = [message(Role::User, &"ü".repeat(CONTEXT_QUERY_BYTES_MAX))];
        assert_eq!(query_of(long.iter()).len(), CONTEXT_QUERY_BYTES_MAX);
    }
}
