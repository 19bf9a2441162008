//! What a tool tells the model when it fails, and why a host stops.

use std::{fmt::Display, time::Duration};

use agentloop_proto::v1::AttemptEffect;

/// A failed call, as the model reads it.
///
/// The effect says what is known about what the call did. It decides, with the tool's effect class, whether the call
/// may be tried again; unless told, it is `Maybe`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    pub(crate) message: String,
    pub(crate) retryable: bool,
    pub(crate) delay: Option<Duration>,
    pub(crate) effect: AttemptEffect,
}

impl ToolError {
    /// The call failed for good. The model reads `message` and goes on.
    pub fn failed(message: impl Display) -> Self {
        ToolError {
            message: message.to_string(),
            retryable: false,
            delay: None,
            effect: AttemptEffect::Maybe,
        }
    }

    /// The call failed for a passing reason; after `delay` it may be tried again, where that is safe.
    pub fn retryable(message: impl Display, delay: Duration) -> Self {
        let delay = (!delay.is_zero()).then_some(delay);
        ToolError { retryable: true, delay, ..ToolError::failed(message) }
    }

    /// Says what is known about what the call did.
    pub fn with_effect(mut self, effect: AttemptEffect) -> Self {
        self.effect = effect;
        self
    }

    /// The call did nothing: trying again is safe.
    pub fn did_nothing(self) -> Self {
        self.with_effect(AttemptEffect::None)
    }
}

/// Why a host could not be made or has stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The endpoint or the token cannot be used.
    #[error(transparent)]
    Client(#[from] crate::Error),
    /// A tool's declaration is not one that a server would take.
    #[error("tool `{tool}`: {problem}")]
    InvalidTool {
        /// The tool's name.
        tool: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The host id is not one that a server would take.
    #[error("`{0}` is no host id: 1 to 128 of A-Z a-z 0-9 . _ : -")]
    InvalidHostId(String),
    /// There is nothing to offer.
    #[error("the host has neither tools nor extensions")]
    NoTools,
    /// The server turned the host away for a reason that stays.
    #[error("the server turned the host away: {0}")]
    TurnedAway(String),
    /// The server took none of the tools.
    #[error("the server took none of the tools: {}", .0.join("; "))]
    ToolsRefused(Vec<String>),
    /// Shut down while this many results were not recorded by the server.
    #[error("{0} results could not be delivered")]
    Undelivered(usize),
}
