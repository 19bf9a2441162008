//! Checks of what must hold, whatever breaks:
//!
//! - No write lands under another term than the shard's. The terms of a journal never fall, and a term has one owner.
//! - An acknowledged event is in the journal, once, under the batch that was acknowledged.
//! - An owner never conflicts with itself, and a fenced one claims nothing.
//! - Nothing is sent for a shard by anybody but its owner of that moment. A receiver accepts nothing of an older term
//!   after something of a newer one, even if a process was frozen between the check and the write.
//! - No shard is free for 10 s, and none is without service for 25 s, while one replica is well. (A replica that was cut
//!   off suspects nobody for 15 s.)
//! - No shard has two living owners for 3 s.
//! - Nobody is fenced because the database was away from everybody, also if one comes back later than another.
//! - A shard that its owner has to keep is served before it is to be given away again.
//! - No claim is taken for lost, unless the database has gone back.
//! - A call that waits at a replica that is well is done.
//! - In the end every shard has an owner that serves it, nobody has more than its share, and all room is free again.
//!
//! A database that goes back loses acknowledged events, and claims and releases, too. In such a seed, the checks leave out what
//! follows from that. For some seconds this is what is sent. From then on it is what was acknowledged, and conflicts. No write is
//! left out.

use std::collections::BTreeMap;

use agentloop_core::cluster::shard::{OwnerNo, ShardNo, Term};

use super::database::{Append, BatchNo, Statement};
use super::frame::{Frame, Life};
use super::plan::PlantedClusterBug;
use super::process::{Node, Process};
use super::world::World;

const FREE_MAX: u64 = 10_000;
const WITHOUT_SERVICE_MAX: u64 = 25_000;
const SHARED_MAX: u64 = 3_000;
const CALL_MAX: u64 = 40_000;
/// Replicas are quiet for 15 s from the first beat after a gap, by clocks that may be fast.
const QUIET_FOR: u64 = 14_500;
/// A replica has beaten after this time.
const BEATS_SINCE: u64 = 3_000;
/// A database that is away may keep the owner from serving the shard in between.
const KEPT_MAX: u32 = 3;

impl World {
    pub(super) fn check_write(&mut self, owner: OwnerNo, shard: ShardNo, term: Term) {
        let row = &self.database.shards[&shard];
        let (newest, before) = (row.term, row.journal.last().map(|written| written.term));
        let falls = before.is_some_and(|before| before > term) && !self.went_back();
        if term != newest || falls {
            self.problem(format!(
                "a stale write lands: shard {shard}, owner {owner}, term {}, the newest is {}",
                term.0, newest.0
            ));
        }
        let (now, well_since) = (self.schedule.now(), self.well_since());
        let watched = self.watched.entry(shard).or_default();
        let known = *watched.owners.entry(term).or_insert(owner);
        if let Some((failed_at, of)) = watched.failed.take()
            && term > of
            && well_since.is_some_and(|well| well <= failed_at)
        {
            self.takeovers.push(now - failed_at);
        }
        if known != owner {
            self.problem(format!("shard {shard} has two owners in term {}: {known} and {owner}", term.0));
        }
    }

    /// The owner has failed: the time begins until somebody else writes to its shards.
    pub(super) fn owner_fails(&mut self, owner: OwnerNo) {
        let now = self.schedule.now();
        for (shard, row) in &self.database.shards {
            if row.owner == Some(owner) {
                self.watched.entry(*shard).or_default().failed.get_or_insert((now, row.term));
            }
        }
    }

    pub(super) fn acknowledged(&mut self, owner: OwnerNo, batch: BatchNo, append: &Append) {
        if self.went_back() {
            return;
        }
        let watched = self.watched.entry(append.shard).or_default();
        if let Some(other) = watched.acknowledged.insert(append.after, (owner, batch)) {
            self.problem(format!(
                "event {} of shard {} is acknowledged to {other:?} and to {owner}",
                append.after + 1,
                append.shard
            ));
        }
    }

