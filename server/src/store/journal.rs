//! Runs and their journals: what is appended, and who may append.

use std::collections::BTreeMap;

use agentloop_core::id::{EntryNo, Epoch, RunId, RunKey, Seq, SessionId, TenantId};
use agentloop_core::message::Usage;
use agentloop_core::run::event::Record;
use agentloop_core::run::status::{RunError, RunStatus};
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;
use async_trait::async_trait;

use super::{JobKind, Page, PageRequest, StoreError};

/// Events of one run to be made durable together.
#[derive(Debug, Clone)]
pub struct Append {
    /// The tenant that it belongs to.
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

/// Which runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only of this session.
    pub session: Option<SessionId>,
    /// Only with one of these; empty means all.
    pub statuses: Vec<RunStatus>,
}

/// Runs, each with its journal. A run has one owner, who alone appends.
#[async_trait]
pub trait JournalStore: Send + Sync + 'static {
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
    async fn unfinished(&self) -> Result<Vec<RunKey>, StoreError>;

    /// Parked runs of every tenant whose wake time is at or before `now`, at most `limit`, and the earliest wake time
    /// after that.
    async fn due(&self, now: Timestamp, limit: u32) -> Result<(Vec<RunKey>, Option<Timestamp>), StoreError>;
}
