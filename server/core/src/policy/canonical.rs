//! One text for equal values: compact JSON with sorted keys.

use serde_json::Value;

pub(super) fn text(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, to: &mut String) {
    match value {
        Value::Array(items) => {
            to.push('[');
            for (at, item) in items.iter().enumerate() {
                separate(at, to);
                write(item, to);
            }
            to.push(']');
        }
        Value::Object(members) => {
            // Whether the library's map is sorted depends on features that any crate of the build can turn on.
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            to.push('{');
            for (at, (key, member)) in members.into_iter().enumerate() {
                separate(at, to);
                to.push_str(&Value::from(key.as_str()).to_string());
                to.push(':');
                write(member, to);
            }
            to.push('}');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => to.push_str(&value.to_string()),
    }
}

fn separate(at: usize, to: &mut String) {
    if at > 0 {
        to.push(',');
    }
}
