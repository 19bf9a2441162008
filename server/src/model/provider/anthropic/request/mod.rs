//! Builds request bodies for the Messages API.

use std::borrow::Cow;
use std::sync::Arc;

use agentloop_core::agent::ToolChoice;
use agentloop_core::message::{Part, Role, SharedMessage};
use agentloop_core::tool::{Digest, ToolDeclaration};

use super::ProviderDialect;
use super::blocks::text_block;
use super::messages::{AfterModel, CacheMarks, Conversation, with_mark_in_last};
use super::state::StateRules;
use super::thinking::{PastThinking, plan};
use super::traits::{Claude, claude};
use crate::model::request::encoded_text::Piece;
use crate::model::request::history::{
    self, ListField, ObjectWriter, RequestPatch, ToolListCache, element, object, response_schema, tool_schema,
};
use crate::model::request::origin::{Origin, StatePolicy};
use crate::model::transport::http::HttpBody;
use crate::model::{ModelError, ModelRequest};

/// Decisions about one call that are not in its request.
#[derive(Debug, Clone)]
pub(super) struct CallContext {
    pub(super) origin: Origin,
    pub(super) policy: StatePolicy,
    /// True if the last message is a partial response that the provider should continue.
    pub(super) continues: bool,
}

/// A request as it is sent.
#[derive(Debug)]
pub(super) struct EncodedRequest {
    pub(super) body: HttpBody,
    /// Digest of everything sent, if the model binds its thinking to it.
    pub(super) prefix: Option<Digest>,
}

/// Builds the body of a request.
///
/// # Errors
/// If a schema or the provider options are not a JSON object.
pub(super) fn body(
    request: &ModelRequest,
    dialect: &ProviderDialect,
    lists: &ToolListCache,
    call: &CallContext,
) -> Result<EncodedRequest, ModelError> {
    let patch = RequestPatch::of(&request.options)?;
    let claude = claude(&request.model, dialect.traits.get(&request.model));
    let tools = if request.tools.is_empty() { None } else { Some(lists.text(&request.tools, tools)?) };
    let rules = StateRules {
        origin: call.origin.clone(),
        policy: call.policy,
        prompt_digest: claude
            .traits
            .binds_thoughts
            .then(|| Digest::of(&[request.system_prompt.as_bytes(), tools.as_deref().unwrap_or_default()])),
    };
    let head = head(request, dialect, &claude, &rules)?;
    // A request without state is a repetition, and one that continues a response is no beginning of the next
    // request. Neither is cached.
    let is_usual = call.policy == StatePolicy::Keep && !call.continues;
    let encoded = if is_usual { &request.encoded } else { &request.encoded.without_cache() };
    encoded.write_and_send(Conversation::new(rules), &request.messages, |conversation| {
        let cached = dialect.options.prompt_cache;
        // A request may have four marks. If the caller lets the provider mark the end of the prompt, that
        // takes one of them.
        let marked = cached && !patch.has_object("cache_control");
        let marks = if marked { CacheMarks::Set } else { CacheMarks::Omitted };
        let after_model = if call.continues { AfterModel::Continues } else { AfterModel::GoOn };
        let ending = conversation.ending(marks, after_model);
        let prefix = conversation.digest(&ending);
        let messages = conversation.messages(&ending);
        let pieces = |blocks| if cached { with_mark_in_last(blocks) } else { vec![Piece::Copied(blocks)] };
        let system = system(request, conversation);
        let system = pieces(&system);
        let tools = tools.as_deref().map(pieces);
        let mut fields = Vec::with_capacity(3);
        fields.extend(tools.map(|elements| ListField { name: "tools", elements }));
        fields.push(ListField { name: "system", elements: system });
        fields.retain(|field| !field.is_empty());
        fields.push(ListField { name: "messages", elements: messages });
        Ok(EncodedRequest { body: history::body(head, fields, patch)?, prefix })
    })
}

/// Encodes the system prompt and the system messages.
fn system(request: &ModelRequest, conversation: &Conversation) -> Vec<u8> {
    let mut system = Vec::new();
    text_block(&mut system, &request.system_prompt);
    system.extend_from_slice(conversation.system());
    system
}

/// Encodes everything except tools, system prompt and messages.
fn head(
    request: &ModelRequest,
    dialect: &ProviderDialect,
    claude: &Claude,
    rules: &StateRules,
) -> Result<Vec<u8>, ModelError> {
    let mut options = Cow::Borrowed(&request.options);
    if request.tools.is_empty() && options.tool_choice.is_some() {
        options.to_mut().tool_choice = None;
    }
    let past = past_thinking(&request.messages, rules);
    let plan = plan(&request.model, &options, claude, dialect.default_max_tokens, past, &dialect.omissions);
    let format = options.response_schema.as_ref().map(response_schema).transpose()?;
    let mut out = Vec::with_capacity(256);
    object(&mut out, |head| {
        head.field("model", &request.model).field("stream", &true).field("max_tokens", &plan.max_tokens);
        head.optional("thinking", plan.thinking);
        if plan.effort.is_some() || format.is_some() {
            head.object("output_config", |config| {
                config.optional("effort", plan.effort);
                if let Some(schema) = format {
                    config.object("format", |format| {
                        format.field("type", "json_schema").text("schema", &schema);
                    });
                }
            });
        }
        head.optional("temperature", plan.temperature).optional("top_p", plan.top_p);
        head.optional("stop_sequences", (!options.stop.is_empty()).then_some(&options.stop));
        let is_forced = |choice: &&ToolChoice| matches!(choice, ToolChoice::Required | ToolChoice::Named(_));
        if let Some(choice) =
            options.tool_choice.as_ref().filter(|choice| plan.may_force_tool || !is_forced(choice))
        {
            head.object("tool_choice", |written| tool_choice(written, choice));
        }
    });
    Ok(out)
}

/// Tells if the history that is sent has the thinking that a model needs to think within a budget. It has to come before the
/// calls of the last turn, which may have been made without thinking.
fn past_thinking(messages: &[SharedMessage], rules: &StateRules) -> PastThinking {
    let last = messages.iter().rfind(|message| message.role == Role::Assistant);
    let loops_without = last.is_some_and(|message| {
        let calls = message.tool_calls().next().is_some();
        let first = message.parts.iter().find(|part| rules.is_sent(part));
        calls && !first.is_some_and(|first| matches!(first, Part::Reasoning(_)))
    });
    match rules.policy {
        StatePolicy::Keep if !loops_without => PastThinking::Complete,
        StatePolicy::Keep | StatePolicy::Drop => PastThinking::LeftOut,
    }
}

/// Encodes the tools, each followed by a comma.
fn tools(tools: &[Arc<ToolDeclaration>]) -> Result<Vec<u8>, ModelError> {
    let mut out = Vec::new();
    for tool in tools {
        let schema = tool_schema(tool)?;
        element(&mut out, |written| {
            written.field("name", &tool.name).field("description", &tool.description);
            written.text("input_schema", &schema);
        });
    }
    Ok(out)
}

fn tool_choice(written: &mut ObjectWriter<'_>, choice: &ToolChoice) {
    match choice {
        ToolChoice::Auto => written.field("type", "auto"),
        ToolChoice::None => written.field("type", "none"),
        ToolChoice::Required => written.field("type", "any"),
        ToolChoice::Named(name) => written.field("type", "tool").field("name", name),
    };
}

#[cfg(test)]
mod tests;
