//! Errors of the core: kinds of failed model calls, and refusals of inputs.

use serde::{Deserialize, Serialize};

use crate::policy::PolicyRule;
use crate::run::human::{Answer, BadAnswer, CannotRemember};
use crate::run::status::RunStatus;

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
    #[error("malformed answer")]
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
    #[error("answer too large")]
    TooLarge,
}

/// How to go on after a failed model call.
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
        }
    }

    /// How to go on after this failure.
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

/// Reasons of the machine to refuse an input. A refused input changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The run's phase does not allow the input.
    #[error("not possible while the run is {0:?}")]
    WrongPhase(Option<RunStatus>),
    /// The input is about a model call that is not the current one.
    #[error("not the current model call")]
    StaleModelCall,
    /// The run has no such tool call, or its lease is a different one.
    #[error("no such tool call")]
    UnknownCall,
    /// The result of this attempt was recorded before.
    #[error("the result is recorded")]
    DuplicateResult,
    /// The tool call ended otherwise, or a later attempt is under way.
    #[error("the tool call has moved on")]
    StaleAttempt,
    /// The run has no open or answered question with this id.
    #[error("no such question")]
    UnknownRequest,
    /// The decision is one that only the run itself makes: expired or withdrawn.
    #[error("not a decision that anyone can make")]
    NotADecision,
    /// The answer does not fit the question.
    #[error(transparent)]
    BadAnswer(BadAnswer),
    /// A rule denies the edited arguments.
    #[error("{} denies these arguments", .0.title())]
    DeniedByRule(Box<PolicyRule>),
    /// The decision cannot be remembered as requested.
    #[error(transparent)]
    CannotRemember(CannotRemember),
    /// The question already has a different answer.
    #[error("answered before: {}", .0.decision.name())]
    AlreadyResolved(Box<Answer>),
    /// The request's id was used before with different content.
    #[error("the id was used before, with other content")]
    IdReused,
    /// Too many messages wait for the run's next model call.
    #[error("too many messages wait for the run's next model call")]
    TooManyWaitingMessages,
    /// The run was not started with `stepped`, so it takes no `Step`.
    #[error("the run is not stepped")]
    NotStepped,
    /// The planner's instruction is not for the decision that is due.
    #[error("not the decision that is due")]
    StaleDecision,
    /// The digest of the answer differs from the question's: the person saw something else.
    #[error("the answer is about something else")]
    DigestMismatch,
}
