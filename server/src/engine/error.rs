//! The error of the engine's methods.

use agentloop_core::id::{EntryNo, RunId, Seq, SessionId};
use agentloop_core::run::refusal::Refusal;

use crate::auth::QuotaExceeded;
use crate::store::StoreError;

/// The reason why a call of the engine failed. A run that fails is not an error: the call that started it succeeds.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// The tenant has no run with this id.
    #[error("no such run")]
    RunNotFound,
    /// The tenant has no session with this id.
    #[error("no such session")]
    SessionNotFound,
    /// The tenant has no question to a human with this id.
    #[error("no such question")]
    RequestNotFound,
    /// The run names a planner that is not registered.
    #[error("no planner {name:?} is registered")]
    UnknownPlanner {
        /// The name in the run's spec.
        name: String,
    },
    /// The id was used before, with other content.
    #[error("the id was used before, with other content")]
    IdReused,
    /// The session has a live run.
    #[error("the session is busy with run {run}")]
    SessionBusy {
        /// The session's live run.
        run: RunId,
    },
    /// The session's queue is full.
    #[error("the queue of the session is full; wait until one of its runs has ended")]
    QueueFull,
    /// The server has its maximum of live runs.
    #[error("the server has its maximum of live runs; try again later")]
    TooManyRuns,
    /// The tenant has so many of the server's live runs that the rest is left for others.
    #[error("the tenant has its share of the server's live runs; try again when one of them has ended")]
    TooManyRunsOfTenant,
    /// Live runs hold as much memory as they may.
    #[error("live runs hold as much memory as they may; try again when one of them has ended")]
    MemoryExhausted,
    /// A quota of the caller or its tenant is used up.
    #[error(transparent)]
    QuotaExceeded(#[from] QuotaExceeded),
    /// A request that would need more memory than all live runs may have.
    #[error("the request needs about {bytes} bytes of memory, and all live runs may have {max}")]
    RequestTooLarge {
        /// About what it needs.
        bytes: usize,
        /// The bound, `server.max_live_bytes` of the configuration.
        max: usize,
    },
    /// A subscriber wants the events after one that does not exist.
    #[error("the run's last event is {last}", last = .last.0)]
    SeqAhead {
        /// The run's last event.
        last: Seq,
    },
    /// The token of a subscription is not one of this session.
    #[error("the token is not one that this server gave out for this session")]
    BadResumeToken,
    /// The request demands calls of a tool that its run is not offered.
    #[error("no tool that the run is offered is named {name:?}")]
    ToolNotOffered {
        /// The name that was demanded.
        name: String,
    },
    /// The request demands a tool call of a run that is offered no tools.
    #[error("the run is offered no tools, so the model cannot be required to call one")]
    NoToolOffered,
    /// The subscriber was ended because it did not read for too long.
    #[error("the subscriber did not read; subscribe again from the last event that it has seen")]
    SubscriberTooSlow,
    /// The arguments that a human edited do not follow the tool's schema.
    #[error("{0}")]
    BadArguments(String),
    /// The run's machine refused the input.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store refused the operation or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A run panicked while it came up.
    #[error("a fault of the server; its log has the details")]
    Fault,
    /// The server is shutting down and takes no new work.
    #[error("the server is shutting down")]
    ShuttingDown,
}

impl EngineError {
    /// True if a repetition may succeed: the store was unavailable, or another writer was faster.
    pub(in crate::engine) fn is_transient(&self) -> bool {
        matches!(self, Self::Store(StoreError::Unavailable { .. } | StoreError::SessionMoved))
    }

    /// True if stored data is damaged: a repetition finds the same.
    pub(in crate::engine) fn is_damage(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_damage())
    }
}

/// Tells people that an entry of a session is damaged, and how to go on.
#[must_use]
pub fn damaged_entry(session: &SessionId, entry: EntryNo) -> String {
    let EntryNo(entry) = entry;
    let damage = format!("entry {entry} of session {session} is damaged, so no run can go on after it");
    match entry {
        // A fork at 0 would share all.
        0 | 1 => format!("{damage}; begin another session"),
        _ => format!(
            "{damage}; `agentloop fork {session} --at {}` makes a session of what is before it",
            entry - 1
        ),
    }
}
