//! Failures of model calls: their kinds, and whether another attempt may help.

use serde::{Deserialize, Serialize};

/// Kinds of failure of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorKind {
    /// The connection could not be made, or broke before the response was complete.
    #[error("connection failed")]
    Connection,
    /// A timeout passed: connect, first token, idle or total.
    #[error("timed out")]
    Timeout,
    /// The provider limits the rate of requests (429).
    #[error("rate limited")]
    RateLimited,
    /// The provider is overloaded or failed: status 408, 5xx or 529, or such an error inside the stream.
    #[error("provider unavailable")]
    Unavailable,
    /// The response breaks the provider's protocol, or ends before it is complete.
    #[error("malformed response")]
    Malformed,
    /// The request is longer than the model's context.
    #[error("context too long")]
    ContextOverflow,
    /// The provider refuses the request (400, 404, 422).
    #[error("request refused")]
    BadRequest,
    /// The API key is missing, wrong or not permitted (401, 403).
    #[error("not authorised")]
    Unauthorised,
    /// The response is larger than a bound of this server.
    #[error("response too large")]
    TooLarge,
    /// No configured provider serves the model. The run is paused until a start that has the provider.
    #[error("not configured")]
    #[serde(rename = "model_not_configured")]
    NotConfigured,
}

/// Remedies for a failed model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The same request may succeed later.
    Retryable,
    /// The context must be compacted before the next attempt.
    Overflow,
    /// A retry cannot help.
    Fatal,
}

impl ModelErrorKind {
    /// The kind as it is stored, and as metrics label it: `rate_limited`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Timeout => "timeout",
            Self::RateLimited => "rate_limited",
            Self::Unavailable => "unavailable",
            Self::Malformed => "malformed",
            Self::ContextOverflow => "context_overflow",
            Self::BadRequest => "bad_request",
            Self::Unauthorised => "unauthorised",
            Self::TooLarge => "too_large",
            Self::NotConfigured => "model_not_configured",
        }
    }

    /// The remedy for this failure.
    #[must_use]
    pub fn class(self) -> ErrorClass {
        match self {
            Self::Connection | Self::Timeout | Self::RateLimited | Self::Unavailable | Self::Malformed => {
                ErrorClass::Retryable
            }
            Self::ContextOverflow => ErrorClass::Overflow,
            Self::BadRequest | Self::Unauthorised | Self::TooLarge | Self::NotConfigured => ErrorClass::Fatal,
        }
    }
}
