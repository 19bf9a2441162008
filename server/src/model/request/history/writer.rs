//! Writes JSON directly into the text that is sent.

use serde::Serialize;

/// Writes the fields of one JSON object.
pub(in crate::model) struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

/// Writes an object whose fields `write` adds.
pub(in crate::model) fn object(out: &mut Vec<u8>, write: impl FnOnce(&mut ObjectWriter<'_>)) {
    out.push(b'{');
    write(&mut ObjectWriter { out, is_empty: true });
    out.push(b'}');
}

/// Writes an object as a list element, followed by a comma. [`list`] removes the last comma.
pub(in crate::model) fn element(out: &mut Vec<u8>, write: impl FnOnce(&mut ObjectWriter<'_>)) {
    object(out, write);
    out.push(b',');
}

/// Writes a list whose elements `write` adds, each followed by a comma.
pub(in crate::model) fn list(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'[');
    write(out);
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(b']');
}

impl ObjectWriter<'_> {
    /// Adds a field to the object that is being written.
    pub(in crate::model) fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> &mut Self {
        value_into(self.named(name), value);
        self
    }

    /// Adds a field if there is a value.
    pub(in crate::model) fn optional(&mut self, name: &str, value: Option<impl Serialize>) -> &mut Self {
        if let Some(value) = value {
            self.field(name, &value);
        }
        self
    }

    /// Adds a field whose value is JSON text.
    pub(in crate::model) fn text(&mut self, name: &str, json: &str) -> &mut Self {
        self.named(name).extend_from_slice(json.as_bytes());
        self
    }

    /// Adds a field whose value is an object.
    pub(in crate::model) fn object(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut ObjectWriter<'_>),
    ) -> &mut Self {
        object(self.named(name), write);
        self
    }

    /// Adds a field whose value is a [`list`].
    pub(in crate::model) fn list(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        list(self.named(name), write);
        self
    }

    fn named(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(b',');
        }
        value_into(self.out, name);
        self.out.push(b':');
        self.out
    }
}

fn value_into(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(out, value).expect("memory takes every byte, and the values have string keys");
}
