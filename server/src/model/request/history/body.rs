//! Assembles the body of a request: small fields first, then long lists that are already encoded, the conversation
//! last. So the body of a longer conversation begins like that of a shorter one, which prompt caches need.

use agentloop_core::agent::ModelOptions;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::model::ModelError;
use crate::model::request::encoded_text::Piece;
use crate::model::transport::http::HttpBody;

/// A field of the request whose value is an encoded list.
pub(in crate::model) struct ListField<'a> {
    /// Name of the field in the request's JSON.
    pub(in crate::model) name: &'static str,
    /// Encoded elements, each followed by a comma. The pieces may be cut anywhere.
    pub(in crate::model) elements: Vec<Piece<'a>>,
}

impl ListField<'_> {
    /// True if the list is empty.
    pub(in crate::model) fn is_empty(&self) -> bool {
        self.elements.iter().all(|piece| piece.as_ref().is_empty())
    }
}

/// The caller's `provider_options`: a JSON merge patch for the finished request.
#[derive(Debug, Default)]
pub(in crate::model) struct RequestPatch(Option<Map<String, Value>>);

impl RequestPatch {
    /// Reads the patch from the options.
    ///
    /// # Errors
    /// If the text is not a JSON object.
    pub(in crate::model) fn of(options: &ModelOptions) -> Result<Self, ModelError> {
        let Some(text) = &options.provider_options else { return Ok(Self(None)) };
        match serde_json::from_str(text) {
            Ok(Value::Object(patch)) => Ok(Self(Some(patch))),
            Ok(_) => Err(ModelError::bad_request("provider_options is not a JSON object")),
            Err(e) => Err(ModelError::bad_request(format!("provider_options is not JSON: {e}"))),
        }
    }

    /// True if the patch sets this field to an object.
    pub(in crate::model) fn has_object(&self, name: &str) -> bool {
        self.0.as_ref().is_some_and(|patch| patch.get(name).is_some_and(Value::is_object))
    }
}

/// Returns the body of the request. `head` is a JSON object with at least one field; `fields` are appended to
/// it, and the patch is merged last: objects are merged, null removes a field, anything else replaces it. A
/// patch cannot turn streaming off, because only streams are decoded.
///
/// # Errors
/// If the head is nested too deeply to be patched.
pub(in crate::model) fn body(
    mut head: Vec<u8>,
    mut fields: Vec<ListField<'_>>,
    RequestPatch(patch): RequestPatch,
) -> Result<HttpBody, ModelError> {
    let Some(patch) = patch else { return Ok(joined(head, fields)) };
    // A merge patch removes or replaces a list as a whole.
    fields.retain(|field| !patch.contains_key(field.name));
    let mut patched: Value = serde_json::from_slice(&head)
        .map_err(|e| ModelError::bad_request(format!("provider_options cannot be merged: {e}")))?;
    // Some formats request streaming in the URL and have no such field.
    let says_stream = patched.get("stream").is_some();
    merge(&mut patched, Value::Object(patch));
    if says_stream {
        patched["stream"] = json!(true);
    } else if let Some(patched) = patched.as_object_mut() {
        patched.remove("stream");
    }
    head.clear();
    serde_json::to_writer(&mut head, &patched).expect("memory takes every byte");
    Ok(joined(head, fields))
}

fn joined(head: Vec<u8>, fields: Vec<ListField<'_>>) -> HttpBody {
    const AROUND: usize = 8;
    let copied = |piece: &Piece<'_>| match piece {
        Piece::Copied(bytes) => bytes.len(),
        Piece::Shared(_) => 0,
    };
    let length =
        |field: &ListField<'_>| AROUND + field.name.len() + field.elements.iter().map(copied).sum::<usize>();
    let mut out = BodyWriter { complete: Vec::new(), last: head };
    out.last.reserve_exact(fields.iter().map(length).sum());
    out.last.pop();
    for field in fields {
        out.last.extend_from_slice(b",\"");
        out.last.extend_from_slice(field.name.as_bytes());
        out.last.extend_from_slice(b"\":[");
        field.elements.into_iter().for_each(|piece| out.add(piece));
        out.remove_comma();
        out.last.push(b']');
    }
    out.last.push(b'}');
    out.complete.push(out.last.into());
    HttpBody::new(out.complete)
}

/// Joins short pieces, and keeps shared ones as they are.
struct BodyWriter {
    complete: Vec<Bytes>,
    last: Vec<u8>,
}

impl BodyWriter {
    fn add(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Copied(bytes) => self.last.extend_from_slice(bytes),
            Piece::Shared(bytes) => {
                let before = std::mem::take(&mut self.last);
                self.complete.extend([before.into(), bytes].into_iter().filter(|bytes| !bytes.is_empty()));
            }
        }
    }

    /// Removes the comma after the last element of a list.
    fn remove_comma(&mut self) {
        if self.last.last() == Some(&b',') {
            self.last.pop();
        } else if self.last.is_empty()
            && let Some(piece) = self.complete.last_mut()
            && piece.last() == Some(&b',')
        {
            piece.truncate(piece.len() - 1);
        }
    }
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
        let fields = vec![
            ListField { name: "tools", elements: vec![] },
            ListField {
                name: "messages",
                elements: vec![
                    Piece::Copied(b"{\"x\":1},{\"y"),
                    Piece::Shared(Bytes::from_static(b"\":[]},")),
                ],
            },
        ];
        let body = RequestPatch::of(&options).and_then(|patch| body(head, fields, patch));
        body.map(|body| serde_json::from_slice(&body.to_vec()).unwrap()).map_err(|e| e.message)
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
