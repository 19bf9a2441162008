//! The text of a request: small fields, then long lists that are written already, the conversation last. A longer
//! conversation's request begins like a shorter one's.

use agentloop_core::agent::ModelOptions;
use serde_json::{Map, Value, json};

use super::writer::list;
use crate::model::ModelError;

/// A field of a request that is a list.
pub(in crate::model) struct Field<'a> {
    /// Its name.
    pub(in crate::model) name: &'static str,
    /// Its elements in order, cut anywhere, each with a comma after it.
    pub(in crate::model) elements: &'a [&'a [u8]],
}

impl Field<'_> {
    /// Whether there are no elements.
    pub(in crate::model) fn is_empty(&self) -> bool {
        self.elements.iter().all(|piece| piece.is_empty())
    }
}

/// What a caller wants changed in a finished request: a JSON merge patch.
#[derive(Debug, Default)]
pub(in crate::model) struct Patch(Option<Map<String, Value>>);

impl Patch {
    /// The caller's own options.
    ///
    /// # Errors
    /// When they are no JSON object.
    pub(in crate::model) fn of(options: &ModelOptions) -> Result<Self, ModelError> {
        let Some(text) = &options.provider_options else { return Ok(Self(None)) };
        match serde_json::from_str(text) {
            Ok(Value::Object(patch)) => Ok(Self(Some(patch))),
            Ok(_) => Err(ModelError::bad_request("provider_options is not a JSON object")),
            Err(e) => Err(ModelError::bad_request(format!("provider_options is not JSON: {e}"))),
        }
    }

    /// Whether it sets this field to an object.
    pub(in crate::model) fn has_object(&self, name: &str) -> bool {
        self.0.as_ref().is_some_and(|patch| patch.get(name).is_some_and(Value::is_object))
    }
}

/// The whole text. `head` is an object with some field; the lists are put behind its fields, and the patch is merged
/// last: objects are merged, null removes, anything else replaces. Streaming alone cannot be turned off, since nothing
/// else is understood here.
///
/// # Errors
/// When the head is nested too deeply to be patched.
pub(in crate::model) fn body(
    mut head: Vec<u8>,
    fields: &[Field<'_>],
    Patch(patch): Patch,
) -> Result<Vec<u8>, ModelError> {
    let Some(patch) = patch else { return Ok(joined(head, fields)) };
    // No patch looks into a list: it removes it or puts something else in its place.
    let kept: Vec<Field<'_>> = fields
        .iter()
        .filter(|field| !patch.contains_key(field.name))
        .map(|field| Field { ..*field })
        .collect();
    let mut patched: Value = serde_json::from_slice(&head)
        .map_err(|e| ModelError::bad_request(format!("provider_options cannot be merged: {e}")))?;
    // Some formats have streaming in the URL, and no such field.
    let says_stream = patched.get("stream").is_some();
    merge(&mut patched, Value::Object(patch));
    if says_stream {
        patched["stream"] = json!(true);
    } else if let Some(patched) = patched.as_object_mut() {
        patched.remove("stream");
    }
    head.clear();
    serde_json::to_writer(&mut head, &patched).expect("memory takes every byte");
    Ok(joined(head, &kept))
}

fn joined(head: Vec<u8>, fields: &[Field<'_>]) -> Vec<u8> {
    const AROUND: usize = 8;
    let length = |field: &Field<'_>| {
        AROUND + field.name.len() + field.elements.iter().map(|piece| piece.len()).sum::<usize>()
    };
    let mut out = head;
    out.reserve_exact(fields.iter().map(length).sum());
    out.pop();
    for field in fields {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(field.name.as_bytes());
        out.extend_from_slice(b"\":");
        list(&mut out, |out| field.elements.iter().for_each(|piece| out.extend_from_slice(piece)));
    }
    out.push(b'}');
    out
}

fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().expect("made one just above").remove(&key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(patch: &str) -> Result<Value, String> {
        let options = ModelOptions { provider_options: Some(patch.to_owned()), ..ModelOptions::default() };
        let head = br#"{"model":"m","stream":true,"a":{"b":1,"c":2}}"#.to_vec();
        let fields = [
            Field { name: "tools", elements: &[] },
            Field { name: "messages", elements: &[b"{\"x\":1},{\"y", b"\":[]},"] },
        ];
        let body = Patch::of(&options).and_then(|patch| body(head, &fields, patch));
        body.map(|body| serde_json::from_slice(&body).unwrap()).map_err(|e| e.message)
    }

    #[test]
    fn provider_options_are_merged_last() {
        let messages = json!([{"x": 1}, {"y": []}]);
        assert_eq!(
            merged(r#"{"a":{"b":null,"d":[3]},"x":{"y":null,"z":1},"model":"n","stream":false}"#),
            Ok(json!({
                "model": "n", "stream": true, "a": {"c": 2, "d": [3]}, "x": {"z": 1},
                "tools": [], "messages": messages,
            }))
        );
        assert_eq!(
            merged(r#"{"tools":null,"messages":[7]}"#),
            Ok(json!({"model": "m", "stream": true, "a": {"b": 1, "c": 2}, "messages": [7]}))
        );
        assert_eq!(merged(r#"{"tools":{"a":1}}"#).unwrap()["tools"], json!({"a": 1}));
        assert_eq!(merged("[]"), Err("provider_options is not a JSON object".to_owned()));
        assert!(merged("{").unwrap_err().starts_with("provider_options is not JSON"));
    }
}
