//! Truth: journals, sessions and questions, behind one trait.
//!
//! **Invariant:** an append is conditional on the run's owner epoch and on the sequence number before it; what fails
//! either writes nothing. An append that returned `Ok` survives the machine's power being cut.

mod codec;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod job;
mod page;
mod search;
pub mod sqlite;

#[cfg(any(test, feature = "conformance"))]
#[expect(clippy::unwrap_used, reason = "what it holds is tests, wherever they are compiled")]
pub mod conformance;

use std::collections::BTreeMap;

use agentloop_core::entry::Entry;
use agentloop_core::id::{EntryNo, Epoch, RequestId, RuleId, RunId, Seq, SessionId, TenantId};
use agentloop_core::message::Usage;
use agentloop_core::policy::PolicyRule;
use agentloop_core::run::event::Record;
use agentloop_core::run::human::{Answer, Question};
use agentloop_core::run::status::{RunError, RunStatus};
use agentloop_core::time::Timestamp;
use agentloop_core::tool::{Digest, ToolDeclaration};
use async_trait::async_trait;

pub use self::job::{Job, JobId, JobKind, SessionNotes};
pub use self::search::{SearchFilter, SearchHit};

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

/// Events of one run to be made durable together.
#[derive(Debug, Clone)]
pub struct Append {
    /// Whose.
    pub tenant: TenantId,
    /// The run.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
    /// The writer's claim on the run.
    pub epoch: Epoch,
    /// The last event before these; 0 creates the run.
    pub after: Seq,
    /// The events, dense from `after`. Never empty.
    pub records: Vec<Record>,
    /// What the run's row is to say afterwards.
    pub summary: RunSummary,
    /// With the first append of a run.
    pub create: Option<CreateRun>,
    /// Makes the run the session's live run, which alone may add entries: the session's last entry, as read. Without it,
    /// a new run is queued until a later append has it; it may also finish without.
    pub enter: Option<EntryNo>,
    /// What is to be done afterwards, due at once.
    pub jobs: Vec<JobKind>,
}

/// What the store needs to know of a new run.
#[derive(Debug, Clone)]
pub struct CreateRun {
    /// Of everything that the caller asked for: the same digest is the same request.
    pub request_digest: Digest,
    /// Whether to create the session if it does not exist.
    pub create_session: bool,
    /// Whether the ids of run and session were both made for it, so that nothing is stored under them.
    pub made_ids: bool,
    /// The configured agent.
    pub agent: String,
    /// `provider/model`.
    pub model: String,
    /// The caller's labels.
    pub labels: BTreeMap<String, String>,
    /// Whether, where it is queued, it comes before every run that is not so, after those that are: it interrupts what
    /// its session is at.
    pub interrupts: bool,
}

/// What lists show of a run, derived from its journal and stored beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    /// Where it stands.
    pub status: RunStatus,
    /// When it wants to be woken, if it is parked until a time.
    pub wake_at: Option<Timestamp>,
    /// Whether hosts have calls of it: then it goes on by itself, whatever its status.
    pub at_hosts: bool,
    /// Why it failed, was aborted or is paused.
    pub error: Option<RunError>,
    /// All model calls.
    pub usage: Usage,
    /// Model calls.
    pub iterations: u32,
    /// Tool calls.
    pub tool_calls: u32,
}

impl RunSummary {
    /// Whether a start has to continue the run, unless it is queued.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        let rests = self.status.is_terminal() || self.status.is_interrupted();
        (self.at_hosts || !rests) && self.wake_at.is_none()
    }
}

/// A run as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// The run.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
    /// Of the request that started it.
    pub request_digest: Digest,
    /// The configured agent.
    pub agent: String,
    /// `provider/model`.
    pub model: String,
    /// The caller's labels.
    pub labels: BTreeMap<String, String>,
    /// When it started.
    pub created_at: Timestamp,
    /// When it last moved.
    pub updated_at: Timestamp,
    /// Its last event.
    pub last_seq: Seq,
    /// Its place in its session's queue, lower first, as long as it waits there.
    pub queue_no: Option<u64>,
    /// The rest.
    pub summary: RunSummary,
}

