//! A request in the terms of Messages.

use std::borrow::Cow;
use std::sync::Arc;

use agentloop_core::agent::ToolChoice;
use agentloop_core::tool::ToolDeclaration;

use super::Dialect;
use super::messages::{Conversation, Thoughts, marked_last, text_block};
use super::thinking::plan;
use crate::model::wire::{
    self, Field, Object, Patch, ToolLists, element, object, response_schema, tool_schema,
};
use crate::model::{EncodedPrefix, ModelError, ModelRequest};

/// The body to post.
///
/// # Errors
/// When a schema or the provider options are no JSON object.
pub(super) fn body(
    request: &ModelRequest,
    dialect: &Dialect,
    lists: &ToolLists,
    thoughts: Thoughts,
) -> Result<Vec<u8>, ModelError> {
    let patch = Patch::of(&request.options)?;
    let head = head(request, dialect, thoughts)?;
    let tools = if request.tools.is_empty() { None } else { Some(lists.text(&request.tools, tools)?) };
    // Without thoughts a request is only sent again: the next one has them.
    let encoded = if thoughts == Thoughts::Keep { &request.encoded } else { &EncodedPrefix::default() };
    encoded.with(Conversation::new(thoughts), &request.messages, |conversation| {
        let cached = dialect.options.prompt_cache;
        // Where the caller has the provider itself mark the end of the prompt, that takes one of the four marks that a
        // request may have.
        let ending = conversation.ending(cached && !patch.has_object("cache_control"));
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
        wire::body(head, &fields, patch)
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
fn head(request: &ModelRequest, dialect: &Dialect, thoughts: Thoughts) -> Result<Vec<u8>, ModelError> {
    let mut options = Cow::Borrowed(&request.options);
    if request.tools.is_empty() && options.tool_choice.is_some() {
        options.to_mut().tool_choice = None;
    }
    let may_think = thoughts == Thoughts::Keep;
    let plan =
        plan(&request.model, &options, dialect.options.thinking, dialect.default_max_tokens, may_think);
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
        if let Some(choice) = &options.tool_choice {
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
#[path = "request_tests.rs"]
mod tests;
