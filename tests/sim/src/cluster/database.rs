//! A model of the database: rows, and the lock on each owner's write lane. A statement is one transaction. It may stay open
//! after it has taken the lock; then it is carried out, whole, when it commits.

use std::collections::{BTreeMap, VecDeque};

use agentloop_core::cluster::member::{ClusterView, OwnerSeen};
use agentloop_core::cluster::shard::{Beat, OwnerNo, ShardNo, Term};
use agentloop_core::cluster::suspicion::Suspect;

use super::frame::Life;
use super::plan::PlantedClusterBug;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StatementNo(pub(super) u64);

/// A connection of a lane. A later one has a higher number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConnectionNo(pub(super) u64);

/// A batch of a lane. A later one has a higher number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BatchNo(pub(super) u64);

/// A statement on its way.
#[derive(Debug, Clone)]
pub(super) struct Statement {
    pub(super) no: StatementNo,
    pub(super) from: Life,
    pub(super) query: Query,
    pub(super) sent: u64,
    /// The connection broke: nobody reads the response.
    pub(super) is_orphan: bool,
    /// The primary that its connection leads to.
    pub(super) primary: u64,
}

#[derive(Debug, Clone)]
pub(super) enum Query {
    Register,
    Beat {
        owner: OwnerNo,
        is_draining: bool,
    },
    /// Marks the row of the beats, if it still stands there.
    Mark(Suspect),
    /// Marks the lane, then frees the shards.
    FinishFence(OwnerNo),
    /// A new connection of a lane, which reads the last batch.
    Connect {
        owner: OwnerNo,
        connection: ConnectionNo,
    },
    Write {
        owner: OwnerNo,
        connection: ConnectionNo,
        batch: BatchNo,
        write: Write,
    },
    /// A release that no lane puts in order: with a planted fault.
    Release {
        owner: OwnerNo,
        shard: ShardNo,
        term: Term,
    },
    /// The shards of an owner, for the connection of its lane.
    Claims(OwnerNo),
    /// The last event of a shard.
    Read(ShardNo),
    Owners,
    /// A replica that has stopped.
    Leave(OwnerNo),
}

/// A write that goes through a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Write {
    Commit(Vec<Append>),
    Claim(u16),
    Release { shard: ShardNo, term: Term },
}

/// One event for the journal of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Append {
    pub(super) shard: ShardNo,
    pub(super) term: Term,
    pub(super) after: u64,
    /// The call that it carries out.
    pub(super) call: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) enum Reply {
    Registered(OwnerNo),
    View(ClusterView),
    Marked {
        owner: OwnerNo,
        holds: bool,
    },
    Connected {
        last: BatchNo,
    },
    Written,
    Claimed(Vec<(ShardNo, Term)>),
    Read {
        last: u64,
    },
    /// The claims of the owner that wants to write.
    Claims(Vec<(ShardNo, Term)>),
    Owners(Vec<(ShardNo, OwnerNo, Term)>),
    /// The owner is fenced. Nothing was written.
    Fenced,
    /// Rows are not as the owner believed. Nothing was written.
    Conflict,
    Done,
    /// The connection broke. Nobody knows what happened.
    Broken,
}

#[derive(Debug)]
pub(super) struct OwnerRow {
    pub(super) connection: ConnectionNo,
    pub(super) is_fenced: bool,
    pub(super) last_batch: BatchNo,
    /// The open transaction that holds the lane.
    pub(super) open: Option<Box<Statement>>,
    pub(super) waiting: VecDeque<Statement>,
}

#[derive(Debug)]
pub(super) struct BeatRow {
    pub(super) beat: Beat,
    pub(super) is_fenced: bool,
    pub(super) is_draining: bool,
}

#[derive(Debug, Default)]
pub(super) struct ShardRow {
    pub(super) owner: Option<OwnerNo>,
    pub(super) term: Term,
    pub(super) journal: Vec<Written>,
}

/// An event as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) owner: OwnerNo,
    pub(super) term: Term,
    pub(super) batch: BatchNo,
}

/// The tables of the cluster, by their keys.
#[derive(Debug, Default)]
pub(super) struct Database {
    pub(super) owners: BTreeMap<OwnerNo, OwnerRow>,
    pub(super) beats: BTreeMap<OwnerNo, BeatRow>,
    pub(super) shards: BTreeMap<ShardNo, ShardRow>,
    /// Number of primaries before this one.
    pub(super) primary: u64,
}

