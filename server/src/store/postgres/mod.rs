//! A store in a PostgreSQL database, for which one server at a time is the owner.
//!
//! It is built like the SQLite store: one writing task, which checks appends against rows that it has in memory, and a few
//! reading connections. A commit of many appends is one statement and one round trip. A read sees every write that was
//! answered before it began.

mod blobs;
mod index;
mod open;
mod owner;
mod read;
mod replica;
mod rows;
mod words;
mod write;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agentloop_core::id::{EntryNo, Epoch, RequestId, RuleId, RunId, RunKey, Seq, SessionId, TenantId};
use agentloop_core::run::event::Record;
use agentloop_core::time::Timestamp;
use agentloop_core::todo::TodoItem;
use agentloop_core::tool::Digest;
use async_trait::async_trait;
use sqlx::PgPool;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use self::open::OpenError;
pub use self::owner::Claim;
pub use self::replica::{Replica, ReplicaOptions};

use self::blobs::Blobs;
use self::index::Index;
use self::open::OpenedStore;
pub(in crate::store) use self::open::for_copy as open_for_copy;
use self::read::{DamagedHit, Hits};
pub(in crate::store) use self::rows::clean;
pub(in crate::store) use self::write::ops::BLOCK_NUMBERS;
use self::write::sessions::{NewFork, NewNotes, NewSession, NewUpdate};
use self::write::task::{QUEUED_WRITES_MAX, WriteCounters, WriteOp, WriteRequest, WriteResult, Writer};
use crate::audit::{self, AuditEntry, AuditFilter, AuditRow, BrokenLink, ChainVerdict};
use crate::lifecycle::Tasks;
use crate::secret::Secret;
use crate::store::append::{EncodedAppend, WriterCache};
use crate::store::damaged::{self, DamagedQuestions, DamagedSessions};
use crate::store::features_used::FeaturesUsed;
use crate::store::{
    Append, BlobBounds, Claimed, ClaimedRow, EntryRow, EntryStretch, IdleSession, Interrupted, Job, JobId,
    JobStore, JournalStore, ListedEntries, ListedEntry, Page, PageRequest, QueueStore, RequestFilter,
    RequestRow, RequestStore, RuleRow, RunFilter, RunRow, SearchFilter, SearchHit, SearchStore,
    SessionFilter, SessionNotes, SessionRow, SessionRuns, SessionStore, SessionUpdate, Store, StoreError,
    StoreStats, StoredTools, Stretch, StretchMax, ToolRow, ToolStore, UsageQuery, UsageRow,
};

/// Options of an opened store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresOptions {
    /// Address of the database, as `postgres://USER@HOST:PORT/DATABASE`. It may have the password.
    pub url: Secret,
    /// The password, if it is not in the address.
    pub password: Option<Secret>,
    /// Connections for queries; at least 1. One more writes.
    pub readers: u32,
    /// Longest time of a query.
    pub statement_timeout: Duration,
    /// Time for which a write is tried again while the database cannot be reached.
    pub retry_for: Duration,
    /// Keeps a search index. If this is off, an index from before is emptied; when it is on again, the index is filled from
    /// the journals.
    pub search: bool,
    /// Opens a database whose settings may lose acknowledged writes at a power cut.
    pub accept_loss: bool,
    /// Bounds on the bytes of one blob, and of all together.
    pub blobs: BlobBounds,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            url: Secret::new(""),
            password: None,
            readers: 8,
            statement_timeout: Duration::from_secs(60),
            retry_for: Duration::from_secs(10),
            search: true,
            accept_loss: false,
            blobs: BlobBounds::default(),
        }
    }
}

