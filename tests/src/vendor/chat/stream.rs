//! An answer of Chat Completions in chunks.

use serde_json::{Value, json};

use crate::vendor::Manner;
use crate::vendor::request::list;
use crate::vendor::stream::{Stream, halves};

/// In the order in which vendors stream: reasoning, text, calls.
pub(in crate::vendor) fn stream(document: &Value, manner: Manner) -> Stream {
    let mut stream = Stream::default();
    let choice = &document["choices"][0];
    let message = &choice["message"];
    let say = |stream: &mut Stream, delta: Value, finish: &Value| {
        stream.data(&json!({
            "id": document["id"], "object": "chat.completion.chunk", "model": document["model"],
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
        }));
    };
    say(&mut stream, json!({ "role": "assistant", "content": "" }), &Value::Null);
    for field in ["reasoning_content", "reasoning"] {
        for half in message[field].as_str().map(halves).unwrap_or_default() {
            say(&mut stream, json!({ field: half }), &Value::Null);
        }
    }
    for detail in list(message, "reasoning_details") {
        for delta in details(detail) {
            say(&mut stream, json!({ "reasoning_details": [delta] }), &Value::Null);
        }
    }
    for half in message["content"].as_str().map(halves).unwrap_or_default() {
        say(&mut stream, json!({ "content": half }), &Value::Null);
        stream.has_begun();
    }
    for (at, call) in list(message, "tool_calls").iter().enumerate() {
        for delta in call_deltas(at, call, manner) {
            say(&mut stream, json!({ "tool_calls": [delta] }), &Value::Null);
        }
    }
    stream.ends();
    let stops = manner == Manner::StopDespiteCalls;
    let finish = if stops { &json!("stop") } else { &choice["finish_reason"] };
    say(&mut stream, json!({}), finish);
    stream.data(&json!({ "choices": [], "usage": document["usage"] }));
    stream.raw("[DONE]");
    stream
}

/// The text in pieces and the signature after it: whoever reads them joins them by their index.
fn details(detail: &Value) -> Vec<Value> {
    let Some(text) = detail["text"].as_str() else { return vec![detail.clone()] };
    let (index, kind, format) = (&detail["index"], &detail["type"], &detail["format"]);
    let piece =
        |half: &str| json!({ "type": kind, "text": half, "index": index, "format": format, "id": null });
    let mut deltas: Vec<Value> = halves(text).into_iter().map(piece).collect();
    deltas.push(json!({
        "type": kind, "signature": detail["signature"], "index": index, "format": format, "id": null,
    }));
    deltas
}

/// A call in two deltas, or in one where deltas have no index to join them by.
fn call_deltas(at: usize, call: &Value, manner: Manner) -> Vec<Value> {
    let mut whole = call.clone();
    match manner {
        Manner::NoIndex => return vec![whole],
        Manner::SameIndex => {
            whole["index"] = json!(0);
            return vec![whole];
        }
        _ => whole["index"] = json!(at),
    }
    let arguments = call["function"]["arguments"].as_str().expect("they are text").to_owned();
    whole["function"]["arguments"] = json!("");
    let rest = halves(&arguments)
        .into_iter()
        .map(|half| json!({ "index": at, "function": { "arguments": half } }))
        .collect::<Vec<_>>();
    [whole].into_iter().chain(rest).collect()
}
