//! A process: its clock, its two threads, and the replica that it is.

use std::collections::{BTreeMap, BTreeSet};

use agentloop_core::cluster::member::Member;
use agentloop_core::cluster::shard::{OwnerNo, ShardNo, Term};
use agentloop_core::time::Timestamp;

use super::database::StatementNo;
use super::frame::Life;
use super::lane::Lane;
use super::room::Room;
use super::routes::{Forward, Route, Routes};
use super::schedule::Event;
use super::seeks::Seeks;

#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) place: usize,
    pub(super) number: u64,
    pub(super) is_up: bool,
    pub(super) is_frozen: bool,
    pub(super) runtime_stands: bool,
    pub(super) cut_until: u64,
    pub(super) slow_until: u64,
    /// Until then it keeps the shards that it is to give away. It serves them, so it is well.
    pub(super) long_commits_until: u64,
    /// From when on nothing is wrong with it.
    pub(super) well_from: u64,
    /// The same, but for times in which the database was away from everybody.
    pub(super) untouched_from: u64,
    /// The clock's rate, in a thousand, and what it shows at the beginning.
    pub(super) clock: (u64, u64),
    /// Events that came while the process was frozen, or its runtime stood still.
    pub(super) frozen: Vec<Event>,
    pub(super) standing: Vec<Event>,
    pub(super) node: Option<Box<Node>>,
}

/// A replica that has its number.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) owner: OwnerNo,
    pub(super) member: Member,
    pub(super) lane: Lane,
    /// Shards that were read after they were gained, and their last event.
    pub(super) ready: BTreeMap<ShardNo, (Term, u64)>,
    pub(super) reading: BTreeMap<StatementNo, (ShardNo, Term)>,
    pub(super) beat_thread: BTreeMap<StatementNo, BeatWork>,
    pub(super) routes: Routes,
    pub(super) calls: BTreeMap<u64, Accepted>,
    /// Calls that are carried out here, and who sent them.
    pub(super) serving: BTreeMap<u64, Vec<Option<OwnerNo>>>,
    pub(super) looks: Option<StatementNo>,
    pub(super) seeks: Seeks<u64>,
    /// Until when each call needs its room.
    pub(super) uses: BTreeMap<u64, u64>,
    pub(super) room: Room,
    pub(super) links: BTreeMap<OwnerNo, u64>,
    pub(super) peers: BTreeSet<OwnerNo>,
    pub(super) leaves: Option<StatementNo>,
}

/// Statements of the thread that beats.
#[derive(Debug, Clone, Copy)]
pub(super) enum BeatWork {
    Beat(Timestamp),
    Fence,
    /// With a planted fault.
    Release(ShardNo, Term),
}

/// A call that this replica has accepted.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) caller: usize,
    pub(super) shard: ShardNo,
    pub(super) forward: Forward,
    pub(super) sent: Option<(Route, u64)>,
}

impl Process {
    pub(super) fn life(&self) -> Life {
        Life { place: self.place, number: self.number }
    }

    /// The time of its clock at a time of the simulation.
    pub(super) fn local(&self, time: u64) -> Timestamp {
        let (rate, base) = self.clock;
        Timestamp(base + time * rate / 1_000)
    }

    /// Something is wrong with this process until then.
    pub(super) fn touched_until(&mut self, until: u64) {
        self.well_from = self.well_from.max(until);
        self.untouched_from = self.untouched_from.max(until);
    }
}
