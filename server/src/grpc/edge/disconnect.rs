//! A caller that goes away: if its run was told to end then, it does.

use agentloop_core::id::{RunId, TenantId};
use agentloop_core::run::input::AbortCause;

use crate::engine::Engine;
use crate::engine::feed::Feed;

/// Aborts a run when dropped, unless disarmed: it lives in the handler's future or stream, which the transport drops
/// when its client is gone.
pub(in crate::grpc) struct AbortOnDrop {
    armed: Option<(Engine, TenantId, RunId)>,
    feed: Option<Feed>,
}

impl AbortOnDrop {
    /// Armed.
    pub(in crate::grpc) fn new(engine: Engine, tenant: TenantId, run: RunId) -> Self {
        Self { armed: Some((engine, tenant, run)), feed: None }
    }

    /// Where its events come from: once the run is deleted, its id may be another's.
    pub(in crate::grpc) fn watches(&mut self, feed: &Feed) {
        self.feed = Some(feed.clone());
    }

    /// The run ended, or parked with its caller told.
    pub(in crate::grpc) fn disarm(&mut self) {
        self.armed = None;
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some((engine, tenant, run)) = self.armed.take()
            && !self.feed.as_ref().is_some_and(Feed::is_gone)
        {
            engine.abort_later(tenant, run, AbortCause::Disconnect);
        }
    }
}
