//! What a run is doing, with what it knows only while it does that.

use crate::entry::CompactionReason;
use crate::message::FinishReason;
use crate::run::event::Outcome;
use crate::run::state::Call;
use crate::time::Timestamp;

/// What a run is doing.
#[derive(Debug, Clone, PartialEq)]
pub enum Phase {
    /// Nothing: it does not exist yet.
    New,
    /// Waiting for its session to be free.
    Queued,
    /// The caller's messages are being taken in.
    Preparing,
    /// The model is answering.
    ModelRunning(ModelCall),
    /// A failed model call waits for its next try.
    BackingOff {
        /// The try that failed.
        call: ModelCall,
        /// When the next one is due.
        until: Timestamp,
    },
    /// The context is being made smaller.
    Compacting(CompactionInHand),
    /// The model has spoken and wants nothing run.
    Observed {
        /// Why it stopped.
        finish: FinishReason,
    },
    /// Tool calls of one message.
    Tools(Vec<Call>),
    /// The model stayed unreachable; an operator must say when to go on.
    Paused {
        /// The try that failed last.
        call: ModelCall,
        /// Since when.
        since: Timestamp,
    },
    /// It is over.
    Finished {
        /// How.
        outcome: Outcome,
    },
}

/// One try of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelCall {
    /// Which model call, from 1.
    pub number: u32,
    /// Which try, from 1.
    pub attempt: u32,
    /// The first try that counts against the retries: a restart or an operator gives a fresh set.
    pub first_counted: u32,
    /// Since when.
    pub since: Timestamp,
}

/// The context is being made smaller.
#[derive(Debug, Clone, PartialEq)]
pub struct CompactionInHand {
    /// Which of the run, from 1.
    pub number: u32,
    /// How.
    pub strategy: String,
    /// Why the context is made smaller.
    pub reason: CompactionReason,
    /// How hard.
    pub level: u32,
    /// Since when.
    pub since: Timestamp,
    /// What follows.
    pub then: AfterCompaction,
}

/// What follows a compaction.
#[derive(Debug, Clone, PartialEq)]
pub enum AfterCompaction {
    /// A model call.
    Call,
    /// The planner, where the run stood before.
    Plan(Box<Phase>),
}
