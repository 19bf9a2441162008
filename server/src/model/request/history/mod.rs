//! Writes a session's history so that every provider accepts it, directly as text and without a tree of values.
//!
//! Models write the history, and it may hold anything: tool names that no provider allows, arguments that are
//! not JSON, ids of another provider. A provider that refuses such a message refuses it in every later request,
//! so it is repaired here.

mod body;
mod ids;
mod object_text;
mod parts;
mod tools;
mod writer;

use std::borrow::Cow;

use agentloop_core::agent::ResponseSchema;
use agentloop_core::limits::TOOL_NAME_BYTES_MAX;
use agentloop_core::message::Message;
use agentloop_core::tool::{Digest, ToolDeclaration};
use serde_json::json;

pub(in crate::model) use self::body::{ListField, RequestPatch, body};
pub(in crate::model) use self::ids::CallIds;
use self::object_text::{NotAnObject, ObjectText, is_object};
pub(in crate::model) use self::parts::{JoinedText, image_url, result_text};
pub(in crate::model) use self::tools::ToolListCache;
pub(in crate::model) use self::writer::{ObjectWriter, element, object};
use crate::model::{ModelError, ModelRequest};

/// First user text of a conversation that begins with a message of the model, as after a compaction in mid-turn.
pub(in crate::model) const OPENING: &str = "(The conversation goes on from here.)";

/// User text between two messages of the model, and after one that ends the conversation: models refuse to
/// continue a text that is prefilled for them.
pub(in crate::model) const GO_ON: &str = "(Go on.)";

/// Returns a system message that comes after others, as text of the user.
pub(in crate::model) fn later_system_text(message: &Message) -> String {
    format!("<system>\n{}\n</system>", message.plain_text())
}

/// Returns the tool name with every character that providers do not allow replaced by `_`.
pub(in crate::model) fn tool_name(name: &str) -> Cow<'_, str> {
    if name.is_empty() {
        return Cow::Borrowed("unnamed");
    }
    if name.len() <= TOOL_NAME_BYTES_MAX && name.chars().all(|c| allowed(c) == c) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.chars().map(allowed).take(TOOL_NAME_BYTES_MAX).collect())
}

fn allowed(c: char) -> char {
    if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }
}

/// Returns the arguments as a JSON object. Anything else is wrapped in one, so that the model sees what it wrote.
pub(in crate::model) fn arguments_object(arguments: &str) -> Cow<'_, str> {
    match ObjectText::read(arguments) {
        Ok(object) => object.into_text(),
        Err(_) => wrapped(arguments),
    }
}

/// Same as [`arguments_object`], but an object stays byte for byte what the model wrote, duplicate names included.
pub(in crate::model) fn arguments_text(arguments: &str) -> Cow<'_, str> {
    if is_object(arguments) { Cow::Borrowed(arguments) } else { wrapped(arguments) }
}

fn wrapped(arguments: &str) -> Cow<'static, str> {
    if arguments.trim().is_empty() {
        return Cow::Borrowed("{}");
    }
    Cow::Owned(json!({ "_invalid": arguments }).to_string())
}

/// Returns the input schema of a tool, with `"type": "object"` if it has no type. OpenAI and Anthropic require one.
pub(in crate::model) fn tool_schema(tool: &ToolDeclaration) -> Result<Cow<'_, str>, ModelError> {
    let schema = ObjectText::read(&tool.input_schema);
    let schema = schema.map_err(|e| refused(format_args!("the schema of tool {:?}", tool.name), &e))?;
    Ok(schema.into_typed())
}

/// Key by which the provider routes requests of one conversation to the same prompt cache. It depends on the
/// beginning of the conversation only.
pub(in crate::model) fn cache_key(request: &ModelRequest) -> Digest {
    let first = request.messages.first().map(|message| serde_json::to_vec(message).unwrap_or_default());
    let tools: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    let tools = tools.join(" ");
    let pieces = [request.system_prompt.as_bytes(), tools.as_bytes(), &first.unwrap_or_default()];
    Digest::of(&pieces)
}

/// Returns the schema that the response must follow.
pub(in crate::model) fn response_schema(response: &ResponseSchema) -> Result<Cow<'_, str>, ModelError> {
    let schema = ObjectText::read(&response.schema);
    let schema = schema.map_err(|e| refused(format_args!("response schema {:?}", response.name), &e))?;
    Ok(schema.into_text())
}

fn refused(what: std::fmt::Arguments<'_>, why: &NotAnObject) -> ModelError {
    ModelError::bad_request(format!("{what} {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_every_provider() {
        assert_eq!(tool_name("get_weather-2"), "get_weather-2");
        assert_eq!(tool_name("functions.get weather"), "functions_get_weather");
        assert_eq!(tool_name("wetter_für"), "wetter_f_r");
        assert_eq!(tool_name(""), "unnamed");
        assert_eq!(tool_name(&"x".repeat(100)).len(), TOOL_NAME_BYTES_MAX);
    }

    #[test]
    fn arguments_are_objects() {
        assert_eq!(arguments_text("{ \"a\" : 1.0 }"), "{ \"a\" : 1.0 }");
        assert_eq!(arguments_text(r#"{"a":1,"a":2}"#), r#"{"a":1,"a":2}"#);
        assert_eq!(arguments_object(r#"{"a":1,"a":2}"#), r#"{"a":2}"#);
        for arguments in [arguments_text, arguments_object] {
            assert_eq!(arguments(""), "{}");
            assert_eq!(arguments("[1]"), r#"{"_invalid":"[1]"}"#);
            assert_eq!(arguments("{\"a\":"), r#"{"_invalid":"{\"a\":"}"#);
            assert_eq!(arguments("{\"a\":1}"), "{\"a\":1}");
            let deep = "[".repeat(10_000);
            assert_eq!(arguments(&deep), json!({"_invalid": deep}).to_string());
        }
    }
}
