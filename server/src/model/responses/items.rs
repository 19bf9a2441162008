//! The conversation in the terms of Responses: a flat list of items.

use std::borrow::Cow;

use agentloop_core::message::{Image, Message, Part, Role, ToolCall, ToolResult};

use super::state::Rules;
use crate::model::encoded::{Encoding, trim};
use crate::model::wire::{CallIds, arguments_text, element, tool_name};

/// What the API takes as the id of a call.
const CALL_ID_BYTES_MAX: usize = 64;

/// A conversation as it is sent, and what decides how it goes on. Text that is written is never changed.
#[derive(Debug)]
pub(super) struct Conversation {
    /// Items, each with a comma after it.
    text: Vec<u8>,
    ids: CallIds,
    rules: Rules,
}

impl Conversation {
    /// Before the first message.
    pub(super) fn new(rules: Rules) -> Self {
        Self { text: Vec::new(), ids: CallIds::plain(CALL_ID_BYTES_MAX), rules }
    }

    /// What is written.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    fn user(&mut self, role: &str, message: &Message) {
        let has_images = message.parts.iter().any(|part| matches!(part, Part::Image { .. }));
        element(&mut self.text, |item| {
            item.field("role", role);
            // A plain text where there are no pictures: some servers understand nothing else.
            if has_images {
                item.list("content", |content| message.parts.iter().for_each(|part| input(content, part)));
            } else {
                item.field("content", &plain(message));
            }
        });
    }

    fn assistant(&mut self, message: &Message) {
        for (at, part) in message.parts.iter().enumerate() {
            match part {
                Part::Reasoning(reasoning) => {
                    if let Some(item) = self.rules.reasoning(reasoning)
                        && self.leads_on(&message.parts[at + 1..])
                    {
                        raw(&mut self.text, item);
                    }
                }
                Part::Opaque(state) => {
                    if let Some(item) = self.rules.opaque(state) {
                        raw(&mut self.text, item);
                    }
                }
                Part::Text { text, .. } if text.is_empty() => {}
                Part::Text { text, state } => {
                    let phase = self.rules.text(text, state.as_ref()).and_then(|state| state.phase);
                    element(&mut self.text, |item| {
                        item.field("role", "assistant").field("content", text).optional("phase", phase);
                    });
                }
                Part::ToolCall(call) => {
                    let id = self.ids.call(&call.provider_id);
                    self.call(call, &id);
                }
                // The model makes none that are parts of a message.
                Part::Image { .. } | Part::ToolResult(_) => {}
            }
        }
    }

    /// Whether the item that a reasoning item led to follows it, and is still the same.
    fn leads_on(&self, following: &[Part]) -> bool {
        match following.first() {
            Some(Part::Text { text, state }) => {
                !text.is_empty() && self.rules.text(text, state.as_ref()).is_some()
            }
            // Written as it was said, which takes an id that nobody else had.
            Some(Part::ToolCall(call)) => {
                self.rules.is_as_said(call)
                    && tool_name(&call.name) == call.name
                    && arguments_text(&call.arguments) == call.arguments
                    && self.ids.stays(&call.provider_id)
            }
            Some(Part::Opaque(state)) => self.rules.opaque(state).is_some(),
            Some(Part::Reasoning(next)) => {
                self.rules.reasoning(next).is_some() && self.leads_on(&following[1..])
            }
            Some(Part::Image { .. } | Part::ToolResult(_)) | None => false,
        }
    }

    fn call(&mut self, call: &ToolCall, id: &str) {
        element(&mut self.text, |item| {
            item.field("type", "function_call").field("call_id", id).field("name", &*tool_name(&call.name));
            item.field("arguments", &*arguments_text(&call.arguments));
        });
    }

    fn result(&mut self, result: &ToolResult) {
        let id = self.ids.result(&result.provider_id);
        element(&mut self.text, |item| {
            item.field("type", "function_call_output").field("call_id", &*id);
            if result.images.is_empty() {
                item.field("output", &*told(result));
            } else {
                item.list("output", |output| {
                    input_text(output, &told(result));
                    result.images.iter().for_each(|image| input_image(output, image));
                });
            }
        });
    }
}

impl Encoding for Conversation {
    fn writes_like(&self, other: &Self) -> bool {
        self.rules == other.rules
    }

    fn add(&mut self, message: &Message) {
        match message.role {
            Role::System => self.user("system", message),
            Role::User => self.user("user", message),
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
        self.text.capacity() + self.ids.bytes()
    }
}

/// An item that is text already.
fn raw(out: &mut Vec<u8>, item: &str) {
    out.extend_from_slice(item.as_bytes());
    out.push(b',');
}

/// The texts of a message as one.
fn plain(message: &Message) -> String {
    let text = |part: &Part| match part {
        Part::Text { text, .. } => Some(text.clone()),
        Part::Image { .. }
        | Part::Reasoning(_)
        | Part::Opaque(_)
        | Part::ToolCall(_)
        | Part::ToolResult(_) => None,
    };
    message.parts.iter().filter_map(text).collect::<Vec<_>>().join("\n\n")
}

fn input(content: &mut Vec<u8>, part: &Part) {
    match part {
        Part::Text { text, .. } => input_text(content, text),
        Part::Image { image } => input_image(content, image),
        Part::Reasoning(_) | Part::Opaque(_) | Part::ToolCall(_) | Part::ToolResult(_) => {}
    }
}

fn input_text(content: &mut Vec<u8>, text: &str) {
    element(content, |part| {
        part.field("type", "input_text").field("text", text);
    });
}

fn input_image(content: &mut Vec<u8>, image: &Image) {
    let url = match image {
        Image::Url { url } => Cow::Borrowed(url.as_str()),
        Image::Inline { media_type, base64 } => Cow::Owned(format!("data:{media_type};base64,{base64}")),
    };
    element(content, |part| {
        part.field("type", "input_image").field("image_url", &*url);
    });
}

/// The output; the protocol has no mark for an error, so the text says that it is one.
fn told(result: &ToolResult) -> Cow<'_, str> {
    if result.status.is_error() {
        Cow::Owned(format!("error: {}", result.output))
    } else {
        Cow::Borrowed(&result.output)
    }
}
