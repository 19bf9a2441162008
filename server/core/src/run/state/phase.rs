//! The phase of a run, with the facts that hold only in that phase.

use crate::entry::CompactionReason;
use crate::id::Attempt;
use crate::message::FinishReason;
use crate::run::event::Outcome;
use crate::run::state::{RoundCall, RunState};
use crate::time::Timestamp;

/// The current activity of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Phase {
    /// The run does not exist yet.
    New,
    /// The run waits until its session is free.
    Queued,
    /// The caller's messages enter the session, after hooks and context sources were called.
    Preparing,
    /// The model is responding.
    ModelRunning(ModelCall),
    /// A failed model call waits for its next attempt.
    BackingOff {
        /// The attempt that failed.
        call: ModelCall,
        /// The time of the next attempt.
        until: Timestamp,
    },
    /// The context is being compacted.
    Compacting(RunningCompaction),
    /// The model has responded and requests no tool call.
    Observed {
        /// Finish reason, as the provider gave it.
        finish: FinishReason,
    },
    /// A round: the tool calls of one message of the model.
    Tools(Vec<RoundCall>),
    /// The model stayed unreachable; an operator must say when to go on.
    Paused {
        /// The attempt that failed last.
        call: ModelCall,
        /// The time of the pause.
        since: Timestamp,
    },
    /// The run has ended.
    Finished {
        /// Outcome of the run.
        outcome: Outcome,
    },
}

/// One attempt of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelCall {
    /// Number of the model call in its run, counted from 1.
    pub number: u32,
    /// The attempt under way.
    pub attempt: Attempt,
    /// The first attempt that counts against the retries. A restart or an operator gives a new set of retries.
    pub first_counted: Attempt,
    /// The time at which the attempt began.
    pub since: Timestamp,
}

/// A compaction that is under way.
#[derive(Debug, Clone, PartialEq)]
pub struct RunningCompaction {
    /// Number of the compaction in its run, counted from 1.
    pub number: u32,
    /// The strategy at work.
    pub strategy: String,
    /// Reason for the compaction.
    pub reason: CompactionReason,
    /// Strength: 0 as the policy says, then one more each time that the last compaction did not help.
    pub level: u32,
    /// The time at which the compaction began.
    pub since: Timestamp,
    /// Continuation after the compaction.
    pub then: AfterCompaction,
}

/// Continuations after a compaction.
#[derive(Debug, Clone, PartialEq)]
pub enum AfterCompaction {
    /// The next model call.
    Call {
        /// True if the last model call was too large to be sent. It then counts as one iteration with the next one.
        unsent: bool,
    },
    /// The planner is called again, in the phase that the compaction interrupted.
    Plan(Box<Phase>),
}

impl Phase {
    /// The phase itself, or the phase that a planned compaction interrupts.
    pub(super) fn interrupted(&self) -> &Self {
        match self {
            Self::Compacting(RunningCompaction { then: AfterCompaction::Plan(before), .. }) => before,
            phase => phase,
        }
    }

    /// [`Self::interrupted`], to be changed.
    pub(super) fn interrupted_mut(&mut self) -> &mut Self {
        match self {
            Self::Compacting(RunningCompaction { then: AfterCompaction::Plan(before), .. }) => before,
            phase => phase,
        }
    }
}

impl RunState {
    /// True if the last model call was too large to be sent, and its context is being compacted.
    #[must_use]
    pub fn last_call_was_unsent(&self) -> bool {
        matches!(
            self.phase(),
            Phase::Compacting(RunningCompaction { then: AfterCompaction::Call { unsent: true }, .. })
        )
    }
}
