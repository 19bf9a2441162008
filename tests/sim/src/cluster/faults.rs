//! Faults that last a while: of processes, of their threads, and of their ways to the database.

use agentloop_core::cluster::member::MemberInput;

use super::frame::Life;
use super::plan::FaultKind;
use super::schedule::Event;
use super::world::{Away, World};

/// A time without the database that is a gap in the beats of every replica, whatever its clock.
const GAP_FOR_ALL: u64 = 2_100;
/// After such a time, replicas connect again one after the other.
const CONNECTS_WITHIN: u64 = 6_000;

impl World {
    pub(super) fn fault(&mut self) {
        if self.is_calm {
            return;
        }
        let kinds = self.plan.kinds.clone();
        let place = usize::try_from(self.random.below(self.processes.len() as u64)).expect("an index");
        match self.random.pick(&kinds) {
            FaultKind::Kill => self.stops(place, "is killed"),
            FaultKind::Freeze => {
                let length = self.random.between(200, 12_000);
                self.freeze(place, length);
            }
            FaultKind::RuntimeStands => self.runtime_stands(place),
            FaultKind::CutOff => {
                let length = self.random.between(300, 12_000);
                self.cut(place, length);
            }
            FaultKind::DatabaseAway => {
                let length = self.random.between(300, 8_000);
                self.database_away(length);
            }
            FaultKind::GoesBack => self.primary_fails(),
            FaultKind::Slow => self.slow(place),
            FaultKind::LongCommits => {
                let length = self.random.between(1_000, 60_000);
                self.trace(&format!("the commits of place {place} are long for {length} ms"));
                self.processes[place].long_commits_until = self.schedule.now() + length;
            }
            FaultKind::Drain => {
                let process = &self.processes[place];
                let (life, moves) = (process.life(), !process.is_frozen && !process.runtime_stands);
                if process.is_up && moves {
                    self.count("replicas told to stop");
                    self.trace(&format!("place {place} is told to stop"));
                    self.tell(life, MemberInput::Drain);
                }
            }
        }
        let next = self.random.between(200, self.plan.fault_every);
        self.schedule.after(next, Event::Fault);
    }

    /// The process ends where it is, and another one starts later.
    pub(super) fn stops(&mut self, place: usize, why: &str) {
        let process = &mut self.processes[place];
        if !process.is_up {
            return;
        }
        process.is_up = false;
        let owner = process.node.take().map(|node| node.owner);
        self.count("replicas ended");
        self.trace(&format!("place {place} {why}, owner {owner:?}"));
        if let Some(owner) = owner {
            self.owner_fails(owner);
        }
        let away = self.random.between(300, 12_000);
        self.schedule.after(away, Event::Starts(place));
    }

    /// The process has given everything away and ends.
    pub(super) fn left(&mut self, life: Life) {
        self.stops(life.place, "has left");
    }

    pub(super) fn freeze(&mut self, place: usize, length: u64) {
        let now = self.schedule.now();
        let process = &mut self.processes[place];
        if !process.is_up || process.is_frozen {
            return;
        }
        process.is_frozen = true;
        process.touched_until(now + length);
        let (life, owner) = (process.life(), process.node.as_ref().map(|node| node.owner));
        self.count("replicas frozen");
        self.trace(&format!("place {place} is frozen for {length} ms"));
        if let Some(owner) = owner {
            self.owner_fails(owner);
        }
        self.schedule.after(length, Event::Thaws(life));
    }

    pub(super) fn thaws(&mut self, life: Life) {
        let process = &mut self.processes[life.place];
        if process.life() != life || !process.is_frozen {
            return;
        }
        process.is_frozen = false;
        self.open_transaction_goes_on(life);
        let process = &mut self.processes[life.place];
        for event in std::mem::take(&mut process.frozen) {
            self.handle_event(life, event);
        }
    }

    /// A process that was frozen in the middle of a statement sends the rest of it.
    fn open_transaction_goes_on(&mut self, life: Life) {
        let Some(owner) = self.node(life.place).map(|node| node.owner) else { return };
        let open = self.database.owners.get(&owner).and_then(|row| row.open.as_ref());
        if let Some(no) = open.filter(|open| open.from == life && !open.is_orphan).map(|open| open.no) {
            self.schedule.after(1, Event::Commits(owner, no));
        }
    }

    fn runtime_stands(&mut self, place: usize) {
        let length = self.random.between(500, 60_000);
        let now = self.schedule.now();
        let process = &mut self.processes[place];
        if !process.is_up || process.runtime_stands {
            return;
        }
        process.runtime_stands = true;
        process.touched_until(now + length);
        let life = process.life();
        self.count("runtimes that stood still");
        self.trace(&format!("the runtime of place {place} stands still for {length} ms"));
        self.schedule.after(length, Event::RuntimeGoesOn(life));
    }

    pub(super) fn runtime_goes_on(&mut self, life: Life) {
        let process = &mut self.processes[life.place];
        if process.life() != life || !process.runtime_stands {
            return;
        }
        process.runtime_stands = false;
        for event in std::mem::take(&mut process.standing) {
            self.handle_event(life, event);
        }
    }

    /// Cuts a replica off, and no other one.
    pub(super) fn cut(&mut self, place: usize, length: u64) {
        let until = self.schedule.now() + length;
        self.processes[place].touched_until(until);
        self.cut_off(place, length);
    }

    fn database_away(&mut self, length: u64) {
        let now = self.schedule.now();
        let is_gap = length >= GAP_FOR_ALL;
        if is_gap {
            let goes_on = self.away.filter(|away| away.until >= now);
            let since = goes_on.map_or(now, |away| away.since);
            let until = goes_on.map_or(0, |away| away.until).max(now + length);
            self.away = Some(Away { since, until });
        }
        for place in 0..self.processes.len() {
            let connects = if is_gap { self.random.below(CONNECTS_WITHIN) } else { 0 };
            self.cut_off(place, length + connects);
        }
    }

    fn cut_off(&mut self, place: usize, length: u64) {
        let until = self.schedule.now() + length;
        self.count("replicas cut off from the database");
        self.trace(&format!("place {place} is cut off from the database for {length} ms"));
        let process = &mut self.processes[place];
        process.cut_until = process.cut_until.max(until);
        process.well_from = process.well_from.max(until);
    }

    fn slow(&mut self, place: usize) {
        let length = self.random.between(1_000, 15_000);
        let until = self.schedule.now() + length;
        self.count("replicas slowed down");
        self.trace(&format!("place {place} is slow for {length} ms"));
        let process = &mut self.processes[place];
        process.slow_until = process.slow_until.max(until);
        process.touched_until(until);
    }

    pub(super) fn is_cut(&self, place: usize) -> bool {
        self.processes[place].cut_until > self.schedule.now()
    }

    pub(super) fn is_slow(&self, place: usize) -> bool {
        self.processes[place].slow_until > self.schedule.now()
    }
}
