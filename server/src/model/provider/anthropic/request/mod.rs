//! A request in the terms of Messages.

use std::borrow::Cow;
use std::sync::Arc;

use agentloop_core::agent::ToolChoice;
use agentloop_core::tool::{Digest, ToolDeclaration};

use super::Dialect;
use super::blocks::text_block;
use super::messages::{Conversation, marked_last};
use super::state::Rules;
use super::thinking::plan;
use super::traits::{Claude, claude};
use crate::model::request::history::{
    self, Field, Object, Patch, ToolLists, element, object, response_schema, tool_schema,
};
use crate::model::request::origin::{Origin, States};
use crate::model::{EncodedPrefix, ModelError, ModelRequest};

/// What is decided about one call besides its request.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) origin: Origin,
    pub(super) states: States,
    /// Whether the last message is the beginning of an answer, which the provider is to go on with by itself.
    pub(super) continues: bool,
}

/// A request as it is posted.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) body: Vec<u8>,
    /// Of all that thoughts of the answer are bound to, where this model binds them.
    pub(super) prefix: Option<Digest>,
}

/// The body to post.
///
/// # Errors
/// When a schema or the provider options are no JSON object.
pub(super) fn body(
    request: &ModelRequest,
    dialect: &Dialect,
    lists: &ToolLists,
    call: &Call,
) -> Result<Written, ModelError> {
    let patch = Patch::of(&request.options)?;
    let claude = claude(&request.model, dialect.traits.get(&request.model));
    let head = head(request, dialect, &claude, call)?;
    let tools = if request.tools.is_empty() { None } else { Some(lists.text(&request.tools, tools)?) };
    let rules = Rules {
        origin: call.origin.clone(),
        states: call.states,
        base: claude
            .traits
            .binds_thoughts
            .then(|| Digest::of(&[request.system_prompt.as_bytes(), tools.as_deref().unwrap_or_default()])),
    };
    // Without states a request is only sent again: the next one has them. One that continues an answer is no beginning
    // of the next either.
    let is_usual = call.states == States::Keep && !call.continues;
    let encoded = if is_usual { &request.encoded } else { &EncodedPrefix::default() };
    encoded.with(Conversation::new(rules), &request.messages, |conversation| {
        let cached = dialect.options.prompt_cache;
        // Where the caller has the provider itself mark the end of the prompt, that takes one of the four marks that a
        // request may have.
        let marked = cached && !patch.has_object("cache_control");
        let ending = conversation.ending(marked, !call.continues);
        let prefix = conversation.digest(&ending);
        let messages = conversation.messages(&ending);
        let pieces = |blocks| if cached { marked_last(blocks) } else { vec![blocks] };
        let system = system(request, conversation);
        let system = pieces(&system);
        let tools = tools.as_deref().map(pieces);
        let mut fields = Vec::with_capacity(3);
        fields.extend(tools.as_deref().map(|elements| Field { name: "tools", elements }));
        fields.push(Field { name: "system", elements: &system });
        fields.retain(|field| !field.is_empty());
        fields.push(Field { name: "messages", elements: &messages });
        Ok(Written { body: history::body(head, &fields, patch)?, prefix })
    })
}

/// Everything that the operator says, before everything else.
fn system(request: &ModelRequest, conversation: &Conversation) -> Vec<u8> {
    let mut system = Vec::new();
    text_block(&mut system, &request.system_prompt);
    system.extend_from_slice(conversation.system());
    system
}

/// Everything but tools, system prompt and messages.
fn head(
    request: &ModelRequest,
    dialect: &Dialect,
    claude: &Claude,
    call: &Call,
) -> Result<Vec<u8>, ModelError> {
    let mut options = Cow::Borrowed(&request.options);
    if request.tools.is_empty() && options.tool_choice.is_some() {
        options.to_mut().tool_choice = None;
    }
    let may_think = call.states == States::Keep;
    let plan =
        plan(&request.model, &options, claude, dialect.default_max_tokens, may_think, &dialect.notices);
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
            options.tool_choice.as_ref().filter(|choice| plan.may_force || !is_forced(choice))
        {
            head.object("tool_choice", |written| tool_choice(written, choice));
        }
    });
    Ok(out)
}

/// The tools, each with a comma after it.
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

fn tool_choice(written: &mut Object<'_>, choice: &ToolChoice) {
    match choice {
        ToolChoice::Auto => written.field("type", "auto"),
        ToolChoice::None => written.field("type", "none"),
        ToolChoice::Required => written.field("type", "any"),
        ToolChoice::Named(name) => written.field("type", "tool").field("name", name),
    };
}

#[cfg(test)]
mod tests;
