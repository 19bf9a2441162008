//! Deletes a session. Everything in memory that is kept by its id, or by the ids of its runs, is forgotten: a client may
//! use these ids again at once.

use agentloop_core::id::{SessionId, TenantId};

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::store::StoreError;

impl Engine {
    /// Deletes a session, its runs and their events. False if there is no such session. Subscribers of its runs get
    /// [`EngineError::RunNotFound`].
    ///
    /// # Errors
    /// [`EngineError::SessionBusy`], or the store's.
    pub async fn delete_session(&self, tenant: &TenantId, session: &SessionId) -> Result<bool, EngineError> {
        let (engine, tenant, session) = (self.clone(), tenant.clone(), session.clone());
        self.run_detached("delete session", async move {
            // Keeps out a start that read the session before the deletion.
            let _lock = engine.0.session_locks.exclusive(&tenant, &session).await;
            let deleted = engine.store().delete_session(&tenant, &session).await;
            let is_gone = match &deleted {
                Ok(_) => true,
                Err(StoreError::SessionBusy { run }) => {
                    return Err(EngineError::SessionBusy { run: run.clone() });
                }
                // The store may have deleted it and lost the answer. If this look-up fails too, memory is kept; the
                // caller gets the error and deletes again.
                Err(_) => matches!(engine.store().session(&tenant, &session).await, Ok(None)),
            };
            if is_gone {
                engine.forget(&tenant, &session);
            }
            Ok(deleted?)
        })
        .await
    }

    fn forget(&self, tenant: &TenantId, session: &SessionId) {
        let deps = self.deps();
        deps.histories.remove(tenant, session);
        deps.feeds.close_session(tenant, session);
        deps.jobs.stop_session(tenant, session);
    }
}
