//! A request in the terms of Messages.

use agentloop_core::agent::{ModelOptions, ToolChoice};
use serde_json::{Value, json};

use super::Dialect;
use super::messages::{Conversation, Thoughts};
use super::thinking::plan;
use crate::model::wire::{merge_provider_options, response_schema, tool_schema};
use crate::model::{ModelError, ModelRequest};

/// The body to post.
///
/// # Errors
/// When a schema or the provider options are no JSON object.
pub(super) fn body(
    request: &ModelRequest,
    dialect: &Dialect,
    thoughts: Thoughts,
) -> Result<Value, ModelError> {
    let mut conversation = Conversation::read(request, thoughts);
    if dialect.options.prompt_cache {
        conversation.mark_system();
        if !caches_by_itself(&request.options) {
            conversation.mark_ends();
        }
    }
    let mut body = json!({ "model": request.model, "stream": true });
    if !conversation.system.is_empty() {
        body["system"] = Value::Array(std::mem::take(&mut conversation.system));
    }
    body["messages"] = Value::Array(conversation.into_messages());
    tools(&mut body, request, dialect.options.prompt_cache)?;
    options(&mut body, request, dialect, thoughts)?;
    merge_provider_options(&mut body, &request.options)?;
    Ok(body)
}

/// Whether the caller has the provider itself mark the end of the prompt, which takes one of the four marks that a
/// request may have.
fn caches_by_itself(options: &ModelOptions) -> bool {
    let options =
        options.provider_options.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok());
    options.is_some_and(|options| options["cache_control"].is_object())
}

fn tools(body: &mut Value, request: &ModelRequest, cached: bool) -> Result<(), ModelError> {
    if request.tools.is_empty() {
        return Ok(());
    }
    let mut tools = Vec::with_capacity(request.tools.len());
    for tool in request.tools.iter() {
        tools.push(json!({
            "name": tool.name,
            "description": tool.description,
            "input_schema": tool_schema(tool)?,
        }));
    }
    if let (true, Some(last)) = (cached, tools.last_mut()) {
        last["cache_control"] = json!({ "type": "ephemeral" });
    }
    body["tools"] = Value::Array(tools);
    if let Some(choice) = &request.options.tool_choice {
        body["tool_choice"] = match choice {
            ToolChoice::Auto => json!({ "type": "auto" }),
            ToolChoice::None => json!({ "type": "none" }),
            ToolChoice::Required => json!({ "type": "any" }),
            ToolChoice::Named(name) => json!({ "type": "tool", "name": name }),
        };
    }
    Ok(())
}

fn options(
    body: &mut Value,
    request: &ModelRequest,
    dialect: &Dialect,
    thoughts: Thoughts,
) -> Result<(), ModelError> {
    let mut options = request.options.clone();
    if request.tools.is_empty() {
        options.tool_choice = None;
    }
    let may_think = thoughts == Thoughts::Keep;
    let plan =
        plan(&request.model, &options, dialect.options.thinking, dialect.default_max_tokens, may_think);
    body["max_tokens"] = json!(plan.max_tokens);
    if let Some(thinking) = plan.thinking {
        body["thinking"] = thinking;
    }
    if let Some(effort) = plan.effort {
        body["output_config"]["effort"] = json!(effort);
    }
    if let Some(response) = &options.response_schema {
        body["output_config"]["format"] =
            json!({ "type": "json_schema", "schema": response_schema(response)? });
    }
    if let Some(temperature) = plan.temperature {
        body["temperature"] = json!(temperature);
    }
    if let Some(top_p) = plan.top_p {
        body["top_p"] = json!(top_p);
    }
    if !options.stop.is_empty() {
        body["stop_sequences"] = json!(options.stop);
    }
    Ok(())
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