/// A [`Store`] in a PostgreSQL database.
///
/// Call [`Self::close`] at the end. Nothing is lost without it.
pub struct PostgresStore {
    writes: mpsc::Sender<WriteRequest>,
    readers: PgPool,
    epoch: Epoch,
    counters: Arc<WriteCounters>,
    used: FeaturesUsed,
    damaged: DamagedSessions,
    damaged_questions: DamagedQuestions,
    blobs: Blobs,
    /// Absent if search is off.
    index: Option<Index>,
    closing: CancellationToken,
    /// The writing task and the task of the search index.
    tasks: Tasks,
    writer: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

impl PostgresStore {
    /// Opens a database, makes its tables if there are none, and locks it against other servers.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(options: &PostgresOptions) -> Result<Self, OpenError> {
        let opened = Box::pin(open::open(options, false)).await?;
        Ok(Self::start(opened, options))
    }

    /// Opens the database that this replica owns, see [`Replica::owned`]. Its tables are there: the replica has made them.
    ///
    /// # Errors
    /// [`OpenError`], of which [`OpenError::Fenced`] says that the replica owns it no longer.
    pub async fn open_owned(options: &PostgresOptions, claim: Claim) -> Result<Self, OpenError> {
        let opened = Box::pin(open::open_owned(options, claim)).await?;
        Ok(Self::start(opened, options))
    }

    /// Opens a database that a copy is made into, to compare it.
    pub(in crate::store) async fn open_copy(options: &PostgresOptions) -> Result<Self, OpenError> {
        let opened = Box::pin(open::open(options, true)).await?;
        Ok(Self::start(opened, options))
    }

    fn start(opened: OpenedStore, options: &PostgresOptions) -> Self {
        let (writes, queue) = mpsc::channel(QUEUED_WRITES_MAX);
        let counters = Arc::<WriteCounters>::default();
        let closing = CancellationToken::new();
        let tasks = Tasks::new();
        let writer = Writer {
            options: opened.writing,
            db: Some(opened.db),
            owner: opened.owner,
            hold: opened.hold,
            batch: 0,
            numbers: opened.started.numbers,
            cache: WriterCache::default(),
            epoch: opened.started.epoch,
            requests: queue,
            closing: closing.clone(),
            failed: tasks.soft().clone(),
            counters: counters.clone(),
            retry_for: options.retry_for,
            audited: None,
        };
        let blobs = Blobs::new(options.blobs, opened.readers.clone(), writes.downgrade(), tasks.clone());
        let writer = tokio::sync::Mutex::new(Some(tasks.spawn("store writer", writer.run())));
        let index = options.search.then(|| Index::start(opened.readers.clone(), closing.clone(), &tasks));
        Self {
            writes,
            readers: opened.readers,
            epoch: opened.started.epoch,
            counters,
            used: opened.started.used,
            damaged: DamagedSessions::default(),
            damaged_questions: DamagedQuestions::default(),
            blobs,
            index,
            closing,
            tasks,
            writer,
        }
    }

    /// Commits all queued writes and closes the connections. Every later call is [`StoreError::Unavailable`]. Closing again
    /// waits for the same end.
    pub async fn close(&self) {
        self.closing.cancel();
        if let Some(writer) = self.writer.lock().await.take()
            && let Err(error) = writer.await
        {
            tracing::error!(%error, "the writing task of the store failed; restart the server");
        }
        self.readers.close().await;
    }

    /// Cancelled when a task of the store has panicked, or another server has taken the database over. Every later write is
    /// [`StoreError::Unavailable`]. The process should end.
    #[must_use]
    pub fn failed(&self) -> &CancellationToken {
        self.tasks.soft()
    }

