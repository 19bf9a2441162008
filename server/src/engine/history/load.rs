//! The history of a session for its next run.

use agentloop_core::id::{EntryNo, SessionId, TenantId};

use crate::engine::Engine;
use crate::engine::history::History;
use crate::store::StoreError;

impl Engine {
    /// The history that a new run begins with: empty in a session without entries, for which nothing is read.
    pub(in crate::engine) async fn history_before(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        last: EntryNo,
    ) -> Result<History, StoreError> {
        match last {
            EntryNo(0) => Ok(History::new(&self.deps().memory.histories.memory().of(tenant))),
            last => self.history(tenant, session, last).await,
        }
    }

    /// The session's history up to its last entry, from the cache or the store.
    ///
    /// # Errors
    /// [`StoreError::SessionMoved`] if the session has another last entry by now, or was deleted; the store's.
    pub(in crate::engine) async fn history(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        last: EntryNo,
    ) -> Result<History, StoreError> {
        let deps = self.deps();
        let history = deps.memory.histories.take(&*deps.store, tenant, session, last).await;
        if history.as_ref().is_err_and(StoreError::is_damage)
            && self.store().session(tenant, session).await?.is_none_or(|row| row.last_entry != last)
        {
            return Err(StoreError::SessionMoved);
        }
        history
    }
}
