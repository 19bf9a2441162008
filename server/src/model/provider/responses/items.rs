//! The conversation in the terms of Responses: a flat list of items.

use agentloop_core::message::{Image, Message, Part, Role, ToolCall, ToolResult};
use agentloop_core::tool::Digest;

use super::state::{ItemState, Rules, row_digest};
use crate::model::request::history::{CallIds, Joined, arguments_text, element, image_url, told, tool_name};
use crate::model::request::prefix::{Encoding, trim};

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

/// Reasoning items in a row that wait for what they led to.
#[derive(Default)]
struct Row<'a> {
    items: Vec<&'a str>,
    digest: Option<Digest>,
}

impl<'a> Row<'a> {
    fn add(&mut self, item: &'a str) {
        self.digest = Some(row_digest(self.digest.as_ref(), item));
        self.items.push(item);
    }
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
                item.field("content", &Joined(message, "\n\n"));
            }
        });
    }

    fn assistant(&mut self, message: &Message) {
        let mut row = Row::default();
        for part in &message.parts {
            match part {
                Part::Reasoning(reasoning) => match self.rules.reasoning(reasoning) {
                    Some(item) => row.add(item),
                    // What follows it was led to by it, too.
                    None => row = Row::default(),
                },
                Part::Opaque(state) => {
                    let items = std::mem::take(&mut row).items;
                    if let Some(item) = self.rules.opaque(state) {
                        items.into_iter().chain([item]).for_each(|item| raw(&mut self.text, item));
                    }
                }
                Part::Text { text, .. } if text.is_empty() => {}
                Part::Text { text, state } => {
                    let state = self.rules.text(text, state.as_ref());
                    let (after, phase) = state.map(|state| (state.after, state.phase)).unwrap_or_default();
                    self.led_to(std::mem::take(&mut row), after.as_ref());
                    element(&mut self.text, |item| {
                        item.field("role", "assistant").field("content", text).optional("phase", phase);
                    });
                }
                Part::ToolCall(call) => {
                    let after = self.as_said(call).and_then(|state| state.after);
                    self.led_to(std::mem::take(&mut row), after.as_ref());
                    let id = self.ids.call(&call.provider_id);
                    self.call(call, &id);
                }
                // The model makes none that are parts of a message.
                Part::Image { .. } | Part::ToolResult(_) => {}
            }
        }
    }

    /// Writes the reasoning before an item, where it is what led to it.
    fn led_to(&mut self, row: Row<'_>, after: Option<&Digest>) {
        if after.is_some() && row.digest.as_ref() == after {
            row.items.into_iter().for_each(|item| raw(&mut self.text, item));
        }
    }

    /// What is kept of a call that is written as the model said it, which takes an id that nobody else had.
    fn as_said(&self, call: &ToolCall) -> Option<ItemState> {
        let same = tool_name(&call.name) == call.name
            && arguments_text(&call.arguments) == call.arguments
            && self.ids.stays(&call.provider_id);
        self.rules.call(call).filter(|_| same)
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
    element(content, |part| {
        part.field("type", "input_image").field("image_url", &*image_url(image));
    });
}
