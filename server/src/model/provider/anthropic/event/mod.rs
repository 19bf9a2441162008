//! One event of the stream.

use std::borrow::Cow;

use serde::de::MapAccess;

use crate::model::response::fields::{FieldValue, Fields, read};
use crate::model::response::template;

/// The parts of an event that matter. The kind of the event decides which of them are used.
#[derive(Debug, Default, PartialEq)]
pub(in crate::model) struct MessagesEvent<'a> {
    /// The event's `type`. If it is absent, the stream's `event` field has the kind.
    pub(super) kind: Option<Cow<'a, str>>,
    pub(super) index: u64,
    /// The `content_block`, as JSON text.
    pub(super) block: Option<&'a str>,
    pub(super) delta: BlockDelta<'a>,
    /// Usage of the whole message, at its start.
    pub(super) message_usage: Option<Counts>,
    pub(super) usage: Option<Counts>,
}

/// A `content_block`. Texts are not empty, except the kind.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ContentBlock<'a> {
    pub(super) kind: Cow<'a, str>,
    pub(super) text: Option<Cow<'a, str>>,
    /// The list of citations, as JSON text.
    pub(super) citations: Option<&'a str>,
    pub(super) thinking: Option<Cow<'a, str>>,
    pub(super) signature: Option<Cow<'a, str>>,
    pub(super) data: Option<Cow<'a, str>>,
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) name: Option<Cow<'a, str>>,
    /// Arguments that come in one piece, as JSON text. `None` if nothing is in them.
    pub(super) input: Option<Cow<'a, str>>,
}

/// A `delta`. Texts are not empty, except the kind and the reason.
#[derive(Debug, Default, PartialEq)]
pub(super) struct BlockDelta<'a> {
    pub(super) kind: Cow<'a, str>,
    pub(super) text: Option<Cow<'a, str>>,
    pub(super) thinking: Option<Cow<'a, str>>,
    pub(super) signature: Option<Cow<'a, str>>,
    pub(super) partial_json: Option<Cow<'a, str>>,
    /// One citation, as JSON text.
    pub(super) citation: Option<&'a str>,
    pub(super) stop_reason: Option<Cow<'a, str>>,
}

/// Token counts; 0 if they are absent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cache_read: u64,
    pub(super) cache_write: u64,
    pub(super) reasoning: u64,
}

impl<'de> Fields<'de> for MessagesEvent<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, value: FieldValue<'_, A>) -> Result<(), A::Error> {
        match name {
            "type" => self.kind = value.text()?,
            "index" => self.index = value.count()?.unwrap_or(0),
            "content_block" => self.block = value.json()?,
            "delta" => self.delta = value.object()?.unwrap_or_default(),
            "message" => {
                self.message_usage = value.object::<StartedMessage>()?.and_then(|message| message.usage)
            }
            "usage" => self.usage = value.object()?,
            _ => value.skip()?,
        }
        Ok(())
    }
}

impl<'a> ContentBlock<'a> {
    /// Reads a block. A value that is not an object has no fields.
    ///
    /// # Errors
    /// If a text in it is not valid.
    pub(super) fn of(json: &'a str) -> Result<Self, serde_json::Error> {
        read(json)
    }
}

impl<'de> Fields<'de> for ContentBlock<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, value: FieldValue<'_, A>) -> Result<(), A::Error> {
        match name {
            "type" => self.kind = value.text()?.unwrap_or_default(),
            "text" => self.text = value.filled_text()?,
            "citations" => self.citations = value.json()?,
            "thinking" => self.thinking = value.filled_text()?,
            "signature" => self.signature = value.filled_text()?,
            "data" => self.data = value.filled_text()?,
            "id" => self.id = value.filled_text()?,
            "name" => self.name = value.filled_text()?,
            "input" => self.input = value.text_or_json()?.filter(|json| has_content(json)),
            _ => value.skip()?,
        }
        Ok(())
    }
}

