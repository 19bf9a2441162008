//! An answer of Messages in events.

use serde_json::{Value, json};

use crate::vendor::request::{list, text};
use crate::vendor::stream::{Stream, halves};

pub(in crate::vendor) fn stream(document: &Value) -> Stream {
    let mut stream = Stream::default();
    let mut begun = document.clone();
    (begun["content"], begun["stop_reason"]) = (json!([]), Value::Null);
    begun["usage"] = json!({ "input_tokens": 10, "output_tokens": 1 });
    stream.named(&json!({ "type": "message_start", "message": begun }));
    stream.named(&json!({ "type": "ping" }));
    for (at, block) in list(document, "content").iter().enumerate() {
        let (begun, deltas) = pieces(block);
        stream.named(&json!({ "type": "content_block_start", "index": at, "content_block": begun }));
        for delta in deltas {
            let speaks = delta["type"] == "text_delta";
            stream.named(&json!({ "type": "content_block_delta", "index": at, "delta": delta }));
            if speaks {
                stream.has_begun();
            }
        }
        stream.named(&json!({ "type": "content_block_stop", "index": at }));
    }
    stream.ends();
    let delta = json!({ "stop_reason": document["stop_reason"], "stop_sequence": null });
    stream.named(&json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": 5 } }));
    stream.named(&json!({ "type": "message_stop" }));
    stream
}

/// A block as it begins, and what is added to it.
fn pieces(block: &Value) -> (Value, Vec<Value>) {
    let mut begun = block.clone();
    let deltas = |kind: &str, field: &str, whole: &str| -> Vec<Value> {
        halves(whole).into_iter().map(|half| json!({ "type": kind, field: half })).collect()
    };
    match text(block, "type") {
        "text" => {
            begun["text"] = json!("");
            (begun, deltas("text_delta", "text", text(block, "text")))
        }
        "thinking" => {
            (begun["thinking"], begun["signature"]) = (json!(""), json!(""));
            let mut thought = deltas("thinking_delta", "thinking", text(block, "thinking"));
            thought.push(json!({ "type": "signature_delta", "signature": block["signature"] }));
            (begun, thought)
        }
        "tool_use" => {
            begun["input"] = json!({});
            (begun, deltas("input_json_delta", "partial_json", &block["input"].to_string()))
        }
        _ => (begun, Vec::new()),
    }
}
