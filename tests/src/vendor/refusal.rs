//! Error responses of a vendor to requests that it refuses.

use std::time::Duration;

use serde_json::{Value, json};

use super::Format;

/// A request that broke a rule, or another error of the vendor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status of the response.
    pub status: u16,
    /// In the vendor's words.
    pub message: String,
    /// The vendor's code for it, where it has one.
    pub code: Option<&'static str>,
    /// The field that is wrong, where the vendor names it.
    pub param: Option<String>,
    /// When to ask again, where the vendor says so.
    pub wait: Option<Duration>,
}

impl Refusal {
    pub(super) fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), code: None, param: None, wait: None }
    }

    pub(super) fn coded(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    pub(super) fn about(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }

    pub(super) fn after(self, wait: Duration) -> Self {
        Self { wait: Some(wait), ..self }
    }

    /// The header that says when to ask again; Google says it in the body.
    pub(super) fn wait_header(&self, format: Format) -> Option<String> {
        let wait = self.wait?;
        match format {
            Format::Chat | Format::Responses => Some(format!("retry-after-ms: {}\r\n", wait.as_millis())),
            Format::Messages => Some(format!("retry-after: {}\r\n", wait.as_secs_f64())),
            Format::Gemini => None,
        }
    }

    /// The body of the answer, and of the error event in a stream.
    pub(super) fn body(&self, format: Format) -> Value {
        let Self { status, message, code, param, .. } = self;
        match format {
            Format::Chat | Format::Responses => json!({
                "error": { "message": message, "type": self.openai_type(), "param": param, "code": code },
            }),
            Format::Messages => json!({
                "type": "error",
                "error": { "type": self.anthropic_type(), "message": message },
                "request_id": "req_011CS",
            }),
            Format::Gemini => json!({
                "error": {
                    "code": status, "message": message, "status": self.google_status(), "details": self.details(),
                },
            }),
        }
    }

    fn details(&self) -> Vec<Value> {
        let told = |wait: Duration| {
            json!({
                "@type": "type.googleapis.com/google.rpc.RetryInfo",
                "retryDelay": format!("{}s", wait.as_secs_f64()),
            })
        };
        self.wait.map(told).into_iter().collect()
    }

    fn openai_type(&self) -> &'static str {
        match self.status {
            429 => "rate_limit_error",
            503 => "service_unavailable_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }

    fn anthropic_type(&self) -> &'static str {
        match self.status {
            401 => "authentication_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            529 | 503 => "overloaded_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        }
    }

    fn google_status(&self) -> &'static str {
        match self.status {
            401 => "UNAUTHENTICATED",
            404 => "NOT_FOUND",
            429 => "RESOURCE_EXHAUSTED",
            503 => "UNAVAILABLE",
            500.. => "INTERNAL",
            _ => "INVALID_ARGUMENT",
        }
    }
}

/// A request that is wrong.
pub(super) fn bad(message: impl Into<String>) -> Refusal {
    Refusal::new(400, message)
}

/// Refuses unless a rule is kept.
pub(super) fn ensure(kept: bool, refusal: impl FnOnce() -> Refusal) -> Result<(), Refusal> {
    if kept { Ok(()) } else { Err(refusal()) }
}
