//! Aborts a run when its caller disconnects, if the request asked for that.

use agentloop_core::id::{RunId, TenantId};
use agentloop_core::run::input::AbortCause;

use crate::engine::Engine;
use crate::engine::feed::Feed;
use crate::grpc::edge::incoming::Link;

/// Aborts a run when dropped, unless disarmed. It lives in the handler's future or stream, which the transport drops
/// when the client is gone.
pub(in crate::grpc) struct AbortOnDrop {
    /// `None` once the guard is off.
    armed: Option<ArmedRun>,
    feed: Option<Feed>,
    link: Option<Link>,
}

/// The run that a guard aborts.
struct ArmedRun {
    engine: Engine,
    tenant: TenantId,
    run: RunId,
}

impl AbortOnDrop {
    /// Makes a guard that aborts this run when it is dropped. If `link` is given, a replica has sent the call on. Where that link is
    /// lost, or the replica gives the call up, nobody knows if the caller has left: it may come back within `caller_grace`.
    pub(in crate::grpc) fn new(engine: Engine, tenant: TenantId, run: RunId, link: Option<Link>) -> Self {
        Self { armed: Some(ArmedRun { engine, tenant, run }), feed: None, link }
    }

    /// Sets the run's feed. If the run was deleted, another run may have its id, and nothing is aborted.
    pub(in crate::grpc) fn watches(&mut self, feed: &Feed) {
        self.feed = Some(feed.clone());
    }

    /// Turns the guard off: the run ended, or the caller has its answer.
    pub(in crate::grpc) fn disarm(&mut self) {
        self.armed = None;
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(ArmedRun { engine, tenant, run }) = self.armed.take()
            && !self.feed.as_ref().is_some_and(Feed::is_deleted)
        {
            match self.link.take() {
                None => engine.abort_later(tenant, run, AbortCause::Disconnect),
                Some(link) => engine.abort_unless_lost(tenant, run, async move { link.is_lost().await }),
            }
        }
    }
}
