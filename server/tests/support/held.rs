//! A store whose reads share one connection, and can be held back by a test.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use agentloop_core::id::{EntryNo, Epoch, RequestId, RuleId, RunId, RunKey, Seq, SessionId, TenantId};
use agentloop_core::run::event::Record;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;
use agentloop_server::store::sqlite::SqliteStore;
use agentloop_server::store::{
    Append, Claimed, EntryRow, Interrupted, Job, JobId, JobStore, JournalStore, Page, PageRequest,
    QueueStore, RequestFilter, RequestRow, RequestStore, RuleRow, RunFilter, RunRow, SearchFilter, SearchHit,
    SearchStore, SessionNotes, SessionRow, SessionStore, Store, StoreError, ToolRow, ToolStore,
};
use async_trait::async_trait;
use tokio::sync::{Notify, Semaphore};

/// Times that a read gives way while it has the connection. A reader that is not polled meanwhile keeps it.
const STEPS: usize = 8;

/// A store in memory whose reads share one connection. A test can hold back what a read found.
pub(crate) struct HeldStore {
    inner: SqliteStore,
    connection: Semaphore,
    holds: Mutex<HashMap<&'static str, Hold>>,
}

/// Holds back one answer of a read.
#[derive(Clone, Default)]
pub(crate) struct Hold {
    reached: Arc<Notify>,
    released: Arc<Notify>,
}

impl Hold {
    /// Waits until the read has found what it answers.
    pub(crate) async fn reached(&self) {
        self.reached.notified().await;
    }

    /// Lets the reader have the answer.
    pub(crate) fn release(&self) {
        self.released.notify_one();
    }
}

impl HeldStore {
    /// An empty store.
    pub(crate) async fn new() -> Arc<Self> {
        let inner = SqliteStore::in_memory().await.expect("a store");
        Arc::new(Self { inner, connection: Semaphore::new(1), holds: Mutex::default() })
    }

    /// Holds back the next answer of the method of this name.
    pub(crate) fn hold_next(&self, method: &'static str) -> Hold {
        let hold = Hold::default();
        self.holds.lock().expect("nobody has panicked").insert(method, hold.clone());
        hold
    }

    async fn read<T>(&self, method: &'static str, read: impl Future<Output = T>) -> T {
        let answer = {
            let _connection = self.connection.acquire().await.expect("it is never closed");
            for _ in 0..STEPS {
                tokio::task::yield_now().await;
            }
            read.await
        };
        let hold = self.holds.lock().expect("nobody has panicked").remove(method);
        if let Some(hold) = hold {
            hold.reached.notify_one();
            hold.released.notified().await;
        }
        answer
    }
}

#[async_trait]
impl JournalStore for HeldStore {
    async fn append(&self, append: Append) -> Result<(), StoreError> {
        self.inner.append(append).await
    }

    async fn claim(&self, tenant: &TenantId, run: &RunId) -> Result<Option<Claimed>, StoreError> {
        self.inner.claim(tenant, run).await
    }

    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    async fn run(&self, tenant: &TenantId, run: &RunId) -> Result<Option<RunRow>, StoreError> {
        self.read("run", self.inner.run(tenant, run)).await
    }

    async fn records(
        &self,
        tenant: &TenantId,
        run: &RunId,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<Record>, StoreError> {
        self.read("records", self.inner.records(tenant, run, after, limit)).await
    }

    async fn runs(
        &self,
        tenant: &TenantId,
        filter: RunFilter,
        page: PageRequest,
    ) -> Result<Page<RunRow>, StoreError> {
        self.read("runs", self.inner.runs(tenant, filter, page)).await
    }

    async fn unfinished(&self) -> Result<Vec<RunKey>, StoreError> {
        self.read("unfinished", self.inner.unfinished()).await
    }

    async fn due(&self, now: Timestamp, limit: u32) -> Result<(Vec<RunKey>, Option<Timestamp>), StoreError> {
        self.read("due", self.inner.due(now, limit)).await
    }
}

#[async_trait]
impl SessionStore for HeldStore {
    async fn create_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        title: &str,
        labels: &BTreeMap<String, String>,
        now: Timestamp,
    ) -> Result<SessionRow, StoreError> {
        self.inner.create_session(tenant, session, title, labels, now).await
    }

    async fn fork(
        &self,
        tenant: &TenantId,
        source: &SessionId,
        at: EntryNo,
        session: &SessionId,
        now: Timestamp,
    ) -> Result<SessionRow, StoreError> {
        self.inner.fork(tenant, source, at, session, now).await
    }

