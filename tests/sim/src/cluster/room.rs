//! Room on tool hosts, and links between replicas: their state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use agentloop_core::cluster::shard::OwnerNo;
use agentloop_core::time::Timestamp;

use super::terms::TermsSeen;

/// Calls that the hosts of one replica take at a time.
const ROOM: usize = 3;

/// The room on the hosts of one replica.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// With the time at which each was requested.
    pub(super) granted: BTreeMap<(OwnerNo, u64), Timestamp>,
    pub(super) waiting: VecDeque<((OwnerNo, u64), Timestamp)>,
    pub(super) terms: TermsSeen,
}

impl Room {
    pub(super) fn granted(&self) -> usize {
        self.granted.len()
    }

    /// Grants what there is to those who wait.
    pub(super) fn grant(&mut self) -> Vec<(OwnerNo, u64)> {
        let mut granted = Vec::new();
        while self.granted.len() < ROOM
            && let Some((call, requested)) = self.waiting.pop_front()
        {
            self.granted.insert(call, requested);
            granted.push(call);
        }
        granted
    }

    pub(super) fn forget(&mut self, owner: OwnerNo) {
        self.granted.retain(|(of, _), _| *of != owner);
        self.waiting.retain(|((of, _), _)| *of != owner);
    }

    pub(super) fn drop_waiting(&mut self, call: (OwnerNo, u64)) {
        self.waiting.retain(|(waits, _)| *waits != call);
    }

    /// Owners that have requested room before this time and are not among these. Each had its number before that, so
    /// it is fenced.
    pub(super) fn fenced(&self, owners: &BTreeSet<OwnerNo>, before: Timestamp) -> BTreeSet<OwnerNo> {
        let granted = self.granted.iter().map(|((of, _), requested)| (*of, *requested));
        let waiting = self.waiting.iter().map(|((of, _), requested)| (*of, *requested));
        let all = granted.chain(waiting);
        all.filter(|(of, requested)| *requested < before && !owners.contains(of)).map(|(of, _)| of).collect()
    }
}

/// A connection between two replicas: how often it was made anew, and when the last frame arrives each way.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) arrives: BTreeMap<OwnerNo, u64>,
}