    pub(super) fn note_claim(&mut self, shard: ShardNo) {
        let now = self.schedule.now();
        let watched = self.watched.entry(shard).or_default();
        watched.claimed_at = now;
        watched.free_since = None;
        self.count("shards claimed");
    }

    /// Only a database that goes back loses claims.
    pub(super) fn check_lost_claim(&mut self, owner: OwnerNo) {
        if !self.went_back() {
            self.problem(format!("owner {owner} takes a claim for lost, and the database has lost none"));
        }
    }

    pub(super) fn check_kept(&mut self, shard: ShardNo) {
        self.count("shards kept");
        let kept = &mut self.watched.entry(shard).or_default().kept;
        *kept += 1;
        let times = *kept;
        if times >= KEPT_MAX {
            self.problem(format!("shard {shard} is kept {times} times, and not served in between"));
        }
    }

    pub(super) fn check_emission(&mut self, owner: OwnerNo, shard: ShardNo, term: Term) {
        self.count("frames sent");
        let row = &self.database.shards[&shard];
        if (row.owner != Some(owner) || row.term != term) && !self.settles() {
            let newest = row.term.0;
            self.problem(format!(
                "owner {owner} sends for shard {shard} in term {} after its lease: the newest is {newest}",
                term.0
            ));
        }
    }

    pub(super) fn received(&mut self, frame: &Frame) {
        let Frame::Effect { shard, term } = *frame else { return };
        let accepts = self.receiver.accept(shard, term);
        if !accepts {
            self.count("stale frames dropped");
        }
        if !accepts && self.plan.bug != Some(PlantedClusterBug::TermsNotChecked) {
            return;
        }
        let accepted = &mut self.watched.entry(shard).or_default().accepted;
        if term < *accepted {
            let newer = accepted.0;
            self.problem(format!("a receiver accepts term {} of shard {shard} after term {newer}", term.0));
            return;
        }
        *accepted = term;
    }

    /// A database that was away made every replica late, and each of them has a gap in its own beats. So none of them may fence
    /// another one for that.
    pub(super) fn check_fence(&mut self, mark: &Statement, owner: OwnerNo) {
        let Some(away) = self.away else { return };
        let Some(fenced) = self.lives.get(&owner).copied() else { return };
        let is_quiet = mark.sent >= away.until && mark.sent < away.until + QUIET_FOR;
        // One that has started in that time, or just before, may have had no beat in which to find a gap.
        let was_there = |life: Life| {
            let process = &self.processes[life.place];
            process.life() == life && process.is_up && process.untouched_from + BEATS_SINCE <= away.since
        };
        if is_quiet && was_there(mark.from) && was_there(fenced) {
            let place = mark.from.place;
            let passed = mark.sent - away.until;
            self.problem(format!(
                "owner {owner} is fenced by place {place} {passed} ms after the database came back, and nothing else was wrong"
            ));
        }
    }

    /// The longest time for which some replica has been well without a break, and what happens in it must have happened.
    fn well_since(&self) -> Option<u64> {
        let now = self.schedule.now();
        let well = self.processes.iter().filter(|process| process.is_up && process.well_from <= now);
        well.map(|process| process.well_from).min()
    }

    pub(super) fn look(&mut self) {
        let now = self.schedule.now();
        let well_since = self.well_since();
        let passed = |since: u64, claimed_at: u64| {
            well_since.map_or(0, |well| now.saturating_sub(since.max(well).max(claimed_at)))
        };
        let shards: Vec<ShardNo> = self.database.shards.keys().copied().collect();
        for shard in shards {
            let is_free = self.database.shards[&shard].owner.is_none();
            let is_served = self.is_served(shard);
            let is_shared = self.living_owners(shard) > 1;
            let watched = self.watched.entry(shard).or_default();
            watched.free_since = is_free.then(|| watched.free_since.unwrap_or(now));
            watched.unserved_since = (!is_served).then(|| watched.unserved_since.unwrap_or(now));
            watched.shared_since = is_shared.then(|| watched.shared_since.unwrap_or(now));
            let shared = watched.shared_since.map_or(0, |since| now - since);
            let free = watched.free_since.map_or(0, |since| passed(since, 0));
            let unserved = watched.unserved_since.map_or(0, |since| passed(since, watched.claimed_at));
            if shared > SHARED_MAX {
                self.problem(format!("shard {shard} has two living owners for {shared} ms"));
            }
            if free > FREE_MAX {
                self.problem(format!("shard {shard} is free for {free} ms while a replica is well"));
            }
            if unserved > WITHOUT_SERVICE_MAX {
                self.problem(format!(
                    "nobody serves shard {shard} for {unserved} ms while a replica is well"
                ));
            }
        }
        self.check_callers();
    }

