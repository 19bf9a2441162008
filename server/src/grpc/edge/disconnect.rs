//! Aborts a run when its last caller disconnects, if one of them requested that.

use agentloop_core::id::{RunId, TenantId};

use crate::engine::Engine;
use crate::engine::feed::{CallerGuard, Feed};
use crate::grpc::edge::incoming::IncomingLink;

/// An RPC that waits for a run, or streams it. Where it requested that, the run is aborted when it is dropped and no other RPC is
/// left, unless it was disarmed. It lives in the handler's future or stream, which the transport drops when the client is gone.
pub(in crate::grpc) struct DisconnectGuard {
    engine: Engine,
    caller: Option<CallerGuard>,
    aborts: bool,
    feed: Option<Feed>,
    link: Option<IncomingLink>,
}

impl DisconnectGuard {
    /// An RPC whose end leaves the run alone.
    pub(in crate::grpc) fn new(engine: Engine, tenant: TenantId, run: RunId) -> Self {
        let caller = Some(engine.enter_rpc(tenant, run));
        Self { engine, caller, aborts: false, feed: None, link: None }
    }

    /// The same RPC, with which the run ends. If `link` is given, a replica has sent the RPC on. Where that link is lost, or the
    /// replica gives the RPC up, nobody knows if the caller has left: it may come back within `caller_grace`.
    #[must_use]
    pub(in crate::grpc) fn aborting(mut self, link: Option<IncomingLink>) -> Self {
        (self.aborts, self.link) = (true, link);
        self
    }

    /// Sets the run's feed. If the run was deleted, another run may have its id, and nothing is aborted.
    pub(in crate::grpc) fn watches(&mut self, feed: &Feed) {
        self.feed = Some(feed.clone());
    }

    /// Leaves the run alone from now on: it ended, or the caller has its response.
    pub(in crate::grpc) fn disarm(&mut self) {
        self.aborts = false;
    }
}

impl Drop for DisconnectGuard {
    fn drop(&mut self) {
        let Some(caller) = self.caller.take() else { return };
        if self.aborts && !self.feed.as_ref().is_some_and(Feed::is_deleted) {
            let is_lost = self.link.take().map(|link| async move { link.is_lost().await });
            self.engine.clone().caller_left(caller, is_lost);
        }
    }
}
