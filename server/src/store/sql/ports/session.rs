//! Sessions, their entries and their deletion.

use agentloop_core::id::{EntryNo, RunId, SessionId, TenantId};
use agentloop_core::time::Timestamp;
use agentloop_core::todo::TodoItem;
use async_trait::async_trait;

use crate::store::sql::read;
use crate::store::sql::store::SqlStore;
use crate::store::support::damaged;
use crate::store::support::write::{DeleteSession, NewNotes, NewUpdate, SessionOp, WriteOp};
use crate::store::{
    CallTitles, EntryRow, EntrySpan, EntryStretch, IdleSession, ListedEntries, NewFork, NewSession, Page,
    PageRequest, SessionFilter, SessionNotes, SessionRow, SessionStore, SessionUpdate, StoreError,
    StretchMax,
};

#[async_trait]
impl<S: SqlStore> SessionStore for S {
    async fn create_session(&self, new: NewSession) -> Result<SessionRow, StoreError> {
        self.writes().session(WriteOp::Session(SessionOp::Create(clean_new::<S>(new)))).await
    }

    async fn get_or_create_session(&self, new: NewSession) -> Result<SessionRow, StoreError> {
        // Most calls find one, without the writer.
        let by = new.created_by.as_deref();
        if let Some(row) = read::session_of_user(self.readers(), &new.tenant, &new.labels, by).await? {
            return Ok(row);
        }
        self.writes().session(WriteOp::Session(SessionOp::GetOrCreate(clean_new::<S>(new)))).await
    }

    async fn update_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        mut update: SessionUpdate,
    ) -> Result<SessionRow, StoreError> {
        if let Some(title) = &mut update.title {
            *title = S::clean(title).into_owned();
        }
        let new = NewUpdate { tenant: tenant.clone(), session: session.clone(), update };
        self.writes().session(WriteOp::Session(SessionOp::Update(new))).await
    }

    async fn fork(&self, new: NewFork) -> Result<SessionRow, StoreError> {
        let clean = |by: &Option<String>| by.as_deref().map(|by| S::clean(by).into_owned());
        let (created_by, source_of) = (clean(&new.created_by), clean(&new.source_of));
        self.writes()
            .session(WriteOp::Session(SessionOp::Fork(NewFork { created_by, source_of, ..new })))
            .await
    }

    async fn set_session_notes(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        notes: SessionNotes,
    ) -> Result<bool, StoreError> {
        let new = NewNotes { tenant: tenant.clone(), session: session.clone(), notes };
        self.writes().existed(WriteOp::Session(SessionOp::SetNotes(new))).await
    }

    async fn session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<SessionRow>, StoreError> {
        read::session(self.readers(), tenant, session).await
    }

    async fn todos(&self, tenant: &TenantId, session: &SessionId) -> Result<Vec<TodoItem>, StoreError> {
        read::todos(self.readers(), tenant, session).await
    }

    async fn sessions(
        &self,
        tenant: &TenantId,
        filter: SessionFilter,
        page: PageRequest,
    ) -> Result<Page<SessionRow>, StoreError> {
        read::sessions(self.readers(), tenant, &filter, &page).await
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
        let stored = read::stored_entries(self.readers(), tenant, session, after, max).await?;
        stored.whole(tenant, session, self.damaged())
    }

    async fn listed_entries(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        after: EntryNo,
        max: StretchMax,
    ) -> Result<ListedEntries, StoreError> {
        let stored = read::stored_entries(self.readers(), tenant, session, after, max).await?;
        Ok(stored.listed(tenant, session, self.damaged()))
    }

    async fn call_titles(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        span: EntrySpan,
    ) -> Result<CallTitles, StoreError> {
        read::call_titles(self.readers(), tenant, session, span).await
    }

    async fn damaged_entries(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        limit: usize,
    ) -> Result<Vec<EntryNo>, StoreError> {
        if !self.damaged().has(tenant, session) {
            return Ok(Vec::new());
        }
        damaged::find(self, tenant, session, limit).await
    }

    async fn tenants_with_sessions(&self) -> Result<Vec<TenantId>, StoreError> {
        read::tenants_with_sessions(self.readers()).await
    }

    async fn session_count(&self, tenant: &TenantId, by: Option<&str>) -> Result<u64, StoreError> {
        read::session_count(self.readers(), tenant, by).await
    }

    async fn stored_bytes(&self, tenant: &TenantId, by: Option<&str>) -> Result<u64, StoreError> {
        read::stored_bytes(self.readers(), tenant, by).await
    }

    async fn idle_sessions(
        &self,
        tenant: &TenantId,
        before: Timestamp,
        after: Option<IdleSession>,
        limit: u32,
    ) -> Result<Vec<IdleSession>, StoreError> {
        read::idle_sessions(self.readers(), tenant, before, after, limit).await
    }

    async fn delete_session(&self, tenant: &TenantId, session: &SessionId) -> Result<bool, StoreError> {
        delete(self, tenant, session, None).await
    }

    async fn delete_damaged_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        damaged: &RunId,
    ) -> Result<bool, StoreError> {
        delete(self, tenant, session, Some(damaged.clone())).await
    }
}

async fn delete(
    store: &impl SqlStore,
    tenant: &TenantId,
    session: &SessionId,
    damaged: Option<RunId>,
) -> Result<bool, StoreError> {
    let old = DeleteSession { tenant: tenant.clone(), session: session.clone(), damaged };
    let existed = store.writes().existed(WriteOp::Session(SessionOp::Delete(old))).await?;
    store.damaged().forget(tenant, session);
    store.after_deletion().await?;
    Ok(existed)
}

/// The session with texts that the database can store.
fn clean_new<S: SqlStore>(new: NewSession) -> NewSession {
    let title = S::clean(&new.title).into_owned();
    let created_by = new.created_by.as_deref().map(|by| S::clean(by).into_owned());
    NewSession { title, created_by, ..new }
}
