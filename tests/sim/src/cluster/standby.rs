//! An asynchronous standby: the database as it was some moments ago. When it takes the primary's place, acknowledged writes are
//! lost.

use std::collections::{BTreeMap, VecDeque};

use agentloop_core::cluster::shard::{Beat, OwnerNo, ShardNo, Term};

use super::database::{BatchNo, ConnectionNo, Database, Statement};

/// States that are kept: those of one second.
pub(super) const KEPT: usize = 50;

/// The rows at one moment. Journals only grow, so their lengths suffice.
#[derive(Debug)]
pub(super) struct State {
    owners: BTreeMap<OwnerNo, (ConnectionNo, bool, BatchNo)>,
    beats: BTreeMap<OwnerNo, (Beat, bool, bool)>,
    shards: BTreeMap<ShardNo, (Option<OwnerNo>, Term, usize)>,
}

/// The standby, and what its time as the primary has done to the checks.
#[derive(Debug, Default)]
pub(super) struct Standby {
    pub(super) states: VecDeque<State>,
    /// True if the primary dies after the next claim.
    pub(super) waits_for_claim: bool,
    /// When it took the primary's place for the last time.
    pub(super) went_back_at: Option<u64>,
}

impl State {
    pub(super) fn of(database: &Database) -> Self {
        let owners = database.owners.iter();
        let beats = database.beats.iter();
        let shards = database.shards.iter();
        Self {
            owners: owners.map(|(no, row)| (*no, (row.connection, row.is_fenced, row.last_batch))).collect(),
            beats: beats.map(|(no, row)| (*no, (row.beat, row.is_fenced, row.is_draining))).collect(),
            shards: shards.map(|(no, row)| (*no, (row.owner, row.term, row.journal.len()))).collect(),
        }
    }

    /// Makes this the state of the database. Returns the statements that were under way there.
    pub(super) fn restore(self, database: &mut Database) -> Vec<Statement> {
        let mut broken = Vec::new();
        for (no, row) in &mut database.owners {
            broken.extend(row.open.take().map(|open| *open));
            broken.extend(row.waiting.drain(..));
            match self.owners.get(no) {
                Some(stored) => (row.connection, row.is_fenced, row.last_batch) = *stored,
                // An owner without rows may do as much as one that is fenced.
                None => row.is_fenced = true,
            }
        }
        for (no, row) in &mut database.beats {
            match self.beats.get(no) {
                Some(stored) => (row.beat, row.is_fenced, row.is_draining) = *stored,
                None => row.is_fenced = true,
            }
        }
        for (no, (owner, term, events)) in self.shards {
            let row = database.shards.get_mut(&no).expect("shards are never deleted");
            (row.owner, row.term) = (owner, term);
            row.journal.truncate(events);
        }
        database.primary += 1;
        broken
    }
}
