//! What a run is given before its first step: its hooks have their say in order, then its context sources are asked
//! side by side.

use std::sync::Arc;

use agentloop_core::extension::Applied;
use agentloop_core::limits::{CONTEXT_BYTES_MAX, CONTEXT_QUERY_BYTES_MAX, CONTEXT_TOTAL_BYTES_MAX};
use agentloop_core::message::{Message, Role, SharedMessage};
use agentloop_core::run::input::{Input, Prepared};
use futures_util::future::join_all;

use crate::engine::effect::extensions::{Asking, SourceSaid};
use crate::extension::{ContextItem, Occasion};

/// Asks everybody; becomes [`Input::Prepared`].
pub(in crate::engine) async fn prepare(asking: Asking) -> Input {
    let held = asking.run.state.brought().cloned().collect();
    let mut prepared = have_say(&asking, held).await;
    if prepared.failure.is_none() {
        gather(&asking, &mut prepared).await;
    }
    Input::Prepared(Box::new(prepared))
}

/// The hooks, each after the one before it. The messages are those that the last one left.
async fn have_say(asking: &Asking, held: Vec<SharedMessage>) -> Prepared {
    let mut prepared = Prepared::default();
    for name in asking.hooks() {
        let messages = prepared.messages.as_ref().unwrap_or(&held).clone();
        let Some(said) = asking.hook(&name, Occasion::PreRun { messages }).await else { continue };
        let verdict = said.verdict.unwrap_or_default();
        prepared.applied.push(Applied { system_prompt: verdict.system_prompt_addition, ..said.applied });
        if said.against.is_some() {
            prepared.failure = said.against;
            return prepared;
        }
        if !verdict.input_messages.is_empty() {
            prepared.messages = Some(verdict.input_messages.into_iter().map(Arc::new).collect());
        }
    }
    prepared
}

/// The sources, all at once; what they give stands in the order of their names.
async fn gather(asking: &Asking, prepared: &mut Prepared) {
    let sources = asking.sources();
    let max_bytes = CONTEXT_BYTES_MAX.min(CONTEXT_TOTAL_BYTES_MAX / sources.len().max(1));
    let query = match &prepared.messages {
        Some(messages) => query_of(messages.iter()),
        None => query_of(asking.run.state.brought()),
    };
    let given = join_all(sources.iter().map(|name| asking.source(name, query.clone(), max_bytes))).await;
    for (name, SourceSaid { applied, items }) in sources.into_iter().zip(given) {
        prepared.applied.push(applied);
        if !items.is_empty() {
            let message = Arc::new(Message::text(Role::User, context_text(&name, &items)));
            prepared.context.push((name, message));
        }
    }
}

/// The caller's last message, as far as it is text.
fn query_of<'a>(messages: impl DoubleEndedIterator<Item = &'a SharedMessage>) -> String {
    let last = messages.rev().find(|message| message.role == Role::User);
    let mut query = last.map(|message| message.plain_text()).unwrap_or_default();
    query.truncate(query.floor_char_boundary(CONTEXT_QUERY_BYTES_MAX));
    query
}

/// As a message of the user, since not every provider takes the operator's words in the middle of a conversation.
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
        let said = |role, text: &str| Arc::new(Message::text(role, text));
        let messages = [said(Role::User, "one"), said(Role::User, "two"), said(Role::System, "be brief")];
        assert_eq!(query_of(messages.iter()), "two");
        assert_eq!(query_of([].iter()), "");
        let long = [said(Role::User, &"ü".repeat(CONTEXT_QUERY_BYTES_MAX))];
        assert_eq!(query_of(long.iter()).len(), CONTEXT_QUERY_BYTES_MAX);
    }
}
