//! Progress of a run: its times, its place in the journal and in the session, and its counters.

use serde::{Deserialize, Serialize};

use crate::id::{EntryNo, Seq};
use crate::message::Usage;
use crate::run::state::RunState;
use crate::time::{Millis, Timestamp};

/// The times of a run. All are 0 until the run starts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Times {
    pub(super) started: Timestamp,
    /// Later than `started` for a run that was queued.
    pub(super) entered: Timestamp,
    pub(super) updated: Timestamp,
}

/// The last event of the run and the last entry of its session.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LastRecorded {
    pub(super) seq: Seq,
    pub(super) entry: EntryNo,
}

/// Counters of a run. None of them ever falls.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Counters {
    pub(super) iterations: u32,
    pub(super) model_calls: u32,
    pub(super) tool_rounds: u32,
    pub(super) tool_calls: u32,
    pub(super) compactions: u32,
    pub(super) decisions: u32,
    pub(super) usage: Usage,
    pub(super) calls: CallCounts,
    pub(super) model_time: Millis,
    pub(super) tool_time: Millis,
}

/// Numbers of calls that ended, for the account of what was used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallCounts {
    /// Model calls that ended with a response, those of compactions included.
    pub model_calls: u64,
    /// Attempts of model calls that failed.
    pub failed_model_attempts: u64,
    /// Tool calls that have their result.
    pub tool_calls: u64,
    /// Tool calls whose result is an error.
    pub failed_tool_calls: u64,
}

impl std::ops::AddAssign for CallCounts {
    fn add_assign(&mut self, other: Self) {
        self.model_calls = self.model_calls.saturating_add(other.model_calls);
        self.failed_model_attempts = self.failed_model_attempts.saturating_add(other.failed_model_attempts);
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
        self.failed_tool_calls = self.failed_tool_calls.saturating_add(other.failed_tool_calls);
    }
}

impl RunState {
    /// The time at which the run started; 0 before.
    #[must_use]
    pub fn started_at(&self) -> Timestamp {
        self.times.started
    }

    /// The time at which the run entered its session: later than [`Self::started_at`] if the run was queued.
    #[must_use]
    pub fn entered_at(&self) -> Timestamp {
        self.times.entered
    }

    /// The time of the last event.
    #[must_use]
    pub fn updated_at(&self) -> Timestamp {
        self.times.updated
    }

    /// The number of the last event; 0 before the first.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.position.seq
    }

    /// The last entry of the session.
    #[must_use]
    pub fn last_entry(&self) -> EntryNo {
        self.position.entry
    }

    /// Model calls that count against the limit: retries do not, nor does a call that was too large to be sent.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.counters.iterations
    }

    /// The number of the last model call, counted from 1.
    #[must_use]
    pub fn model_calls(&self) -> u32 {
        self.counters.model_calls
    }

    /// Rounds of tool calls that were begun.
    #[must_use]
    pub fn tool_rounds(&self) -> u32 {
        self.counters.tool_rounds
    }

    /// Tool calls that were proposed. A call that was rejected at once is not counted.
    #[must_use]
    pub fn tool_calls(&self) -> u32 {
        self.counters.tool_calls
    }

    /// Compactions that were begun.
    #[must_use]
    pub fn compactions(&self) -> u32 {
        self.counters.compactions
    }

    /// Decisions in the journal, by a planner or for a step. The built-in loop records none.
    #[must_use]
    pub fn decisions(&self) -> u32 {
        self.counters.decisions
    }

    /// Tokens and cost of all model calls, those of compactions included.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.counters.usage
    }

    /// Calls of models and tools that ended.
    #[must_use]
    pub fn call_counts(&self) -> CallCounts {
        self.counters.calls
    }

    /// Time spent in model calls, each from request to end.
    #[must_use]
    pub fn model_time(&self) -> Millis {
        self.counters.model_time
    }

    /// Time spent in tool calls, each from first offer to result. Parallel calls count in full.
    #[must_use]
    pub fn tool_time(&self) -> Millis {
        self.counters.tool_time
    }
}
