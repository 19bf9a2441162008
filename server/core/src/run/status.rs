//! The status of a run, and the errors that end it.

use serde::{Deserialize, Serialize};

use crate::model::error::ModelErrorKind;

/// The status of a run, as callers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// The run waits until its session is free.
    Queued,
    /// Messages and context enter the session.
    Preparing,
    /// The model is responding.
    ModelRunning,
    /// At least one tool call goes on without a person.
    ToolRunning,
    /// Nothing goes on until a person answers.
    AwaitingHuman,
    /// The run waits before the next attempt of the model call.
    BackingOff,
    /// The context is being compacted.
    Compacting,
    /// The run waits for an operator, or for the next call of `Step`.
    Paused,
    /// Terminal: the model's last message is the result.
    Completed,
    /// Terminal: an error or a limit ended the run.
    Failed,
    /// Terminal: a caller or a person ended the run.
    Aborted,
}

impl RunStatus {
    /// Every status, in the order of the codes.
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

    /// True once the run has ended.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Aborted)
    }

    /// True if the run needs someone from outside to go on.
    #[must_use]
    pub fn is_interrupted(self) -> bool {
        matches!(self, Self::AwaitingHuman | Self::Paused)
    }

    /// Name of the status, as shown and logged: `model_running`.
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

    /// Number of the status, as stored in columns. A number is never reused.
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

    /// The status with this [`Self::code`]; `None` for an unknown number.
    #[must_use]
    pub fn of_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|status| i64::from(status.code()) == code)
    }
}

/// The reason why a run failed, was aborted, or waits for another attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    /// Kind of the error, from a closed list.
    pub code: RunErrorCode,
    /// Text for people. It never contains a secret.
    pub message: String,
    /// HTTP status of the provider, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
}

impl RunError {
    /// An error without an HTTP status.
    #[must_use]
    pub fn new(code: RunErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), http_status: None }
    }
}

/// Kinds of errors of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunErrorCode {
    /// The model refused to respond.
    ModelRefused,
    /// The provider's content filter cut off the response.
    ContentFiltered,
    /// The run reached [`crate::agent::LoopLimits::max_iterations`].
    LimitIterations,
    /// The run reached [`crate::agent::LoopLimits::max_tool_rounds`].
    LimitToolRounds,
    /// The run reached [`crate::agent::ToolPolicy::max_calls_per_run`].
    LimitToolCalls,
    /// The run reached [`crate::agent::LoopLimits::max_run_duration`].
    LimitDuration,
    /// The run reached [`crate::agent::LoopLimits::max_tokens`].
    LimitTokens,
    /// The run reached [`crate::agent::LoopLimits::max_cost_micros`].
    LimitCost,
    /// The run reached [`crate::agent::LoopLimits::max_consecutive_failures`].
    LimitConsecutiveFailures,
    /// The run reached [`crate::agent::LoopLimits::max_repeated_calls`].
    LimitRepeatedCalls,
    /// The run alone needs more memory than all live runs may have.
    LimitMemory,
    /// A caller called `Abort`.
    AbortedByCaller,
    /// The client disconnected, and the run was told to end then.
    AbortedByDisconnect,
    /// A person denied a tool call and stopped the run.
    AbortedByDenial,
    /// A planner, hook or context source failed or gave an invalid result.
    ExtensionFailed,
    /// A fault of the server.
    Internal,
    /// A model call failed in this way.
    #[serde(untagged)]
    Model(ModelErrorKind),
}

impl RunErrorCode {
    /// Name of the code, as stored and counted: `limit_iterations`.
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
