//! The ports of the store, each method with the faults of a read or of a write.

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

use super::{AppendWrite, FaultyStore};
use crate::store::MemoryStore;

#[async_trait]
impl JournalStore for FaultyStore {
    async fn append(&self, append: Append) -> Result<(), StoreError> {
        self.write(described(&append), AppendWrite(append)).await
    }

    async fn claim(&self, tenant: &TenantId, run: &RunId) -> Result<Option<Claimed>, StoreError> {
        let (what, tenant, run) = (format!("{run} is claimed"), tenant.clone(), run.clone());
        self.write(what, move |store: MemoryStore| async move { store.claim(&tenant, &run).await }).await
    }

    fn epoch(&self) -> Epoch {
        self.0.store.epoch()
    }

    async fn run(&self, tenant: &TenantId, run: &RunId) -> Result<Option<RunRow>, StoreError> {
        self.read(self.0.store.run(tenant, run)).await
    }

    async fn records(
        &self,
        tenant: &TenantId,
        run: &RunId,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<Record>, StoreError> {
        self.read(self.0.store.records(tenant, run, after, limit)).await
    }

    async fn runs(
        &self,
        tenant: &TenantId,
        filter: RunFilter,
        page: PageRequest,
    ) -> Result<Page<RunRow>, StoreError> {
        self.read(self.0.store.runs(tenant, filter, page)).await
    }

    async fn usage(&self, tenant: &TenantId, query: &UsageQuery) -> Result<Vec<UsageRow>, StoreError> {
        self.read(self.0.store.usage(tenant, query)).await
    }

    async fn unfinished(&self) -> Result<Vec<RunKey>, StoreError> {
        self.read(self.0.store.unfinished()).await
    }

    async fn due(&self, now: Timestamp, limit: u32) -> Result<(Vec<RunKey>, Option<Timestamp>), StoreError> {
        self.read(self.0.store.due(now, limit)).await
    }
}

#[async_trait]
impl SessionStore for FaultyStore {
    async fn create_session(&self, new: NewSession) -> Result<SessionRow, StoreError> {
        self.read(self.0.store.create_session(new)).await
    }

    async fn get_or_create_session(&self, new: NewSession) -> Result<SessionRow, StoreError> {
        self.read(self.0.store.get_or_create_session(new)).await
    }

    async fn update_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        update: SessionUpdate,
    ) -> Result<SessionRow, StoreError> {
        self.read(self.0.store.update_session(tenant, session, update)).await
    }

    async fn fork(&self, new: NewFork) -> Result<SessionRow, StoreError> {
        let what = format!("{} is a fork of {} at {}", new.session, new.source, new.at.0);
        self.write(what, move |store: MemoryStore| async move { store.fork(new).await }).await
    }

    async fn set_session_notes(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        notes: SessionNotes,
    ) -> Result<bool, StoreError> {
        let (what, tenant, session) = (format!("{session} is noted on"), tenant.clone(), session.clone());
        let write =
            move |store: MemoryStore| async move { store.set_session_notes(&tenant, &session, notes).await };
        self.write(what, write).await
    }

    async fn session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<SessionRow>, StoreError> {
        self.read(self.0.store.session(tenant, session)).await
    }

    async fn todos(&self, tenant: &TenantId, session: &SessionId) -> Result<Vec<TodoItem>, StoreError> {
        self.read(self.0.store.todos(tenant, session)).await
    }

    async fn sessions(
        &self,
        tenant: &TenantId,
        filter: SessionFilter,
        page: PageRequest,
    ) -> Result<Page<SessionRow>, StoreError> {
        self.read(self.0.store.sessions(tenant, filter, page)).await
    }

    async fn entries(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: EntryNo,
        limit: u32,
    ) -> Result<Vec<EntryRow>, StoreError> {
        self.read(self.0.store.entries(tenant, session, after, limit)).await
    }

    async fn tenants_with_sessions(&self) -> Result<Vec<TenantId>, StoreError> {
        self.read(self.0.store.tenants_with_sessions()).await
    }

    async fn session_count(&self, tenant: &TenantId, by: Option<&str>) -> Result<u64, StoreError> {
        self.read(self.0.store.session_count(tenant, by)).await
    }

    async fn stored_bytes(&self, tenant: &TenantId, by: Option<&str>) -> Result<u64, StoreError> {
        self.read(self.0.store.stored_bytes(tenant, by)).await
    }

    async fn idle_sessions(
        &self,
        tenant: &TenantId,
        before: Timestamp,
        after: Option<IdleSession>,
        limit: u32,
    ) -> Result<Vec<IdleSession>, StoreError> {
        self.read(self.0.store.idle_sessions(tenant, before, after, limit)).await
    }

    async fn delete_session(&self, tenant: &TenantId, session: &SessionId) -> Result<bool, StoreError> {
        let (what, tenant, session) = (format!("{session} is deleted"), tenant.clone(), session.clone());
        let write = move |store: MemoryStore| async move { store.delete_session(&tenant, &session).await };
        self.write(what, write).await
    }
}

