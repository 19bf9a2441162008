//! Deletes sessions that nobody has used for long, or that are more than there may be. It deletes as `DeleteSession` does, one
//! session at a time with a pause after each, so that the writes of runs come first.

use std::sync::atomic::Ordering;
use std::time::Duration;

use agentloop_core::id::{SessionId, TenantId};
use agentloop_core::time::{Millis, Timestamp};

use crate::engine::Engine;
use crate::engine::deps::options::{KEPT_LEAST, Retention};
use crate::engine::error::EngineError;
use crate::engine::session::delete::DeleteIf;
use crate::store::IdleSession;

/// The wait before the first pass, in which a start has other things to do.
const FIRST_PASS: Duration = Duration::from_secs(60);
/// The wait between two passes.
const PASS_EVERY: Duration = Duration::from_secs(10 * 60);
/// The pause after each deletion.
const PAUSE: Duration = Duration::from_millis(20);
/// Sessions that are looked up at a time.
const PAGE: u32 = 64;
/// Sessions above the bound that are listed before the first of them is deleted.
const EXCESS_MAX: u64 = 10_000;

/// Applies the bounds again and again, until the server stops.
pub(in crate::engine) async fn watch(engine: Engine) {
    let mut wait = FIRST_PASS;
    while !engine.has_stopped_after(wait).await {
        wait = PASS_EVERY;
        match engine.retain().await {
            Ok(0) => {}
            Ok(deleted) => {
                tracing::info!(deleted, "deleted sessions that are older or more than [retention] keeps")
            }
            Err(EngineError::ShuttingDown) => return,
            Err(error) => tracing::warn!(%error, "cannot delete old sessions; trying again in ten minutes"),
        }
    }
}

impl Engine {
    /// Applies the bounds once, to the sessions that this server owns. Other replicas apply them to theirs. Returns the number
    /// of deleted sessions.
    ///
    /// # Errors
    /// The store's. Sessions that were deleted before stay deleted.
    pub async fn retain(&self) -> Result<u64, EngineError> {
        let Retention { max_age, max_sessions } = self.deps().options.retention;
        let mut deleted = 0;
        for tenant in self.store().tenants_with_sessions().await? {
            let now = self.now();
            if let Some(max_age) = max_age {
                deleted += self.retire(&tenant, before(now, max_age)).await?;
            }
            if let Some(max) = max_sessions {
                deleted += self.retire_excess(&tenant, before(now, KEPT_LEAST), max).await?;
            }
        }
        Ok(deleted)
    }

    /// Deletes idle sessions that were last used before this time, the oldest first.
    async fn retire(&self, tenant: &TenantId, before: Timestamp) -> Result<u64, EngineError> {
        let (mut deleted, mut after) = (0, None);
        loop {
            let page = self.store().idle_sessions(tenant, before, after, PAGE).await?;
            let Some(last) = page.last().cloned() else { return Ok(deleted) };
            for IdleSession { session, .. } in page {
                if self.store().owns(tenant, &session) {
                    deleted += u64::from(self.retire_one(tenant, &session, before).await?);
                }
            }
            after = Some(last);
        }
    }

    /// Deletes the oldest idle sessions until there are no more than `max`. Sessions of other replicas count too, but their owners
    /// delete them.
    async fn retire_excess(
        &self,
        tenant: &TenantId,
        before: Timestamp,
        max: u64,
    ) -> Result<u64, EngineError> {
        let count = async || self.store().session_count(tenant, None).await;
        let mut deleted = 0;
        loop {
            let most = count().await?.saturating_sub(max).min(EXCESS_MAX);
            if most == 0 {
                return Ok(deleted);
            }
            let own = self.oldest(tenant, before, most).await?;
            // Counted after the list was read: another replica may have deleted sessions meanwhile. With the earlier count, this
            // one would delete too many.
            let excess = count().await?.saturating_sub(max);
            let mut done = 0;
            for (_, session) in own.into_iter().take_while(|(place, _)| *place < excess) {
                done += u64::from(self.retire_one(tenant, &session, before).await?);
            }
            deleted += done;
            if done == 0 {
                return Ok(deleted);
            }
        }
    }

    /// The sessions of this replica among the oldest idle ones of a tenant. Each has its place among all, counted from 0.
    async fn oldest(
        &self,
        tenant: &TenantId,
        before: Timestamp,
        most: u64,
    ) -> Result<Vec<(u64, SessionId)>, EngineError> {
        let (mut own, mut place, mut after) = (Vec::new(), 0, None);
        while place < most {
            let page = self.store().idle_sessions(tenant, before, after, PAGE).await?;
            let Some(last) = page.last().cloned() else { break };
            for IdleSession { session, .. } in page {
                if place < most && self.store().owns(tenant, &session) {
                    own.push((place, session));
                }
                place += 1;
            }
            after = Some(last);
        }
        Ok(own)
    }

    /// Deletes an idle session, and waits a moment. False if it is there still.
    async fn retire_one(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        before: Timestamp,
    ) -> Result<bool, EngineError> {
        let is_deleted = self.delete_idle_session(tenant, session, before).await?;
        if is_deleted {
            self.deps().retired_sessions.fetch_add(1, Ordering::Relaxed);
        }
        if self.has_stopped_after(PAUSE).await {
            return Err(EngineError::ShuttingDown);
        }
        Ok(is_deleted)
    }

    /// Deletes a session unless it was used meanwhile. False if it was, or is gone.
    async fn delete_idle_session(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        before: Timestamp,
    ) -> Result<bool, EngineError> {
        match self.delete_session_if(tenant, session, DeleteIf::UsedBefore(before)).await {
            Err(EngineError::SessionBusy { .. }) => Ok(false),
            Err(EngineError::ShuttingDown) => Err(EngineError::ShuttingDown),
            Err(error) => {
                // The sessions after it are deleted all the same.
                tracing::warn!(session.id = %session, %error, "cannot delete an old session");
                Ok(false)
            }
            deleted => deleted,
        }
    }
}

/// The time this long before now.
fn before(now: Timestamp, length: Millis) -> Timestamp {
    Timestamp(now.0.saturating_sub(length.0))
}
