//! Why things end: classes of a model's failure, reasons of a run's end, and the core's refusals.

use serde::{Deserialize, Serialize};

use crate::policy::PolicyRule;
use crate::run::human::{Answer, BadAnswer, CannotRemember};
use crate::run::status::RunStatus;

/// What kind of failure a model call met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorKind {
    /// No connection, or it broke before or during the answer.
    #[error("connection failed")]
    Connection,
    /// Connect, first-token, idle or total timeout.
    #[error("timed out")]
    Timeout,
    /// Too many requests (429).
    #[error("rate limited")]
    RateLimited,
    /// The provider is overloaded or failed (408, 5xx, 529, or an error inside the stream that says so).
    #[error("provider unavailable")]
    Unavailable,
    /// The stream is not what the protocol says, or ended before the answer did.
    #[error("malformed answer")]
    Malformed,
    /// The request does not fit into the model's context.
    #[error("context too long")]
    ContextOverflow,
    /// The provider refuses the request as it is (400, 404, 422).
    #[error("request refused")]
    BadRequest,
    /// The key is missing, wrong or not allowed to (401, 403).
    #[error("not authorised")]
    Unauthorised,
    /// The answer passed our own bounds.
    #[error("answer too large")]
    TooLarge,
}

/// What to do about a failed model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// Try again after a while.
    Retryable,
    /// Make the context smaller first.
    Overflow,
    /// Trying again changes nothing.
    Fatal,
}

impl ModelErrorKind {
    /// As stored and counted: `rate_limited`.
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
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn class(self) -> ErrorClass {
        match self {
            Self::Connection | Self::Timeout | Self::RateLimited | Self::Unavailable | Self::Malformed => {
                ErrorClass::Retryable
            }
            Self::ContextOverflow => ErrorClass::Overflow,
            Self::BadRequest | Self::Unauthorised | Self::TooLarge => ErrorClass::Fatal,
        }
    }
}

/// Why the machine does not take an input. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The run has not started, or has already.
    #[error("not possible while the run is {0:?}")]
    WrongPhase(Option<RunStatus>),
    /// News of a model call that is not the current one.
    #[error("not the current model call")]
    StaleModelCall,
    /// There was never such a tool call, or its lease is another.
    #[error("no such tool call")]
    UnknownCall,
    /// The tool call is settled, by this very try.
    #[error("the result is recorded")]
    DuplicateResult,
    /// The tool call is settled otherwise, or another try is under way.
    #[error("the tool call has moved on")]
    StaleAttempt,
    /// There is no such question.
    #[error("no such question")]
    UnknownRequest,
    /// Nobody decides that: it comes with time, or with the end of the run.
    #[error("not a decision that anyone can make")]
    NotADecision,
    /// The answer does not fit what is asked.
    #[error(transparent)]
    BadAnswer(BadAnswer),
    /// The arguments that a human put in place of the model's are denied by a rule.
    #[error("{} denies these arguments", .0.title())]
    DeniedByRule(Box<PolicyRule>),
    /// The decision cannot be remembered as was asked.
    #[error(transparent)]
    CannotRemember(CannotRemember),
    /// The question has another answer.
    #[error("answered before: {}", .0.decision.name())]
    AlreadyResolved(Box<Answer>),
    /// The id was used before, with other content.
    #[error("the id was used before, with other content")]
    IdReused,
    /// Too many messages wait for the run's next model call.
    #[error("too many messages wait for the run's next model call")]
    TooMuchHeld,
    /// The run goes on by itself.
    #[error("the run is not stepped")]
    NotStepped,
    /// A planner's word on what is decided already.
    #[error("not the decision that is due")]
    StaleDecision,
    /// What was shown is not what is asked.
    #[error("the answer is about something else")]
    DigestMismatch,
}
