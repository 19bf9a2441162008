//! Reads the kind of body and the requested wait from the headers of a response.

use agentloop_core::model::retry::RETRY_AFTER_MAX;
use agentloop_core::time::Millis;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, DATE, HeaderMap, RETRY_AFTER};

/// Kind of a response's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// An event stream. Also assumed if there is no content type.
    Events,
    /// One JSON document, from a server that does not stream.
    Json,
    /// Anything else, described for an error message.
    Other(String),
}

/// Returns the wait that the provider requests, at most [`RETRY_AFTER_MAX`].
///
/// A date is compared with the response's own `Date` header, so the clocks of client and server need not agree.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Millis> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let wait = text("retry-after-ms")
        .and_then(|ms| millis(ms, 1.0))
        .or_else(|| text(RETRY_AFTER.as_str()).and_then(|seconds| millis(seconds, 1_000.0)))
        .or_else(|| {
            let until = httpdate::parse_http_date(text(RETRY_AFTER.as_str())?).ok()?;
            let now = httpdate::parse_http_date(text(DATE.as_str())?).ok()?;
            let wait = until.duration_since(now).unwrap_or_default();
            Some(Millis::of(wait))
        })?;
    Some(wait.min(RETRY_AFTER_MAX))
}

fn millis(text: &str, unit: f64) -> Option<Millis> {
    let number: f64 = text.parse().ok()?;
    // The cast saturates, and the caller cuts what is too long.
    (number.is_finite() && number >= 0.0).then(|| Millis((number * unit).ceil() as u64))
}

/// Returns the encoding of a body that is encoded, against what the request says.
pub(super) fn encoding(headers: &HeaderMap) -> Option<&str> {
    let encoding = headers.get(CONTENT_ENCODING)?.to_str().ok()?.trim();
    (!matches!(encoding, "" | "identity")).then_some(encoding)
}

/// Determines the kind of body from the headers.
pub(super) fn content(headers: &HeaderMap) -> Content {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if let Some(encoding) = encoding(headers) {
        return Content::Other(format!("{encoding}-encoded"));
    }
    let media_type = text(CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media_type.as_str() {
        "" | "text/event-stream" => Content::Events,
        "application/json" | "application/problem+json" => Content::Json,
        _ => Content::Other(media_type),
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn waits() {
        const DATE: (&str, &str) = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        type Case = (&'static [(&'static str, &'static str)], Option<u64>);
        let cases: [Case; 13] = [
            (&[], None),
            (&[("retry-after", "2")], Some(2_000)),
            (&[("retry-after", " 0.5 ")], Some(500)),
            (&[("retry-after", "0")], Some(0)),
            (&[("retry-after", "-1")], None),
            (&[("retry-after", "NaN")], None),
            (&[("retry-after", "soon")], None),
            (&[("retry-after", "99999999999999999999")], Some(RETRY_AFTER_MAX.0)),
            (&[("retry-after-ms", "150"), ("retry-after", "1")], Some(150)),
            (&[("retry-after-ms", "x"), ("retry-after", "1")], Some(1_000)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT"), DATE], Some(10_000)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:27 GMT"), DATE], Some(0)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT")], None),
        ];
        for (given, expected) in cases {
            assert_eq!(retry_after(&headers(given)), expected.map(Millis), "{given:?}");
        }
    }

    #[test]
    fn bodies() {
        let of = |media_type| content(&headers(&[("content-type", media_type)]));
        assert_eq!(content(&headers(&[])), Content::Events);
        assert_eq!(of("text/event-stream"), Content::Events);
        assert_eq!(of("Text/Event-Stream; charset=utf-8"), Content::Events);
        assert_eq!(of("application/json; charset=utf-8"), Content::Json);
        assert_eq!(of("text/html"), Content::Other("text/html".to_owned()));
        assert_eq!(
            content(&headers(&[("content-type", "text/event-stream"), ("content-encoding", "gzip")])),
            Content::Other("gzip-encoded".to_owned())
        );
    }
}