    async fn set_session_notes(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        notes: SessionNotes,
    ) -> Result<bool, StoreError> {
        self.inner.set_session_notes(tenant, session, notes).await
    }

    async fn session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<SessionRow>, StoreError> {
        self.read("session", self.inner.session(tenant, session)).await
    }

    async fn sessions(&self, tenant: &TenantId, page: PageRequest) -> Result<Page<SessionRow>, StoreError> {
        self.read("sessions", self.inner.sessions(tenant, page)).await
    }

    async fn entries(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: EntryNo,
        limit: u32,
    ) -> Result<Vec<EntryRow>, StoreError> {
        self.read("entries", self.inner.entries(tenant, session, after, limit)).await
    }

    async fn delete_session(&self, tenant: &TenantId, session: &SessionId) -> Result<bool, StoreError> {
        self.inner.delete_session(tenant, session).await
    }
}

#[async_trait]
impl QueueStore for HeldStore {
    async fn next_queued(&self, tenant: &TenantId, session: &SessionId) -> Result<Option<RunId>, StoreError> {
        self.read("next_queued", self.inner.next_queued(tenant, session)).await
    }

    async fn queue_heads(&self) -> Result<Vec<RunKey>, StoreError> {
        self.read("queue_heads", self.inner.queue_heads()).await
    }

    async fn interrupted(&self) -> Result<Vec<Interrupted>, StoreError> {
        self.read("interrupted", self.inner.interrupted()).await
    }

    async fn interrupted_in(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<Interrupted>, StoreError> {
        self.read("interrupted_in", self.inner.interrupted_in(tenant, session)).await
    }

    async fn steered(&self, tenant: &TenantId, id: &RunId) -> Result<Option<(RunId, Digest)>, StoreError> {
        self.read("steered", self.inner.steered(tenant, id)).await
    }
}

#[async_trait]
impl RequestStore for HeldStore {
    async fn request(
        &self,
        tenant: &TenantId,
        request: &RequestId,
    ) -> Result<Option<RequestRow>, StoreError> {
        self.read("request", self.inner.request(tenant, request)).await
    }

    async fn pending(
        &self,
        tenant: &TenantId,
        filter: RequestFilter,
        page: PageRequest,
    ) -> Result<Page<RequestRow>, StoreError> {
        self.read("pending", self.inner.pending(tenant, filter, page)).await
    }

    async fn rules(
        &self,
        tenant: &TenantId,
        session: Option<&SessionId>,
    ) -> Result<Vec<RuleRow>, StoreError> {
        self.read("rules", self.inner.rules(tenant, session)).await
    }

    async fn delete_rule(&self, tenant: &TenantId, rule: &RuleId) -> Result<bool, StoreError> {
        self.inner.delete_rule(tenant, rule).await
    }
}

#[async_trait]
impl JobStore for HeldStore {
    async fn due_jobs(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> Result<(Vec<Job>, Option<Timestamp>), StoreError> {
        self.read("due_jobs", self.inner.due_jobs(now, limit)).await
    }

    async fn retry_job(&self, job: &JobId, due_at: Timestamp, error: &str) -> Result<(), StoreError> {
        self.inner.retry_job(job, due_at, error).await
    }

    async fn finish_job(&self, job: &JobId) -> Result<(), StoreError> {
        self.inner.finish_job(job).await
    }
}

#[async_trait]
impl SearchStore for HeldStore {
    async fn search(
        &self,
        tenant: &TenantId,
        query: &str,
        filter: SearchFilter,
        limit: u32,
    ) -> Result<Vec<SearchHit>, StoreError> {
        self.inner.search(tenant, query, filter, limit).await
    }
}

#[async_trait]
impl ToolStore for HeldStore {
    async fn save_tools(&self, tenant: &TenantId, tools: &[ToolRow]) -> Result<(), StoreError> {
        self.inner.save_tools(tenant, tools).await
    }

    async fn forget_tool(&self, tenant: &TenantId, name: &str) -> Result<bool, StoreError> {
        self.inner.forget_tool(tenant, name).await
    }

    async fn tools(&self) -> Result<Vec<(TenantId, ToolRow)>, StoreError> {
        self.read("tools", self.inner.tools()).await
    }
}

#[async_trait]
impl Store for HeldStore {
    async fn check(&self) -> Result<(), StoreError> {
        self.inner.check().await
    }
}
