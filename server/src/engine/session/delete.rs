//! A session is deleted: what is in memory of it goes with what is stored, since its id, and those of its runs, may
//! mean others from then on.

use agentloop_core::id::{SessionId, TenantId};

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::store::StoreError;

impl Engine {
    /// Deletes a session, its runs and their events; `false` where there was none. Whoever listens to one of its runs
    /// hears that it is not there any more.
    ///
    /// # Errors
    /// [`EngineError::SessionBusy`], or the store's.
    pub async fn delete_session(&self, tenant: &TenantId, session: &SessionId) -> Result<bool, EngineError> {
        let (engine, tenant, session) = (self.clone(), tenant.clone(), session.clone());
        self.whole("delete session", async move {
            // Nobody starts a run in it on what was there before.
            let _alone = engine.0.sessions.pass(&tenant, &session).await;
            let deleted = engine.store().delete_session(&tenant, &session).await;
            let is_gone = match &deleted {
                Ok(_) => true,
                Err(StoreError::SessionBusy { run }) => {
                    return Err(EngineError::SessionBusy { run: run.clone() });
                }
                // It may have been carried out, its answer lost. Where this is not known either, whoever deletes it
                // again is heard.
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
        deps.histories.forget(tenant, session);
        deps.feeds.forget(tenant, session);
        deps.jobs.forget(tenant, session);
    }
}
