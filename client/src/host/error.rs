//! Errors of a host: the failure of a call, which the model reads, and the reason why a host stops.

use std::{fmt::Display, time::Duration};

use agentloop_proto::v1::AttemptEffect;

/// A failed call, as the model reads it.
///
/// The effect says if the call may have changed something. With the tool's effect class it decides if the call may be
/// tried again. The default is `Maybe`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    pub(crate) message: String,
    pub(crate) retryable: bool,
    pub(crate) delay: Option<Duration>,
    pub(crate) effect: AttemptEffect,
}

impl ToolError {
    /// A failure that is not tried again. The model reads `message` and goes on.
    pub fn failed(message: impl Display) -> Self {
        ToolError {
            message: message.to_string(),
            retryable: false,
            delay: None,
            effect: AttemptEffect::Maybe,
        }
    }

    /// A failure for a passing reason. After `delay` the call may be tried again, if that is safe.
    pub fn retryable(message: impl Display, delay: Duration) -> Self {
        let delay = (!delay.is_zero()).then_some(delay);
        ToolError { retryable: true, delay, ..ToolError::failed(message) }
    }

    /// Sets the effect of the failed call.
    pub fn with_effect(mut self, effect: AttemptEffect) -> Self {
        self.effect = effect;
        self
    }

    pub(crate) fn is_without_effect(&self) -> bool {
        self.effect == AttemptEffect::None
    }

    /// Says that the call changed nothing: another attempt is safe.
    pub fn did_nothing(self) -> Self {
        self.with_effect(AttemptEffect::None)
    }
}

/// The reason why a host could not be built or has stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The endpoint or the token cannot be used.
    #[error(transparent)]
    Client(#[from] crate::Error),
    /// A server would refuse a tool's declaration.
    #[error("tool `{tool}`: {problem}")]
    InvalidTool {
        /// The tool, by the name that it is declared with.
        tool: String,
        /// The fault of its declaration, for people.
        problem: String,
    },
    /// A server would refuse the host id.
    #[error("`{0}` is no host id: 1 to 128 of A-Z a-z 0-9 . _ : -")]
    InvalidHostId(String),
    /// The host has no tools and no extensions.
    #[error("the host has neither tools nor extensions; add one to the builder")]
    NoTools,
    /// The server refused the host for a lasting reason.
    #[error("the server refused the host: {0}")]
    Refused(String),
    /// The server refused every tool and extension, and none of them only because it is weaker than its terms, which an
    /// operator may accept. Holds the name and reason of each.
    #[error("the server refused every tool: {}", .0.join("; "))]
    ToolsRefused(Vec<String>),
    /// The host shut down before the server recorded this many results.
    #[error("{0} results could not be delivered to the server before the shutdown")]
    Undelivered(usize),
}
