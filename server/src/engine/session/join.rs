//! Finds the run that a request belongs to: the one that an earlier request with its id started or steered, or is to steer.

use agentloop_core::id::{RunId, Seq, SessionId, TenantId};
use agentloop_core::tool::Digest;

use crate::audit::{self, OTHERS_RUN};
use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::session::request::{Author, OnBusy, StartedRun};
use crate::store::RunRow;

/// The run that an earlier request led to.
#[derive(Debug)]
pub(in crate::engine) struct Earlier {
    /// Its row.
    pub(in crate::engine) row: RunRow,
    /// True if the earlier request steered it.
    steered: bool,
}

impl Earlier {
    /// The result of a request that joins it.
    pub(in crate::engine) fn join(self) -> StartedRun {
        StartedRun { run: self.row.run, session: self.row.session, joined: true, steered: self.steered }
    }
}

impl Engine {
    /// The run that the same request started or steered before. `None` if the request is new.
    ///
    /// # Errors
    /// [`EngineError::IdReused`], [`EngineError::ShuttingDown`], or the store's: [`Elsewhere`](crate::store::StoreError::Elsewhere)
    /// if the run's session is another replica's.
    pub async fn join(
        &self,
        tenant: &TenantId,
        run: &RunId,
        digest: &Digest,
        on_busy: OnBusy,
        author: &Author,
    ) -> Result<Option<StartedRun>, EngineError> {
        self.check_running()?;
        Ok(self.find_started(tenant, run, digest, on_busy, author).await?.map(Earlier::join))
    }

    /// The run with this id, or the run that a request with this id steered.
    ///
    /// # Errors
    /// [`EngineError::RunNotFound`], [`EngineError::ShuttingDown`], or the store's: [`Elsewhere`](crate::store::StoreError::Elsewhere)
    /// if the run's session is another replica's.
    pub async fn join_named(
        &self,
        tenant: &TenantId,
        id: &RunId,
        author: &Author,
    ) -> Result<StartedRun, EngineError> {
        self.check_running()?;
        if let Some(row) = self.store().run(tenant, id).await? {
            if !author.may_use(row.created_by.as_deref()) {
                audit::denied(OTHERS_RUN);
                return Err(EngineError::RunNotFound);
            }
            self.check_own(tenant, &row.session)?;
            return Ok(Earlier { row, steered: false }.join());
        }
        let (run, _) = self.store().steered(tenant, id).await?.ok_or(EngineError::RunNotFound)?;
        let row = self.store().run(tenant, &run).await?.ok_or(EngineError::RunNotFound)?;
        if !author.may_use(row.created_by.as_deref()) {
            audit::denied(OTHERS_RUN);
            return Err(EngineError::RunNotFound);
        }
        self.check_own(tenant, &row.session)?;
        Ok(Earlier { row, steered: true }.join())
    }

    /// The last seq of the run that a request refers to. That is the run with its id, the run that it steered, or the live
    /// run of the session that it is to steer. It is 0 if the request would start a new run.
    ///
    /// # Errors
    /// The store's.
    pub async fn last_seq(
        &self,
        tenant: &TenantId,
        id: Option<&RunId>,
        steers: Option<&SessionId>,
    ) -> Result<Seq, EngineError> {
        let store = self.store();
        if let Some(id) = id {
            if let Some(row) = store.run(tenant, id).await? {
                return Ok(row.last_seq);
            }
            if let Some((run, _)) = store.steered(tenant, id).await? {
                return Ok(store.run(tenant, &run).await?.map_or(Seq(0), |row| row.last_seq));
            }
        }
        let Some(session) = steers else { return Ok(Seq(0)) };
        let Some(live) = store.session(tenant, session).await?.and_then(|row| row.live_run) else {
            return Ok(Seq(0));
        };
        Ok(store.run(tenant, &live).await?.map_or(Seq(0), |row| row.last_seq))
    }

    /// The run that an earlier request with this id started or steered.
    pub(in crate::engine) async fn find_started(
        &self,
        tenant: &TenantId,
        id: &RunId,
        digest: &Digest,
        on_busy: OnBusy,
        author: &Author,
    ) -> Result<Option<Earlier>, EngineError> {
        if let Some(row) = self.store().run(tenant, id).await? {
            if !author.may_use(row.created_by.as_deref()) {
                audit::denied(OTHERS_RUN);
                return Err(EngineError::IdReused);
            }
            if row.request_digest != *digest {
                return Err(EngineError::IdReused);
            }
            self.check_own(tenant, &row.session)?;
            if on_busy == OnBusy::Interrupt {
                self.advance_queue_later(tenant, &row.session);
            }
            return Ok(Some(Earlier { row, steered: false }));
        }
        let Some((run, steered)) = self.store().steered(tenant, id).await? else { return Ok(None) };
        if steered != *digest {
            return Err(EngineError::IdReused);
        }
        let row = self.store().run(tenant, &run).await?.ok_or(EngineError::RunNotFound)?;
        if !author.may_use(row.created_by.as_deref()) {
            audit::denied(OTHERS_RUN);
            return Err(EngineError::IdReused);
        }
        self.check_own(tenant, &row.session)?;
        Ok(Some(Earlier { row, steered: true }))
    }
}
