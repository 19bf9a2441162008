//! Starts of processes, and the frames that they send each other.

use agentloop_core::cluster::shard::{OwnerNo, ShardNo, Term};

use super::routes::Route;

/// One start of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Life {
    pub(super) place: usize,
    pub(super) number: u64,
}

/// A message between processes, or from one to the outside.
#[derive(Debug, Clone)]
pub(super) enum Frame {
    /// A caller requests something in a shard from this replica.
    Accept { caller: usize, call: u64, shard: ShardNo },
    /// From another replica, on this connection between the two.
    Peer { from: OwnerNo, link: u64, message: Message },
    /// The connection to another replica is broken.
    LinkBroken { peer: OwnerNo },
    /// To a receiver outside: a piece of a response, an offer or a cancel.
    Effect { shard: ShardNo, term: Term },
}

#[derive(Debug, Clone)]
pub(super) enum Message {
    Call { call: u64, shard: ShardNo, route: Route },
    Done { call: u64 },
    Moved { call: u64, route: Route },
    Seek { call: u64, shard: ShardNo, term: Term },
    Granted { call: u64 },
    StopSeeking { call: u64 },
    GiveBack { call: u64 },
}
