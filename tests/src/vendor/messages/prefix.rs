//! The part of a request that a thought is bound to: everything before it, as the vendor reads it.

use serde_json::{Value, json};

use crate::vendor::Asked;

/// Messages with their contents as blocks, those of one role that follow each other as one.
pub(super) fn merged(messages: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for message in messages {
        let blocks = blocks(&message["content"]);
        match merged.last_mut() {
            Some(last) if last["role"] == message["role"] => {
                last["content"].as_array_mut().expect("they are blocks").extend(blocks);
            }
            _ => merged.push(json!({ "role": message["role"], "content": blocks })),
        }
    }
    merged
}

fn blocks(content: &Value) -> Vec<Value> {
    match content.as_array() {
        Some(blocks) => blocks.clone(),
        None => vec![json!({ "type": "text", "text": content })],
    }
}

/// The prefix of a thought that comes after these messages and these blocks of its own. Marks for the cache are no part
/// of it.
pub(super) fn of(asked: &Asked, before: &[Value], own: &[Value]) -> Value {
    let system = match &asked.body["system"] {
        Value::Null => json!([]),
        system => json!(blocks(system)),
    };
    let mut prefix = json!([system, asked.list("tools"), before, own]);
    unmark(&mut prefix);
    prefix
}

fn unmark(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(unmark),
        Value::Object(fields) => {
            fields.remove("cache_control");
            fields.values_mut().for_each(unmark);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
