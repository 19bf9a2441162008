//! What one event of the stream says.
//!
//! Nearly every event has a common shape, which is read in place (`fast`). One that is not is read again, as a tree of
//! values, of which everything is taken that makes sense.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use crate::model::response::fields::{Empty, Object, Text};
use crate::model::response::template;

/// What is of interest in an event. Which of it has a meaning depends on the event's kind.
#[derive(Debug, Default, PartialEq)]
pub(in crate::model) struct Said<'a> {
    /// `None` where the data do not name it; then the stream's `event` field does.
    pub(super) kind: Option<Cow<'a, str>>,
    pub(super) index: u64,
    pub(super) block: Block<'a>,
    pub(super) delta: Growth<'a>,
    /// Of the whole message, at its start.
    pub(super) message_usage: Option<Counts>,
    pub(super) usage: Option<Counts>,
}

/// `content_block`. Texts are never empty, but for the kind.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Block<'a> {
    pub(super) kind: Cow<'a, str>,
    pub(super) text: Option<Cow<'a, str>>,
    pub(super) thinking: Option<Cow<'a, str>>,
    pub(super) signature: Option<Cow<'a, str>>,
    pub(super) data: Option<Cow<'a, str>>,
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) name: Option<Cow<'a, str>>,
    /// Arguments that are given at once; `None` if there are none in it.
    pub(super) input: Option<String>,
}

/// `delta`. Texts are never empty, but for the kind and the reason.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Growth<'a> {
    pub(super) kind: Cow<'a, str>,
    pub(super) text: Option<Cow<'a, str>>,
    pub(super) thinking: Option<Cow<'a, str>>,
    pub(super) signature: Option<Cow<'a, str>>,
    pub(super) partial_json: Option<Cow<'a, str>>,
    pub(super) stop_reason: Option<Cow<'a, str>>,
}

/// Token counts, 0 where they are not given.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cache_read: u64,
    pub(super) cache_write: u64,
    pub(super) reasoning: u64,
}

impl<'a> template::Said<'a> for Said<'a> {
    type Single = Single;

    fn fast(data: &'a str) -> Option<Self> {
        let Object(event): Object<Event<'a>> = serde_json::from_str(data).ok()?;
        Some(Self {
            kind: event.kind.map(|Text(kind)| kind),
            index: event.index.unwrap_or(0),
            block: event.content_block.map(|Object(block)| block.into()).unwrap_or_default(),
            delta: event.delta.map(|Object(delta)| delta.into()).unwrap_or_default(),
            message_usage: event.message.and_then(|Object(message)| message.usage).map(Counts::from),
            usage: event.usage.map(Counts::from),
        })
    }

    fn single(&self) -> Option<(Single, &'a str)> {
        let Growth { kind, text, thinking, signature: None, partial_json, stop_reason: None } = &self.delta
        else {
            return None;
        };
        let (by, text) = match (&**kind, text, thinking, partial_json) {
            ("text_delta", Some(Cow::Borrowed(text)), None, None) => (By::Text, text),
            ("thinking_delta", None, Some(Cow::Borrowed(text)), None) => (By::Thinking, text),
            ("input_json_delta", None, None, Some(Cow::Borrowed(text))) => (By::Arguments, text),
            _ => return None,
        };
        let single = Single { index: self.index, by };
        // Whatever else there is in it has a meaning.
        (*self == Self::with(single, Cow::Borrowed(text))).then_some((single, text))
    }

    fn with(Single { index, by }: Single, text: Cow<'a, str>) -> Self {
        let text = Some(text);
        let delta = match by {
            By::Text => Growth { kind: "text_delta".into(), text, ..Growth::default() },
            By::Thinking => Growth { kind: "thinking_delta".into(), thinking: text, ..Growth::default() },
            By::Arguments => {
                Growth { kind: "input_json_delta".into(), partial_json: text, ..Growth::default() }
            }
        };
        Self { kind: Some("content_block_delta".into()), index, delta, ..Self::default() }
    }
}

impl<'a> Said<'a> {
    /// As much of an event as can be understood.
    pub(super) fn lenient(event: &'a Value) -> Self {
        Self {
            kind: text(&event["type"]),
            index: event["index"].as_u64().unwrap_or(0),
            block: Block::lenient(&event["content_block"]),
            delta: Growth::lenient(&event["delta"]),
            message_usage: Counts::lenient(&event["message"]["usage"]),
            usage: Counts::lenient(&event["usage"]),
        }
    }
}

