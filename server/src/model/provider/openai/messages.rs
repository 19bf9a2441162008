//! The conversation in the terms of Chat Completions.

use agentloop_core::message::{Image, Message, Part, Role, ToolCall, ToolResult};
use serde::Serialize;

use super::state::{Rules, SendReasoning};
use crate::model::request::history::{CallIds, Joined, arguments_text, element, image_url, told, tool_name};
use crate::model::request::prefix::{Encoding, trim};

/// What OpenAI takes as the id of a tool call. Its followers take more, and some put state of their own into ids.
const OPENAI_ID_BYTES_MAX: usize = 40;

/// A conversation as it is sent, and what decides how it goes on. Text that is written is never changed.
pub(super) struct Conversation {
    /// Messages, each with a comma after it.
    text: Vec<u8>,
    ids: CallIds,
    /// Pictures of tool results. Tool messages hold only text, and nothing may stand between them, so the pictures
    /// follow the last of them in a message of their own. Its parts.
    pictures: Vec<u8>,
    rules: Rules,
}

impl Conversation {
    /// Before the first message.
    pub(super) fn new(official: bool, rules: Rules) -> Self {
        let ids = if official { CallIds::plain(OPENAI_ID_BYTES_MAX) } else { CallIds::any() };
        Self { text: Vec::new(), ids, pictures: Vec::new(), rules }
    }

    /// What is written for good.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// What follows it if no message does.
    pub(super) fn end(&self) -> Vec<u8> {
        let mut end = Vec::new();
        pictures(&mut end, &self.pictures);
        end
    }

    fn user(&mut self, message: &Message) {
        element(&mut self.text, |written| {
            written.field("role", "user");
            // A plain text where there are no pictures: many servers understand nothing else.
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
                written.field("content", &Joined(message, "\n\n"));
            }
        });
    }

    fn assistant(&mut self, message: &Message) {
        let has_calls = message.tool_calls().next().is_some();
        let (ids, rules) = (&mut self.ids, &self.rules);
        element(&mut self.text, |written| {
            written.field("role", "assistant");
            let is_silent = |part: &Part| !matches!(part, Part::Text { text, .. } if !text.is_empty());
            if has_calls && message.parts.iter().all(is_silent) {
                written.text("content", "null");
            } else {
                written.field("content", &Joined(message, ""));
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
            // Also where there was none: who asks for the field asks for it every time.
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
        element(&mut self.text, |written| {
            written.field("role", "tool").field("tool_call_id", &*id).field("content", &told(result));
        });
        if !result.images.is_empty() {
            let caption = format!("Images returned by the tool {}:", tool_name(&result.name));
            text_part(&mut self.pictures, &caption);
            result.images.iter().for_each(|image| image_part(&mut self.pictures, image));
        }
    }
}

impl Encoding for Conversation {
    fn writes_like(&self, other: &Self) -> bool {
        self.rules == other.rules && self.ids.same_rule(&other.ids)
    }

    fn add(&mut self, message: &Message) {
        if message.role != Role::Tool {
            pictures(&mut self.text, &std::mem::take(&mut self.pictures));
        }
        match message.role {
            Role::System => system(&mut self.text, &Joined(message, "\n\n")),
            Role::User => self.user(message),
            Role::Assistant => self.assistant(message),
            Role::Tool => message.parts.iter().for_each(|part| {
                if let Part::ToolResult(result) = part {
                    self.result(result);
                }
            }),
        }
    }

    fn trim(&mut self) {
        trim(&mut self.text);
    }

    fn bytes(&self) -> usize {
        self.text.capacity() + self.pictures.capacity() + self.ids.bytes()
    }
}

/// Writes a system message.
pub(super) fn system(out: &mut Vec<u8>, content: &(impl Serialize + ?Sized)) {
    element(out, |written| {
        written.field("role", "system").field("content", content);
    });
}

/// Writes a message of these parts, if there are any.
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
