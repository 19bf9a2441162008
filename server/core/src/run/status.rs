//! Where a run stands, and why it failed.

use serde::{Deserialize, Serialize};

use crate::error::ModelErrorKind;

/// Where a run stands, as everyone outside sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Waits for its session to be free.
    Queued,
    /// Gathers what the model is to read.
    Preparing,
    /// The model is answering.
    ModelRunning,
    /// At least one tool call is under way.
    ToolRunning,
    /// Nothing goes on until a human answers.
    AwaitingHuman,
    /// Waits before it calls the model again.
    BackingOff,
    /// Makes the context smaller.
    Compacting,
    /// Waits for an operator.
    Paused,
    /// Terminal: the model gave its final answer.
    Completed,
    /// Terminal: it went wrong.
    Failed,
    /// Terminal: someone ended it.
    Aborted,
}

impl RunStatus {
    /// Every status.
    pub const ALL: [Self; 11] = [
        Self::Queued,
        Self::Preparing,
        Self::ModelRunning,
        Self::ToolRunning,
        Self::AwaitingHuman,
        Self::BackingOff,
        Self::Compacting,
        Self::Paused,
        Self::Completed,
        Self::Failed,
        Self::Aborted,
    ];

    /// Whether the run is over.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Aborted)
    }

    /// Whether it needs someone from outside to go on.
    #[must_use]
    pub fn is_interrupted(self) -> bool {
        matches!(self, Self::AwaitingHuman | Self::Paused)
    }

    /// As shown and logged: `model_running`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Preparing => "preparing",
            Self::ModelRunning => "model_running",
            Self::ToolRunning => "tool_running",
            Self::AwaitingHuman => "awaiting_human",
            Self::BackingOff => "backing_off",
            Self::Compacting => "compacting",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
        }
    }

    /// As stored in columns. A number is never given to another status.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Queued => 1,
            Self::Preparing => 2,
            Self::ModelRunning => 3,
            Self::ToolRunning => 4,
            Self::AwaitingHuman => 5,
            Self::BackingOff => 6,
            Self::Compacting => 7,
            Self::Paused => 8,
            Self::Completed => 9,
            Self::Failed => 10,
            Self::Aborted => 11,
        }
    }

    /// Reads [`Self::code`] back.
    #[must_use]
    pub fn of_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|status| i64::from(status.code()) == code)
    }
}

/// Why a run failed, was aborted, or is held up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    /// One of a closed list.
    pub code: RunErrorCode,
    /// For people. Never holds a secret.
    pub message: String,
    /// The provider's HTTP status, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
}

impl RunError {
    /// Without an HTTP status.
    #[must_use]
    pub fn new(code: RunErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), http_status: None }
    }
}

/// The closed list of a run's failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunErrorCode {
    /// The model declined to answer.
    ModelRefused,
    /// The provider's filter cut the answer.
    ContentFiltered,
    /// [`crate::agent::LoopLimits::max_iterations`].
    LimitIterations,
    /// [`crate::agent::LoopLimits::max_tool_rounds`].
    LimitToolRounds,
    /// [`crate::agent::ToolPolicy::max_calls_per_run`].
    LimitToolCalls,
    /// [`crate::agent::LoopLimits::max_run_duration`].
    LimitDuration,
    /// [`crate::agent::LoopLimits::max_tokens`].
    LimitTokens,
    /// [`crate::agent::LoopLimits::max_cost_micros`].
    LimitCost,
    /// [`crate::agent::LoopLimits::max_consecutive_failures`].
    LimitConsecutiveFailures,
    /// [`crate::agent::LoopLimits::max_repeated_calls`].
    LimitRepeatedCalls,
    /// The run alone needs more memory than all live runs may have.
    LimitMemory,
    /// By a call of `Abort`.
    AbortedByCaller,
    /// The client went away, and the run was told to end then.
    AbortedByDisconnect,
    /// A human denied a tool call and stopped the run.
    AbortedByDenial,
    /// A planner, hook or context source failed or answered nonsense.
    ExtensionFailed,
    /// A fault of ours.
    Internal,
    /// The model failed in this way.
    #[serde(untagged)]
    Model(ModelErrorKind),
}

impl RunErrorCode {
    /// As stored and counted: `limit_iterations`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ModelRefused => "model_refused",
            Self::ContentFiltered => "content_filtered",
            Self::LimitIterations => "limit_iterations",
            Self::LimitToolRounds => "limit_tool_rounds",
            Self::LimitToolCalls => "limit_tool_calls",
            Self::LimitDuration => "limit_duration",
            Self::LimitTokens => "limit_tokens",
            Self::LimitCost => "limit_cost",
            Self::LimitConsecutiveFailures => "limit_consecutive_failures",
            Self::LimitRepeatedCalls => "limit_repeated_calls",
            Self::LimitMemory => "limit_memory",
            Self::AbortedByCaller => "aborted_by_caller",
            Self::AbortedByDisconnect => "aborted_by_disconnect",
            Self::AbortedByDenial => "aborted_by_denial",
            Self::ExtensionFailed => "extension_failed",
            Self::Internal => "internal",
            Self::Model(kind) => kind.as_str(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_survive_the_round_trip() {
        for status in RunStatus::ALL {
            assert_eq!(RunStatus::of_code(status.code().into()), Some(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
            assert!(!(status.is_terminal() && status.is_interrupted()));
        }
        assert_eq!(
            (RunStatus::of_code(0), RunStatus::of_code(12), RunStatus::of_code(-1)),
            (None, None, None)
        );
    }

    #[test]
    fn codes_survive_the_round_trip() {
        for code in [
            RunErrorCode::Model(ModelErrorKind::ContextOverflow),
            RunErrorCode::LimitTokens,
            RunErrorCode::Internal,
        ] {
            let text = serde_json::to_string(&code).unwrap();
            assert_eq!(text, format!("\"{}\"", code.as_str()));
            assert_eq!(serde_json::from_str::<RunErrorCode>(&text).unwrap(), code, "{text}");
        }
    }
}
