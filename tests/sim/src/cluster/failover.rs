//! The primary fails, and its asynchronous standby takes its place.

use super::database::{Reply, Statement};
use super::schedule::Event;
use super::standby::{KEPT, State};
use super::world::World;

/// Time between two states that the standby gets.
const SHIPPED_EVERY: u64 = 20;
/// Longest time for which the address of the database leads nowhere.
const AWAY_MAX: u64 = 3_000;
/// Time in which replicas find out that the database has lost what they rely on. A reply may be under way for a second, and after
/// that a lease is trusted for two.
const SETTLES_IN: u64 = 5_000;

impl World {
    pub(super) fn ships(&mut self) {
        if self.standby.states.len() == KEPT {
            self.standby.states.pop_front();
        }
        self.standby.states.push_back(State::of(&self.database));
        self.schedule.after(SHIPPED_EVERY, Event::Ships);
    }

    /// The primary dies, now or after the next claim. The standby may lack much or little.
    pub(super) fn primary_fails(&mut self) {
        if self.random.chance(500) {
            self.standby.waits_for_claim = true;
            return;
        }
        let states = self.standby.states.len() as u64;
        if states > 0 {
            let index = usize::try_from(self.random.below(states)).expect("an index");
            self.goes_back(index);
        }
    }

    /// The worst moment: a replica owns shards, and has written nothing since that would tell it that it does not.
    pub(super) fn claim_succeeds(&mut self) {
        if std::mem::take(&mut self.standby.waits_for_claim) && !self.is_calm {
            self.goes_back(self.standby.states.len() - 1);
        }
    }

    /// The standby takes the primary's place. All connections break.
    fn goes_back(&mut self, index: usize) {
        let now = self.schedule.now();
        let states = self.standby.states.len();
        let state = self.standby.states.remove(index).expect("it is there");
        self.standby.states.clear();
        self.standby.went_back_at = Some(now);
        self.count("times that the database went back");
        self.trace(&format!("the database goes back to state {index} of {states}"));
        for statement in state.restore(&mut self.database) {
            self.breaks(&statement);
        }
        for (shard, row) in &self.database.shards {
            let watched = self.watched.entry(*shard).or_default();
            watched.owners.retain(|term, _| *term <= row.term);
        }
        for place in 0..self.processes.len() {
            if let Some(node) = self.node(place) {
                node.lane.is_connected = false;
            }
        }
        self.standby.states.push_back(State::of(&self.database));
        let away = self.random.between(10, AWAY_MAX);
        (0..self.processes.len()).for_each(|place| self.cut(place, away));
    }

    /// The connection of this statement breaks.
    pub(super) fn breaks(&mut self, statement: &Statement) {
        if !statement.is_orphan {
            self.schedule.after(1, Event::Replied(statement.from, statement.no, Reply::Broken));
        }
    }

    /// True once acknowledged writes may have been lost.
    pub(super) fn went_back(&self) -> bool {
        self.standby.went_back_at.is_some()
    }

    /// True for some time after that, in which a replica may not know it.
    pub(super) fn settles(&self) -> bool {
        self.standby.went_back_at.is_some_and(|at| self.schedule.now() < at + SETTLES_IN)
    }
}