/// False for the text of an empty object or list, which stands for arguments that are yet to come.
fn has_content(json: &str) -> bool {
    !json.bytes().all(|byte| byte.is_ascii_whitespace() || b"{}[]".contains(&byte))
}

impl<'de> Fields<'de> for BlockDelta<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, value: FieldValue<'_, A>) -> Result<(), A::Error> {
        match name {
            "type" => self.kind = value.text()?.unwrap_or_default(),
            "text" => self.text = value.filled_text()?,
            "thinking" => self.thinking = value.filled_text()?,
            "signature" => self.signature = value.filled_text()?,
            "partial_json" => self.partial_json = value.text_or_json()?.filter(|json| !json.is_empty()),
            "citation" => self.citation = value.json()?,
            "stop_reason" => self.stop_reason = value.text()?,
            _ => value.skip()?,
        }
        Ok(())
    }
}

/// The `message` of a `message_start` event.
#[derive(Default)]
struct StartedMessage {
    usage: Option<Counts>,
}

impl<'de> Fields<'de> for StartedMessage {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, value: FieldValue<'_, A>) -> Result<(), A::Error> {
        match name {
            "usage" => self.usage = value.object()?,
            _ => value.skip()?,
        }
        Ok(())
    }
}

impl<'de> Fields<'de> for Counts {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, value: FieldValue<'_, A>) -> Result<(), A::Error> {
        match name {
            "input_tokens" => self.input = value.count()?.unwrap_or(0),
            "output_tokens" => self.output = value.count()?.unwrap_or(0),
            "cache_read_input_tokens" => self.cache_read = value.count()?.unwrap_or(0),
            "cache_creation_input_tokens" => self.cache_write = value.count()?.unwrap_or(0),
            "output_tokens_details" => {
                self.reasoning =
                    value.object::<OutputDetails>()?.and_then(|details| details.thinking).unwrap_or(0);
            }
            _ => value.skip()?,
        }
        Ok(())
    }
}

/// The `output_tokens_details` of a usage.
#[derive(Default)]
struct OutputDetails {
    thinking: Option<u64>,
}

impl<'de> Fields<'de> for OutputDetails {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, value: FieldValue<'_, A>) -> Result<(), A::Error> {
        match name {
            "thinking_tokens" => self.thinking = value.count()?,
            _ => value.skip()?,
        }
        Ok(())
    }
}

/// The one text of an event that has nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) struct BlockText {
    index: u64,
    kind: BlockTextKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockTextKind {
    Text,
    Thinking,
    Arguments,
}

impl<'a> template::TextEvent<'a> for MessagesEvent<'a> {
    type Kind = BlockText;

    fn single_text(&self) -> Option<(BlockText, &'a str)> {
        let BlockDelta { kind, text, thinking, partial_json, .. } = &self.delta;
        let (kind, text) = match &**kind {
            "text_delta" => (BlockTextKind::Text, text),
            "thinking_delta" => (BlockTextKind::Thinking, thinking),
            "input_json_delta" => (BlockTextKind::Arguments, partial_json),
            _ => return None,
        };
        let Some(Cow::Borrowed(text)) = text else { return None };
        let kind = BlockText { index: self.index, kind };
        (*self == Self::with_text(kind, Cow::Borrowed(text))).then_some((kind, text))
    }

    fn with_text(BlockText { index, kind }: BlockText, text: Cow<'a, str>) -> Self {
        let text = Some(text);
        let delta = match kind {
            BlockTextKind::Text => BlockDelta { kind: "text_delta".into(), text, ..BlockDelta::default() },
            BlockTextKind::Thinking => {
                BlockDelta { kind: "thinking_delta".into(), thinking: text, ..BlockDelta::default() }
            }
            BlockTextKind::Arguments => {
                BlockDelta { kind: "input_json_delta".into(), partial_json: text, ..BlockDelta::default() }
            }
        };
        Self { kind: Some("content_block_delta".into()), index, delta, ..Self::default() }
    }
}

#[cfg(test)]
mod tests;
