//! Classifies a provider's error: status, codes and words to one [`ModelErrorKind`].
//!
//! All providers share one table, because gateways use each other's codes.

use agentloop_core::limits::SHORT_TEXT_BYTES_MAX;
use agentloop_core::model::retry::RETRY_AFTER_MAX;
use agentloop_core::time::Millis;
use serde_json::Value;

use crate::model::response::overflow::{never_allowed, says_overflow};
use crate::model::{ModelError, ModelErrorKind};

/// Codes for missing payment or a reached spending limit, where waiting does not help.
///
/// Sources: <https://platform.openai.com/docs/guides/error-codes>, <https://platform.moonshot.ai/docs/api/errors>.
const MONEY: [&str; 9] = [
    "insufficient_quota",
    "billing",
    "insufficient_balance",
    "credit_balance",
    "spend_limit_exceeded",
    "organization_usage_limit_exceeded",
    "exceeded_current_quota",
    "payment_required",
    PER_DAY,
];

/// Codes inside a stream for a request that would be refused again, in lower case.
///
/// Source: <https://platform.openai.com/docs/api-reference/responses/object>, `error.code`.
const BAD_REQUEST: [&str; 13] = [
    "invalid_",
    "badrequest",
    "bad_request",
    "not_found",
    "unsupported",
    "missing_required",
    "above_max",
    "below_min",
    "policy",
    "data_residency",
    "image_",
    "_image",
    "unprocessable",
];

/// Codes of a request that a filter refused, in lower case.
///
/// Sources: <https://learn.microsoft.com/azure/ai-services/openai/concepts/content-filter>,
/// <https://openrouter.ai/docs/api-reference/errors>.
const CONTENT_FILTERS: [&str; 2] = ["content_filter", FLAGGED];

/// Our own code for a request that moderation flagged.
const FLAGGED: &str = "flagged_input";

/// Our own code for a daily quota that is used up.
const PER_DAY: &str = "daily_quota";

/// An error that a provider reported, in an error body or inside a stream.
#[derive(Debug, Default)]
pub(crate) struct ProviderFailure {
    /// HTTP status; `None` inside a stream.
    pub(crate) status: Option<u16>,
    /// Machine-readable codes and types, separated by spaces.
    pub(crate) codes: String,
    /// Reason for people. Its words are not stable.
    pub(crate) message: String,
    /// Wait that the error itself gives.
    pub(crate) retry_after: Option<Millis>,
}

impl ProviderFailure {
    /// Reads an error event of a stream, or the body of an error response. It knows the shapes in use: an object
    /// or a text under `error`, `detail` or `message`, a list with one such object, or plain text.
    pub(crate) fn read(status: Option<u16>, body: &str) -> Self {
        match serde_json::from_str::<Value>(body) {
            Ok(value) => Self::from_value(status, &value),
            Err(_) => Self { status, message: body.trim().to_owned(), ..Self::default() },
        }
    }

    /// Same as [`Self::read`], from parsed JSON.
    pub(crate) fn from_value(status: Option<u16>, value: &Value) -> Self {
        let value = value.get(0).unwrap_or(value);
        let mut failure = Self { status, ..Self::default() };
        for object in [Some(value), value.get("error"), value.get("detail")].into_iter().flatten() {
            failure.add(object);
        }
        if failure.message.is_empty() {
            failure.message = value.to_string();
        }
        failure
    }

    fn add(&mut self, object: &Value) {
        if let Some(text) = object.as_str() {
            text.clone_into(&mut self.message);
        }
        if let Some(text) = ["message", "msg"].iter().find_map(|key| object.get(key)?.as_str()) {
            text.clone_into(&mut self.message);
        }
        // OpenRouter's moderation, which has the status of a refused key.
        if object.pointer("/metadata/flagged_input").is_some() {
            self.codes = format!("{} {FLAGGED}", self.codes);
        }
        let details = object.get("details").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        details.iter().for_each(|detail| self.add_detail(detail));
        for code in ["type", "code", "status"].iter().filter_map(|key| object.get(key)) {
            match code {
                Value::String(text) => self.codes = format!("{} {text}", self.codes),
                Value::Number(number) => self.add_number(number.as_u64()),
                _ => {}
            }
        }
    }

