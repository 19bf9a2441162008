//! Resolves the replica of an RPC: to the services of this replica, or to the owner of a shard.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::cluster::shard::{OwnerNo, ShardNo};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::cluster::locate::{Locate, LocateError};
use crate::cluster::run_shards::RunShards;
use crate::cluster::{DEPOSED_AFTER, Ownership, Ownerships, ShardOwner};
use crate::grpc::edge::forward::route::local::{LocalServices, ServiceSet};
use crate::grpc::edge::forward::route::route_key::{Begun, RouteKey, spread};
use crate::grpc::edge::forward::wire::links::{Links, PeerLink};
use crate::grpc::edge::incoming::IncomingLink;
use crate::lifecycle::Tasks;

/// Time for which an RPC waits for an owner.
pub(in crate::grpc::edge::forward) const SEARCH_WAIT: Duration = Duration::from_secs(10);
/// The wait before an RPC is sent again, after a replica did not take it.
const SEND_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Time for which the shard of a run is remembered. A wrong one leads to a replica that refuses, and then it is looked up.
const SHARDS_KEPT_FOR: Duration = Duration::from_secs(600);
/// Callers that have left and whose runs are followed, at most. For more of them the owner of that moment has to do.
const LEFT_MAX: usize = 4_096;

/// Finds the replica of each RPC.
pub(in crate::grpc::edge::forward) struct Routing {
    pub(in crate::grpc::edge::forward) ownerships: Ownerships,
    pub(in crate::grpc::edge::forward) links: Links,
    pub(in crate::grpc::edge::forward) local: LocalServices,
    runs: RunShards,
    /// Cancelled when this replica stops.
    pub(in crate::grpc::edge::forward) stop: CancellationToken,
    /// Set when the other replicas have been told that this one stops, to the moment at which that began.
    pub(in crate::grpc::edge::forward) told: OnceCell<Instant>,
    /// Starts what goes on after an RPC.
    pub(in crate::grpc::edge::forward) tasks: Tasks,
    /// Has a permit for each caller that may have left at one time.
    pub(in crate::grpc::edge::forward) left: Arc<Semaphore>,
}

/// The destination of an RPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::grpc::edge::forward) enum Destination {
    /// At this replica, whatever it owns.
    Here,
    /// At the owner of a shard.
    Owner(ShardNo),
}

/// The replica that does an RPC now.
pub(in crate::grpc::edge::forward) enum ResolvedTarget {
    /// This replica does the RPC, with its own services.
    Here(ServiceSet),
    /// The RPC is sent to another replica.
    Owner {
        /// The number that the RPC means.
        number: OwnerNo,
        /// The shard that it owns.
        shard: ShardNo,
        /// The link over which the RPC is sent.
        link: Arc<PeerLink>,
    },
}

/// A search for the replica that does an RPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::grpc::edge::forward) enum OwnerSearch {
    First,
    /// The RPC was sent before: its run may exist by now, and a remembered shard may be wrong.
    Again,
}

/// The replica that an RPC is for, seen from this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::grpc::edge::forward) enum Replica {
    /// The replica that the caller dialled.
    Here,
    /// The one with this number.
    Peer(OwnerNo),
}

impl Replica {
    /// Its number; `None` for this replica.
    pub(in crate::grpc::edge::forward) fn peer(self) -> Option<OwnerNo> {
        match self {
            Self::Here => None,
            Self::Peer(number) => Some(number),
        }
    }
}

/// The replica that an RPC was sent to. It may be this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::grpc::edge::forward) struct Recipient {
    pub(in crate::grpc::edge::forward) replica: Replica,
    /// The shard that the RPC means; `None` if any replica, or any owner, does the RPC.
    pub(in crate::grpc::edge::forward) shard: Option<ShardNo>,
}

/// The replica that does an RPC, kept as long as the RPC is open there.
pub(in crate::grpc::edge::forward) enum RpcHandler {
    /// The services of this replica, which the RPC reaches over this link.
    Here(IncomingLink),
    /// The replica that owns the shard.
    Owner {
        /// Kept: on it, the replica is told that this one stops.
        _link: Arc<PeerLink>,
    },
}

impl RpcHandler {
    /// Notes that this replica gives the RPC up, and that its caller has not left. Another replica is told by the link.
    pub(in crate::grpc::edge::forward) fn give_up(&self) {
        match self {
            Self::Here(link) => link.mark_given_up(),
            Self::Owner { .. } => {}
        }
    }
}

