//! Builds request bodies for Chat Completions.

use std::sync::Arc;

use agentloop_core::agent::{ModelOptions, ReasoningEffort, ToolChoice};
use agentloop_core::tool::ToolDeclaration;

use super::ProviderDialect;
use super::messages::{Conversation, system};
use super::state::StateRules;
use crate::model::request::encoded_text::Piece;
use crate::model::request::history::{
    self, ListField, ObjectWriter, RequestPatch, ToolListCache, cache_key, element, object, response_schema,
    tool_schema,
};
use crate::model::request::origin::{Origin, StatePolicy};
use crate::model::transport::http::HttpBody;
use crate::model::{ModelError, ModelRequest};

/// Builds the body of a request.
///
/// # Errors
/// If a schema or the provider options are not a JSON object.
pub(super) fn body(
    request: &ModelRequest,
    dialect: &ProviderDialect,
    lists: &ToolListCache,
    origin: &Origin,
    policy: StatePolicy,
) -> Result<HttpBody, ModelError> {
    let patch = RequestPatch::of(&request.options)?;
    let head = head(request, dialect)?;
    let mut prompt = Vec::new();
    if !request.system_prompt.is_empty() {
        system(&mut prompt, request.system_prompt.as_str());
    }
    let tools = if request.tools.is_empty() { None } else { Some(lists.text(&request.tools, tools)?) };
    let rules = StateRules {
        origin: origin.clone(),
        policy,
        send_reasoning: dialect.send_reasoning(&request.model),
        signs: dialect.signs(&request.model),
    };
    // A request without state is a repetition. The next request has state again, so this one is not cached.
    let encoded =
        if policy == StatePolicy::Keep { &request.encoded } else { &request.encoded.without_cache() };
    let fresh = Conversation::new(dialect.call_ids(), rules);
    encoded.write_and_send(fresh, &request.messages, |conversation| {
        let end = conversation.end();
        let mut elements = vec![Piece::Copied(&prompt)];
        elements.extend(conversation.text().all());
        elements.push(Piece::Copied(&end));
        let messages = ListField { name: "messages", elements };
        match &tools {
            None => history::body(head, vec![messages], patch),
            Some(tools) => history::body(
                head,
                vec![ListField { name: "tools", elements: vec![Piece::Copied(tools)] }, messages],
                patch,
            ),
        }
    })
}

/// Encodes everything except tools and messages.
fn head(request: &ModelRequest, dialect: &ProviderDialect) -> Result<Vec<u8>, ModelError> {
    let mut out = Vec::with_capacity(256);
    let format = request.options.response_schema.as_ref();
    let schema = format.map(response_schema).transpose()?;
    object(&mut out, |head| {
        head.field("model", &request.model).field("stream", &true);
        if dialect.options.include_usage {
            head.object("stream_options", |options| {
                options.field("include_usage", &true);
            });
        }
        head.optional("prompt_cache_key", dialect.official.then(|| cache_key(request)));
        // OpenAI refuses `tool_choice` without tools.
        if let (Some(choice), false) = (&request.options.tool_choice, request.tools.is_empty()) {
            tool_choice(head, choice);
        }
        options(head, &request.options, dialect);
        if let (Some(response), Some(schema)) = (format, schema) {
            head.object("response_format", |format| {
                format.field("type", "json_schema").object("json_schema", |named| {
                    named.field("name", &response.name).text("schema", &schema);
                    named.field("strict", &response.strict);
                });
            });
        }
    });
    Ok(out)
}

/// Encodes the tools, each followed by a comma.
fn tools(tools: &[Arc<ToolDeclaration>]) -> Result<Vec<u8>, ModelError> {
    let mut out = Vec::new();
    for tool in tools {
        let schema = tool_schema(tool)?;
        element(&mut out, |written| {
            written.field("type", "function").object("function", |function| {
                function.field("name", &tool.name).field("description", &tool.description);
                function.text("parameters", &schema);
            });
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
            choice.field("type", "function").object("function", |function| {
                function.field("name", name);
            });
        }),
    };
}

fn options(head: &mut ObjectWriter<'_>, options: &ModelOptions, dialect: &ProviderDialect) {
    head.optional("temperature", options.temperature).optional("top_p", options.top_p);
    let max_tokens = options.max_output_tokens.or(dialect.default_max_tokens);
    head.optional(dialect.max_tokens_field(), max_tokens);
    head.optional("stop", (!options.stop.is_empty()).then_some(&options.stop));
    let effort = options.reasoning_effort.map(|effort| match effort {
        ReasoningEffort::None => "none",
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
    });
    head.optional("reasoning_effort", effort);
}

#[cfg(test)]
mod tests;
