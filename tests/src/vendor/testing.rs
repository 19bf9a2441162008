//! Helpers for tests of the vendors' rules: a valid request with one change.

use std::collections::BTreeMap;

use serde_json::Value;

use super::issued::Issued;
use super::{Asked, Format, answer, check};
use crate::vendor::{Answer, Piece};

/// One vendor and one model, without a connection.
pub(super) struct Bench {
    format: Format,
    model: &'static str,
    pub(super) issued: Issued,
}

impl Bench {
    pub(super) fn of(format: Format, model: &'static str) -> Self {
        Self { format, model, issued: Issued::new("a") }
    }

    /// The same account with another model.
    pub(super) fn model(self, model: &'static str) -> Self {
        Self { model, ..self }
    }

    pub(super) fn asked(&self, body: &Value) -> Asked {
        let mut body = body.clone();
        let path = match self.format {
            Format::Chat => "/v1/chat/completions".to_owned(),
            Format::Responses => "/v1/responses".to_owned(),
            Format::Messages => "/v1/messages".to_owned(),
            Format::Gemini => format!("/v1beta/models/{}:streamGenerateContent", self.model),
        };
        if self.format != Format::Gemini {
            body["model"] = self.model.into();
        }
        let headers = BTreeMap::from([("anthropic-version".to_owned(), "2023-06-01".to_owned())]);
        Asked::new(&path, "alt=sse", headers, body).expect("a vendor has this path")
    }

    /// The document that answers a request.
    pub(super) fn answered(&mut self, body: &Value, pieces: impl IntoIterator<Item = Piece>) -> Value {
        let asked = self.asked(body);
        check(&asked, &self.issued).expect("the request is right");
        let written = Answer::of(pieces).written(super::Manner::Document);
        let bytes = answer::written(&written, &asked, &mut self.issued);
        let text = String::from_utf8(bytes).expect("text");
        let (_, document) = text.split_once("\r\n\r\n").expect("a head and a body");
        serde_json::from_str(document).expect("JSON")
    }

    #[track_caller]
    pub(super) fn takes(&self, body: &Value) {
        if let Err(refusal) = check(&self.asked(body), &self.issued) {
            panic!("refused with {refusal:?}: {body:#}");
        }
    }

    /// Asserts that the request with this change is refused with this message.
    #[track_caller]
    pub(super) fn refuses(&self, body: &Value, change: impl FnOnce(&mut Value), why: &str) {
        let mut changed = body.clone();
        change(&mut changed);
        assert_ne!(changed, *body, "nothing was changed");
        match check(&self.asked(&changed), &self.issued) {
            Ok(()) => panic!("taken: {changed:#}"),
            Err(refusal) => assert!(refusal.message.contains(why), "{why} is not in {}", refusal.message),
        }
    }

    /// Asserts that the request with this change is accepted too.
    #[track_caller]
    pub(super) fn takes_with(&self, body: &Value, change: impl FnOnce(&mut Value)) {
        let mut changed = body.clone();
        change(&mut changed);
        assert_ne!(changed, *body, "nothing was changed");
        self.takes(&changed);
    }
}

/// The elements of a list.
#[track_caller]
pub(super) fn elements(value: &mut Value) -> &mut Vec<Value> {
    value.as_array_mut().expect("a list")
}

/// Takes a field away.
#[track_caller]
pub(super) fn without(value: &mut Value, field: &str) {
    value.as_object_mut().expect("an object").remove(field).expect("it is there");
}
