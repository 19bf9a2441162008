//! The ports that every SQL store implements alike, one file each.

mod audit;
mod job;
mod journal;
mod queue;
mod request;
mod session;
mod tools;

use agentloop_core::id::TenantId;
use async_trait::async_trait;

use crate::store::sql::read;
use crate::store::sql::store::SqlStore;
use crate::store::support::write::WriteOp;
use crate::store::{BlobStore, SearchStore, StartIds, StartView, Store, StoreError};

#[async_trait]
impl<S: SqlStore + SearchStore + BlobStore> Store for S {
    async fn check(&self) -> Result<(), StoreError> {
        self.writes().done(WriteOp::Check).await?;
        read::check(self.readers()).await
    }

    async fn start_view(&self, tenant: &TenantId, ids: StartIds<'_>) -> Result<StartView, StoreError> {
        let view = self.look_up_start(tenant, ids).await?;
        if view.session.as_ref().is_some_and(|session| session.next_queued.is_some()) {
            self.used().note_queue();
        }
        let has_rules = view.rules.as_ref().is_none_or(|rules| !rules.is_empty());
        // Rules of a session that is there say nothing of those for all sessions.
        if view.session.is_none() || !has_rules {
            self.used().note_rules(tenant, has_rules);
        }
        Ok(view)
    }

    fn blind_start(&self, tenant: &TenantId) -> Option<StartView> {
        let used = self.used();
        let is_likely =
            if S::BLIND_WRITES_LOOK { !used.has_rules(tenant) } else { !used.steers() && !used.rules() };
        is_likely.then(StartView::blind)
    }
}