    fn check_callers(&mut self) {
        let now = self.schedule.now();
        for number in 0..self.callers.len() {
            let caller = self.callers[number];
            let Some(since) = caller.waits_since else { continue };
            let process = &self.processes[caller.place];
            let Some(owner) = self.database.shards[&caller.shard].owner else { continue };
            let Some(of_owner) = self.lives.get(&owner).map(|life| &self.processes[life.place]) else {
                continue;
            };
            if !process.is_up || !of_owner.is_up {
                continue;
            }
            let claimed_at = self.watched.get(&caller.shard).map_or(0, |watched| watched.claimed_at);
            let from = since.max(process.well_from).max(of_owner.well_from).max(claimed_at);
            if now.saturating_sub(from) > CALL_MAX {
                let (call, place) = (caller.call, caller.place);
                self.problem(format!("call {call} for shard {} waits at place {place}", caller.shard));
            }
        }
    }

    /// Replicas that move and would act for the shard now.
    fn living_owners(&self, shard: ShardNo) -> usize {
        let acts = |process: &&Process| {
            let now = self.local_time(process.place);
            let node = process.node.as_deref().filter(|_| process.is_up && !process.is_frozen);
            node.is_some_and(|node| node.member.may_act(shard, now))
        };
        self.processes.iter().filter(acts).count()
    }

    /// True if the owner could carry out a call now.
    fn is_served(&self, shard: ShardNo) -> bool {
        let Some(owner) = self.database.shards[&shard].owner else { return false };
        let Some(life) = self.lives.get(&owner) else { return false };
        let process = &self.processes[life.place];
        let is_awake =
            process.life() == *life && process.is_up && !process.is_frozen && !process.runtime_stands;
        let now = self.local_time(life.place);
        let can = |node: &Node| node.ready.contains_key(&shard) && node.member.may_act(shard, now);
        is_awake && process.node.as_deref().is_some_and(can)
    }

    pub(super) fn check_end(&mut self) {
        let shards: Vec<ShardNo> = self.database.shards.keys().copied().collect();
        for shard in shards {
            if !self.is_served(shard) {
                self.problem(format!("in the end nobody serves shard {shard}"));
            }
            let watched = self.watched.get(&shard).cloned().unwrap_or_default();
            let acknowledged = if self.went_back() { BTreeMap::new() } else { watched.acknowledged };
            for (after, (owner, batch)) in acknowledged {
                let index = usize::try_from(after).expect("it is small");
                let stored = self.database.shards[&shard].journal.get(index);
                if stored.is_none_or(|written| (written.owner, written.batch) != (owner, batch)) {
                    self.problem(format!(
                        "event {} of shard {shard} was acknowledged and is not stored",
                        after + 1
                    ));
                }
            }
        }
        let up = self.processes.iter().filter(|process| process.node.is_some()).count();
        let share = usize::from(self.plan.shards).div_ceil(up.max(1));
        for place in 0..self.processes.len() {
            let Some(node) = self.node(place) else {
                self.problem(format!("in the end place {place} has no replica"));
                continue;
            };
            let (owned, granted, seeks) =
                (node.member.owned().count(), node.room.granted(), node.seeks.len());
            if owned > share {
                self.problem(format!("in the end place {place} has {owned} shards, more than {share}"));
            }
            if granted > 0 || seeks > 0 {
                self.problem(format!(
                    "in the end place {place} keeps room for {granted} calls, and {seeks} seek some"
                ));
            }
        }
    }
}
