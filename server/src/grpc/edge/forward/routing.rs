//! Where a call goes now: to the services of this replica, or to the owner of a shard.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::cluster::shard::ShardNo;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use crate::cluster::locate::{Locate, LocateError};
use crate::cluster::{DEPOSED_AFTER, Holder, Ownership, Ownerships};
use crate::grpc::edge::forward::links::Links;
use crate::grpc::edge::forward::local::{LocalServices, Opened};
use crate::grpc::edge::forward::place::{Named, spread};
use crate::grpc::edge::forward::run_shards::RunShards;
use crate::grpc::edge::incoming::Link;

/// Time for which a call waits for an owner.
pub(super) const SEARCH_WAIT: Duration = Duration::from_secs(10);
/// The wait before a replica is asked again that did not take a call.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Where calls may go.
pub(super) struct Routing {
    pub(super) ownerships: Ownerships,
    pub(super) links: Links,
    pub(super) local: LocalServices,
    runs: RunShards,
    /// Cancelled when this replica stops.
    pub(super) stop: CancellationToken,
    /// Set when the other replicas have been told that this one stops.
    pub(super) told: OnceCell<()>,
}

/// Where a call is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// At this replica, whatever it owns.
    Here,
    /// At the owner of a shard.
    Owner(ShardNo),
}

/// Who does a call now.
pub(super) enum Target {
    /// This replica does the call, with its own services.
    Local(Opened),
    /// The call is sent to another replica.
    Owner {
        /// The number that the call means.
        number: i64,
        /// The shard that it owns.
        shard: ShardNo,
        /// The link to it.
        link: Arc<Channel>,
    },
}

/// Who was asked to do a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    /// Number of the replica; `None` for this one.
    pub(super) number: Option<i64>,
    /// The shard for which it was asked; `None` if any replica, or any owner, does the call.
    pub(super) shard: Option<ShardNo>,
}

/// Who does a call, kept as long as the call is open there.
pub(super) enum Doer {
    /// The services of this replica, which the call reaches over this link.
    Here(Link),
    /// The replica that owns the shard.
    Owner {
        /// Kept: on it, the replica is told that this one stops.
        _link: Arc<Channel>,
    },
}

impl Doer {
    /// Notes that this replica gives the call up, and that its caller has not left. Another replica is told by the link.
    pub(super) fn give_up(&self) {
        match self {
            Self::Here(link) => link.leaves(),
            Self::Owner { .. } => {}
        }
    }
}

/// Resolves when the replica that does a call must not go on with it.
pub(super) type Moved = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Target {
    /// The replica that is asked, and the shard for which it is asked.
    pub(super) fn asked(&self, at: At) -> Asked {
        let shard = match at {
            At::Here => None,
            At::Owner(shard) => Some(shard),
        };
        match self {
            Self::Local(_) => Asked { number: None, shard },
            Self::Owner { number, .. } => Asked { number: Some(*number), shard },
        }
    }
}

impl Routing {
    pub(super) fn new(
        ownerships: Ownerships,
        links: Links,
        local: LocalServices,
        locate: Arc<dyn Locate>,
        stop: CancellationToken,
    ) -> Self {
        Self { ownerships, links, local, runs: RunShards::new(locate), stop, told: OnceCell::new() }
    }

    /// Who does a call at this moment; `None` if nobody takes it.
    pub(super) fn present(&self, at: At) -> Option<Target> {
        let At::Owner(shard) = at else { return self.local.get().map(Target::Local) };
        let ownership = self.ownerships.borrow();
        match ownership.holder(shard) {
            Holder::Me => self.local.get().map(Target::Local),
            Holder::Nobody => None,
            Holder::Peer(peer) => match self.links.to(&peer, &ownership) {
                Ok(link) => Some(Target::Owner { number: peer.number, shard, link }),
                Err(error) => {
                    tracing::warn!(%error, "calls cannot be sent on; correct cluster.advertise there, or the certificates");
                    None
                }
            },
        }
    }

    /// Who does a call. Waits for an owner until the given moment; `None` if there is none by then.
    pub(super) async fn target(&self, at: At, until: Instant) -> Option<Target> {
        let (mut ownerships, mut local) = (self.ownerships.clone(), self.local.subscribe());
        loop {
            ownerships.mark_unchanged();
            local.mark_unchanged();
            if let Some(target) = self.present(at) {
                return Some(target);
            }
            tokio::select! {
                changed = ownerships.changed() => changed.ok()?,
                changed = local.changed() => changed.ok()?,
                () = sleep_until(until) => return None,
            }
        }
    }

