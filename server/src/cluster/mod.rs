//! Where this server stands among the replicas of one database.

use tokio::sync::watch;

/// Where this replica stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It owns the sessions and serves calls itself.
    Owner {
        /// The number of this owner.
        number: u64,
    },
    /// Another replica owns them.
    Standby {
        /// The owner; `None` while nobody is known.
        owner: Option<Peer>,
    },
}

/// Another replica, as it registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The number of the owner, which is never used again.
    pub number: u64,
    /// The address as it is advertised, `https://host:port`.
    pub address: String,
}

/// The standing of this replica, as it changes.
pub type Standings = watch::Receiver<Standing>;

/// The standing of a server that is the only one on its database: it owns everything, and that never changes.
#[must_use]
pub fn alone(number: u64) -> Standings {
    watch::channel(Standing::Owner { number }).1
}
