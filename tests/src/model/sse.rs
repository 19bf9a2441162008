//! Pieces of a streamed answer.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

/// Ids of tool calls differ in a whole test, so that a result can be told from every other.
static CALLS: AtomicU64 = AtomicU64::new(1);

pub(super) fn text(text: &str) -> String {
    delta(&json!({ "content": text }))
}

pub(super) fn reasoning(text: &str) -> String {
    delta(&json!({ "reasoning_content": text }))
}

pub(super) fn call(index: usize, tool: &str, arguments: &Value) -> String {
    let id = format!("call_{}", CALLS.fetch_add(1, Ordering::Relaxed));
    // A string is taken as the text of the arguments itself, so that a test can write what is no JSON.
    let arguments = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
    delta(&json!({ "tool_calls": [{
        "index": index,
        "id": id,
        "type": "function",
        "function": { "name": tool, "arguments": arguments },
    }] }))
}

/// Ten tokens in and five out.
pub(super) fn end(reason: &str) -> String {
    let last = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] });
    let usage = json!({ "choices": [], "usage": {
        "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
    } });
    format!("{}{}data: [DONE]\n\n", event(&last), event(&usage))
}

fn delta(delta: &Value) -> String {
    event(&json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] }))
}

fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}
