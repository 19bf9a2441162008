//! Builds request bodies for the Responses API.

use std::sync::Arc;

use agentloop_core::agent::{ModelOptions, ToolChoice};
use agentloop_core::model::traits::{Effort, ModelTraits, ThinkingMode};
use agentloop_core::tool::ToolDeclaration;

use super::ProviderDialect;
use super::items::Conversation;
use super::state::StateRules;
use super::traits::gpt;
use crate::model::request::encoded_text::Piece;
use crate::model::request::history::{
    self, ListField, ObjectWriter, RequestPatch, ToolListCache, cache_key, element, object, response_schema,
    tool_schema,
};
use crate::model::request::origin::{Origin, StatePolicy};
use crate::model::transport::http::HttpBody;
use crate::model::{ModelError, ModelRequest};

/// Decisions about one call that are not in its request.
#[derive(Debug, Clone)]
pub(super) struct CallContext {
    pub(super) origin: Origin,
    pub(super) policy: StatePolicy,
    /// True to request neither reasoning summaries nor encrypted reasoning.
    pub(super) without_reasoning: bool,
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
) -> Result<HttpBody, ModelError> {
    let patch = RequestPatch::of(&request.options)?;
    let head = head(request, dialect, call)?;
    let tools = if request.tools.is_empty() { None } else { Some(lists.text(&request.tools, tools)?) };
    let rules = StateRules { origin: call.origin.clone(), policy: call.policy };
    // A request without state is a repetition. The next request has state again, so this one is not cached.
    let encoded =
        if call.policy == StatePolicy::Keep { &request.encoded } else { &request.encoded.without_cache() };
    encoded.write_and_send(Conversation::new(rules), &request.messages, |conversation| {
        let input = ListField { name: "input", elements: conversation.text().all() };
        match &tools {
            None => history::body(head, vec![input], patch),
            Some(tools) => history::body(
                head,
                vec![ListField { name: "tools", elements: vec![Piece::Copied(tools)] }, input],
                patch,
            ),
        }
    })
}

/// Encodes everything except tools and input.
fn head(
    request: &ModelRequest,
    dialect: &ProviderDialect,
    call: &CallContext,
) -> Result<Vec<u8>, ModelError> {
    let options = &request.options;
    let format = options.response_schema.as_ref();
    let schema = format.map(response_schema).transpose()?;
    let traits = gpt(&request.model, dialect.traits.get(&request.model));
    let mut out = Vec::with_capacity(256);
    object(&mut out, |head| {
        head.field("model", &request.model).field("stream", &true).field("store", &false);
        if dialect.official {
            // Random padding against observers who count bytes. It only costs time here.
            head.object("stream_options", |options| {
                options.field("include_obfuscation", &false);
            });
        }
        if !request.system_prompt.is_empty() {
            head.field("instructions", &request.system_prompt);
        }
        head.field("prompt_cache_key", &cache_key(request));
        // OpenAI refuses `tool_choice` without tools.
        if let (Some(choice), false) = (&options.tool_choice, request.tools.is_empty()) {
            tool_choice(head, choice);
        }
        reasoning(head, request, traits.as_ref(), dialect, call);
        head.optional("max_output_tokens", options.max_output_tokens.or(dialect.default_max_tokens));
        if let (Some(response), Some(schema)) = (format, schema) {
            head.object("text", |text| {
                text.object("format", |format| {
                    format.field("type", "json_schema").field("name", &response.name);
                    format.text("schema", &schema).field("strict", &response.strict);
                });
            });
        }
        if !options.stop.is_empty() {
            dialect.omissions.log_omitted(&request.model, "stop", "nothing");
        }
    });
    Ok(out)
}

/// Encodes the reasoning parameters, and the sampling parameters that depend on them.
fn reasoning(
    head: &mut ObjectWriter<'_>,
    request: &ModelRequest,
    traits: Option<&ModelTraits>,
    dialect: &ProviderDialect,
    call: &CallContext,
) {
    let effort = effort(request, traits, dialect);
    let thinks = match (traits.map(|traits| traits.thinks), effort) {
        (Some(ThinkingMode::Never), _) | (_, Some(Effort::None)) => false,
        (Some(ThinkingMode::Always | ThinkingMode::ByDefault), _) | (_, Some(_)) => true,
        (Some(ThinkingMode::WhenAsked) | None, None) => false,
    };
    let summary = (thinks && !call.without_reasoning).then_some("auto");
    if effort.is_some() || summary.is_some() {
        head.object("reasoning", |reasoning| {
            reasoning.optional("effort", effort.map(Effort::as_str)).optional("summary", summary);
        });
    }
    // A model may reason although the request does not say so.
    let may_think = traits.is_none_or(|traits| traits.thinks != ThinkingMode::Never);
    if may_think && !call.without_reasoning {
        head.list("include", |include| include.extend_from_slice(br#""reasoning.encrypted_content""#));
    }
    let ModelOptions { temperature, top_p, .. } = request.options;
    let taken = traits.is_none_or(|traits| traits.sampling.while_thinking(thinks));
    for (name, value) in [("temperature", temperature), ("top_p", top_p)] {
        if taken {
            head.optional(name, value);
        } else if value.is_some() {
            dialect.omissions.log_omitted(&request.model, name, "nothing");
        }
    }
}

fn effort(request: &ModelRequest, traits: Option<&ModelTraits>, dialect: &ProviderDialect) -> Option<Effort> {
    let wanted = Effort::from(request.options.reasoning_effort?);
    match traits {
        Some(traits) => dialect.omissions.supported_effort(&request.model, traits.efforts, wanted),
        None => Some(wanted),
    }
}

/// Encodes the tools, each followed by a comma.
fn tools(tools: &[Arc<ToolDeclaration>]) -> Result<Vec<u8>, ModelError> {
    let mut out = Vec::new();
    for tool in tools {
        let schema = tool_schema(tool)?;
        element(&mut out, |written| {
            written.field("type", "function").field("name", &tool.name);
            written.field("description", &tool.description).text("parameters", &schema);
            // Explicit, because the API otherwise tries to make schemas strict and refuses those that cannot
            // be.
            written.field("strict", &false);
        });
    }
    Ok(out)
}

fn tool_choice(head: &mut ObjectWriter<'_>, choice: &ToolChoice) {
    match choice {
        ToolChoice::Auto => head.field("tool_choice", "auto"),
        ToolChoice::None => head.field("tool_choice", "none"),
        ToolChoice::Required => head.field("tool_choice", "required"),
        ToolChoice::Named(name) => head.object("tool_choice", |choice| {
            choice.field("type", "function").field("name", name);
        }),
    };
}

#[cfg(test)]
mod tests;
