//! The port for runs and their journals: appends, claims, and the queries for both.

use std::collections::BTreeMap;

use agentloop_core::id::{EntryNo, Epoch, RunId, RunKey, Seq, SessionId, TenantId};
use agentloop_core::run::event::Record;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;
use async_trait::async_trait;

use super::{
    GroupedRun, JobKind, Page, PageRequest, RunFilter, RunRow, RunSummary, StoreError, UsageQuery, UsageRow,
};

/// Events of one run to be made durable together.
#[derive(Debug, Clone)]
pub struct Append {
    /// The tenant that the run belongs to.
    pub tenant: TenantId,
    /// The run that the events belong to.
    pub run: RunId,
    /// The session of the run.
    pub session: SessionId,
    /// The writer's claim on the run.
    pub epoch: Epoch,
    /// The last event before these; 0 creates the run.
    pub after: Seq,
    /// The events, dense from `after`. Never empty.
    pub records: Vec<Record>,
    /// The run's summary after these events.
    pub summary: RunSummary,
    /// Present with the first append of a run, and only there.
    pub create: Option<CreateRun>,
    /// Makes the run the live run of its session, which alone may add entries. The value is the session's last entry as
    /// the caller read it. A new run without it is queued until a later append has it; it may also finish without.
    pub enter: Option<EntryNo>,
    /// Work that follows the run, due at once.
    pub jobs: Vec<JobKind>,
}

/// A new run, as far as its events do not say it.
#[derive(Debug, Clone)]
pub struct CreateRun {
    /// Digest of everything that the caller requested. The same digest is the same request.
    pub request_digest: Digest,
    /// Creates the session if it does not exist.
    pub create_session: bool,
    /// True if the server made the ids of both run and session, so that nothing can be stored under them.
    pub made_ids: bool,
    /// True if the start was a [blind](super::Store::blind_start) one. The write is refused if another run has the id, or a request
    /// that handed its messages to a run. It is also refused if the session is there, or the tenant has rules for all sessions.
    pub is_blind: bool,
    /// Name of the configured agent.
    pub agent: String,
    /// The model, as `provider/model`.
    pub model: String,
    /// Labels that the caller gave it.
    pub labels: BTreeMap<String, String>,
    /// Beginning of the caller's first message, on one line.
    pub preview: String,
    /// Name of the caller that starts it; `None` without authentication. A session that the run creates is this caller's too.
    pub created_by: Option<String>,
    /// True if it interrupts the session's live run. In the queue it comes before all runs that do not, and after those
    /// that do.
    pub interrupts: bool,
}

/// Bounds of one read of a journal or of a session's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StretchMax {
    /// Events or entries, at most.
    pub records: u32,
    /// Bytes after which no further event or entry begins. The last one may exceed them.
    pub bytes: usize,
}

/// A bounded part of a journal.
#[derive(Debug, Clone, PartialEq)]
pub struct Stretch {
    /// The events, in order. Empty only if there are none.
    pub records: Vec<Record>,
    /// True if more may follow.
    pub more: bool,
}

/// A claimed run. Appends of earlier owners are refused from now on.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The epoch that the owner's appends carry.
    pub epoch: Epoch,
    /// The run's row at the time of the claim.
    pub row: RunRow,
    /// The journal from its first event to its last.
    pub records: Vec<Record>,
}

/// A claimed run without its journal.
#[derive(Debug, Clone)]
pub struct ClaimedRow {
    /// The epoch that the owner's appends carry.
    pub epoch: Epoch,
    /// The run's row at the time of the claim.
    pub row: RunRow,
}

/// Later runs of a session that one result has at least, if there are so many.
pub const SESSION_RUNS_MAX: u32 = 16;

/// Some runs of one session, as one moment has them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionRuns {
    /// Number of the session's newest run; 0 without one.
    pub last_no: u64,
    /// The runs, each with its number. A newer run has a greater one.
    pub runs: Vec<(u64, RunRow)>,
}

