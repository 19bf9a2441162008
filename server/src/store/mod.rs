//! The store: journals, sessions, questions, and everything derived from them. [`Store`] is the sum of nine small ports,
//! which are in `ports`. `sqlite` and `postgres` implement it; `sql` is what both read alike; `support` is what any
//! implementation needs.
//!
//! **Invariant:** an append is conditional on the run's owner epoch and on the sequence number before it; if either does
//! not match, nothing is written. An append that returned `Ok` survives a power cut.

pub mod copy;
mod ports;
pub mod postgres;
mod sql;
pub mod sqlite;
mod support;

#[cfg(any(test, feature = "conformance"))]
#[expect(clippy::unwrap_used, missing_docs, reason = "what it holds is tests, wherever they are compiled")]
pub mod conformance;

use self::ports::start_in_parts;
pub use self::ports::{
    Answerer, AnswersInput, Append, AuditStore, BlobBounds, BlobReader, BlobRow, BlobStore, BlobUpload,
    CallTitles, Claimed, ClaimedRow, CreateRun, EntryRow, EntrySource, EntrySpan, EntryStretch, GroupedRun,
    HostClaim, IdleSession, Interrupted, Job, JobId, JobKind, JobStore, JournalStore, LastRun, ListedEntries,
    ListedEntry, NewBlob, NewFork, NewSession, PROJECT_LABEL, Page, PageRequest, QueueStore, RequestFilter,
    RequestRow, RequestStore, RuleRow, RunFilter, RunRow, RunSummary, SESSION_RUNS_MAX, SearchFilter,
    SearchHit, SearchStore, SessionFilter, SessionNotes, SessionRow, SessionRuns, SessionStore,
    SessionToEnter, SessionUpdate, StartIds, StartView, Store, StoreError, StoreStats, StoredBlob,
    StoredTools, Stretch, StretchMax, TimeRange, ToolRow, ToolStore, USER_LABEL, UsageGroups, UsageKey,
    UsageQuery, UsageRow,
};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::support::fuzz;