    /// Counts of writes since the store was opened.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        StoreStats {
            appends: self.counters.appends.load(Ordering::Relaxed),
            commits: self.counters.commits.load(Ordering::Relaxed),
            bytes: self.counters.bytes.load(Ordering::Relaxed),
        }
    }

    async fn write(&self, op: WriteOp) -> Result<WriteResult, StoreError> {
        let (reply, answer) = oneshot::channel();
        let act = if op.is_act() { audit::unrecorded() } else { None };
        self.writes.send(WriteRequest { op, act, reply }).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    async fn done(&self, op: WriteOp) -> Result<(), StoreError> {
        match self.write(op).await? {
            WriteResult::Done => Ok(()),
            other => unreachable!("answered with {other:?}"),
        }
    }

    async fn existed(&self, op: WriteOp) -> Result<bool, StoreError> {
        match self.write(op).await? {
            WriteResult::Existed(existed) => Ok(existed),
            other => unreachable!("answered with {other:?}"),
        }
    }

    async fn session_row(&self, op: WriteOp) -> Result<SessionRow, StoreError> {
        match self.write(op).await? {
            WriteResult::Session(row) => Ok(*row),
            other => unreachable!("answered with {other:?}"),
        }
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable { what: "the store is closed".to_owned() }
}

#[async_trait]
impl JournalStore for PostgresStore {
    async fn append(&self, append: Append) -> Result<(), StoreError> {
        let encoded = EncodedAppend::new(append);
        self.used.mark(&encoded);
        let messages = encoded.entries.iter().filter(|entry| entry.is_searched).count();
        self.done(WriteOp::Append(Box::new(encoded))).await?;
        if let Some(index) = &self.index {
            index.note(messages);
        }
        Ok(())
    }

    async fn claim(&self, tenant: &TenantId, run: &RunId) -> Result<Option<Claimed>, StoreError> {
        let Some(ClaimedRow { epoch, row }) = self.claim_row(tenant, run).await? else { return Ok(None) };
        match read::journal(&self.readers, tenant, &row).await {
            Ok(records) => Ok(Some(Claimed { epoch, row, records })),
            // The run may have been deleted since the claim.
            Err(_) if self.run(tenant, run).await?.is_none() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn claim_row(&self, tenant: &TenantId, run: &RunId) -> Result<Option<ClaimedRow>, StoreError> {
        let op = WriteOp::Claim { tenant: tenant.clone(), run: run.clone() };
        match self.write(op).await? {
            WriteResult::Claimed(claim) => Ok(claim.map(|claim| *claim)),
            other => unreachable!("a claim is answered with {other:?}"),
        }
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    async fn run(&self, tenant: &TenantId, run: &RunId) -> Result<Option<RunRow>, StoreError> {
        read::run(&self.readers, tenant, run).await
    }

    async fn records(
        &self,
        tenant: &TenantId,
        run: &RunId,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<Record>, StoreError> {
        read::records(&self.readers, tenant, run, after, limit).await
    }

    async fn stretch(
        &self,
        tenant: &TenantId,
        run: &RunId,
        after: Seq,
        max: StretchMax,
    ) -> Result<Stretch, StoreError> {
        read::stretch(&self.readers, tenant, run, after, max).await
    }

    async fn unverified_events(&self, tenant: &TenantId, run: &RunId) -> Result<u64, StoreError> {
        read::unverified(&self.readers, tenant, run).await
    }

    async fn runs(
        &self,
        tenant: &TenantId,
        filter: RunFilter,
        page: PageRequest,
    ) -> Result<Page<RunRow>, StoreError> {
        read::runs(&self.readers, tenant, &filter, &page).await
    }

    async fn session_runs(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: Option<u64>,
    ) -> Result<SessionRuns, StoreError> {
        read::session_runs(&self.readers, tenant, session, after).await
    }

    async fn usage(&self, tenant: &TenantId, query: &UsageQuery) -> Result<Vec<UsageRow>, StoreError> {
        read::usage(&self.readers, tenant, query).await
    }

    async fn tenants(&self) -> Result<Vec<TenantId>, StoreError> {
        read::tenants(&self.readers).await
    }

    async fn unfinished(&self) -> Result<Vec<RunKey>, StoreError> {
        read::unfinished(&self.readers).await
    }

    async fn due(&self, now: Timestamp, limit: u32) -> Result<(Vec<RunKey>, Option<Timestamp>), StoreError> {
        read::due(&self.readers, now, limit).await
    }
}

#[async_trait]
impl SessionStore for PostgresStore {
    async fn create_session_by(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        title: &str,
        labels: &BTreeMap<String, String>,
        now: Timestamp,
        by: Option<&str>,
    ) -> Result<SessionRow, StoreError> {
        let new = NewSession {
            tenant: tenant.clone(),
            session: session.clone(),
            title: clean(title).into_owned(),
            labels: labels.clone(),
            now,
            by: by.map(|by| clean(by).into_owned()),
        };
        self.session_row(WriteOp::CreateSession(new)).await
    }

    async fn get_or_create_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        title: &str,
        labels: &BTreeMap<String, String>,
        now: Timestamp,
        by: Option<&str>,
    ) -> Result<SessionRow, StoreError> {
        // Most calls find one, without the writer.
        if let Some(row) = read::session_of_user(&self.readers, tenant, labels, by).await? {
            return Ok(row);
        }
        let new = NewSession {
            tenant: tenant.clone(),
            session: session.clone(),
            title: clean(title).into_owned(),
            labels: labels.clone(),
            now,
            by: by.map(|by| clean(by).into_owned()),
        };
        self.session_row(WriteOp::GetOrCreateSession(new)).await
    }

    async fn update_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        mut update: SessionUpdate,
    ) -> Result<SessionRow, StoreError> {
        if let Some(title) = &mut update.title {
            *title = clean(title).into_owned();
        }
        let new = NewUpdate { tenant: tenant.clone(), session: session.clone(), update };
        self.session_row(WriteOp::UpdateSession(new)).await
    }

    async fn fork_by(
        &self,
        tenant: &TenantId,
        source: &SessionId,
        at: EntryNo,
        session: &SessionId,
        now: Timestamp,
        by: Option<&str>,
    ) -> Result<SessionRow, StoreError> {
        let new = NewFork {
            tenant: tenant.clone(),
            source: source.clone(),
            at,
            session: session.clone(),
            now,
            by: by.map(|by| clean(by).into_owned()),
        };
        self.session_row(WriteOp::Fork(new)).await
    }

    async fn set_session_notes(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        notes: SessionNotes,
    ) -> Result<bool, StoreError> {
        let new = NewNotes { tenant: tenant.clone(), session: session.clone(), notes };
        self.existed(WriteOp::SetNotes(new)).await
    }

    async fn session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<SessionRow>, StoreError> {
        read::session(&self.readers, tenant, session).await
    }

    async fn todos(&self, tenant: &TenantId, session: &SessionId) -> Result<Vec<TodoItem>, StoreError> {
        read::todos(&self.readers, tenant, session).await
    }

    async fn sessions(
        &self,
        tenant: &TenantId,
        filter: SessionFilter,
        page: PageRequest,
    ) -> Result<Page<SessionRow>, StoreError> {
        read::sessions(&self.readers, tenant, &filter, &page).await
    }

    async fn entries(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: EntryNo,
        limit: u32,
    ) -> Result<Vec<EntryRow>, StoreError> {
        let max = StretchMax { records: limit, bytes: usize::MAX };
        Ok(self.entry_stretch(tenant, session, after, max).await?.rows)
    }

    async fn entry_stretch(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: EntryNo,
        max: StretchMax,
    ) -> Result<EntryStretch, StoreError> {
        let read = read::entry_stretch(&self.readers, tenant, session, after, max).await;
        if let Err(StoreError::DamagedEntry { .. }) = &read {
            self.damaged.note(tenant, session);
        }
        read
    }

    async fn listed_entries(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: EntryNo,
        max: StretchMax,
    ) -> Result<ListedEntries, StoreError> {
        let listed = read::listed_entries(&self.readers, tenant, session, after, max).await?;
        if listed.rows.iter().any(|row| matches!(row, ListedEntry::Damaged { .. })) {
            self.damaged.note(tenant, session);
        }
        Ok(listed)
    }

    async fn damaged_entries(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        limit: usize,
    ) -> Result<Vec<EntryNo>, StoreError> {
        if !self.damaged.has(tenant, session) {
            return Ok(Vec::new());
        }
        damaged::find(self, tenant, session, limit).await
    }

    async fn tenants_with_sessions(&self) -> Result<Vec<TenantId>, StoreError> {
        read::tenants_with_sessions(&self.readers).await
    }

    async fn session_count(&self, tenant: &TenantId, by: Option<&str>) -> Result<u64, StoreError> {
        read::session_count(&self.readers, tenant, by).await
    }

    async fn stored_bytes(&self, tenant: &TenantId, by: Option<&str>) -> Result<u64, StoreError> {
        read::stored_bytes(&self.readers, tenant, by).await
    }

    async fn idle_sessions(
        &self,
        tenant: &TenantId,
        before: Timestamp,
        after: Option<IdleSession>,
        limit: u32,
    ) -> Result<Vec<IdleSession>, StoreError> {
        read::idle_sessions(&self.readers, tenant, before, after, limit).await
    }

    async fn delete_session(&self, tenant: &TenantId, session: &SessionId) -> Result<bool, StoreError> {
        self.delete(tenant, session, None).await
    }

    async fn delete_damaged_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        damaged: &RunId,
    ) -> Result<bool, StoreError> {
        self.delete(tenant, session, Some(damaged.clone())).await
    }
}

impl PostgresStore {
    async fn delete(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        damaged: Option<RunId>,
    ) -> Result<bool, StoreError> {
        let op = WriteOp::DeleteSession { tenant: tenant.clone(), session: session.clone(), damaged };
        let existed = self.existed(op).await?;
        self.damaged.forget(tenant, session);
        Ok(existed)
    }
}

#[async_trait]
impl QueueStore for PostgresStore {
    async fn next_queued(&self, tenant: &TenantId, session: &SessionId) -> Result<Option<RunId>, StoreError> {
        if !self.used.queues() {
            return Ok(None);
        }
        read::next_queued(&self.readers, tenant, session).await
    }

    async fn queue_heads(&self) -> Result<Vec<RunKey>, StoreError> {
        read::queue_heads(&self.readers).await
    }

    async fn interrupted(&self) -> Result<Vec<Interrupted>, StoreError> {
        read::interrupted(&self.readers).await
    }

    async fn interrupted_in(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<Interrupted>, StoreError> {
        if !self.used.queues() {
            return Ok(None);
        }
        read::interrupted_in(&self.readers, tenant, session).await
    }

    async fn steered(&self, tenant: &TenantId, id: &RunId) -> Result<Option<(RunId, Digest)>, StoreError> {
        if !self.used.steers() {
            return Ok(None);
        }
        read::steered(&self.readers, tenant, id).await
    }
}

#[async_trait]
impl RequestStore for PostgresStore {
    async fn request(
        &self,
        tenant: &TenantId,
        request: &RequestId,
    ) -> Result<Option<RequestRow>, StoreError> {
        read::request(&self.readers, tenant, request).await
    }

    async fn pending(
        &self,
        tenant: &TenantId,
        filter: RequestFilter,
        page: PageRequest,
    ) -> Result<Page<RequestRow>, StoreError> {
        read::pending(&self.readers, &self.damaged_questions, tenant, &filter, &page).await
    }

    async fn open_questions(&self, tenant: &TenantId, run: &RunId) -> Result<Vec<RequestId>, StoreError> {
        read::open_questions(&self.readers, tenant, run).await
    }

    async fn rules(
        &self,
        tenant: &TenantId,
        session: Option<&SessionId>,
    ) -> Result<Vec<RuleRow>, StoreError> {
        if !self.used.rules() {
            return Ok(Vec::new());
        }
        read::rules(&self.readers, tenant, session).await
    }

    async fn rules_for_run(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Vec<RuleRow>, StoreError> {
        if !self.used.rules() {
            return Ok(Vec::new());
        }
        read::rules_for_run(&self.readers, tenant, session).await
    }

    async fn delete_rule(&self, tenant: &TenantId, rule: &RuleId) -> Result<bool, StoreError> {
        let op = WriteOp::DeleteRule { tenant: tenant.clone(), rule: rule.clone() };
        match self.write(op).await? {
            WriteResult::Existed(found) => Ok(found),
            other => unreachable!("a deletion is answered with {other:?}"),
        }
    }
}

#[async_trait]
impl JobStore for PostgresStore {
    async fn due_jobs(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> Result<(Vec<Job>, Option<Timestamp>), StoreError> {
        read::due_jobs(&self.readers, now, limit).await
    }

    async fn retry_job(&self, job: &JobId, due_at: Timestamp, error: &str) -> Result<(), StoreError> {
        self.done(WriteOp::RetryJob { job: job.clone(), due_at, error: error.to_owned() }).await
    }

    async fn finish_job(&self, job: &JobId) -> Result<(), StoreError> {
        self.done(WriteOp::FinishJob { job: job.clone() }).await
    }
}

#[async_trait]
impl SearchStore for PostgresStore {
    async fn search(
        &self,
        tenant: &TenantId,
        query: &str,
        filter: SearchFilter,
        limit: u32,
    ) -> Result<Vec<SearchHit>, StoreError> {
        let Some(index) = &self.index else { return Err(StoreError::SearchOff) };
        let Some(search) = read::Search::new(tenant, query, &filter, limit) else { return Ok(Vec::new()) };
        index.filled().await?;
        let Hits { hits, damaged } = search.hits(search.find(&self.readers).await)?;
        for DamagedHit { session, entry, why } in damaged {
            tracing::error!(session.id = %session, entry = entry.0, why, "a damaged entry is left out of a search");
            self.damaged.note(tenant, &session);
        }
        Ok(hits)
    }
}

#[async_trait]
impl ToolStore for PostgresStore {
    async fn save_tools(&self, tenant: &TenantId, tools: &[ToolRow]) -> Result<(), StoreError> {
        self.done(WriteOp::SaveTools { tenant: tenant.clone(), tools: tools.to_vec() }).await
    }

    async fn forget_tool(&self, tenant: &TenantId, name: &str) -> Result<bool, StoreError> {
        let op = WriteOp::ForgetTool { tenant: tenant.clone(), name: name.to_owned() };
        match self.write(op).await? {
            WriteResult::Existed(found) => Ok(found),
            other => unreachable!("a deletion is answered with {other:?}"),
        }
    }

    async fn tools(&self) -> Result<StoredTools, StoreError> {
        read::tools(&self.readers).await
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn check(&self) -> Result<(), StoreError> {
        self.done(WriteOp::Check).await?;
        read::check(&self.readers).await
    }

    async fn write_audit(&self, entries: Vec<AuditEntry>) -> Result<(), StoreError> {
        self.done(WriteOp::Audit(entries)).await
    }

    async fn audit(&self, filter: AuditFilter, page: PageRequest) -> Result<Page<AuditRow>, StoreError> {
        read::audit::page(&self.readers, &filter, &page).await
    }

    async fn audit_after(&self, no: u64) -> Result<Vec<AuditRow>, StoreError> {
        read::audit::after(&self.readers, no).await
    }

    async fn last_audit(&self) -> Result<u64, StoreError> {
        read::audit::last(&self.readers).await
    }

    async fn verify_audit(&self) -> Result<Result<ChainVerdict, BrokenLink>, StoreError> {
        read::audit::verify(&self.readers).await
    }
}
