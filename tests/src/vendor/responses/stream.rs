//! An answer of Responses in events.

use serde_json::{Value, json};

use crate::vendor::request::list;
use crate::vendor::stream::{Stream, halves};

/// The events, each with its number.
struct Events {
    stream: Stream,
}

impl Events {
    fn say(&mut self, kind: &str, mut event: Value) {
        event["type"] = json!(kind);
        event["sequence_number"] = json!(self.stream.len());
        self.stream.named(&event);
    }
}

pub(in crate::vendor) fn stream(document: &Value) -> Stream {
    let mut events = Events { stream: Stream::default() };
    let mut begun = document.clone();
    (begun["output"], begun["status"], begun["usage"]) = (json!([]), json!("in_progress"), Value::Null);
    events.say("response.created", json!({ "response": begun }));
    events.say("response.in_progress", json!({ "response": begun }));
    for (at, item) in list(document, "output").iter().enumerate() {
        events.say("response.output_item.added", json!({ "output_index": at, "item": added(item) }));
        match item["type"].as_str() {
            Some("reasoning") => reasoning(&mut events, at, item),
            Some("message") => message(&mut events, at, item),
            _ => call(&mut events, at, item),
        }
        events.say("response.output_item.done", json!({ "output_index": at, "item": item }));
    }
    events.stream.ends();
    events.say("response.completed", json!({ "response": document }));
    events.stream
}

/// An item as it begins: what it will have is not there yet, and of its encrypted content only a part.
fn added(item: &Value) -> Value {
    let mut begun = item.clone();
    match item["type"].as_str() {
        Some("reasoning") => {
            begun["summary"] = json!([]);
            begun["encrypted_content"] = json!("incomplete");
        }
        Some("message") => {
            begun["content"] = json!([]);
            begun["status"] = json!("in_progress");
        }
        _ => {
            begun["arguments"] = json!("");
            begun["status"] = json!("in_progress");
        }
    }
    begun
}

fn reasoning(events: &mut Events, at: usize, item: &Value) {
    for (number, part) in list(item, "summary").iter().enumerate() {
        let place = json!({ "item_id": item["id"], "output_index": at, "summary_index": number });
        let with = |field: &str, value: Value| {
            let mut event = place.clone();
            event[field] = value;
            event
        };
        let empty = json!({ "type": "summary_text", "text": "" });
        events.say("response.reasoning_summary_part.added", with("part", empty));
        for half in part["text"].as_str().map(halves).unwrap_or_default() {
            let mut delta = with("delta", json!(half));
            delta["obfuscation"] = json!("x7Yz");
            events.say("response.reasoning_summary_text.delta", delta);
        }
        events.say("response.reasoning_summary_text.done", with("text", part["text"].clone()));
        events.say("response.reasoning_summary_part.done", with("part", part.clone()));
    }
}

fn message(events: &mut Events, at: usize, item: &Value) {
    for (number, part) in list(item, "content").iter().enumerate() {
        let place = json!({ "item_id": item["id"], "output_index": at, "content_index": number });
        let with = |field: &str, value: Value| {
            let mut event = place.clone();
            event[field] = value;
            event
        };
        let empty = json!({ "type": "output_text", "text": "", "annotations": [] });
        events.say("response.content_part.added", with("part", empty));
        for half in part["text"].as_str().map(halves).unwrap_or_default() {
            events.say("response.output_text.delta", with("delta", json!(half)));
            events.stream.has_begun();
        }
        events.say("response.output_text.done", with("text", part["text"].clone()));
        events.say("response.content_part.done", with("part", part.clone()));
    }
}

fn call(events: &mut Events, at: usize, item: &Value) {
    for half in item["arguments"].as_str().map(halves).unwrap_or_default() {
        let delta = json!({ "item_id": item["id"], "output_index": at, "delta": half });
        events.say("response.function_call_arguments.delta", delta);
    }
    let done = json!({ "item_id": item["id"], "output_index": at, "arguments": item["arguments"] });
    events.say("response.function_call_arguments.done", done);
}
