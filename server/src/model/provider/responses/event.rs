//! What one event of the stream says. Fields that an event does not have, or has in another shape, read as absent.

use agentloop_core::message::Usage;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// One event, as a tree of values.
pub(super) struct Event<'a> {
    pub(super) value: &'a Value,
    /// The event as it came, which has an item in its own words.
    pub(super) text: &'a str,
}

impl<'a> Event<'a> {
    /// Its type; empty where it has none.
    pub(super) fn kind(&self) -> &'a str {
        self.value["type"].as_str().unwrap_or_default()
    }

    /// A text of this name; empty where there is none.
    pub(super) fn text_of(&self, name: &str) -> &'a str {
        self.value[name].as_str().unwrap_or_default()
    }

    /// Which item it is about.
    pub(super) fn place(&self) -> Place<'a> {
        let id = self.value["item_id"].as_str().or_else(|| self.value["item"]["id"].as_str());
        Place { index: self.value["output_index"].as_u64(), id }
    }

    /// The item in it, as JSON text: word for word where it can be found.
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

/// What tells items of one answer apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: Option<&'a str>,
}

/// The token counts of an answer; `None` where it has none.
pub(super) fn usage(response: &Value) -> Option<Usage> {
    let usage = response.get("usage").filter(|usage| usage.is_object())?;
    let count = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    Some(Usage {
        input_tokens: count("/input_tokens"),
        output_tokens: count("/output_tokens"),
        cached_input_tokens: count("/input_tokens_details/cached_tokens"),
        cache_write_tokens: count("/input_tokens_details/cache_write_tokens"),
        reasoning_tokens: count("/output_tokens_details/reasoning_tokens"),
        cost_micros: 0,
    })
}

/// The text of a message item: of its answers and refusals together.
pub(super) fn message_text(item: &Value) -> String {
    let parts = item["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |part: &Value| part["text"].as_str().or_else(|| part["refusal"].as_str()).map(str::to_owned);
    match item["content"].as_str() {
        Some(text) => text.to_owned(),
        None => parts.iter().filter_map(text).collect(),
    }
}

/// Whether a message item declines to answer.
pub(super) fn refuses(item: &Value) -> bool {
    item["content"].as_array().is_some_and(|parts| parts.iter().any(|part| part["type"] == "refusal"))
}

/// The readable text of a reasoning item: its summary, else what open models show.
pub(super) fn reasoning_text(item: &Value) -> String {
    let texts = |list: &Value| {
        let parts = list.as_array().map(Vec::as_slice).unwrap_or_default();
        let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        texts.join(BETWEEN)
    };
    let summary = texts(&item["summary"]);
    if summary.is_empty() { texts(&item["content"]) } else { summary }
}

/// Between the parts of reasoning.
pub(super) const BETWEEN: &str = "\n\n";
