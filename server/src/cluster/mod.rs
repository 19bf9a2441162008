//! What a replica knows of itself and of the owner of the database, for those who have to know and do not decide it.
//!
//! One replica owns the database and does all the work. The others stand by: they take calls and send them on to the owner,
//! and one of them becomes the owner when it ends. The store decides who owns it (`store/postgres/replica`).

use std::time::Duration;

use agentloop_core::time::Timestamp;
use tokio::sync::watch;

/// The part of this replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It owns the database, and its lease is valid.
    Owner,
    /// Another replica owns the database, or nobody does for the moment. An owner whose lease is over is here too.
    Standby {
        /// The owner, if one is known.
        owner: Option<Peer>,
    },
}

/// Another replica, as it may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The number of this start of a server. It is never used again, so a reused address is noticed.
    pub number: i64,
    /// Host and port of its port for replicas.
    pub address: String,
}

/// Follows the [`Standing`] of this replica.
pub type Standings = watch::Receiver<Standing>;

/// A replica, as another one sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaRow {
    /// Where it may be called.
    pub peer: Peer,
    /// Version of its server.
    pub version: String,
    /// When it joined, by the clock of the database.
    pub joined_at: Timestamp,
    /// The work that it does for the other replicas.
    pub part: ReplicaPart,
    /// Time for which the replica that looks has seen no sign of life from it. `None` for itself.
    pub silent_for: Option<Duration>,
    /// Digest of the part of its configuration that all replicas should have in common.
    pub configuration_digest: String,
}

/// The part of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplicaPart {
    /// It owns the database.
    Owner,
    /// It sends calls on, and may take the owner's place.
    Standby,
    /// It was held to be dead. Its writes are refused.
    Fenced,
}

/// Knows all replicas of a database.
pub trait Replicas: Send + Sync {
    /// The replicas in the order of their numbers, as the last beat showed them, this one included. Those that have left are gone,
    /// those that are fenced stay for an hour.
    fn rows(&self) -> Vec<ReplicaRow>;
}