/// A block that grows by a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) struct Single {
    index: u64,
    by: By,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Text,
    Thinking,
    Arguments,
}

impl<'a> Block<'a> {
    fn lenient(block: &'a Value) -> Self {
        let input = block["input"].as_object().filter(|input| !input.is_empty());
        Self {
            kind: text(&block["type"]).unwrap_or_default(),
            text: filled(&block["text"]),
            thinking: filled(&block["thinking"]),
            signature: filled(&block["signature"]),
            data: filled(&block["data"]),
            id: filled(&block["id"]),
            name: filled(&block["name"]),
            input: input.is_some().then(|| block["input"].to_string()),
        }
    }
}

impl<'a> Growth<'a> {
    fn lenient(delta: &'a Value) -> Self {
        Self {
            kind: text(&delta["type"]).unwrap_or_default(),
            text: filled(&delta["text"]),
            thinking: filled(&delta["thinking"]),
            signature: filled(&delta["signature"]),
            partial_json: filled(&delta["partial_json"]),
            stop_reason: text(&delta["stop_reason"]),
        }
    }
}

impl Counts {
    fn lenient(usage: &Value) -> Option<Self> {
        let count = |key: &str| usage[key].as_u64().unwrap_or(0);
        usage.is_object().then(|| Self {
            input: count("input_tokens"),
            output: count("output_tokens"),
            cache_read: count("cache_read_input_tokens"),
            cache_write: count("cache_creation_input_tokens"),
            reasoning: usage["output_tokens_details"]["thinking_tokens"].as_u64().unwrap_or(0),
        })
    }
}

fn text(value: &Value) -> Option<Cow<'_, str>> {
    value.as_str().map(Cow::Borrowed)
}

fn filled(value: &Value) -> Option<Cow<'_, str>> {
    Text::of(value).and_then(Text::filled)
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    index: Option<u64>,
    content_block: Option<Object<UsualBlock<'a>>>,
    delta: Option<Object<UsualDelta<'a>>>,
    message: Option<Object<Message>>,
    usage: Option<Object<Usage>>,
}

#[derive(Deserialize)]
struct Message {
    usage: Option<Object<Usage>>,
}

#[derive(Deserialize)]
struct UsualBlock<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    text: Option<Text<'a>>,
    thinking: Option<Text<'a>>,
    signature: Option<Text<'a>>,
    data: Option<Text<'a>>,
    id: Option<Text<'a>>,
    name: Option<Text<'a>>,
    /// Nearly always streamed instead.
    #[expect(dead_code, reason = "what is read here has nothing in it")]
    input: Option<Empty>,
}

#[derive(Deserialize)]
struct UsualDelta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Text<'a>>,
    text: Option<Text<'a>>,
    thinking: Option<Text<'a>>,
    signature: Option<Text<'a>>,
    partial_json: Option<Text<'a>>,
    stop_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Usage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens_details: Option<Object<Details>>,
}

#[derive(Default, Deserialize)]
struct Details {
    thinking_tokens: Option<u64>,
}

impl<'a> From<UsualBlock<'a>> for Block<'a> {
    fn from(block: UsualBlock<'a>) -> Self {
        let filled = |text: Option<Text<'a>>| text.and_then(Text::filled);
        Self {
            kind: block.kind.map(|Text(kind)| kind).unwrap_or_default(),
            text: filled(block.text),
            thinking: filled(block.thinking),
            signature: filled(block.signature),
            data: filled(block.data),
            id: filled(block.id),
            name: filled(block.name),
            input: None,
        }
    }
}

impl<'a> From<UsualDelta<'a>> for Growth<'a> {
    fn from(delta: UsualDelta<'a>) -> Self {
        let filled = |text: Option<Text<'a>>| text.and_then(Text::filled);
        Self {
            kind: delta.kind.map(|Text(kind)| kind).unwrap_or_default(),
            text: filled(delta.text),
            thinking: filled(delta.thinking),
            signature: filled(delta.signature),
            partial_json: filled(delta.partial_json),
            stop_reason: delta.stop_reason.map(|Text(reason)| reason),
        }
    }
}

impl From<Object<Usage>> for Counts {
    fn from(Object(usage): Object<Usage>) -> Self {
        Self {
            input: usage.input_tokens.unwrap_or(0),
            output: usage.output_tokens.unwrap_or(0),
            cache_read: usage.cache_read_input_tokens.unwrap_or(0),
            cache_write: usage.cache_creation_input_tokens.unwrap_or(0),
            reasoning: usage.output_tokens_details.and_then(|Object(of)| of.thinking_tokens).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests;
