//! The conversation in the terms of Chat Completions.

use std::borrow::Cow;

use agentloop_core::message::{Image, Message, Part, Role, ToolCall, ToolResult};
use serde_json::{Value, json};

use super::Dialect;
use crate::model::ModelRequest;
use crate::model::wire::{CallIds, arguments_text, tool_name};

/// What OpenAI takes as the id of a tool call. Its followers take more, and some put state of their own into ids.
const OPENAI_ID_BYTES_MAX: usize = 40;

/// System prompt and history.
pub(super) fn messages(request: &ModelRequest, dialect: &Dialect) -> Vec<Value> {
    let ids = if dialect.official { CallIds::plain(OPENAI_ID_BYTES_MAX) } else { CallIds::any() };
    let mut writer = Writer {
        messages: Vec::new(),
        ids,
        pictures: Vec::new(),
        send_reasoning: dialect.options.send_reasoning,
    };
    if !request.system_prompt.is_empty() {
        writer.messages.push(json!({ "role": "system", "content": request.system_prompt }));
    }
    for message in &request.messages {
        writer.write(message);
    }
    writer.flush_pictures();
    writer.messages
}

struct Writer {
    messages: Vec<Value>,
    ids: CallIds,
    /// Pictures of tool results. Tool messages hold only text, and nothing may stand between them, so the pictures
    /// follow the last of them in a message of their own.
    pictures: Vec<Value>,
    send_reasoning: bool,
}

impl Writer {
    fn write(&mut self, message: &Message) {
        if message.role != Role::Tool {
            self.flush_pictures();
        }
        match message.role {
            Role::System => {
                self.messages.push(json!({ "role": "system", "content": joined_text(message) }));
            }
            Role::User => self.messages.push(json!({ "role": "user", "content": user_content(message) })),
            Role::Assistant => self.assistant(message),
            Role::Tool => message.parts.iter().for_each(|part| {
                if let Part::ToolResult(result) = part {
                    self.result(result);
                }
            }),
        }
    }

    fn assistant(&mut self, message: &Message) {
        let calls: Vec<Value> = message.tool_calls().map(|call| self.call(call)).collect();
        let text = message.plain_text();
        let mut written = json!({ "role": "assistant", "content": text });
        if !calls.is_empty() {
            if text.is_empty() {
                written["content"] = Value::Null;
            }
            written["tool_calls"] = Value::Array(calls);
            if self.send_reasoning {
                // Also where there was none: who asks for the field asks for it with every call.
                written["reasoning_content"] = json!(reasoning_text(message));
            }
        }
        self.messages.push(written);
    }

    fn call(&mut self, call: &ToolCall) -> Value {
        json!({
            "id": self.ids.call(&call.provider_id),
            "type": "function",
            "function": { "name": tool_name(&call.name), "arguments": arguments_text(&call.arguments) },
        })
    }

    fn result(&mut self, result: &ToolResult) {
        self.messages.push(json!({
            "role": "tool",
            "tool_call_id": self.ids.result(&result.provider_id),
            "content": told(result),
        }));
        if !result.images.is_empty() {
            let caption = format!("Images returned by the tool {}:", tool_name(&result.name));
            self.pictures.push(json!({ "type": "text", "text": caption }));
            self.pictures.extend(result.images.iter().map(image_part));
        }
    }

    fn flush_pictures(&mut self) {
        if !self.pictures.is_empty() {
            let content = std::mem::take(&mut self.pictures);
            self.messages.push(json!({ "role": "user", "content": content }));
        }
    }
}

/// The output; the protocol has no mark for an error, so the text says that it is one.
fn told(result: &ToolResult) -> Cow<'_, str> {
    if result.status.is_error() {
        Cow::Owned(format!("error: {}", result.output))
    } else {
        Cow::Borrowed(&result.output)
    }
}

/// A plain text where there are no pictures: many servers understand nothing else.
fn user_content(message: &Message) -> Value {
    if !message.parts.iter().any(|part| matches!(part, Part::Image { .. })) {
        return json!(joined_text(message));
    }
    let part = |part: &Part| match part {
        Part::Text { text } => Some(json!({ "type": "text", "text": text })),
        Part::Image { image } => Some(image_part(image)),
        Part::Reasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
    };
    message.parts.iter().filter_map(part).collect()
}

fn image_part(image: &Image) -> Value {
    let url = match image {
        Image::Url { url } => url.clone(),
        Image::Inline { media_type, base64 } => format!("data:{media_type};base64,{base64}"),
    };
    json!({ "type": "image_url", "image_url": { "url": url } })
}

/// The text parts of a message that a person or program wrote in pieces.
fn joined_text(message: &Message) -> String {
    let text = |part: &Part| match part {
        Part::Text { text } => Some(text.clone()),
        Part::Image { .. } | Part::Reasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
    };
    message.parts.iter().filter_map(text).collect::<Vec<_>>().join("\n\n")
}

fn reasoning_text(message: &Message) -> String {
    let text = |part: &Part| match part {
        Part::Reasoning(reasoning) => Some(reasoning.text.clone()),
        Part::Text { .. } | Part::Image { .. } | Part::ToolCall(_) | Part::ToolResult(_) => None,
    };
    message.parts.iter().filter_map(text).collect()
}