#[async_trait]
impl QueueStore for FaultyStore {
    async fn next_queued(&self, tenant: &TenantId, session: &SessionId) -> Result<Option<RunId>, StoreError> {
        self.read(self.0.store.next_queued(tenant, session)).await
    }

    async fn queue_heads(&self) -> Result<Vec<RunKey>, StoreError> {
        self.read(self.0.store.queue_heads()).await
    }

    async fn interrupted(&self) -> Result<Vec<Interrupted>, StoreError> {
        self.read(self.0.store.interrupted()).await
    }

    async fn interrupted_in(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<Interrupted>, StoreError> {
        self.read(self.0.store.interrupted_in(tenant, session)).await
    }

    async fn steered(&self, tenant: &TenantId, id: &RunId) -> Result<Option<(RunId, Digest)>, StoreError> {
        self.read(self.0.store.steered(tenant, id)).await
    }
}

#[async_trait]
impl RequestStore for FaultyStore {
    async fn request(
        &self,
        tenant: &TenantId,
        request: &RequestId,
    ) -> Result<Option<RequestRow>, StoreError> {
        self.read(self.0.store.request(tenant, request)).await
    }

    async fn pending(
        &self,
        tenant: &TenantId,
        filter: RequestFilter,
        page: PageRequest,
    ) -> Result<Page<RequestRow>, StoreError> {
        self.read(self.0.store.pending(tenant, filter, page)).await
    }

    async fn rules(
        &self,
        tenant: &TenantId,
        session: Option<&SessionId>,
    ) -> Result<Vec<RuleRow>, StoreError> {
        self.read(self.0.store.rules(tenant, session)).await
    }

    async fn delete_rule(&self, tenant: &TenantId, rule: &RuleId) -> Result<bool, StoreError> {
        self.read(self.0.store.delete_rule(tenant, rule)).await
    }
}

#[async_trait]
impl JobStore for FaultyStore {
    async fn due_jobs(
        &self,
        now: Timestamp,
        after: Option<&TenantId>,
        limit: u32,
    ) -> Result<(Vec<Job>, Option<Timestamp>), StoreError> {
        self.read(self.0.store.due_jobs(now, after, limit)).await
    }

    async fn retry_job(&self, job: &JobId, due_at: Timestamp, error: &str) -> Result<(), StoreError> {
        let (what, job, error) = (format!("{job} is put off"), job.clone(), error.to_owned());
        let write = move |store: MemoryStore| async move { store.retry_job(&job, due_at, &error).await };
        self.write(what, write).await
    }

    async fn finish_job(&self, job: &JobId) -> Result<(), StoreError> {
        let (what, job) = (format!("{job} is done"), job.clone());
        self.write(what, move |store: MemoryStore| async move { store.finish_job(&job).await }).await
    }
}

#[async_trait]
impl SearchStore for FaultyStore {
    async fn search(
        &self,
        tenant: &TenantId,
        query: &str,
        filter: SearchFilter,
        limit: u32,
    ) -> Result<Vec<SearchHit>, StoreError> {
        self.read(self.0.store.search(tenant, query, filter, limit)).await
    }
}

#[async_trait]
impl ToolStore for FaultyStore {
    async fn save_tools(&self, tenant: &TenantId, tools: &[ToolRow]) -> Result<(), StoreError> {
        self.read(self.0.store.save_tools(tenant, tools)).await
    }

    async fn forget_tool(&self, tenant: &TenantId, name: &str) -> Result<bool, StoreError> {
        self.read(self.0.store.forget_tool(tenant, name)).await
    }

    async fn tools(&self) -> Result<StoredTools, StoreError> {
        self.read(self.0.store.tools()).await
    }

    async fn claim_host(&self, claim: &HostClaim) -> Result<bool, StoreError> {
        self.read(self.0.store.claim_host(claim)).await
    }

    async fn see_hosts(
        &self,
        hosts: &[(TenantId, HostId)],
        at: Timestamp,
        free_before: Timestamp,
    ) -> Result<(), StoreError> {
        self.read(self.0.store.see_hosts(hosts, at, free_before)).await
    }
}

/// No blobs: their files are attacked in `tests/process/blobs.rs`.
impl BlobStore for FaultyStore {}

/// No audit log.
impl AuditStore for FaultyStore {}

#[async_trait]
impl Store for FaultyStore {
    async fn check(&self) -> Result<(), StoreError> {
        self.read(self.0.store.check()).await
    }

    fn blind_start(&self, tenant: &TenantId) -> Option<StartView> {
        self.0.store.blind_start(tenant)
    }
}

fn described(append: &Append) -> String {
    let kinds: Vec<String> = append
        .records
        .iter()
        .map(|record| format!("{}={}", record.event.kind(), record.status.as_str()))
        .collect();
    format!("{} after {}: {}", append.run, append.after.0, kinds.join(" "))
}