/// Resolves when the replica that does an RPC must not go on with it.
pub(in crate::grpc::edge::forward) type EndSignal = Pin<Box<dyn Future<Output = ()> + Send>>;

impl ResolvedTarget {
    /// The replica that the RPC is sent to, and the shard that it means.
    pub(in crate::grpc::edge::forward) fn recipient(&self, destination: Destination) -> Recipient {
        let shard = match destination {
            Destination::Here => None,
            Destination::Owner(shard) => Some(shard),
        };
        match self {
            Self::Here(_) => Recipient { replica: Replica::Here, shard },
            Self::Owner { number, .. } => Recipient { replica: Replica::Peer(*number), shard },
        }
    }
}

impl Routing {
    pub(in crate::grpc::edge::forward) fn new(
        ownerships: Ownerships,
        links: Links,
        local: LocalServices,
        locate: Arc<dyn Locate>,
        stop: CancellationToken,
        tasks: Tasks,
    ) -> Self {
        let (runs, told) = (RunShards::new(locate, SHARDS_KEPT_FOR), OnceCell::new());
        let left = Arc::new(Semaphore::new(LEFT_MAX));
        Self { ownerships, links, local, runs, stop, told, tasks, left }
    }

    /// The replica that does an RPC at this moment; `None` if none takes it.
    pub(in crate::grpc::edge::forward) fn current_target(
        &self,
        destination: Destination,
    ) -> Option<ResolvedTarget> {
        let Destination::Owner(shard) = destination else {
            return self.local.get().map(ResolvedTarget::Here);
        };
        let ownership = self.ownerships.borrow();
        match ownership.owner(shard) {
            ShardOwner::Here => self.local.get().map(ResolvedTarget::Here),
            ShardOwner::Nobody => None,
            ShardOwner::Peer(peer) => match self.links.to(&peer, &ownership) {
                Ok(link) => Some(ResolvedTarget::Owner { number: peer.number, shard, link }),
                Err(error) => {
                    tracing::warn!(%error, "RPCs cannot be sent on; correct cluster.advertise there, or the certificates");
                    None
                }
            },
        }
    }

    /// The replica that does an RPC. Waits for an owner until the given moment; `None` if there is none by then.
    pub(in crate::grpc::edge::forward) async fn wait_for_target(
        &self,
        destination: Destination,
        until: Instant,
    ) -> Option<ResolvedTarget> {
        let (mut ownerships, mut local) = (self.ownerships.clone(), self.local.subscribe());
        loop {
            ownerships.mark_unchanged();
            local.mark_unchanged();
            if let Some(target) = self.current_target(destination) {
                return Some(target);
            }
            tokio::select! {
                changed = ownerships.changed() => changed.ok()?,
                changed = local.changed() => changed.ok()?,
                () = sleep_until(until) => return None,
            }
        }
    }

    /// The replica that does an RPC with this key. Waits as [`wait_for_target`](Self::wait_for_target) does.
    pub(in crate::grpc::edge::forward) async fn resolve(
        &self,
        route_key: &RouteKey,
        search: OwnerSearch,
        until: Instant,
    ) -> Option<(ResolvedTarget, Recipient)> {
        loop {
            match timeout_at(until, self.destination(route_key, search)).await.ok()? {
                Ok(destination) => {
                    let target = self.wait_for_target(destination, until).await?;
                    let mut recipient = target.recipient(destination);
                    if matches!(route_key, RouteKey::Start { key, .. } if self.runs.remembered(key).is_none())
                    {
                        // The session is made there, in a shard that is not known here. The service says when that shard moves.
                        recipient.shard = None;
                    }
                    return Some((target, recipient));
                }
                Err(error) => {
                    tracing::debug!(%error, "an RPC waits for the database");
                    sleep_until(Instant::now() + SEND_AGAIN_AFTER).await;
                }
            }
        }
    }

