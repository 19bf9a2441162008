//! What a replica knows of itself and of the owner of the database, for those who have to know and do not decide it.
//!
//! One replica owns the database and does all the work. The others stand by: they take calls and send them on to the owner,
//! and one of them becomes the owner when it ends. The store decides who owns it (`store/postgres/replica`).

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

/// The newest [`Standing`].
pub type Standings = watch::Receiver<Standing>;
