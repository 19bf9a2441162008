//! Aborts of runs whose caller leaves while the run moves to another owner.
//!
//! A run that is to end with its caller is aborted by its owner, which sees the end of the caller's RPC. If the run moves at
//! that moment, the old owner cannot write the abort any more, and the new one never had the RPC. So this replica joins the run
//! at its next owner with the caller's policy. It leaves again once other callers had time to come to that owner, too.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::grpc::edge::forward::outcome::refusal;
use crate::grpc::edge::forward::request::resume::JoinRpc;
use crate::grpc::edge::forward::route::routing::{OwnerSearch, Recipient, Routing, SEARCH_WAIT};
use crate::grpc::edge::forward::route::rpc_place::RpcPlace;
use crate::grpc::edge::forward::send::{SendOptions, send};

/// Time in which an owner writes an abort, or has given the run away. One that stops first waits for its runs.
const ABORTED_WITHIN: Duration = Duration::from_secs(30);
/// Time in which other callers of the run come to its next owner: their replicas learn of it with their next beat.
const OTHERS_COME_WITHIN: Duration = Duration::from_secs(3);

/// The caller of an RPC that is under way here. When this is dropped before [`Self::stays`], the caller has left.
pub(super) struct CallerPresence {
    routing: Arc<Routing>,
    /// The RPC that joins the run; `None` if the run does not end with this caller.
    join: Option<JoinRpc>,
    at: RpcPlace,
}

impl CallerPresence {
    /// A caller whose RPC no replica has yet.
    pub(super) fn new(routing: &Arc<Routing>, join: Option<JoinRpc>) -> Self {
        Self { routing: routing.clone(), join, at: RpcPlace::default() }
    }

    /// Sets the RPC that joins the run, when more is known of it.
    pub(super) fn set_join(&mut self, join: Option<JoinRpc>) {
        self.join = join;
    }

    /// The replica that has the RPC.
    pub(super) fn at(&self) -> &RpcPlace {
        &self.at
    }

    /// The caller has its response, or this replica ends the RPC: that says nothing about the caller.
    pub(super) fn stays(&mut self) {
        self.join = None;
    }
}

impl Drop for CallerPresence {
    fn drop(&mut self) {
        let Some(join) = self.join.take() else { return };
        let routing = self.routing.clone();
        let Ok(permit) = routing.left.clone().try_acquire_owned() else { return };
        let at = self.at.get();
        drop(self.routing.tasks.spawn("caller", async move {
            let stop = routing.stop.clone();
            let _stopped = stop.run_until_cancelled(leave(&routing, &join, at)).await;
            drop(permit);
        }));
    }
}

/// Leaves the run at its next owners, until one has had it for long enough to abort it. `at` has noticed that the caller has left.
async fn leave(routing: &Routing, JoinRpc { rpc, route_key }: &JoinRpc, mut at: Option<Recipient>) {
    if let Some(recipient) = at.filter(|recipient| recipient.shard.is_none()) {
        // The run may have made its session there. By now its shard can be looked up.
        let found = routing.resolve(route_key, OwnerSearch::Again, Instant::now() + SEARCH_WAIT).await;
        at = found.map(|(_target, owner)| owner).filter(|owner| owner.replica == recipient.replica);
    }
    loop {
        if let Some(recipient) = at
            && !routing.other_than(recipient, Instant::now() + ABORTED_WITHIN).await
        {
            return;
        }
        let sent = send(routing, rpc, route_key, SendOptions::stream(), &RpcPlace::default()).await;
        if let Some(status) = refusal(&sent.response) {
            tracing::debug!(%status, "a run whose caller has left is not joined at its next owner");
            return;
        }
        let Some((recipient, _handler)) = sent.from else { return };
        let _moved = routing.other_than(recipient, Instant::now() + OTHERS_COME_WITHIN).await;
        // The response is dropped here, and with that the RPC there.
        at = Some(recipient);
    }
}