    /// Reads one of Google's error details: <https://cloud.google.com/apis/design/errors#error_model>.
    fn add_detail(&mut self, detail: &Value) {
        if let Some(wait) = detail["retryDelay"].as_str().and_then(parse_wait) {
            self.retry_after = Some(wait);
        }
        if let Some(reason) = detail["reason"].as_str() {
            self.codes = format!("{} {reason}", self.codes);
        }
        let violations = detail["violations"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ids = violations.iter().filter_map(|violation| violation["quotaId"].as_str());
        if ids.into_iter().any(|id| id.contains("PerDay")) {
            self.codes = format!("{} {PER_DAY}", self.codes);
        }
    }

    /// Takes a numeric code as the status: gateways report the upstream server's status this way.
    fn add_number(&mut self, code: Option<u64>) {
        let code = code.and_then(|code| u16::try_from(code).ok()).filter(|code| (300..600).contains(code));
        self.status = self.status.filter(|status| *status >= 300).or(code);
    }

    /// True if a filter of the provider refused the request. That is its decision: a retry or another key would not help.
    pub(crate) fn is_content_filter(&self) -> bool {
        self.codes.to_ascii_lowercase().split(' ').any(|code| CONTENT_FILTERS.contains(&code))
    }

    /// Converts to the error that the caller gets. `retry_after` is the wait from the headers, and wins
    /// over the error's own.
    pub(crate) fn into_error(self, retry_after: Option<Millis>) -> ModelError {
        let kind = self.kind();
        let hint = || if kind == ModelErrorKind::RateLimited { wait_in(&self.message) } else { None };
        let retry_after = retry_after.or(self.retry_after).or_else(hint);
        let message = match (self.message.trim(), self.codes.trim()) {
            ("", "") => "the provider gives no reason".to_owned(),
            ("", codes) => codes.to_owned(),
            (message, _) => message.to_owned(),
        };
        ModelError { kind, message: short(&message), status: self.status, retry_after }
    }

    fn kind(&self) -> ModelErrorKind {
        let (codes, message) = (self.codes.to_ascii_lowercase(), self.message.to_ascii_lowercase());
        let has = |marks: &[&str]| marks.iter().any(|mark| codes.contains(mark));
        if has(&MONEY) || has(&["api_key_invalid"]) {
            return ModelErrorKind::Unauthorised;
        }
        if never_allowed(self.status, &message) {
            return ModelErrorKind::ContextOverflow;
        }
        if self.status == Some(429) || has(&["rate_limit", "ratelimit", "too_many_requests"]) {
            return ModelErrorKind::RateLimited;
        }
        if says_overflow(self.status, &codes, &message) {
            return ModelErrorKind::ContextOverflow;
        }
        match self.status {
            Some(status) => by_status(status),
            None if has(&["authentication", "permission", "invalid_api_key", "unauthorized"]) => {
                ModelErrorKind::Unauthorised
            }
            None if has(&BAD_REQUEST) => ModelErrorKind::BadRequest,
            None => ModelErrorKind::Unavailable,
        }
    }
}

/// Reads the wait from an error message such as OpenAI's: "Please try again in 1.2s.", "… in 6m0s.", "… in 20ms."
fn wait_in(message: &str) -> Option<Millis> {
    let (_, wait) = message.split_once("try again in ")?;
    let end = wait.find(|c: char| c.is_whitespace()).unwrap_or(wait.len());
    parse_wait(wait[..end].trim_end_matches(['.', ',', ';', ')']))
}

/// Parses a duration such as `1.2s`, `6m0s` or `20ms`.
fn parse_wait(text: &str) -> Option<Millis> {
    let (mut rest, mut millis) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let letters = rest[digits..].find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len() - digits);
        millis += number
            * match &rest[digits..digits + letters] {
                "ms" => 1.0,
                "s" => 1_000.0,
                "m" => 60_000.0,
                "h" => 3_600_000.0,
                _ => return None,
            };
        rest = &rest[digits + letters..];
    }
    (!text.is_empty()).then(|| Millis(millis.ceil() as u64).min(RETRY_AFTER_MAX))
}

fn by_status(status: u16) -> ModelErrorKind {
    match status {
        401..=403 => ModelErrorKind::Unauthorised,
        408 | 409 | 425 | 500..=599 => ModelErrorKind::Unavailable,
        413 => ModelErrorKind::ContextOverflow,
        429 => ModelErrorKind::RateLimited,
        _ => ModelErrorKind::BadRequest,
    }
}

impl ModelError {
    /// The stream violates the protocol.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(ModelErrorKind::Malformed, message)
    }

    /// An event of the stream is not JSON.
    pub(crate) fn not_json(error: &serde_json::Error) -> Self {
        Self::malformed(format!("an event of the stream is not JSON: {error}"))
    }

    /// An event of the stream is an error of the provider.
    pub(crate) fn of_event(data: &str) -> Self {
        match serde_json::from_str(data) {
            Ok(value) => ProviderFailure::from_value(None, &value).into_error(None),
            Err(error) => Self::not_json(&error),
        }
    }

    /// The response is a JSON document, but not in this provider's format.
    pub(crate) fn not_a_response() -> Self {
        Self::new(
            ModelErrorKind::BadRequest,
            "the response is one JSON document that is not of this API; is base_url right?",
        )
    }

    /// The context was full before the model said anything.
    pub(crate) fn context_full() -> Self {
        Self::new(ModelErrorKind::ContextOverflow, "the context was full before the response began")
    }

    /// The response has more than `max` of `what`.
    pub(crate) fn too_many(max: usize, what: &str) -> Self {
        Self::new(ModelErrorKind::TooLarge, format!("the response has more than {max} {what}"))
    }

    /// The request cannot be written in the provider's format.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ModelErrorKind::BadRequest, message)
    }
}

