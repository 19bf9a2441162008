//! The state of a replica's write lane: one statement after the other.

use std::collections::VecDeque;

use agentloop_core::cluster::shard::{ShardNo, Term};

use super::database::{BatchNo, ConnectionNo, StatementNo, Write};

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) connection: ConnectionNo,
    pub(super) last: BatchNo,
    /// The last commit of events that is known to be stored.
    pub(super) acknowledged: BatchNo,
    pub(super) queue: VecDeque<Write>,
    pub(super) in_flight: Option<(BatchNo, Write)>,
    /// The statement whose response is awaited.
    pub(super) awaits: Option<StatementNo>,
    pub(super) is_connected: bool,
    /// True if the claims of all shards were seen over this connection.
    pub(super) has_seen_claims: bool,
    /// The claims that are looked for.
    pub(super) looks_for: Vec<(ShardNo, Term)>,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            connection: ConnectionNo(1),
            last: BatchNo(0),
            acknowledged: BatchNo(0),
            queue: VecDeque::new(),
            in_flight: None,
            awaits: None,
            is_connected: true,
            has_seen_claims: false,
            looks_for: Vec::new(),
        }
    }
}

impl Lane {
    /// True if a write to the shard is not confirmed yet.
    pub(super) fn writes_to(&self, shard: ShardNo) -> bool {
        let in_flight = self.in_flight.iter().map(|(_, write)| write);
        self.queue.iter().chain(in_flight).any(|write| match write {
            Write::Commit(appends) => appends.iter().any(|append| append.shard == shard),
            Write::Claim(_) => false,
            Write::Release { shard: of, .. } => *of == shard,
        })
    }

    /// True if the next statement is a commit, whose shards may be another replica's for all that is known.
    pub(super) fn has_to_look(&self) -> bool {
        let next = self.in_flight.as_ref().map(|(_, write)| write).or(self.queue.front());
        !self.has_seen_claims && matches!(next, Some(Write::Commit(_)))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_none()
    }
}
