//! Canonical JSON: equal values have the same text, compact and with sorted keys.

use serde_json::Value;

/// One text for JSON texts of the same value. A text that is no JSON stays as it is.
pub(crate) fn canonical_json(json: &str) -> String {
    serde_json::from_str(json).map_or_else(|_| json.to_owned(), |value: Value| text(&value))
}

/// The text of a value.
pub(crate) fn text(value: &Value) -> String {
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
            // Any crate of the build can turn on a feature of serde_json that keeps its maps unsorted.
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

/// True if parsing the JSON rounds no number. Whole numbers beyond 64 bits are rounded, so different ones look equal.
pub(crate) fn is_exact(json: &str) -> bool {
    let mut rest = json;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
        rest = &rest[at..];
        if rest.starts_with('"') {
            rest = after_string(rest);
            continue;
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let is_whole = !number.contains(['.', 'e', 'E']);
        if is_whole && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
            return false;
        }
        rest = after;
    }
    true
}

/// The rest of the JSON after the string that it begins with.
fn after_string(json: &str) -> &str {
    let mut letters = json.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return &json[at + 1..],
            '\\' => drop(letters.next()),
            _ => {}
        }
    }
    ""
}

fn separate(at: usize, to: &mut String) {
    if at > 0 {
        to.push(',');
    }
}