/// Returns at most [`SHORT_TEXT_BYTES_MAX`] bytes of a text, on one line.
pub(crate) fn short(text: &str) -> String {
    let end = text.floor_char_boundary(SHORT_TEXT_BYTES_MAX);
    text[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: Option<u16>, body: &str, kind: ModelErrorKind, message: &str) {
        let error = ProviderFailure::read(status, body).into_error(None);
        assert_eq!((error.kind, error.message.as_str()), (kind, message), "{body}");
    }

    #[test]
    fn openai_bodies() {
        check(
            Some(401),
            r#"{"error":{"message":"Incorrect API key","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#,
            ModelErrorKind::Unauthorised,
            "Incorrect API key",
        );
        check(
            Some(400),
            r#"{"error":{"message":"too big","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
            ModelErrorKind::ContextOverflow,
            "too big",
        );
        check(
            Some(429),
            r#"{"error":{"message":"Limit of tokens per minute, reduce the length of the messages","type":"tokens","code":"rate_limit_exceeded"}}"#,
            ModelErrorKind::RateLimited,
            "Limit of tokens per minute, reduce the length of the messages",
        );
        check(
            Some(429),
            r#"{"error":{"message":"pay","type":"insufficient_quota","code":"insufficient_quota"}}"#,
            ModelErrorKind::Unauthorised,
            "pay",
        );
        check(Some(404), r#"{"error":{"message":"no model x"}}"#, ModelErrorKind::BadRequest, "no model x");
    }

    #[test]
    fn google_bodies() {
        let body = |code: u16, status: &str, details: &str| {
            format!(
                r#"{{"error":{{"code":{code},"message":"m","status":"{status}","details":[{details}]}}}}"#
            )
        };
        let delay = r#"{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"12.5s"}"#;
        let busy = ProviderFailure::read(Some(429), &body(429, "RESOURCE_EXHAUSTED", delay)).into_error(None);
        assert_eq!((busy.kind, busy.retry_after), (ModelErrorKind::RateLimited, Some(Millis(12_500))));
        let day = r#"{"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel"}]}"#;
        check(Some(429), &body(429, "RESOURCE_EXHAUSTED", day), ModelErrorKind::Unauthorised, "m");
        let key = r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}"#;
        check(Some(400), &body(400, "INVALID_ARGUMENT", key), ModelErrorKind::Unauthorised, "m");
        check(Some(403), &body(403, "PERMISSION_DENIED", ""), ModelErrorKind::Unauthorised, "m");
        check(Some(400), &body(400, "INVALID_ARGUMENT", ""), ModelErrorKind::BadRequest, "m");
        check(Some(503), &body(503, "UNAVAILABLE", ""), ModelErrorKind::Unavailable, "m");
        let list = format!("[{}]", body(503, "UNAVAILABLE", ""));
        check(None, &list, ModelErrorKind::Unavailable, "m");
        check(
            Some(400),
            r#"{"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}"#,
            ModelErrorKind::ContextOverflow,
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        );
    }

    #[test]
    fn waits_in_words() {
        for (message, wait) in [
            ("Rate limit reached. Please try again in 1.2s. Visit", Some(1_200)),
            ("Please try again in 20ms.", Some(20)),
            ("try again in 4m59s", Some(299_000)),
            ("try again in 6m0s", Some(300_000)),
            ("try again in 900h", Some(RETRY_AFTER_MAX.0)),
            ("try again in a while", None),
            ("try again in ", None),
            ("try again in 5 minutes", None),
            ("slow down", None),
        ] {
            assert_eq!(wait_in(message), wait.map(Millis), "{message}");
        }
        let body = r#"{"error":{"message":"try again in 2s","code":"rate_limit_exceeded"}}"#;
        let told = |retry_after| ProviderFailure::read(Some(429), body).into_error(retry_after).retry_after;
        assert_eq!(told(None), Some(Millis(2_000)));
        assert_eq!(told(Some(Millis(7))), Some(Millis(7)), "a header counts before words");
        assert_eq!(ProviderFailure::read(Some(400), "try again in 2s").into_error(None).retry_after, None);
    }

    #[test]
    fn what_is_to_be_paid_is_not_tried_again() {
        for code in [
            "insufficient_quota",
            "credit_balance_exhausted",
            "organization_spend_limit_exceeded",
            "project_spend_limit_exceeded",
            "organization_usage_limit_exceeded",
            "billing_hard_limit_reached",
        ] {
            let body = format!(r#"{{"error":{{"message":"pay","type":"rate_limit","code":"{code}"}}}}"#);
            check(Some(429), &body, ModelErrorKind::Unauthorised, "pay");
        }
    }

    #[test]
    fn anthropic_bodies() {
        let body = |kind: &str, message: &str| {
            format!(
                r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}},"request_id":"r"}}"#
            )
        };
        let cases = [
            (Some(529), "overloaded_error", "Overloaded", ModelErrorKind::Unavailable),
            (None, "overloaded_error", "Overloaded", ModelErrorKind::Unavailable),
            (None, "rate_limit_error", "slow", ModelErrorKind::RateLimited),
            (None, "authentication_error", "key", ModelErrorKind::Unauthorised),
            (None, "invalid_request_error", "bad", ModelErrorKind::BadRequest),
            (Some(413), "request_too_large", "large", ModelErrorKind::ContextOverflow),
            (
                Some(400),
                "invalid_request_error",
                "prompt is too long: 200001 tokens > 200000 maximum",
                ModelErrorKind::ContextOverflow,
            ),
            (Some(402), "billing_error", "pay", ModelErrorKind::Unauthorised),
        ];
        for (status, code, message, kind) in cases {
            check(status, &body(code, message), kind, message);
        }
    }

    #[test]
    fn bodies_of_local_servers_and_gateways() {
        check(
            Some(404),
            r#"{"error":"model 'x' not found"}"#,
            ModelErrorKind::BadRequest,
            "model 'x' not found",
        );
        check(
            None,
            r#"{"error":{"code":500,"message":"the request exceeds the available context size","type":"server_error"}}"#,
            ModelErrorKind::ContextOverflow,
            "the request exceeds the available context size",
        );
        check(
            None,
            r#"{"error":{"code":429,"message":"slow down"}}"#,
            ModelErrorKind::RateLimited,
            "slow down",
        );
        check(
            None,
            r#"{"error":{"code":502,"message":"upstream"}}"#,
            ModelErrorKind::Unavailable,
            "upstream",
        );
        check(
            Some(400),
            r#"{"object":"error","message":"This model's maximum context length is 4096 tokens","code":40303}"#,
            ModelErrorKind::ContextOverflow,
            "This model's maximum context length is 4096 tokens",
        );
        check(Some(422), r#"{"detail":"missing field"}"#, ModelErrorKind::BadRequest, "missing field");
        check(
            Some(422),
            r#"{"detail":[{"loc":["body"],"msg":"x"}]}"#,
            ModelErrorKind::BadRequest,
            r#"{"detail":[{"loc":["body"],"msg":"x"}]}"#,
        );
        check(
            Some(400),
            r#"[{"error":{"code":400,"message":"in a list"}}]"#,
            ModelErrorKind::BadRequest,
            "in a list",
        );
    }

    #[test]
    fn bodies_that_are_no_json() {
        check(
            Some(502),
            "<html>\nBad Gateway</html>",
            ModelErrorKind::Unavailable,
            "<html> Bad Gateway</html>",
        );
        check(Some(503), "", ModelErrorKind::Unavailable, "the provider gives no reason");
        check(Some(301), "moved", ModelErrorKind::BadRequest, "moved");
        check(Some(500), "{}", ModelErrorKind::Unavailable, "{}");
        check(None, "null", ModelErrorKind::Unavailable, "null");
    }

    #[test]
    fn messages_are_cut_between_characters() {
        let long = "ü".repeat(SHORT_TEXT_BYTES_MAX);
        assert!(short(&long).len() <= SHORT_TEXT_BYTES_MAX);
        assert_eq!(short("a\u{0}b\r\nc"), "a b  c");
    }

    #[test]
    fn every_status_has_a_kind() {
        for status in [401, 402, 403] {
            assert_eq!(by_status(status), ModelErrorKind::Unauthorised);
        }
        for status in [408, 409, 425, 500, 502, 503, 504, 529] {
            assert_eq!(by_status(status), ModelErrorKind::Unavailable);
        }
        for status in [300, 307, 400, 404, 405, 415, 422] {
            assert_eq!(by_status(status), ModelErrorKind::BadRequest);
        }
        assert_eq!(by_status(429), ModelErrorKind::RateLimited);
        assert_eq!(by_status(413), ModelErrorKind::ContextOverflow);
    }
}
