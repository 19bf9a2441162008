//! Truth in memory: what the server's store promises, with nothing of how it does it, so that the two can be held
//! against each other.

mod append;
mod read;
mod sessions;
mod tables;

use std::sync::Arc;

use agentloop_core::id::{
    EntryNo, Epoch, HostId, RequestId, RuleId, RunId, RunKey, Seq, SessionId, TenantId,
};
use agentloop_core::run::event::Record;
use agentloop_core::time::Timestamp;
use agentloop_core::todo::TodoItem;
use agentloop_core::tool::Digest;
use agentloop_server::store::{
    Append, AuditStore, BlobStore, Claimed, EntryRow, HostClaim, IdleSession, Interrupted, Job, JobId,
    JobStore, JournalStore, NewFork, NewSession, Page, PageRequest, QueueStore, RequestFilter, RequestRow,
    RequestStore, RuleRow, RunFilter, RunRow, SearchFilter, SearchHit, SearchStore, SessionFilter,
    SessionNotes, SessionRow, SessionStore, SessionUpdate, StartView, Store, StoreError, StoredTools,
    ToolRow, ToolStore, UsageQuery, UsageRow,
};
use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};

pub use tables::Tables;

/// A store in memory. Clones are the same store, opened by the same process.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    tables: Arc<Mutex<Tables>>,
    epoch: Epoch,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { tables: Arc::default(), epoch: Epoch(1) }
    }
}

impl MemoryStore {
    /// The same truth, opened by the next process: whoever had it before is fenced run by run.
    #[must_use]
    pub fn reopened(&self) -> Self {
        Self { tables: self.tables.clone(), epoch: Epoch(self.epoch.0 + 1) }
    }

    /// The stored data, locked as long as it is looked at.
    pub fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock()
    }
}

#[async_trait]
impl JournalStore for MemoryStore {
    async fn append(&self, append: Append) -> Result<(), StoreError> {
        self.tables().append(append)
    }

    async fn claim(&self, tenant: &TenantId, run: &RunId) -> Result<Option<Claimed>, StoreError> {
        self.tables().claim(tenant, run, self.epoch)
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    async fn run(&self, tenant: &TenantId, run: &RunId) -> Result<Option<RunRow>, StoreError> {
        Ok(self.tables().run(tenant, run).map(|run| run.row.clone()))
    }

    async fn records(
        &self,
        tenant: &TenantId,
        run: &RunId,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<Record>, StoreError> {
        Ok(self.tables().records(tenant, run, after, limit))
    }

    async fn runs(
        &self,
        tenant: &TenantId,
        filter: RunFilter,
        page: PageRequest,
    ) -> Result<Page<RunRow>, StoreError> {
        self.tables().run_page(tenant, &filter, &page)
    }

    async fn usage(&self, tenant: &TenantId, query: &UsageQuery) -> Result<Vec<UsageRow>, StoreError> {
        Ok(self.tables().usage(tenant, query))
    }

    async fn unfinished(&self) -> Result<Vec<RunKey>, StoreError> {
        Ok(self.tables().unfinished())
    }

    async fn due(&self, now: Timestamp, limit: u32) -> Result<(Vec<RunKey>, Option<Timestamp>), StoreError> {
        Ok(self.tables().due(now, limit))
    }
}

#[async_trait]
impl SessionStore for MemoryStore {
    async fn create_session(&self, new: NewSession) -> Result<SessionRow, StoreError> {
        self.tables().create_session(&new)
    }

    async fn get_or_create_session(&self, new: NewSession) -> Result<SessionRow, StoreError> {
        self.tables().get_or_create_session(&new)
    }

    async fn update_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        update: SessionUpdate,
    ) -> Result<SessionRow, StoreError> {
        self.tables().update_session(tenant, session, &update)
    }

    async fn fork(&self, new: NewFork) -> Result<SessionRow, StoreError> {
        self.tables().fork(new)
    }

    async fn set_session_notes(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        notes: SessionNotes,
    ) -> Result<bool, StoreError> {
        Ok(self.tables().set_notes(tenant, session, notes))
    }

    async fn session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<SessionRow>, StoreError> {
        Ok(self.tables().session_row(tenant, session))
    }

    async fn todos(&self, tenant: &TenantId, session: &SessionId) -> Result<Vec<TodoItem>, StoreError> {
        Ok(self.tables().todos(tenant, session))
    }

    async fn sessions(
        &self,
        tenant: &TenantId,
        filter: SessionFilter,
        page: PageRequest,
    ) -> Result<Page<SessionRow>, StoreError> {
        self.tables().session_page(tenant, &filter, &page)
    }

    async fn entries(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: EntryNo,
        limit: u32,
    ) -> Result<Vec<EntryRow>, StoreError> {
        Ok(self.tables().entries(tenant, session, after, limit))
    }

    async fn tenants_with_sessions(&self) -> Result<Vec<TenantId>, StoreError> {
        Ok(self.tables().tenants())
    }

    async fn session_count(&self, tenant: &TenantId, by: Option<&str>) -> Result<u64, StoreError> {
        Ok(self.tables().session_count(tenant, by))
    }

    async fn stored_bytes(&self, tenant: &TenantId, by: Option<&str>) -> Result<u64, StoreError> {
        self.tables().stored_bytes(tenant, by)
    }

    async fn idle_sessions(
        &self,
        tenant: &TenantId,
        before: Timestamp,
        after: Option<IdleSession>,
        limit: u32,
    ) -> Result<Vec<IdleSession>, StoreError> {
        Ok(self.tables().idle_sessions(tenant, before, after.as_ref(), limit))
    }

    async fn delete_session(&self, tenant: &TenantId, session: &SessionId) -> Result<bool, StoreError> {
        self.tables().delete_session(tenant, session)
    }
}

#[async_trait]
impl QueueStore for MemoryStore {
    async fn next_queued(&self, tenant: &TenantId, session: &SessionId) -> Result<Option<RunId>, StoreError> {
        Ok(self.tables().next_queued(tenant, session))
    }

