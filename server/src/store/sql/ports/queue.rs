//! Runs that wait for their session.

use agentloop_core::id::{RunId, RunKey, SessionId, TenantId};
use agentloop_core::tool::Digest;
use async_trait::async_trait;

use crate::store::sql::read;
use crate::store::sql::store::SqlStore;
use crate::store::{Interrupted, QueueStore, StoreError};

#[async_trait]
impl<S: SqlStore> QueueStore for S {
    async fn next_queued(&self, tenant: &TenantId, session: &SessionId) -> Result<Option<RunId>, StoreError> {
        let gains = self.gains();
        if !self.used().queues(gains) {
            return Ok(None);
        }
        let found = read::next_queued(self.readers(), tenant, session).await?;
        // A queued run of an earlier owner is in what is read from here on.
        if found.is_none()
            && self.used().may_look_at_queues(gains)
            && matches!(read::any_queued(self.readers()).await, Ok(false))
        {
            self.used().note_no_queues(gains);
        }
        Ok(found)
    }

    async fn queue_heads(&self) -> Result<Vec<RunKey>, StoreError> {
        let heads = read::queue_heads(self.readers()).await?;
        if !heads.is_empty() {
            self.used().note_queue();
        }
        Ok(heads)
    }

    async fn interrupted(&self) -> Result<Vec<Interrupted>, StoreError> {
        read::interrupted(self.readers()).await
    }

    async fn interrupted_in(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> Result<Option<Interrupted>, StoreError> {
        if !self.used().queues(self.gains()) {
            return Ok(None);
        }
        read::interrupted_in(self.readers(), tenant, session).await
    }

    async fn steered(&self, tenant: &TenantId, id: &RunId) -> Result<Option<(RunId, Digest)>, StoreError> {
        if !self.used().steers() {
            return Ok(None);
        }
        read::steered(self.readers(), tenant, id).await
    }
}
