//! A request as it came over the wire.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::Value;

/// A vendor's way of being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenAI's Chat Completions, and whoever speaks them too: the model's name tells which vendor is meant.
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Messages,
    /// Google's `generateContent`.
    Gemini,
}

impl Format {
    /// The `kind` of a provider in the configuration.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Chat => "openai",
            Self::Responses => "openai-responses",
            Self::Messages => "anthropic",
            Self::Gemini => "gemini",
        }
    }

    /// The path in the base URL, as each vendor documents it.
    pub(super) const fn base_path(self) -> &'static str {
        match self {
            Self::Chat | Self::Responses => "/v1",
            Self::Messages => "",
            Self::Gemini => "/v1beta",
        }
    }
}

/// A request as the vendor received it.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The format, known from the path.
    pub format: Format,
    /// The path without the query.
    pub path: String,
    /// The query after `?`.
    pub query: String,
    /// By their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// In the body, or in Gemini's path.
    pub model: String,
    /// The body as JSON.
    pub body: Value,
    /// When it was here.
    pub at: Instant,
}

impl Asked {
    /// From a request line, headers and body; `None` where no vendor has such a path.
    pub(super) fn read(head: &str, body: &[u8]) -> Option<Self> {
        let mut lines = head.lines();
        let target = lines.next()?.strip_prefix("POST ")?.split(' ').next()?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        };
        let headers = lines.filter_map(header).collect();
        let body: Value = serde_json::from_slice(body).ok()?;
        Self::new(path, query, headers, body)
    }

    pub(super) fn new(
        path: &str,
        query: &str,
        headers: BTreeMap<String, String>,
        body: Value,
    ) -> Option<Self> {
        let named = || body["model"].as_str().unwrap_or_default().to_owned();
        let (format, model) = match path {
            "/v1/chat/completions" => (Format::Chat, named()),
            "/v1/responses" => (Format::Responses, named()),
            "/v1/messages" => (Format::Messages, named()),
            _ => {
                let (model, _) =
                    path.strip_prefix("/v1beta/models/")?.split_once(":streamGenerateContent")?;
                (Format::Gemini, model.to_owned())
            }
        };
        Some(Self {
            format,
            path: path.to_owned(),
            query: query.to_owned(),
            headers,
            model,
            body,
            at: Instant::now(),
        })
    }

    /// The elements of a field that is a list.
    pub fn list(&self, field: &str) -> &[Value] {
        list(&self.body, field)
    }

    /// True if a field is present and not null.
    pub(super) fn has(&self, field: &str) -> bool {
        !self.body[field].is_null()
    }

    /// The first of these fields that is there.
    pub(super) fn first_of<'a>(&self, fields: &[&'a str]) -> Option<&'a str> {
        fields.iter().copied().find(|field| self.has(field))
    }

    /// The first field of the body that is none of these.
    pub(super) fn unknown(&self, known: &[&str]) -> Option<&str> {
        let fields = self.body.as_object().into_iter().flat_map(|body| body.keys());
        fields.map(String::as_str).find(|field| !known.contains(field))
    }

    /// True if the body contains this text.
    pub fn contains(&self, text: &str) -> bool {
        holds(&self.body, text)
    }
}

/// The elements of a field that is a list; none where it is something else.
pub(super) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

/// The text of a field; empty where it is something else.
pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn holds(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text.contains(wanted),
        Value::Array(values) => values.iter().any(|value| holds(value, wanted)),
        Value::Object(fields) => fields.values().any(|value| holds(value, wanted)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// A model without the date of a snapshot: what is signed for one is good for the other.
pub(super) fn family(model: &str) -> &str {
    match model.rsplit_once('-') {
        Some((base, date)) if date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit()) => base,
        _ => model,
    }
}