    async fn queue_heads(&self) -> Result<Vec<RunKey>, StoreError> {
        Ok(self.tables().queue_heads())
    }

    async fn interrupted(&self) -> Result<Vec<Interrupted>, StoreError> {
        Ok(self.tables().interrupted())
    }

    async fn interrupted_in(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<Interrupted>, StoreError> {
        Ok(self.tables().interrupted_in(tenant, session))
    }

    async fn steered(&self, tenant: &TenantId, id: &RunId) -> Result<Option<(RunId, Digest)>, StoreError> {
        Ok(self.tables().steered(tenant, id))
    }
}

#[async_trait]
impl RequestStore for MemoryStore {
    async fn request(
        &self,
        tenant: &TenantId,
        request: &RequestId,
    ) -> Result<Option<RequestRow>, StoreError> {
        Ok(self.tables().request(tenant, request))
    }

    async fn pending(
        &self,
        tenant: &TenantId,
        filter: RequestFilter,
        page: PageRequest,
    ) -> Result<Page<RequestRow>, StoreError> {
        self.tables().request_page(tenant, &filter, &page)
    }

    async fn rules(
        &self,
        tenant: &TenantId,
        session: Option<&SessionId>,
    ) -> Result<Vec<RuleRow>, StoreError> {
        Ok(self.tables().rules(tenant, session))
    }

    async fn delete_rule(&self, tenant: &TenantId, rule: &RuleId) -> Result<bool, StoreError> {
        Ok(self.tables().delete_rule(tenant, rule))
    }
}

#[async_trait]
impl JobStore for MemoryStore {
    async fn due_jobs(
        &self,
        now: Timestamp,
        after: Option<&TenantId>,
        limit: u32,
    ) -> Result<(Vec<Job>, Option<Timestamp>), StoreError> {
        Ok(self.tables().due_jobs(now, after, limit))
    }

    async fn retry_job(&self, job: &JobId, due_at: Timestamp, error: &str) -> Result<(), StoreError> {
        self.tables().retry_job(job, due_at, error);
        Ok(())
    }

    async fn finish_job(&self, job: &JobId) -> Result<(), StoreError> {
        self.tables().finish_job(job);
        Ok(())
    }
}

#[async_trait]
impl SearchStore for MemoryStore {
    /// Search is off, because messages are not indexed.
    async fn search(
        &self,
        _tenant: &TenantId,
        _query: &str,
        _filter: SearchFilter,
        _limit: u32,
    ) -> Result<Vec<SearchHit>, StoreError> {
        Err(StoreError::SearchOff)
    }
}

/// The simulation stores no blobs.
impl BlobStore for MemoryStore {}

#[async_trait]
impl ToolStore for MemoryStore {
    async fn save_tools(&self, tenant: &TenantId, tools: &[ToolRow]) -> Result<(), StoreError> {
        self.tables().save_tools(tenant, tools);
        Ok(())
    }

    async fn forget_tool(&self, tenant: &TenantId, name: &str) -> Result<bool, StoreError> {
        Ok(self.tables().forget_tool(tenant, name))
    }

    async fn tools(&self) -> Result<StoredTools, StoreError> {
        Ok(StoredTools { tools: self.tables().tools(), ..StoredTools::default() })
    }

    async fn claim_host(&self, claim: &HostClaim) -> Result<bool, StoreError> {
        Ok(self.tables().claim_host(claim))
    }

    async fn see_hosts(
        &self,
        hosts: &[(TenantId, HostId)],
        at: Timestamp,
        free_before: Timestamp,
    ) -> Result<(), StoreError> {
        self.tables().see_hosts(hosts, at, free_before);
        Ok(())
    }
}

/// No audit log.
impl AuditStore for MemoryStore {}

#[async_trait]
impl Store for MemoryStore {
    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn blind_start(&self, _: &TenantId) -> Option<StartView> {
        Some(StartView::blind())
    }
}
