//! Deletes a session. Everything in memory that is kept by its id, or by the ids of its runs, is forgotten: a client may
//! use these ids again at once.

use agentloop_core::id::{SessionId, TenantId};
use agentloop_core::time::Timestamp;

use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::watch::{ChangedFrom, SessionSignal};
use crate::store::{PageRequest, RunFilter, RunRow, SessionRow, StoreError};

/// Runs of a deleted session that are read at a time.
const PAGE_ROWS: u32 = 500;

/// The condition under which a session is deleted. It is looked at under the session's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteIf {
    /// There is none: whichever session has the id.
    Any,
    /// It was last used before this time.
    UsedBefore(Timestamp),
    /// It was created at this time, so it is no later one of the same id.
    CreatedAt(Timestamp),
}

impl DeleteIf {
    fn holds(self, row: &SessionRow) -> bool {
        match self {
            Self::Any => true,
            Self::UsedBefore(before) => row.updated_at < before,
            Self::CreatedAt(at) => row.created_at == at,
        }
    }
}

impl Engine {
    /// Deletes a session, its runs and their events. False if there is no such session. Subscribers of its runs get
    /// [`EngineError::RunNotFound`].
    ///
    /// # Errors
    /// [`EngineError::SessionBusy`], or the store's.
    pub async fn delete_session(&self, tenant: &TenantId, session: &SessionId) -> Result<bool, EngineError> {
        self.delete_session_if(tenant, session, DeleteIf::Any).await
    }

    /// As [`Self::delete_session`], but only if this holds for the session. False if it does not.
    ///
    /// # Errors
    /// The same.
    pub async fn delete_session_if(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        condition: DeleteIf,
    ) -> Result<bool, EngineError> {
        let (engine, tenant, session) = (self.clone(), tenant.clone(), session.clone());
        self.run_detached("delete session", async move {
            // Keeps out a start that read the session before the deletion.
            let _lock = engine.0.session_locks.exclusive(&tenant, &session).await;
            if condition != DeleteIf::Any
                && !engine.store().session(&tenant, &session).await?.is_some_and(|row| condition.holds(&row))
            {
                return Ok(false);
            }
            let watched = engine.watched_runs(&tenant, &session).await;
            let deleted = engine.store().delete_session(&tenant, &session).await;
            let is_gone = match &deleted {
                Ok(_) => true,
                Err(StoreError::SessionBusy { run }) => {
                    return Err(EngineError::SessionBusy { run: run.clone() });
                }
                // The store may have deleted it and lost the response. If this look-up fails too, memory is kept; the
                // caller gets the error and deletes again.
                Err(_) => matches!(engine.store().session(&tenant, &session).await, Ok(None)),
            };
            if is_gone {
                engine.forget(&tenant, &session);
                for row in watched {
                    engine.deps().run_changed(&tenant, row, None, ChangedFrom::Deleted);
                }
                engine.deps().watchers.sessions.changed(&tenant, &session, SessionSignal::Deleted);
            }
            Ok(deleted?)
        })
        .await
    }

    /// The runs of a session, if anybody watches lists of runs. None if they cannot be read: that must not keep a session
    /// from being deleted.
    async fn watched_runs(&self, tenant: &TenantId, session: &SessionId) -> Vec<RunRow> {
        let (mut rows, mut after) = (Vec::new(), None);
        if !self.deps().watchers.runs.is_active() {
            return rows;
        }
        loop {
            let filter = RunFilter { session: Some(session.clone()), ..RunFilter::default() };
            let page = PageRequest { size: PAGE_ROWS, after };
            let page = match self.store().runs(tenant, filter, page).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::warn!(session.id = %session, %error, "watchers are not told which runs are deleted");
                    return rows;
                }
            };
            rows.extend(page.rows);
            after = page.next;
            if after.is_none() {
                return rows;
            }
        }
    }

    fn forget(&self, tenant: &TenantId, session: &SessionId) {
        let deps = self.deps();
        deps.memory.histories.remove(tenant, session);
        deps.feeds.close_session(tenant, session);
        deps.jobs.stop_session(tenant, session);
    }
}