/// Runs, each with its journal. A run has one owner, who alone appends.
#[async_trait]
pub trait JournalStore: Send + Sync + 'static {
    /// Makes events durable, with everything derived from them: the run's row, the session's entries and its live run,
    /// questions and their answers, and rules that outlive the run. All or nothing. Appends of many runs share a commit.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when epoch or sequence do not match, or a run adds entries to a session whose live run
    /// it is not. With `create`: `RunExists`, `NoSession`. With `enter`: `SessionBusy`, `SessionMoved`.
    async fn append(&self, append: Append) -> Result<(), StoreError>;

    /// Takes ownership of a run: its earlier owner can append nothing more. `None`: no such run.
    async fn claim(&self, tenant: &TenantId, run: &RunId) -> Result<Option<Claimed>, StoreError>;

    /// Takes ownership of a run without reading its journal, which may be damaged. `None`: no such run. A store whose
    /// journals cannot be damaged needs no other than this default.
    async fn claim_row(&self, tenant: &TenantId, run: &RunId) -> Result<Option<ClaimedRow>, StoreError> {
        let claimed = self.claim(tenant, run).await?;
        Ok(claimed.map(|Claimed { epoch, row, .. }| ClaimedRow { epoch, row }))
    }

    /// True if this store may write to the session: that is in a shard of this replica, or the server is alone.
    fn owns(&self, _tenant: &TenantId, _session: &SessionId) -> bool {
        true
    }

    /// The first epoch of runs that this process creates and claims; higher than that of any process before it.
    fn epoch(&self) -> Epoch;

    /// The row of a run; `None` if there is no such run.
    async fn run(&self, tenant: &TenantId, run: &RunId) -> Result<Option<RunRow>, StoreError>;

    /// Events after `after`, in order, at most `limit`.
    async fn records(
        &self,
        tenant: &TenantId,
        run: &RunId,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<Record>, StoreError>;

    /// Events after `after`, in order, within `max`. This default reads more and drops it; a store that can reads only
    /// what it returns.
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

    /// The number of a run's events that an earlier version of the server stored without a checksum. All others are
    /// verified whenever they are read. This default is for a store that never had such a version.
    async fn unverified_events(&self, tenant: &TenantId, run: &RunId) -> Result<u64, StoreError> {
        let _all_are_verified = (tenant, run);
        Ok(0)
    }

    /// Adds up what the tenant's runs have used, those of deleted sessions included. Rows come by time, then by group; of more
    /// than the query's `rows_max`, one more than that.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] and [`StoreError::Corrupt`].
    async fn usage(&self, tenant: &TenantId, query: &UsageQuery) -> Result<Vec<UsageRow>, StoreError> {
        let (mut rows, mut page) = (BTreeMap::new(), PageRequest { size: 100, after: None });
        loop {
            let found = self.runs(tenant, RunFilter::default(), page.clone()).await?;
            for run in found.rows.iter().filter(|run| run.updated_at >= query.from && query.is_about(run)) {
                let group = query.group(&GroupedRun::of(run));
                for record in self.records(tenant, &run.run, Seq(0), u32::MAX).await? {
                    query.add(&mut rows, &group, &record);
                }
            }
            page.after = found.next;
            if page.after.is_none() || rows.len() > query.rows_max {
                return Ok(rows.into_values().take(query.rows_max + 1).collect());
            }
        }
    }

    /// Runs, newest first. A page may have fewer rows than requested, or none, although there is a next one: a store
    /// looks at a bounded number of runs for each page.
    async fn runs(
        &self,
        tenant: &TenantId,
        filter: RunFilter,
        page: PageRequest,
    ) -> Result<Page<RunRow>, StoreError>;

    /// A session's runs that have not ended and, with `after`, the first [`SESSION_RUNS_MAX`] runs that were created after the one of
    /// this number, or more of them; by number. This default numbers the runs by their place in the list, so it is for a store whose runs are never deleted
    /// alone and whose clock never goes back.
    async fn session_runs(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: Option<u64>,
    ) -> Result<SessionRuns, StoreError> {
        let filter = RunFilter { session: Some(session.clone()), ..RunFilter::default() };
        let (mut all, mut token) = (Vec::new(), None);
        loop {
            let page = PageRequest { size: 1_000, after: token };
            let page = self.runs(tenant, filter.clone(), page).await?;
            all.extend(page.rows);
            token = page.next;
            if token.is_none() {
                break;
            }
        }
        let last_no = all.len() as u64;
        let is_wanted = |(no, row): &(u64, RunRow)| {
            !row.summary.status.is_terminal() || after.is_some_and(|after| *no > after)
        };
        let runs = (1..).zip(all.into_iter().rev()).filter(is_wanted).collect();
        Ok(SessionRuns { last_no, runs })
    }

    /// Runs of every tenant that a start of the server has to continue: neither ended nor parked nor queued.
    async fn unfinished(&self) -> Result<Vec<RunKey>, StoreError>;

    /// Parked runs of every tenant whose wake time is at or before `now`, at most `limit`, and the earliest wake time
    /// after that.
    async fn due(&self, now: Timestamp, limit: u32) -> Result<(Vec<RunKey>, Option<Timestamp>), StoreError>;
}
