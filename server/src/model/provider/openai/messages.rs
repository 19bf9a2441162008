//! Encodes a conversation as messages of Chat Completions.

use agentloop_core::message::{Image, Message, Part, Role, ToolCall, ToolResult};
use serde::Serialize;

use super::state::{SendReasoning, StateRules};
use crate::model::request::encoded_text::EncodedText;
use crate::model::request::history::{
    CallIds, JoinedText, arguments_text, element, image_url, result_text, tool_name,
};
use crate::model::request::prefix::Encoder;

/// Encoded conversation. Encoded text never changes.
pub(super) struct Conversation {
    /// Encoded messages, each followed by a comma.
    text: EncodedText,
    ids: CallIds,
    /// Encoded parts for the images of tool results. Tool messages hold text only and must be adjacent, so the
    /// images follow the last of them in a user message.
    pictures: Vec<u8>,
    rules: StateRules,
}

impl Conversation {
    /// Creates the encoder of an empty conversation.
    pub(super) fn new(ids: CallIds, rules: StateRules) -> Self {
        Self { text: EncodedText::default(), ids, pictures: Vec::new(), rules }
    }

    /// Returns the encoded messages.
    pub(super) fn text(&self) -> &EncodedText {
        &self.text
    }

    /// Returns the message with pending images, to send after the encoded messages.
    pub(super) fn end(&self) -> Vec<u8> {
        let mut end = Vec::new();
        pictures(&mut end, &self.pictures);
        end
    }

    fn user(&mut self, message: &Message) {
        element(self.text.writer(), |written| {
            written.field("role", "user");
            // Without images the content is a plain string: many servers accept nothing else.
            if message.parts.iter().any(|part| matches!(part, Part::Image { .. })) {
                written.list("content", |content| {
                    for part in &message.parts {
                        match part {
                            Part::Text { text, .. } => text_part(content, text),
                            Part::Image { image } => image_part(content, image),
                            Part::Reasoning(_)
                            | Part::Opaque(_)
                            | Part::ToolCall(_)
                            | Part::ToolResult(_) => {}
                        }
                    }
                });
            } else {
                written.field("content", &JoinedText(message, "\n\n"));
            }
        });
    }

    fn assistant(&mut self, message: &Message) {
        let has_calls = message.tool_calls().next().is_some();
        let (ids, rules) = (&mut self.ids, &self.rules);
        element(self.text.writer(), |written| {
            written.field("role", "assistant");
            let is_silent = |part: &Part| !matches!(part, Part::Text { text, .. } if !text.is_empty());
            if has_calls && message.parts.iter().all(is_silent) {
                written.text("content", "null");
            } else {
                written.field("content", &JoinedText(message, ""));
            }
            if has_calls {
                written.list("tool_calls", |calls| {
                    for (at, call) in message.tool_calls().enumerate() {
                        let extra = rules.extra_content(call, at == 0);
                        tool_call(calls, call, &ids.call(&call.provider_id), extra.as_deref());
                    }
                });
            }
            let (field, text, details) = rules.reasoning(message);
            let sends_text = match rules.send_reasoning {
                SendReasoning::Never => false,
                SendReasoning::WithCalls => has_calls,
                SendReasoning::Always => true,
            };
            // The field is sent even if empty: servers that need it need it in every message.
            if sends_text {
                written.field(field.name(), &text);
            }
            if let Some(details) = details {
                written.text("reasoning_details", details.get());
            }
        });
    }

    fn result(&mut self, result: &ToolResult) {
        let id = self.ids.result(&result.provider_id);
        element(self.text.writer(), |written| {
            written.field("role", "tool").field("tool_call_id", &*id).field("content", &result_text(result));
        });
        if !result.images.is_empty() {
            let caption = format!("Images returned by the tool {}:", tool_name(&result.name));
            text_part(&mut self.pictures, &caption);
            result.images.iter().for_each(|image| image_part(&mut self.pictures, image));
        }
    }
}

impl Encoder for Conversation {
    fn is_compatible_with(&self, other: &Self) -> bool {
        self.rules == other.rules && self.ids.has_same_limit(&other.ids)
    }

    fn add(&mut self, message: &Message) {
        if message.role != Role::Tool {
            pictures(self.text.writer(), &std::mem::take(&mut self.pictures));
        }
        match message.role {
            Role::System => system(self.text.writer(), &JoinedText(message, "\n\n")),
            Role::User => self.user(message),
            Role::Assistant => self.assistant(message),
            Role::Tool => message.parts.iter().for_each(|part| {
                if let Part::ToolResult(result) = part {
                    self.result(result);
                }
            }),
        }
    }

    fn text_mut(&mut self) -> &mut EncodedText {
        &mut self.text
    }

    fn own_bytes(&self) -> usize {
        self.text.own_bytes() + self.pictures.capacity() + self.ids.bytes()
    }
}

/// Writes a system message.
pub(super) fn system(out: &mut Vec<u8>, content: &(impl Serialize + ?Sized)) {
    element(out, |written| {
        written.field("role", "system").field("content", content);
    });
}

/// Writes a user message with these parts, if there are any.
fn pictures(out: &mut Vec<u8>, parts: &[u8]) {
    if !parts.is_empty() {
        element(out, |written| {
            written.field("role", "user").list("content", |content| content.extend_from_slice(parts));
        });
    }
}

fn tool_call(calls: &mut Vec<u8>, call: &ToolCall, id: &str, extra: Option<&str>) {
    element(calls, |written| {
        written.field("id", id).field("type", "function").object("function", |function| {
            function.field("name", &*tool_name(&call.name));
            function.field("arguments", &*arguments_text(&call.arguments));
        });
        if let Some(extra) = extra {
            written.text("extra_content", extra);
        }
    });
}

fn text_part(content: &mut Vec<u8>, text: &str) {
    element(content, |part| {
        part.field("type", "text").field("text", text);
    });
}

fn image_part(content: &mut Vec<u8>, picture: &Image) {
    element(content, |part| {
        part.field("type", "image_url").object("image_url", |image| {
            image.field("url", &*image_url(picture));
        });
    });
}
