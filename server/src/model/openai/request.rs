//! A request in the terms of Chat Completions.

use agentloop_core::agent::{ModelOptions, ReasoningEffort, ToolChoice};
use agentloop_core::tool::Digest;
use serde_json::{Value, json};

use super::Dialect;
use super::messages::messages;
use crate::model::wire::{merge_provider_options, response_schema, tool_schema};
use crate::model::{ModelError, ModelRequest};

/// The body to post.
///
/// # Errors
/// When a schema or the provider options are no JSON object.
pub(super) fn body(request: &ModelRequest, dialect: &Dialect) -> Result<Value, ModelError> {
    let mut body = json!({
        "model": request.model,
        "stream": true,
    });
    // Moved in: a long conversation is not copied once more.
    body["messages"] = Value::Array(messages(request, dialect));
    if dialect.options.include_usage {
        body["stream_options"] = json!({ "include_usage": true });
    }
    if dialect.official {
        body["prompt_cache_key"] = json!(cache_key(request));
    }
    tools(&mut body, request)?;
    options(&mut body, &request.options, dialect)?;
    merge_provider_options(&mut body, &request.options)?;
    Ok(body)
}

/// By this the provider brings requests of one conversation to where its beginning is still in memory. The same as long
/// as the conversation begins alike, which is as long as anything of it can be in memory.
fn cache_key(request: &ModelRequest) -> String {
    let first = request.messages.first().map(|message| serde_json::to_vec(message).unwrap_or_default());
    let tools: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    let tools = tools.join(" ");
    let pieces = [request.system_prompt.as_bytes(), tools.as_bytes(), &first.unwrap_or_default()];
    Digest::of(&pieces).to_string()
}

/// Without tools there is nothing to choose, and OpenAI refuses the question.
fn tools(body: &mut Value, request: &ModelRequest) -> Result<(), ModelError> {
    if request.tools.is_empty() {
        return Ok(());
    }
    let tools = request.tools.iter().map(|tool| {
        let function = json!({
            "name": tool.name,
            "description": tool.description,
            "parameters": tool_schema(tool)?,
        });
        Ok(json!({ "type": "function", "function": function }))
    });
    body["tools"] = tools.collect::<Result<Value, ModelError>>()?;
    if let Some(choice) = &request.options.tool_choice {
        body["tool_choice"] = match choice {
            ToolChoice::Auto => json!("auto"),
            ToolChoice::None => json!("none"),
            ToolChoice::Required => json!("required"),
            ToolChoice::Named(name) => json!({ "type": "function", "function": { "name": name } }),
        };
    }
    Ok(())
}

fn options(body: &mut Value, options: &ModelOptions, dialect: &Dialect) -> Result<(), ModelError> {
    if let Some(temperature) = options.temperature {
        body["temperature"] = json!(temperature);
    }
    if let Some(top_p) = options.top_p {
        body["top_p"] = json!(top_p);
    }
    if let Some(max) = options.max_output_tokens.or(dialect.default_max_tokens) {
        body[dialect.max_tokens_field()] = json!(max);
    }
    if !options.stop.is_empty() {
        body["stop"] = json!(options.stop);
    }
    if let Some(effort) = options.reasoning_effort {
        body["reasoning_effort"] = json!(match effort {
            ReasoningEffort::None => "none",
            ReasoningEffort::Low => "low",
            ReasoningEffort::Medium => "medium",
            ReasoningEffort::High => "high",
        });
    }
    if let Some(response) = &options.response_schema {
        body["response_format"] = json!({
            "type": "json_schema",
            "json_schema": {
                "name": response.name,
                "schema": response_schema(response)?,
                "strict": response.strict,
            },
        });
    }
    Ok(())
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
