//! The store: journals, sessions, questions and what is derived from them. Each file is a port of its own; [`Store`] is
//! all of them together.
//!
//! **Invariant:** an append is conditional on the run's owner epoch and on the sequence number before it; if either does
//! not match, nothing is written. An append that returned `Ok` survives a power cut.

mod append;
mod codec;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod job;
mod journal;
mod page;
mod queue;
mod request;
mod search;
mod session;
pub mod sqlite;
mod tools;

#[cfg(any(test, feature = "conformance"))]
#[expect(clippy::unwrap_used, reason = "what it holds is tests, wherever they are compiled")]
pub mod conformance;

use agentloop_core::id::{EntryNo, RunId};
use async_trait::async_trait;

pub use self::job::{Job, JobId, JobKind, JobStore, SessionNotes};
pub use self::journal::{
    Append, Claimed, CreateRun, JournalStore, RunFilter, RunRow, RunSummary, Stretch, StretchMax,
};
pub use self::page::{Page, PageRequest};
pub use self::queue::{Interrupted, QueueStore};
pub use self::request::{RequestFilter, RequestRow, RequestStore, RuleRow};
pub use self::search::{SearchFilter, SearchHit, SearchStore};
pub use self::session::{EntryRow, EntryStretch, SessionRow, SessionStore};
pub use self::tools::{ToolRow, ToolStore};

/// Why the store refused or failed. Nothing was written, unless it is [`StoreError::Unavailable`]: then it is unknown.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another owner took the run, or it has moved on. The caller drops what it knows of it.
    #[error("the run is owned elsewhere, or has moved on")]
    Conflict,
    /// There is a run of this id.
    #[error("the run exists")]
    RunExists,
    /// The session has a live run.
    #[error("the session is busy with run {run}")]
    SessionBusy {
        /// The live run.
        run: RunId,
    },
    /// The session got entries since it was read. Read it again.
    #[error("the session has moved on")]
    SessionMoved,
    /// There is no such session, and none was to be created.
    #[error("no such session")]
    NoSession,
    /// There is a session of this id with other content.
    #[error("the session exists, with other content")]
    SessionExists,
    /// The session has no such entry yet.
    #[error("the session's last entry is {last}", last = .last.0)]
    EntryAhead {
        /// The session's last entry.
        last: EntryNo,
    },
    /// What was said is not indexed.
    #[error("the index of what was said is turned off")]
    SearchOff,
    /// The token of a page is none that was given out.
    #[error("the page token is not one of ours")]
    BadPageToken,
    /// What is stored cannot be read.
    #[error("stored data cannot be read: {what}")]
    Corrupt {
        /// Which row, and why.
        what: String,
    },
    /// The store cannot be reached or cannot write.
    #[error("the store is unavailable: {what}")]
    Unavailable {
        /// The driver's words.
        what: String,
    },
}

/// Everything that the server keeps. Implementations are cheap to share, and safe to call from many tasks.
#[async_trait]
pub trait Store:
    JournalStore + SessionStore + QueueStore + RequestStore + JobStore + SearchStore + ToolStore
{
    /// Whether it can read and write now.
    async fn check(&self) -> Result<(), StoreError>;
}