/// How much of a journal, or of a session, is read at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StretchMax {
    /// At most so many events, or entries.
    pub records: u32,
    /// None begins after so many bytes of those before it.
    pub bytes: usize,
}

/// Some of a journal.
#[derive(Debug, Clone, PartialEq)]
pub struct Stretch {
    /// The events; none only where there are none.
    pub records: Vec<Record>,
    /// Whether there may be more of them.
    pub more: bool,
}

/// Some of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryStretch {
    /// The entries; none only where there are none.
    pub rows: Vec<EntryRow>,
    /// Whether there are more of them.
    pub more: bool,
}

/// A live run that a queued run interrupts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interrupted {
    /// Whose.
    pub tenant: TenantId,
    /// The live run.
    pub run: RunId,
    /// The run that waits for it to end.
    pub by: RunId,
}

/// A claimed run: nobody else writes it now.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The claim.
    pub epoch: Epoch,
    /// The run's row.
    pub row: RunRow,
    /// Its whole journal.
    pub records: Vec<Record>,
}

/// A session as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// The session.
    pub session: SessionId,
    /// For people: as given, else as the model made it.
    pub title: String,
    /// The caller's labels.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When an entry was last added.
    pub updated_at: Timestamp,
    /// Its last entry.
    pub last_entry: EntryNo,
    /// Its live run.
    pub live_run: Option<RunId>,
    /// The session that it was forked from, which may be deleted, and the last entry that both share.
    pub forked_from: Option<(SessionId, EntryNo)>,
    /// What it is about, if the model keeps a summary.
    pub summary: String,
    /// The last entry that the summary takes into account.
    pub summary_upto: EntryNo,
}

/// One entry of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryRow {
    /// Its place.
    pub entry: EntryNo,
    /// The run that added it; of a shared entry, one of another session, which may be deleted.
    pub run: RunId,
    /// The event that holds it.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
    /// What it is.
    pub content: Entry,
}

/// A question as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRow {
    /// The run that asks.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
    /// What is asked.
    pub question: Question,
    /// The answer, once there is one.
    pub answer: Option<Answer>,
}

/// A tool as the store remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRow {
    /// As declared.
    pub declaration: ToolDeclaration,
    /// When a host that serves it was last seen.
    pub last_seen: Timestamp,
}

/// A rule that was remembered with a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleRow {
    /// Names it.
    pub id: RuleId,
    /// Its session; `None` where it is for every run.
    pub session: Option<SessionId>,
    /// The question that it was decided with.
    pub request: RequestId,
    /// The rule.
    pub rule: PolicyRule,
    /// Who decided.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Where the next page begins; `None` when this is the last. Opaque to callers.
    pub next: Option<String>,
}

/// Which part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// At most this many rows; read as 1 to 1,000.
    pub size: u32,
    /// From [`Page::next`]. Anything else is [`StoreError::BadPageToken`].
    pub after: Option<String>,
}

/// Which runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only of this session.
    pub session: Option<SessionId>,
    /// Only with one of these; empty means all.
    pub statuses: Vec<RunStatus>,
}

/// Which open questions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestFilter {
    /// Only of this session.
    pub session: Option<SessionId>,
    /// Only of this run.
    pub run: Option<RunId>,
}

