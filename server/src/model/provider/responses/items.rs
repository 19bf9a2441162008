//! Encodes a conversation for the Responses API: a flat list of items.

use agentloop_core::message::{Image, Message, Part, Role, ToolCall, ToolResult};
use agentloop_core::tool::Digest;

use super::state::{ItemState, StateRules, reasoning_digest};
use crate::model::request::encoded_text::EncodedText;
use crate::model::request::history::{
    CallIds, JoinedText, arguments_text, element, image_url, result_text, tool_name,
};
use crate::model::request::prefix::Encoder;

/// Maximum length of a call id.
const CALL_ID_BYTES_MAX: usize = 64;

/// Encoded conversation. Encoded text never changes.
#[derive(Debug)]
pub(super) struct Conversation {
    /// Encoded items, each followed by a comma.
    text: EncodedText,
    ids: CallIds,
    rules: StateRules,
}

/// Consecutive reasoning items that wait for the item they precede.
#[derive(Default)]
struct PendingReasoning<'a> {
    items: Vec<&'a str>,
    digest: Option<Digest>,
}

impl<'a> PendingReasoning<'a> {
    fn add(&mut self, item: &'a str) {
        self.digest = Some(reasoning_digest(self.digest.as_ref(), item));
        self.items.push(item);
    }
}

impl Conversation {
    /// Creates the encoder of an empty conversation.
    pub(super) fn new(rules: StateRules) -> Self {
        Self { text: EncodedText::default(), ids: CallIds::plain(CALL_ID_BYTES_MAX), rules }
    }

    /// Returns the encoded items.
    pub(super) fn text(&self) -> &EncodedText {
        &self.text
    }

    fn user(&mut self, role: &str, message: &Message) {
        let has_images = message.parts.iter().any(|part| matches!(part, Part::Image { .. }));
        element(self.text.writer(), |item| {
            item.field("role", role);
            // Without images the content is a plain string: some servers accept nothing else.
            if has_images {
                item.list("content", |content| message.parts.iter().for_each(|part| input(content, part)));
            } else {
                item.field("content", &JoinedText(message, "\n\n"));
            }
        });
    }

    fn assistant(&mut self, message: &Message) {
        let mut pending = PendingReasoning::default();
        for part in &message.parts {
            match part {
                Part::Reasoning(reasoning) => match self.rules.reasoning(reasoning) {
                    Some(item) => pending.add(item),
                    // The item that follows was preceded by this reasoning, so the reasoning before it cannot
                    // be sent either.
                    None => pending = PendingReasoning::default(),
                },
                Part::Opaque(state) => {
                    let items = std::mem::take(&mut pending).items;
                    if let Some(item) = self.rules.opaque(state) {
                        items.into_iter().chain([item]).for_each(|item| raw(self.text.writer(), item));
                    }
                }
                Part::Text { text, .. } if text.is_empty() => {}
                Part::Text { text, state } => {
                    let state = self.rules.text(text, state.as_ref());
                    let (after, phase) = state.map(|state| (state.after, state.phase)).unwrap_or_default();
                    self.write_reasoning(std::mem::take(&mut pending), after.as_ref());
                    element(self.text.writer(), |item| {
                        item.field("role", "assistant").field("content", text).optional("phase", phase);
                    });
                }
                Part::ToolCall(call) => {
                    let after = self.unchanged_state(call).and_then(|state| state.after);
                    self.write_reasoning(std::mem::take(&mut pending), after.as_ref());
                    let id = self.ids.call(&call.provider_id);
                    self.call(call, &id);
                }
                // The model does not create these parts.
                Part::Image { .. } | Part::ToolResult(_) => {}
            }
        }
    }

    /// Writes the pending reasoning before an item, if the item was preceded by exactly this reasoning.
    fn write_reasoning(&mut self, pending: PendingReasoning<'_>, after: Option<&Digest>) {
        if after.is_some() && pending.digest.as_ref() == after {
            pending.items.into_iter().for_each(|item| raw(self.text.writer(), item));
        }
    }

    /// Returns the stored state of a call that is sent exactly as the model wrote it, under its own id.
    fn unchanged_state(&self, call: &ToolCall) -> Option<ItemState> {
        let same = tool_name(&call.name) == call.name
            && arguments_text(&call.arguments) == call.arguments
            && self.ids.is_sent_unchanged(&call.provider_id);
        self.rules.call(call).filter(|_| same)
    }

    fn call(&mut self, call: &ToolCall, id: &str) {
        element(self.text.writer(), |item| {
            item.field("type", "function_call").field("call_id", id).field("name", &*tool_name(&call.name));
            item.field("arguments", &*arguments_text(&call.arguments));
        });
    }

    fn result(&mut self, result: &ToolResult) {
        let id = self.ids.result(&result.provider_id);
        element(self.text.writer(), |item| {
            item.field("type", "function_call_output").field("call_id", &*id);
            if result.images.is_empty() {
                item.field("output", &*result_text(result));
            } else {
                item.list("output", |output| {
                    input_text(output, &result_text(result));
                    result.images.iter().for_each(|image| input_image(output, image));
                });
            }
        });
    }
}

impl Encoder for Conversation {
    fn is_compatible_with(&self, other: &Self) -> bool {
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

    fn text_mut(&mut self) -> &mut EncodedText {
        &mut self.text
    }

    fn own_bytes(&self) -> usize {
        self.text.own_bytes() + self.ids.bytes()
    }
}

/// Writes an item that is already JSON text.
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