impl Database {
    pub(super) fn new(shards: u16) -> Self {
        let shards = (0..shards).map(|shard| (ShardNo(shard), ShardRow::default())).collect();
        Self { shards, ..Self::default() }
    }

    pub(super) fn register(&mut self) -> OwnerNo {
        let owner = OwnerNo(self.owners.len() as u64 + 1);
        let (connection, last_batch) = (ConnectionNo(1), BatchNo(0));
        let row = OwnerRow { connection, is_fenced: false, last_batch, open: None, waiting: VecDeque::new() };
        self.owners.insert(owner, row);
        self.beats.insert(owner, BeatRow { beat: Beat(0), is_fenced: false, is_draining: false });
        owner
    }

    /// A beat raises the counter of an owner that may beat, frees what fenced owners have left, and reads the rest.
    pub(super) fn beat(
        &mut self,
        owner: OwnerNo,
        is_draining: bool,
        bug: Option<PlantedClusterBug>,
    ) -> Reply {
        let ignores_mark = bug == Some(PlantedClusterBug::BeatIgnoresMark);
        let row = self.beats.get_mut(&owner).filter(|row| !row.is_fenced || ignores_mark);
        let Some(row) = row else { return Reply::Fenced };
        row.beat = Beat(row.beat.0 + 1);
        row.is_draining = is_draining;
        if bug != Some(PlantedClusterBug::FencedKeepShards) {
            let fenced: Vec<OwnerNo> =
                self.owners.iter().filter(|(_, row)| row.is_fenced).map(|(owner, _)| *owner).collect();
            fenced.into_iter().for_each(|owner| self.free_shards(owner));
        }
        Reply::View(self.view(owner))
    }

    fn view(&self, me: OwnerNo) -> ClusterView {
        let seen = |(owner, row): (&OwnerNo, &BeatRow)| {
            let (owner, beat, is_draining) = (*owner, row.beat, row.is_draining);
            OwnerSeen { owner, beat, is_draining }
        };
        let lane_is_fenced = |owner: &OwnerNo| self.owners.get(owner).is_none_or(|row| row.is_fenced);
        let half_fenced = self.beats.iter().filter(|(owner, row)| row.is_fenced && !lane_is_fenced(owner));
        let free = self.shards.values().filter(|row| row.owner.is_none()).count();
        ClusterView {
            owners: self.beats.iter().filter(|(_, row)| !row.is_fenced).map(seen).collect(),
            half_fenced: half_fenced.map(|(owner, _)| *owner).collect(),
            mine: self.mine(me).collect(),
            free: u16::try_from(free).expect("there are fewer"),
            shards: u16::try_from(self.shards.len()).expect("there are fewer"),
        }
    }

    /// The shards of an owner, if nobody has fenced it.
    pub(super) fn claims(&self, owner: OwnerNo) -> Reply {
        match self.owners.get(&owner) {
            Some(row) if !row.is_fenced => Reply::Claims(self.mine(owner).collect()),
            Some(_) | None => Reply::Fenced,
        }
    }

    fn mine(&self, me: OwnerNo) -> impl Iterator<Item = (ShardNo, Term)> {
        let mine = self.shards.iter().filter(move |(_, row)| row.owner == Some(me));
        mine.map(|(shard, row)| (*shard, row.term))
    }

    pub(super) fn mark(&mut self, suspect: Suspect) -> Reply {
        let Suspect { owner, beat } = suspect;
        let row = self.beats.get_mut(&owner).filter(|row| row.beat == beat && !row.is_fenced);
        let holds = row.is_some();
        if let Some(row) = row {
            row.is_fenced = true;
        }
        Reply::Marked { owner, holds }
    }

    pub(super) fn free_shards(&mut self, owner: OwnerNo) {
        for row in self.shards.values_mut().filter(|row| row.owner == Some(owner)) {
            row.owner = None;
        }
    }

    pub(super) fn owners_of_shards(&self) -> Vec<(ShardNo, OwnerNo, Term)> {
        let owned = |(shard, row): (&ShardNo, &ShardRow)| row.owner.map(|owner| (*shard, owner, row.term));
        self.shards.iter().filter_map(owned).collect()
    }
}
