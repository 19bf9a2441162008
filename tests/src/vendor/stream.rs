//! Server-sent events, as the vendors send them.

use serde_json::{Value, json};

use super::Format;
use super::refusal::Refusal;

/// The events of one answer.
#[derive(Default)]
pub(super) struct Stream {
    events: Vec<String>,
    /// Number of events up to the first word of text.
    begun: Option<usize>,
    /// Number of events before those that end the stream.
    end: Option<usize>,
}

impl Stream {
    /// An event without a name.
    pub(super) fn data(&mut self, data: &Value) {
        self.events.push(format!("data: {data}\n\n"));
    }

    /// An event that is named as its `type` says.
    pub(super) fn named(&mut self, data: &Value) {
        let name = data["type"].as_str().expect("an event has a type");
        self.events.push(format!("event: {name}\ndata: {data}\n\n"));
    }

    /// A line that is no JSON.
    pub(super) fn raw(&mut self, line: &str) {
        self.events.push(format!("data: {line}\n\n"));
    }

    /// Something was said by now.
    pub(super) fn has_begun(&mut self) {
        self.begun.get_or_insert(self.events.len());
    }

    /// From here on come only the events that end the stream.
    pub(super) fn ends(&mut self) {
        self.end.get_or_insert(self.events.len());
    }

    /// Events that have not been written yet, in order.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn whole(&self) -> String {
        self.events.concat()
    }

    pub(super) fn begun(&self) -> String {
        self.events[..self.begun.unwrap_or_default()].concat()
    }

    pub(super) fn unended(&self) -> String {
        self.events[..self.end.unwrap_or_default()].concat()
    }
}

/// An error inside a stream. `flat` is the form that OpenAI's types of Responses have.
pub(super) fn error_event(format: Format, refusal: &Refusal, flat: bool) -> String {
    let body = refusal.body(format);
    match format {
        Format::Chat | Format::Gemini => format!("data: {body}\n\n"),
        Format::Messages => format!("event: error\ndata: {body}\n\n"),
        Format::Responses => {
            let error = &body["error"];
            let code = "server_is_overloaded";
            let event = if flat {
                json!({ "type": "error", "code": code, "message": error["message"], "param": null,
                        "sequence_number": 0 })
            } else {
                json!({ "type": "error", "sequence_number": 0, "error": {
                    "type": "service_unavailable_error", "code": code, "message": error["message"], "param": null,
                } })
            };
            format!("event: error\ndata: {event}\n\n")
        }
    }
}

/// A text in two pieces, as streams have it; in one where it has one letter.
pub(super) fn halves(text: &str) -> Vec<&str> {
    let middle = text.floor_char_boundary(text.len() / 2);
    let (first, second) = text.split_at(middle);
    [first, second].into_iter().filter(|half| !half.is_empty()).collect()
}