    /// Who does a call that names this. Waits as [`target`](Self::target) does. `again` is true if the call was sent before: its
    /// run may exist by now, and a remembered shard may be wrong.
    pub(super) async fn find(&self, named: &Named, again: bool, until: Instant) -> Option<(Target, Asked)> {
        loop {
            match timeout_at(until, self.at(named, again)).await.ok()? {
                Ok(at) => {
                    let target = self.target(at, until).await?;
                    let mut asked = target.asked(at);
                    if matches!(named, Named::Start { key, .. } if !self.runs.remembers(key)) {
                        // The session is made there, in a shard that is not known here. The service says when that shard moves.
                        asked.shard = None;
                    }
                    return Some((target, asked));
                }
                Err(error) => {
                    tracing::debug!(%error, "a call waits for the database");
                    sleep_until(Instant::now() + ASK_AGAIN).await;
                }
            }
        }
    }

    async fn at(&self, named: &Named, again: bool) -> Result<At, LocateError> {
        Ok(match named {
            Named::Nothing => At::Here,
            Named::Shard(shard) => At::Owner(*shard),
            Named::Any(_) if self.owns_any() => At::Here,
            Named::Any(shard) => At::Owner(*shard),
            Named::Run(key) => self.runs.find(key, again).await?.map_or(At::Here, At::Owner),
            Named::Start { key, is_new } => {
                let found = if *is_new && !again { None } else { self.runs.find(key, again).await? };
                match found {
                    Some(shard) => At::Owner(shard),
                    // Nobody else has this id, so no other replica may be at work with it.
                    None if *is_new && self.owns_any() => At::Here,
                    None => At::Owner(spread(key)),
                }
            }
        })
    }

    fn owns_any(&self) -> bool {
        let ownership = self.ownerships.borrow();
        ownership.is_valid() && ownership.own().next().is_some()
    }

    /// True as long as whoever was asked is the one to ask.
    pub(super) fn is_right(&self, asked: Asked) -> bool {
        let Some(shard) = asked.shard else { return true };
        let ownership = self.ownerships.borrow();
        match asked.number {
            None => ownership.is_mine(shard),
            Some(number) => ownership.is_held_by(shard, number),
        }
    }

    /// Resolves when the replica that was asked can do nothing more for the call.
    ///
    /// For another replica: when it is held to be dead, or a different one owns the shard. Until then its engine may still be at
    /// work, and would take the end of a stream for a caller that leaves.
    ///
    /// For this replica: when another one owns the shard, or it has had no valid lease for some time. Then it cannot reach the
    /// database, and others may own its shards without its knowledge.
    pub(super) fn moved(&self, asked: Asked) -> Moved {
        let ownerships = self.ownerships.clone();
        match (asked.number, asked.shard) {
            (Some(number), shard) => Box::pin(async move {
                let is_others = |ownership: &Ownership| {
                    shard
                        .is_some_and(|shard| ownership.is_held(shard) && !ownership.is_held_by(shard, number))
                };
                let is_gone = |ownership: &Ownership| ownership.peers().all(|peer| peer.number != number);
                changed_until(ownerships, |ownership| is_others(ownership) || is_gone(ownership)).await;
            }),
            (None, shard) => Box::pin(let_go(ownerships, shard)),
        }
    }

    /// Waits a moment before the same replica is asked again, or until it has [moved](Self::moved).
    pub(super) async fn pause(&self, asked: Asked, until: Instant) {
        let end = until.min(Instant::now() + ASK_AGAIN);
        let _still_there = timeout_at(end, self.moved(asked)).await;
    }

    /// Waits until another replica owns the shard. Returns false if none does by then.
    pub(super) async fn other_than(&self, asked: Asked, until: Instant) -> bool {
        timeout_at(until, self.moved(asked)).await.is_ok()
    }
}

async fn changed_until(mut ownerships: Ownerships, is_over: impl FnMut(&Ownership) -> bool) {
    if ownerships.wait_for(is_over).await.is_err() {
        // The process ends; its streams end with it.
        std::future::pending::<()>().await;
    }
}

/// Resolves when this replica lets go of what it does itself.
async fn let_go(ownerships: Ownerships, shard: Option<ShardNo>) {
    let is_others = |ownership: &Ownership| {
        shard.is_some_and(|shard| ownership.is_held(shard) && !ownership.is_mine(shard))
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
