//! Aborts a run when its last caller disconnects, if one of them asked for that.

use agentloop_core::id::{RunId, TenantId};

use crate::engine::Engine;
use crate::engine::feed::{CallerGuard, Feed};
use crate::grpc::edge::incoming::IncomingLink;

/// A call that waits for a run, or streams it. Where it asked for that, the run is aborted when it is dropped and no other call is
/// left, unless it was disarmed. It lives in the handler's future or stream, which the transport drops when the client is gone.
pub(in crate::grpc) struct CallOfRun {
    engine: Engine,
    call: Option<CallerGuard>,
    aborts: bool,
    feed: Option<Feed>,
    link: Option<IncomingLink>,
}

impl CallOfRun {
    /// A call whose end leaves the run alone.
    pub(in crate::grpc) fn new(engine: Engine, tenant: TenantId, run: RunId) -> Self {
        let call = Some(engine.enter_call(tenant, run));
        Self { engine, call, aborts: false, feed: None, link: None }
    }

    /// The same call, with which the run ends. If `link` is given, a replica has sent the call on. Where that link is lost, or the
    /// replica gives the call up, nobody knows if the caller has left: it may come back within `caller_grace`.
    #[must_use]
    pub(in crate::grpc) fn aborting(mut self, link: Option<IncomingLink>) -> Self {
        (self.aborts, self.link) = (true, link);
        self
    }

    /// Sets the run's feed. If the run was deleted, another run may have its id, and nothing is aborted.
    pub(in crate::grpc) fn watches(&mut self, feed: &Feed) {
        self.feed = Some(feed.clone());
    }

    /// Leaves the run alone from now on: it ended, or the caller has its answer.
    pub(in crate::grpc) fn disarm(&mut self) {
        self.aborts = false;
    }
}

impl Drop for CallOfRun {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        if self.aborts && !self.feed.as_ref().is_some_and(Feed::is_deleted) {
            let is_lost = self.link.take().map(|link| async move { link.is_lost().await });
            self.engine.clone().caller_left(call, is_lost);
        }
    }
}
