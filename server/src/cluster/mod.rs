//! The knowledge of a replica about itself and the owners of sessions, for those who have to know and do not decide it.
//!
//! Sessions are divided into shards. Each shard has one owner, which does all the work of its sessions. Any replica takes any
//! RPC, and sends it on to the owner that it concerns. The store decides who owns what (`store/postgres/replica`).

pub mod busy_shards;
pub mod locate;
pub(crate) mod run_shards;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use agentloop_core::cluster::shard::{OwnerNo, SHARDS, ShardNo};
use agentloop_core::time::{Millis, Timestamp};
use tokio::sync::watch;

/// The shard whose owner keeps the tool hosts of all replicas: the hub.
pub const HUB: ShardNo = ShardNo(0);

/// Time without a valid lease after which a replica lets go of its own streams, those of tool hosts too.
pub const DEPOSED_AFTER: Millis = Millis::secs(15);

/// The owners of all shards, as the last beat of this replica showed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ownership {
    /// The number of this replica.
    me: OwnerNo,
    /// True while the lease of this replica is valid. Without it, nothing is its own.
    is_valid: bool,
    /// The owner of each shard; `None` where nobody is known, and where this replica gives its shard away.
    owners: Arc<[Option<OwnerNo>]>,
    /// The other replicas that are not fenced.
    peers: Arc<BTreeMap<OwnerNo, Peer>>,
}

/// The owner of a shard, as an RPC finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardOwner {
    /// This replica, and its lease is valid.
    Here,
    /// Another replica, which can be called at its address.
    Peer(Peer),
    /// Nobody for the moment, or nobody who is known.
    Nobody,
}

/// Another replica, as it may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The number of this start of a server. It is never used again, so a reused address is noticed.
    pub number: OwnerNo,
    /// Host and port of its port for replicas.
    pub address: String,
}

/// The random name of a database, which its replicas share. Numbers of replicas are unique in one database alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterId(pub Arc<str>);

/// Follows the [`Ownership`] as this replica knows it.
pub type Ownerships = watch::Receiver<Ownership>;

impl Ownership {
    /// A replica that knows of nobody yet.
    #[must_use]
    pub fn unknown(me: OwnerNo) -> Self {
        let owners = vec![None; usize::from(SHARDS)].into();
        Self { me, is_valid: false, owners, peers: Arc::default() }
    }

    /// The ownership that a beat showed. `owners` has one entry for each shard.
    #[must_use]
    pub fn new(
        me: OwnerNo,
        is_valid: bool,
        owners: Arc<[Option<OwnerNo>]>,
        peers: Arc<BTreeMap<OwnerNo, Peer>>,
    ) -> Self {
        Self { me, is_valid, owners, peers }
    }

    /// The number of this replica.
    #[must_use]
    pub fn me(&self) -> OwnerNo {
        self.me
    }

    /// True while the lease of this replica is valid.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.is_valid
    }

    /// The same without a valid lease.
    #[must_use]
    pub fn lapsed(&self) -> Self {
        Self { is_valid: false, ..self.clone() }
    }

    /// The owner of a shard, as an RPC finds it.
    #[must_use]
    pub fn owner(&self, shard: ShardNo) -> ShardOwner {
        match self.number_of(shard) {
            Some(owner) if owner == self.me && self.is_valid => ShardOwner::Here,
            Some(owner) if owner != self.me => {
                self.peers.get(&owner).cloned().map_or(ShardOwner::Nobody, ShardOwner::Peer)
            }
            Some(_) | None => ShardOwner::Nobody,
        }
    }

    /// True if this replica owns the shard, and its lease is valid.
    #[must_use]
    pub fn is_mine(&self, shard: ShardNo) -> bool {
        self.is_valid && self.number_of(shard) == Some(self.me)
    }

    /// True if [`owner`](Self::owner) knows one.
    #[must_use]
    pub fn has_owner(&self, shard: ShardNo) -> bool {
        self.number_of(shard).is_some_and(|owner| {
            if owner == self.me { self.is_valid } else { self.peers.contains_key(&owner) }
        })
    }

    /// True if another replica, the one of this number, owns the shard.
    #[must_use]
    pub fn is_owned_by(&self, shard: ShardNo, number: OwnerNo) -> bool {
        number != self.me && self.number_of(shard) == Some(number) && self.peers.contains_key(&number)
    }

    /// True if shards are still in the name of this replica, fenced or not: its commit under way may still be written.
    #[must_use]
    pub fn names(&self, number: OwnerNo) -> bool {
        self.owners.contains(&Some(number))
    }

    /// The shards of this replica, whether its lease is valid or not.
    pub fn own(&self) -> impl Iterator<Item = ShardNo> + '_ {
        (0..SHARDS).map(ShardNo).filter(|shard| self.number_of(*shard) == Some(self.me))
    }

    fn number_of(&self, shard: ShardNo) -> Option<OwnerNo> {
        self.owners.get(usize::from(shard.0)).copied().flatten()
    }

    /// The other replicas, whether they own anything or not.
    pub fn peers(&self) -> impl Iterator<Item = &Peer> + '_ {
        self.peers.values()
    }
}

/// A replica, as another one sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaRow {
    /// The address at which it is called.
    pub peer: Peer,
    /// Version of its server.
    pub version: String,
    /// When it joined, by the clock of the database.
    pub joined_at: Timestamp,
    /// The work that it does for the other replicas.
    pub part: ReplicaPart,
    /// Number of the shards that it owns.
    pub shards: u16,
    /// True if it owns the shard whose owner keeps the tool hosts.
    pub keeps_hosts: bool,
    /// Time for which the replica that looks has seen no sign of life from it. `None` for itself.
    pub silent_for: Option<Duration>,
    /// Digest of the part of its configuration that all replicas should have in common.
    pub configuration_digest: String,
}

/// The work that a replica takes, as `ListReplicas` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplicaPart {
    /// It owns shards, and does the RPCs of their sessions.
    Owner,
    /// It owns none, sends RPCs on, and may take an owner's place.
    Standby,
    /// It is fenced. Its writes are refused.
    Fenced,
}

/// Counts of the takeovers of one replica since its start. Its own thread writes them.
#[derive(Debug, Default)]
pub struct TakeoverCounts {
    fences: AtomicU64,
    claimed: AtomicU64,
    is_outdated: AtomicBool,
}

impl TakeoverCounts {
    pub(crate) fn fenced_one(&self) {
        self.fences.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn claimed(&self, shards: usize) {
        self.claimed.fetch_add(shards as u64, Ordering::Relaxed);
    }

    pub(crate) fn set_outdated(&self) {
        self.is_outdated.store(true, Ordering::Relaxed);
    }

    /// Other replicas that this one has fenced.
    #[must_use]
    pub fn fences(&self) -> u64 {
        self.fences.load(Ordering::Relaxed)
    }

    /// Shards that it has claimed.
    #[must_use]
    pub fn claimed_shards(&self) -> u64 {
        self.claimed.load(Ordering::Relaxed)
    }

    /// True if a replica of a later version has changed the tables, so that this one claims nothing more.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }
}

/// Knows all replicas of a database.
pub trait Replicas: Send + Sync {
    /// The replicas in the order of their numbers, as the last beat showed them, this one included. Those that have left are gone,
    /// those that are fenced stay for an hour.
    fn rows(&self) -> Vec<ReplicaRow>;
}
