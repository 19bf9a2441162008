//! A store in memory around whose calls a test runs code of its own.

use agentloop_core::id::{
    EntryNo, Epoch, HostId, RequestId, RuleId, RunId, RunKey, Seq, SessionId, TenantId,
};
use agentloop_core::run::event::Record;
use agentloop_core::time::Timestamp;
use agentloop_core::todo::TodoItem;
use agentloop_core::tool::Digest;
use agentloop_server::store::sqlite::SqliteStore;
use agentloop_server::store::{
    Append, AuditStore, BlobStore, Claimed, EntryRow, HostClaim, IdleSession, Interrupted, Job, JobId,
    JobStore, JournalStore, NewFork, NewSession, Page, PageRequest, QueueStore, RequestFilter, RequestRow,
    RequestStore, RuleRow, RunFilter, RunRow, SearchFilter, SearchHit, SearchStore, SessionFilter,
    SessionNotes, SessionRow, SessionStore, SessionUpdate, StartView, Store, StoreError, StoredTools,
    ToolRow, ToolStore, UsageQuery, UsageRow,
};
use async_trait::async_trait;

/// The code around calls of a store. By default it adds nothing.
pub(crate) trait Intercept: Send + Sync + 'static {
    /// Performs a read of the method of this name.
    fn read<T: Send>(
        &self,
        _method: &'static str,
        read: impl Future<Output = T> + Send,
    ) -> impl Future<Output = T> + Send {
        read
    }

    /// True if this server owns the session.
    fn owns(&self, _session: &SessionId) -> bool {
        true
    }

    /// Performs a write, or refuses it.
    fn write<T: Send>(
        &self,
        write: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> impl Future<Output = Result<T, StoreError>> + Send {
        write
    }

    /// Carries out the deletion of a session. Without a method of its own, it is one of all writes.
    fn delete<T: Send>(
        &self,
        delete: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> impl Future<Output = Result<T, StoreError>> + Send {
        self.write(delete)
    }

    /// Performs an append, or refuses it.
    fn append(
        &self,
        store: &SqliteStore,
        append: Append,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.write(store.append(append))
    }
}

/// A store in memory, with code around its calls.
pub(crate) struct Intercepted<I> {
    inner: SqliteStore,
    pub(crate) intercept: I,
}

impl<I> Intercepted<I> {
    /// A wrapper around an empty store in memory.
    pub(crate) async fn new(intercept: I) -> Self {
        Self { inner: SqliteStore::in_memory().await.expect("a store"), intercept }
    }
}

#[async_trait]
impl<I: Intercept> JournalStore for Intercepted<I> {
    async fn append(&self, append: Append) -> Result<(), StoreError> {
        self.intercept.append(&self.inner, append).await
    }

    async fn claim(&self, tenant: &TenantId, run: &RunId) -> Result<Option<Claimed>, StoreError> {
        self.intercept.write(self.inner.claim(tenant, run)).await
    }

    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    fn owns(&self, _tenant: &TenantId, session: &SessionId) -> bool {
        self.intercept.owns(session)
    }

    async fn run(&self, tenant: &TenantId, run: &RunId) -> Result<Option<RunRow>, StoreError> {
        self.intercept.read("run", self.inner.run(tenant, run)).await
    }

    async fn records(
        &self,
        tenant: &TenantId,
        run: &RunId,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<Record>, StoreError> {
        self.intercept.read("records", self.inner.records(tenant, run, after, limit)).await
    }

    async fn runs(
        &self,
        tenant: &TenantId,
        filter: RunFilter,
        page: PageRequest,
    ) -> Result<Page<RunRow>, StoreError> {
        self.intercept.read("runs", self.inner.runs(tenant, filter, page)).await
    }

    async fn usage(&self, tenant: &TenantId, query: &UsageQuery) -> Result<Vec<UsageRow>, StoreError> {
        self.intercept.read("usage", self.inner.usage(tenant, query)).await
    }

    async fn unfinished(&self) -> Result<Vec<RunKey>, StoreError> {
        self.intercept.read("unfinished", self.inner.unfinished()).await
    }

    async fn due(&self, now: Timestamp, limit: u32) -> Result<(Vec<RunKey>, Option<Timestamp>), StoreError> {
        self.intercept.read("due", self.inner.due(now, limit)).await
    }
}

#[async_trait]
impl<I: Intercept> SessionStore for Intercepted<I> {
    async fn create_session(&self, new: NewSession) -> Result<SessionRow, StoreError> {
        self.intercept.write(self.inner.create_session(new)).await
    }

    async fn get_or_create_session(&self, new: NewSession) -> Result<SessionRow, StoreError> {
        self.intercept.write(self.inner.get_or_create_session(new)).await
    }

    async fn update_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        update: SessionUpdate,
    ) -> Result<SessionRow, StoreError> {
        self.intercept.write(self.inner.update_session(tenant, session, update)).await
    }

    async fn fork(&self, new: NewFork) -> Result<SessionRow, StoreError> {
        self.intercept.write(self.inner.fork(new)).await
    }

    async fn set_session_notes(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        notes: SessionNotes,
    ) -> Result<bool, StoreError> {
        self.intercept.write(self.inner.set_session_notes(tenant, session, notes)).await
    }

    async fn session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<SessionRow>, StoreError> {
        self.intercept.read("session", self.inner.session(tenant, session)).await
    }

    async fn todos(&self, tenant: &TenantId, session: &SessionId) -> Result<Vec<TodoItem>, StoreError> {
        self.intercept.read("todos", self.inner.todos(tenant, session)).await
    }

    async fn sessions(
        &self,
        tenant: &TenantId,
        filter: SessionFilter,
        page: PageRequest,
    ) -> Result<Page<SessionRow>, StoreError> {
        self.intercept.read("sessions", self.inner.sessions(tenant, filter, page)).await
    }

    async fn entries(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: EntryNo,
        limit: u32,
    ) -> Result<Vec<EntryRow>, StoreError> {
        self.intercept.read("entries", self.inner.entries(tenant, session, after, limit)).await
    }

    async fn tenants_with_sessions(&self) -> Result<Vec<TenantId>, StoreError> {
        self.intercept.read("tenants_with_sessions", self.inner.tenants_with_sessions()).await
    }

    async fn session_count(&self, tenant: &TenantId, by: Option<&str>) -> Result<u64, StoreError> {
        self.intercept.read("session_count", self.inner.session_count(tenant, by)).await
    }

    async fn stored_bytes(&self, tenant: &TenantId, by: Option<&str>) -> Result<u64, StoreError> {
        self.intercept.read("stored_bytes", self.inner.stored_bytes(tenant, by)).await
    }

    async fn idle_sessions(
        &self,
        tenant: &TenantId,
        before: Timestamp,
        after: Option<IdleSession>,
        limit: u32,
    ) -> Result<Vec<IdleSession>, StoreError> {
        self.intercept.read("idle_sessions", self.inner.idle_sessions(tenant, before, after, limit)).await
    }

    async fn delete_session(&self, tenant: &TenantId, session: &SessionId) -> Result<bool, StoreError> {
        self.intercept.delete(self.inner.delete_session(tenant, session)).await
    }
}

#[async_trait]
impl<I: Intercept> QueueStore for Intercepted<I> {
    async fn next_queued(&self, tenant: &TenantId, session: &SessionId) -> Result<Option<RunId>, StoreError> {
        self.intercept.read("next_queued", self.inner.next_queued(tenant, session)).await
    }

    async fn queue_heads(&self) -> Result<Vec<RunKey>, StoreError> {
        self.intercept.read("queue_heads", self.inner.queue_heads()).await
    }

    async fn interrupted(&self) -> Result<Vec<Interrupted>, StoreError> {
        self.intercept.read("interrupted", self.inner.interrupted()).await
    }

    async fn interrupted_in(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<Interrupted>, StoreError> {
        self.intercept.read("interrupted_in", self.inner.interrupted_in(tenant, session)).await
    }

    async fn steered(&self, tenant: &TenantId, id: &RunId) -> Result<Option<(RunId, Digest)>, StoreError> {
        self.intercept.read("steered", self.inner.steered(tenant, id)).await
    }
}

#[async_trait]
impl<I: Intercept> RequestStore for Intercepted<I> {
    async fn request(
        &self,
        tenant: &TenantId,
        request: &RequestId,
    ) -> Result<Option<RequestRow>, StoreError> {
        self.intercept.read("request", self.inner.request(tenant, request)).await
    }

    async fn pending(
        &self,
        tenant: &TenantId,
        filter: RequestFilter,
        page: PageRequest,
    ) -> Result<Page<RequestRow>, StoreError> {
        self.intercept.read("pending", self.inner.pending(tenant, filter, page)).await
    }

    async fn rules(
        &self,
        tenant: &TenantId,
        session: Option<&SessionId>,
    ) -> Result<Vec<RuleRow>, StoreError> {
        self.intercept.read("rules", self.inner.rules(tenant, session)).await
    }

    async fn delete_rule(&self, tenant: &TenantId, rule: &RuleId) -> Result<bool, StoreError> {
        self.intercept.write(self.inner.delete_rule(tenant, rule)).await
    }
}

#[async_trait]
impl<I: Intercept> JobStore for Intercepted<I> {
    async fn due_jobs(
        &self,
        now: Timestamp,
        after: Option<&TenantId>,
        limit: u32,
    ) -> Result<(Vec<Job>, Option<Timestamp>), StoreError> {
        self.intercept.read("due_jobs", self.inner.due_jobs(now, after, limit)).await
    }

    async fn retry_job(&self, job: &JobId, due_at: Timestamp, error: &str) -> Result<(), StoreError> {
        self.intercept.write(self.inner.retry_job(job, due_at, error)).await
    }

    async fn finish_job(&self, job: &JobId) -> Result<(), StoreError> {
        self.intercept.write(self.inner.finish_job(job)).await
    }
}

#[async_trait]
impl<I: Intercept> SearchStore for Intercepted<I> {
    async fn search(
        &self,
        tenant: &TenantId,
        query: &str,
        filter: SearchFilter,
        limit: u32,
    ) -> Result<Vec<SearchHit>, StoreError> {
        self.intercept.read("search", self.inner.search(tenant, query, filter, limit)).await
    }
}

/// Tests that intercept writes store no blobs.
impl<I: Intercept> BlobStore for Intercepted<I> {}

#[async_trait]
impl<I: Intercept> ToolStore for Intercepted<I> {
    async fn save_tools(&self, tenant: &TenantId, tools: &[ToolRow]) -> Result<(), StoreError> {
        self.intercept.write(self.inner.save_tools(tenant, tools)).await
    }

    async fn forget_tool(&self, tenant: &TenantId, name: &str) -> Result<bool, StoreError> {
        self.intercept.write(self.inner.forget_tool(tenant, name)).await
    }

    async fn tools(&self) -> Result<StoredTools, StoreError> {
        self.intercept.read("tools", self.inner.tools()).await
    }

    async fn claim_host(&self, claim: &HostClaim) -> Result<bool, StoreError> {
        self.intercept.write(self.inner.claim_host(claim)).await
    }

    async fn see_hosts(
        &self,
        hosts: &[(TenantId, HostId)],
        at: Timestamp,
        free_before: Timestamp,
    ) -> Result<(), StoreError> {
        self.intercept.write(self.inner.see_hosts(hosts, at, free_before)).await
    }
}

/// No audit log.
impl<I: Intercept> AuditStore for Intercepted<I> {}

#[async_trait]
impl<I: Intercept> Store for Intercepted<I> {
    async fn check(&self) -> Result<(), StoreError> {
        self.intercept.write(self.inner.check()).await
    }

    fn blind_start(&self, tenant: &TenantId) -> Option<StartView> {
        self.inner.blind_start(tenant)
    }
}
