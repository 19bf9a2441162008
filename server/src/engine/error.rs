//! Why the engine refuses a call.

use agentloop_core::error::Refusal;
use agentloop_core::id::{RunId, Seq};

use crate::store::StoreError;

/// Why a call of the engine failed. What is wrong with a *run* is not here: a failed run is a successful call.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// No such run.
    #[error("no such run")]
    RunNotFound,
    /// No such session.
    #[error("no such session")]
    SessionNotFound,
    /// No such question.
    #[error("no such question")]
    RequestNotFound,
    /// Nobody offers the planner that the run names.
    #[error("no planner {name:?} is registered")]
    UnknownPlanner {
        /// Its name.
        name: String,
    },
    /// The id was used before, with other content.
    #[error("the id was used before, with other content")]
    IdReused,
    /// The session has a live run.
    #[error("the session is busy with run {run}")]
    SessionBusy {
        /// That run.
        run: RunId,
    },
    /// As many runs wait for the session as may.
    #[error("as many runs wait for the session as may")]
    QueueFull,
    /// The server has as many live runs as it takes.
    #[error("there are as many live runs as this server takes")]
    TooManyRuns,
    /// A subscriber asked for events after one that does not exist.
    #[error("the run's last event is {last}", last = .last.0)]
    SeqAhead {
        /// The run's last event.
        last: Seq,
    },
    /// A subscriber did not read for so long that its place in the stream is gone.
    #[error("the subscriber did not read; subscribe again with the last seq it has seen")]
    SubscriberTooSlow,
    /// Arguments that a human edited do not follow the tool's schema.
    #[error("{0}")]
    BadArguments(String),
    /// The run does not take this.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server is going down.
    #[error("the server is shutting down")]
    ShuttingDown,
}

impl EngineError {
    /// Whether the same again may go well by itself: the store is away, or somebody was faster.
    pub(in crate::engine) fn passes(&self) -> bool {
        matches!(self, Self::Store(StoreError::Unavailable { .. } | StoreError::SessionMoved))
    }
}