/// Truth. Implementations are cheap to share, and safe to call from many tasks.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Makes events durable, with everything derived from them: the run's row, the session's entries and its live
    /// run, questions and their answers, rules that are remembered beyond the run. All or nothing. Appends of many runs share a commit.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when epoch or sequence do not match, or a run adds entries to a session whose live run
    /// it is not. With `create`: `RunExists`, `NoSession`. With `enter`: `SessionBusy`, `SessionMoved`.
    async fn append(&self, append: Append) -> Result<(), StoreError>;

    /// Takes ownership of a run, so that whoever had it before writes nothing more. `None`: no such run.
    async fn claim(&self, tenant: &TenantId, run: &RunId) -> Result<Option<Claimed>, StoreError>;

    /// The first epoch of runs that this process creates and claims; higher than that of any process before it.
    fn epoch(&self) -> Epoch;

    /// A run's row.
    async fn run(&self, tenant: &TenantId, run: &RunId) -> Result<Option<RunRow>, StoreError>;

    /// Events after `after`, in order, at most `limit`.
    async fn records(
        &self,
        tenant: &TenantId,
        run: &RunId,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<Record>, StoreError>;

    /// Events after `after`, in order, as many as are to be held in memory at a time. A store that can leaves the rest
    /// where it is; this one reads it and drops it.
    async fn stretch(
        &self,
        tenant: &TenantId,
        run: &RunId,
        after: Seq,
        max: StretchMax,
    ) -> Result<Stretch, StoreError> {
        let mut records = self.records(tenant, run, after, max.records).await?;
        let full = records.len() == max.records as usize;
        let mut bytes = 0;
        let fits = |record: &&Record| {
            let fits = bytes < max.bytes;
            bytes += record.weight();
            fits
        };
        let fitting = records.iter().take_while(fits).count();
        let more = full || fitting < records.len();
        records.truncate(fitting);
        Ok(Stretch { records, more })
    }

    /// Runs, newest first.
    async fn runs(
        &self,
        tenant: &TenantId,
        filter: RunFilter,
        page: PageRequest,
    ) -> Result<Page<RunRow>, StoreError>;

    /// Runs of every tenant that are neither over nor parked nor queued: what a start has to continue.
    async fn unfinished(&self) -> Result<Vec<(TenantId, RunId)>, StoreError>;

    /// The run that may enter this session now: the first in its queue, if it has no live run. Runs queue in the order in
    /// which their first append was made, those that interrupt before all others.
    async fn next_queued(&self, tenant: &TenantId, session: &SessionId) -> Result<Option<RunId>, StoreError>;

    /// Of every session that has a queue and no live run, the first in the queue: what a start has to let in.
    async fn queue_heads(&self) -> Result<Vec<(TenantId, RunId)>, StoreError>;

    /// Live runs that a queued run of their session interrupts, each with the first such: what a start has to end.
    async fn interrupted(&self) -> Result<Vec<Interrupted>, StoreError>;

    /// The live run of this session, if a queued run interrupts it.
    async fn interrupted_in(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<Interrupted>, StoreError>;

    /// The run that the request of this id handed messages to, and the digest of that request.
    async fn steered(&self, tenant: &TenantId, id: &RunId) -> Result<Option<(RunId, Digest)>, StoreError>;

    /// Parked runs of every tenant whose wake time is at or before `now`, at most `limit`, and the earliest wake time
    /// after that.
    async fn due(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> Result<(Vec<(TenantId, RunId)>, Option<Timestamp>), StoreError>;

    /// Creates a session; the same content again is confirmed.
    ///
    /// # Errors
    /// [`StoreError::SessionExists`] when it exists with another title or other labels, or is a fork.
    async fn create_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        title: &str,
        labels: &BTreeMap<String, String>,
        now: Timestamp,
    ) -> Result<SessionRow, StoreError>;

    /// Makes a session from the entries of another up to `at`, where 0 means all that are there; with its title and its
    /// labels. Each goes its own way from there, and neither needs the other: what both have is stored once, and stays
    /// until both are deleted. The source may have a live run. The same source and entry again is confirmed, also when
    /// the source is gone by then.
    ///
    /// # Errors
    /// [`StoreError::NoSession`] without a source, [`StoreError::EntryAhead`], [`StoreError::SessionExists`] when
    /// `session` is anything else than this fork.
    async fn fork(
        &self,
        tenant: &TenantId,
        source: &SessionId,
        at: EntryNo,
        session: &SessionId,
        now: Timestamp,
    ) -> Result<SessionRow, StoreError>;

    /// Writes a title or a summary on a session; a title only where there is none. `false`: there is no such session.
    async fn set_session_notes(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        notes: SessionNotes,
    ) -> Result<bool, StoreError>;

    /// A session's row.
    async fn session(&self, tenant: &TenantId, session: &SessionId)
    -> Result<Option<SessionRow>, StoreError>;

    /// Sessions, the last touched first.
    async fn sessions(&self, tenant: &TenantId, page: PageRequest) -> Result<Page<SessionRow>, StoreError>;

    /// Entries after `after`, in order, at most `limit`.
    async fn entries(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: EntryNo,
        limit: u32,
    ) -> Result<Vec<EntryRow>, StoreError>;

    /// Entries after `after`, in order, as many as are to be held in memory at a time. A store that can leaves the rest
    /// where it is; this one reads it and drops it.
    async fn entry_stretch(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: EntryNo,
        max: StretchMax,
    ) -> Result<EntryStretch, StoreError> {
        let mut rows = self.entries(tenant, session, after, max.records.saturating_add(1)).await?;
        let mut bytes = 0;
        let fits = |row: &&EntryRow| {
            let fits = bytes < max.bytes;
            bytes += match &row.content {
                Entry::Message(message) => message.size(),
                Entry::Compaction(compaction) => compaction.summary.len(),
            };
            fits
        };
        let fitting = rows.iter().take(max.records as usize).take_while(fits).count();
        let more = fitting < rows.len();
        rows.truncate(fitting);
        Ok(EntryStretch { rows, more })
    }

    /// Finds what users and models said by words: the entries of user and assistant messages that have any of the words
    /// of a free text, those that fit best first, at most `limit` and at most 100. Nothing in the text is an operator,
    /// and no more than its beginning counts.
    ///
    /// # Errors
    /// [`StoreError::SearchOff`].
    async fn search(
        &self,
        tenant: &TenantId,
        query: &str,
        filter: SearchFilter,
        limit: u32,
    ) -> Result<Vec<SearchHit>, StoreError>;

    /// Deletes a session with its runs, events and questions; its ids are free again. `false`: there was none. What
    /// forks share of it stays theirs.
    ///
    /// # Errors
    /// [`StoreError::SessionBusy`] with its live run, or the first in its queue.
    async fn delete_session(&self, tenant: &TenantId, session: &SessionId) -> Result<bool, StoreError>;

    /// A question, answered or not.
    async fn request(&self, tenant: &TenantId, request: &RequestId)
    -> Result<Option<RequestRow>, StoreError>;

    /// Open questions, oldest first.
    async fn pending(
        &self,
        tenant: &TenantId,
        filter: RequestFilter,
        page: PageRequest,
    ) -> Result<Page<RequestRow>, StoreError>;

    /// Rules that were remembered for this session, or with `None` for every run; the oldest first.
    async fn rules(&self, tenant: &TenantId, session: Option<&SessionId>)
    -> Result<Vec<RuleRow>, StoreError>;

    /// Forgets a remembered rule. `false`: there was none.
    async fn delete_rule(&self, tenant: &TenantId, rule: &RuleId) -> Result<bool, StoreError>;

    /// Jobs of every tenant that are due at `now`, the longest due first, at most `limit`, and when the next one is due
    /// after those.
    async fn due_jobs(&self, now: Timestamp, limit: u32)
    -> Result<(Vec<Job>, Option<Timestamp>), StoreError>;

    /// Notes that a try of a job failed, and when the next one is due. Of a job that is gone, it notes nothing.
    async fn retry_job(&self, job: &JobId, due_at: Timestamp, error: &str) -> Result<(), StoreError>;

    /// Removes a job that is done, or given up.
    async fn finish_job(&self, job: &JobId) -> Result<(), StoreError>;

    /// Remembers tools, so that a restart knows what its hosts will bring back. By name; the last one counts.
    async fn save_tools(&self, tenant: &TenantId, tools: &[ToolRow]) -> Result<(), StoreError>;

    /// Every remembered tool of every tenant.
    async fn tools(&self) -> Result<Vec<(TenantId, ToolRow)>, StoreError>;

    /// Whether it can read and write now.
    async fn check(&self) -> Result<(), StoreError>;
}
