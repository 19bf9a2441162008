//! Reads single events of the stream. A missing field, or one of an unexpected type, reads as absent.

use std::borrow::Cow;

use agentloop_core::message::Usage;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::model::response::fields::count_of;

/// One event of the stream.
pub(super) struct ResponseEvent<'a> {
    pub(super) value: &'a Value,
    /// The event as received, from which items are copied word for word.
    pub(super) text: &'a str,
}

impl<'a> ResponseEvent<'a> {
    /// Returns the event type; empty if it has none.
    pub(super) fn kind(&self) -> &'a str {
        self.value["type"].as_str().unwrap_or_default()
    }

    /// Returns the text field of this name; empty if there is none.
    pub(super) fn text_of(&self, name: &str) -> &'a str {
        self.value[name].as_str().unwrap_or_default()
    }

    /// Returns the part of the item that the event is about.
    pub(super) fn part(&self) -> Option<u64> {
        ["summary_index", "content_index"].iter().find_map(|at| self.value[*at].as_u64())
    }

    /// Returns the reference to the item that the event is about.
    pub(super) fn item_ref(&self) -> ItemRef<'a> {
        let id = self.value["item_id"].as_str().or_else(|| self.value["item"]["id"].as_str());
        ItemRef { index: self.value["output_index"].as_u64(), id }
    }

    /// Returns the item as JSON text, word for word if it can be found in the event's text.
    pub(super) fn item_text(&self) -> String {
        #[derive(Deserialize)]
        struct Done<'a> {
            #[serde(borrow)]
            item: &'a RawValue,
        }
        match serde_json::from_str::<Done<'_>>(self.text) {
            Ok(done) => done.item.get().to_owned(),
            Err(_) => self.value["item"].to_string(),
        }
    }
}

/// Reference to an item of the response. Servers may omit either field.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemRef<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: Option<&'a str>,
}

/// Returns the token counts of a response; `None` if it has none.
pub(super) fn usage(response: &Value) -> Option<Usage> {
    let usage = response.get("usage").filter(|usage| usage.is_object())?;
    let count = |pointer: &str| usage.pointer(pointer).and_then(count_of).unwrap_or(0);
    Some(Usage {
        input_tokens: count("/input_tokens"),
        output_tokens: count("/output_tokens"),
        cached_input_tokens: count("/input_tokens_details/cached_tokens"),
        cache_write_tokens: count("/input_tokens_details/cache_write_tokens"),
        reasoning_tokens: count("/output_tokens_details/reasoning_tokens"),
        cost_micros: 0,
        unpriced_calls: 0,
    })
}

/// Returns the arguments of a call: a text, or from some servers the object itself.
pub(super) fn call_arguments(call: &Value) -> Cow<'_, str> {
    match &call["arguments"] {
        Value::Null => Cow::Borrowed(""),
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    }
}

/// Returns the text of a message item, including refusals.
pub(super) fn message_text(item: &Value) -> String {
    let parts = item["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |part: &Value| part["text"].as_str().or_else(|| part["refusal"].as_str()).map(str::to_owned);
    match item["content"].as_str() {
        Some(text) => text.to_owned(),
        None => parts.iter().filter_map(text).collect(),
    }
}

/// True if a message item has a refusal.
pub(super) fn refuses(item: &Value) -> bool {
    item["content"].as_array().is_some_and(|parts| parts.iter().any(|part| part["type"] == "refusal"))
}

/// Returns the readable text of a reasoning item: its summary, else the text that open models show.
pub(super) fn reasoning_text(item: &Value) -> String {
    let texts = |list: &Value| {
        let parts = list.as_array().map(Vec::as_slice).unwrap_or_default();
        let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        texts.join(PARAGRAPH_BREAK)
    };
    let summary = texts(&item["summary"]);
    if summary.is_empty() { texts(&item["content"]) } else { summary }
}

/// Separator between the parts of reasoning.
pub(super) const PARAGRAPH_BREAK: &str = "\n\n";
