//! Writes the content blocks of a message.

use agentloop_core::message::{Image, ToolCall, ToolResult};
use serde_json::value::RawValue;

use super::state::ThoughtState;
use crate::model::request::history::{arguments_object, element, tool_name};

/// Writes a text block. Blank text is skipped, because the API refuses it.
pub(super) fn text_block(out: &mut Vec<u8>, text: &str) {
    if !text.trim().is_empty() {
        element(out, |block| {
            block.field("type", "text").field("text", text);
        });
    }
}

/// Writes an image block.
pub(super) fn image_block(out: &mut Vec<u8>, image: &Image) {
    element(out, |block| {
        block.field("type", "image").object("source", |source| {
            match image {
                Image::Url { url } => source.field("type", "url").field("url", url),
                Image::Inline { media_type, base64 } => {
                    source.field("type", "base64").field("media_type", media_type).field("data", base64)
                }
            };
        });
    });
}

/// Writes a text block of the model with its citations.
pub(super) fn cited_block(out: &mut Vec<u8>, text: &str, citations: &RawValue) {
    element(out, |block| {
        block.field("type", "text").field("text", text).text("citations", citations.get());
    });
}

/// Writes a thinking block, or a redacted one.
pub(super) fn thought_block(out: &mut Vec<u8>, text: &str, state: &ThoughtState) {
    element(out, |block| {
        match &state.redacted {
            Some(data) => block.field("type", "redacted_thinking").field("data", data),
            None => {
                block.field("type", "thinking").field("thinking", text).field("signature", &state.signature)
            }
        };
    });
}

/// True if the call is sent exactly as the model wrote it.
pub(super) fn writes_call_unchanged(call: &ToolCall, id: &str) -> bool {
    let wrote_nothing = call.arguments.trim().is_empty();
    let same_arguments = wrote_nothing || arguments_object(&call.arguments) == call.arguments.trim();
    id == call.provider_id && tool_name(&call.name) == call.name && same_arguments
}

/// Writes a tool call under the id that is sent for it.
pub(super) fn call_block(out: &mut Vec<u8>, call: &ToolCall, id: &str) {
    element(out, |block| {
        block.field("type", "tool_use").field("id", id).field("name", &*tool_name(&call.name));
        block.text("input", &arguments_object(&call.arguments));
    });
}

/// Writes a tool result under the id that is sent for its call.
pub(super) fn result_block(out: &mut Vec<u8>, result: &ToolResult, id: &str) {
    element(out, |block| {
        block.field("type", "tool_result").field("tool_use_id", id);
        if !result.images.is_empty() {
            block.list("content", |content| {
                text_block(content, &result.output);
                result.images.iter().for_each(|image| image_block(content, image));
            });
        } else if !result.output.trim().is_empty() {
            block.field("content", &result.output);
        }
        if result.status.is_error() {
            block.field("is_error", &true);
        }
    });
}
