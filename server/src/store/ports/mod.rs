//! The ports of the store, one file each, and the values that they take and give: all that callers see. [`Store`] is their sum.

mod audit;
mod blob;
mod error;
mod filter;
mod job;
mod journal;
mod page;
mod queue;
mod request;
mod row;
mod search;
mod session;
mod start;
mod tools;
mod usage;

use agentloop_core::id::TenantId;
use async_trait::async_trait;

pub use self::audit::AuditStore;
pub use self::blob::{BlobBounds, BlobReader, BlobRow, BlobStore, BlobUpload, NewBlob, StoredBlob};
pub use self::error::StoreError;
pub use self::filter::{Answerer, AnswersInput, RequestFilter, RunFilter, TimeRange};
pub use self::job::{Job, JobId, JobKind, JobStore, SessionNotes};
pub use self::journal::{
    Append, Claimed, ClaimedRow, CreateRun, JournalStore, SESSION_RUNS_MAX, SessionRuns, Stretch, StretchMax,
};
pub use self::page::{Page, PageRequest};
pub use self::queue::{Interrupted, QueueStore};
pub use self::request::{RequestStore, RuleRow};
pub use self::row::{RequestRow, RunRow, RunSummary};
pub use self::search::{SearchFilter, SearchHit, SearchStore};
pub use self::session::{
    CallTitles, EntryRow, EntrySource, EntrySpan, EntryStretch, IdleSession, LastRun, ListedEntries,
    ListedEntry, NewFork, NewSession, PROJECT_LABEL, SessionFilter, SessionRow, SessionStore, SessionUpdate,
    USER_LABEL,
};
pub(in crate::store) use self::start::start_in_parts;
pub use self::start::{SessionToEnter, StartIds, StartView};
pub use self::tools::{HostClaim, StoredTools, ToolRow, ToolStore};
pub use self::usage::{GroupedRun, UsageGroups, UsageKey, UsageQuery, UsageRow};

/// Counts of writes since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Number of appends that were made durable.
    pub appends: u64,
    /// Number of commits, which appends and other writes share.
    pub commits: u64,
    /// Bytes of the appended events, as stored.
    pub bytes: u64,
}

/// Everything that the server stores. Implementations are cheap to share, and safe to call from many tasks.
#[async_trait]
pub trait Store:
    JournalStore
    + SessionStore
    + QueueStore
    + RequestStore
    + JobStore
    + SearchStore
    + ToolStore
    + BlobStore
    + AuditStore
{
    /// Writes and reads a row, to see that the store can do both now.
    async fn check(&self) -> Result<(), StoreError>;

    /// The state of a run that is to start, and of its session. This default reads one part after the other. A store that can reads
    /// all at once, as of one time.
    async fn start_view(&self, tenant: &TenantId, ids: StartIds<'_>) -> Result<StartView, StoreError> {
        start_in_parts(self, tenant, ids).await
    }

    /// The most likely view of a run that is to start in a new session, under ids of its caller's: nobody knows them, and
    /// its tenant has no rules. The store has not looked. If it is otherwise, it refuses the write
    /// ([`CreateRun::is_blind`]). `None`: [look](Store::start_view) first.
    fn blind_start(&self, tenant: &TenantId) -> Option<StartView> {
        let _ = tenant;
        None
    }
}