    async fn destination(
        &self,
        route_key: &RouteKey,
        search: OwnerSearch,
    ) -> Result<Destination, LocateError> {
        let shard_of = async |key| match search {
            OwnerSearch::First => self.runs.find(key).await,
            OwnerSearch::Again => self.runs.look_up(key).await,
        };
        Ok(match route_key {
            RouteKey::Here => Destination::Here,
            RouteKey::Shard(shard) => Destination::Owner(*shard),
            RouteKey::Any(_) if self.owns_any() => Destination::Here,
            RouteKey::Any(shard) => Destination::Owner(*shard),
            RouteKey::Run(key) => shard_of(key).await?.map_or(Destination::Here, Destination::Owner),
            RouteKey::Start { key, begun } => {
                let found = match (search, begun) {
                    (OwnerSearch::First, Begun::Never) => None,
                    (OwnerSearch::First, Begun::Seldom) => self.runs.remembered(key),
                    (OwnerSearch::First, Begun::Likely) | (OwnerSearch::Again, _) => shard_of(key).await?,
                };
                match found {
                    Some(shard) => Destination::Owner(shard),
                    // Nobody else has this id, so no other replica may be at work with it.
                    None if *begun == Begun::Never && self.owns_any() => Destination::Here,
                    None => Destination::Owner(spread(key)),
                }
            }
        })
    }

    fn owns_any(&self) -> bool {
        let ownership = self.ownerships.borrow();
        ownership.is_valid() && ownership.own().next().is_some()
    }

    /// True while the recipient still owns the shard.
    pub(in crate::grpc::edge::forward) fn is_still_owner(&self, recipient: Recipient) -> bool {
        let Some(shard) = recipient.shard else { return true };
        let ownership = self.ownerships.borrow();
        match recipient.replica {
            Replica::Here => ownership.is_mine(shard),
            Replica::Peer(number) => ownership.is_owned_by(shard, number),
        }
    }

    /// Resolves when the recipient can do nothing more for the RPC.
    ///
    /// For another replica: when it is fenced, or a different one owns the shard. Until then its engine may still be at
    /// work, and would take the end of a stream for a caller that leaves.
    ///
    /// For this replica: when another one owns the shard, or it has had no valid lease for some time. Then it cannot reach the
    /// database, and others may own its shards without its knowledge.
    pub(in crate::grpc::edge::forward) fn ownership_lost(&self, recipient: Recipient) -> EndSignal {
        let ownerships = self.ownerships.clone();
        match (recipient.replica, recipient.shard) {
            (Replica::Peer(number), shard) => Box::pin(async move {
                let is_others = |ownership: &Ownership| {
                    shard.is_some_and(|shard| {
                        ownership.has_owner(shard) && !ownership.is_owned_by(shard, number)
                    })
                };
                let is_gone = |ownership: &Ownership| ownership.peers().all(|peer| peer.number != number);
                changed_until(ownerships, |ownership| is_others(ownership) || is_gone(ownership)).await;
            }),
            (Replica::Here, shard) => Box::pin(own_lease_lost(ownerships, shard)),
        }
    }

    /// Waits a moment before the RPC is sent to the same replica again, or until it has [moved](Self::ownership_lost).
    pub(in crate::grpc::edge::forward) async fn pause(&self, recipient: Recipient, until: Instant) {
        let end = until.min(Instant::now() + SEND_AGAIN_AFTER);
        let _still_there = timeout_at(end, self.ownership_lost(recipient)).await;
    }

    /// Waits until another replica owns the shard. Returns false if none does by then.
    pub(in crate::grpc::edge::forward) async fn other_than(
        &self,
        recipient: Recipient,
        until: Instant,
    ) -> bool {
        timeout_at(until, self.ownership_lost(recipient)).await.is_ok()
    }
}

async fn changed_until(mut ownerships: Ownerships, is_over: impl FnMut(&Ownership) -> bool) {
    if ownerships.wait_for(is_over).await.is_err() {
        // The process ends; its streams end with it.
        std::future::pending::<()>().await;
    }
}

/// Resolves when this replica has lost the lease under which it does RPCs itself, or the shard.
async fn own_lease_lost(ownerships: Ownerships, shard: Option<ShardNo>) {
    let is_others = |ownership: &Ownership| {
        shard.is_some_and(|shard| ownership.has_owner(shard) && !ownership.is_mine(shard))
    };
    loop {
        changed_until(ownerships.clone(), |ownership| !ownership.is_valid() || is_others(ownership)).await;
        if is_others(&ownerships.borrow()) {
            return;
        }
        let again =
            changed_until(ownerships.clone(), |ownership| ownership.is_valid() || is_others(ownership));
        if timeout_at(Instant::now() + DEPOSED_AFTER.duration(), again).await.is_err() {
            return;
        }
    }
}
