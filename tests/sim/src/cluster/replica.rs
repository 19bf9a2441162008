//! The work of a replica: that of its two threads, and what its member decides.

use std::collections::{BTreeMap, BTreeSet};

use agentloop_core::cluster::lease::LeaseTimes;
use agentloop_core::cluster::member::{ClusterView, Member, MemberAction, MemberInput, Shed};
use agentloop_core::cluster::shard::{OwnerNo, ShardNo, Term};
use agentloop_core::time::{Millis, Timestamp};

use super::database::{Query, Reply, StatementNo, Write};
use super::frame::{Frame, Life};
use super::lane::Lane;
use super::plan::{FaultKind, PlantedClusterBug};
use super::process::{BeatWork, Node, Process};
use super::room::Room;
use super::routes::{Route, Routes};
use super::schedule::Event;
use super::seeks::Seeks;
use super::world::World;

const RUNTIME_EVERY: u64 = 100;
const BEAT_THREAD_EVERY: u64 = 50;
/// Time for which the same shards have work under way that a replica does not like to give away.
const BUSY_TURN: u64 = 4_000;
/// One of so many shards has.
const BUSY_ONE_OF: u64 = 3;
/// Wait for a long commit, after which the shards that were to be given away are kept.
const KEEPS_AFTER: u64 = 500;

impl World {
    pub(super) fn local_time(&self, place: usize) -> Timestamp {
        self.processes[place].local(self.schedule.now())
    }

    pub(super) fn node(&mut self, place: usize) -> Option<&mut Node> {
        self.processes[place].node.as_deref_mut()
    }

    pub(super) fn starts(&mut self, place: usize) {
        let now = self.schedule.now();
        let clock = (self.random.between(995, 1_005), self.random.below(1_000_000));
        let process = &mut self.processes[place];
        if process.is_up {
            return;
        }
        let number = process.number + 1;
        *process = Process {
            place,
            number,
            is_up: true,
            clock,
            cut_until: process.cut_until,
            slow_until: process.slow_until,
            well_from: process.well_from.max(now),
            untouched_from: process.untouched_from.max(now),
            ..Process::default()
        };
        self.count("starts of replicas");
        self.send(Life { place, number }, Query::Register);
    }

    /// An event of a process, if it still lives; later, if it is frozen.
    pub(super) fn handle_event(&mut self, life: Life, event: Event) {
        let process = &mut self.processes[life.place];
        if process.number != life.number || !process.is_up {
            return;
        }
        if process.is_frozen {
            process.frozen.push(event);
            return;
        }
        let beats = match &event {
            Event::BeatThread(_) => true,
            Event::Replied(_, no, _) => {
                process.node.as_ref().is_some_and(|node| node.beat_thread.contains_key(no))
            }
            _ => false,
        };
        if process.runtime_stands && !beats {
            process.standing.push(event);
            return;
        }
        match event {
            Event::BeatThread(_) => self.beat_thread(life),
            Event::Runtime(_) => self.runtime(life),
            Event::Replied(_, no, reply) => self.replied(life, no, reply),
            Event::Arrives(_, frame) => self.arrives(life, frame),
            Event::Keeps(_, shard) => self.keeps(life, shard),
            Event::Leaves(_, frame) => {
                let way = self.random.between(0, 5);
                self.schedule.after(way, Event::Received(frame));
            }
            other => unreachable!("no event of a process: {other:?}"),
        }
    }

    fn registered(&mut self, life: Life, owner: OwnerNo) {
        let now = self.local_time(life.place);
        self.trace(&format!("owner {owner} starts in place {}", life.place));
        self.lives.insert(owner, life);
        let mut times = LeaseTimes::default();
        if self.plan.bug == Some(PlantedClusterBug::NoQuietAfterGap) {
            times.quiet_after_gap = Millis(0);
        }
        self.processes[life.place].node = Some(Box::new(Node {
            owner,
            member: Member::new(owner, times, now),
            lane: Lane::default(),
            ready: BTreeMap::new(),
            reading: BTreeMap::new(),
            beat_thread: BTreeMap::new(),
            routes: Routes::default(),
            calls: BTreeMap::new(),
            serving: BTreeMap::new(),
            looks: None,
            seeks: Seeks::default(),
            uses: BTreeMap::new(),
            room: Room::default(),
            links: BTreeMap::new(),
            peers: BTreeSet::new(),
            leaves: None,
        }));
        self.schedule.after(0, Event::BeatThread(life));
        self.schedule.after(1, Event::Runtime(life));
    }

    fn beat_thread(&mut self, life: Life) {
        let now = self.local_time(life.place);
        let pulses = self.plan.bug == Some(PlantedClusterBug::BeatWithoutPulse);
        let Some(node) = self.node(life.place) else { return };
        if pulses {
            drop(node.member.handle(MemberInput::Pulse, now));
        }
        if node.member.poll_beat(now) {
            let (owner, is_draining) = (node.owner, node.member.is_draining());
            let no = self.send(life, Query::Beat { owner, is_draining });
            self.node(life.place).expect("it is there").beat_thread.insert(no, BeatWork::Beat(now));
        }
        self.schedule.after(BEAT_THREAD_EVERY, Event::BeatThread(life));
    }

    fn runtime(&mut self, life: Life) {
        self.tell(life, MemberInput::Pulse);
        if self.node(life.place).is_none() {
            return;
        }
        self.work(life);
        self.retry_late_calls(life);
        self.attend_room(life);
        self.lane_goes_on(life);
        self.leave_if_done(life);
        self.schedule.after(RUNTIME_EVERY, Event::Runtime(life));
    }

    /// Runs make progress and send pieces of it.
    fn work(&mut self, life: Life) {
        let Some(node) = self.node(life.place) else { return };
        let shards: Vec<ShardNo> = node.ready.keys().copied().collect();
        for shard in shards {
            if self.is_busy() && self.random.chance(150) {
                self.append(life, shard, None);
            }
            if self.random.chance(150) {
                self.emit(life, shard);
            }
        }
    }

    /// Sends something out for a shard, if the lease allows it.
    pub(super) fn emit(&mut self, life: Life, shard: ShardNo) {
        let now = self.local_time(life.place);
        let unchecked = self.plan.bug == Some(PlantedClusterBug::LeaseNotChecked);
        let Some(node) = self.node(life.place) else { return };
        let Some(term) = node.member.term(shard).filter(|_| unchecked || node.member.may_act(shard, now))
        else {
            return;
        };
        let owner = node.owner;
        self.check_emission(owner, shard, term);
        let write = self.random.below(3);
        self.schedule.after(write, Event::Leaves(life, Frame::Effect { shard, term }));
        // The worst moment: after it was checked, before it has left.
        if self.plan.kinds.contains(&FaultKind::Freeze) && !self.is_calm && self.random.chance(2) {
            let length = self.random.between(3_000, 12_000);
            self.freeze(life.place, length);
        }
    }

    pub(super) fn tell(&mut self, life: Life, input: MemberInput) {
        let now = self.local_time(life.place);
        let Some(node) = self.node(life.place) else { return };
        let actions = node.member.handle(input, now);
        for action in actions {
            self.act(life, action);
        }
    }

    fn act(&mut self, life: Life, action: MemberAction) {
        match action {
            MemberAction::Fence(suspect) => {
                self.trace(&format!("place {} suspects owner {}", life.place, suspect.owner));
                self.fence(life, Query::Mark(suspect));
            }
            MemberAction::FinishFence(owner) => self.fence(life, Query::FinishFence(owner)),
            MemberAction::Claim(at_most) => self.enqueue(life, Write::Claim(at_most)),
            MemberAction::Shed(shed) => self.shed(life, shed),
            MemberAction::Gain(shard, term) => {
                if let Some(node) = self.node(life.place) {
                    node.lane.has_seen_claims = false;
                }
                self.read_shard(life, shard, term);
            }
            MemberAction::Stop => self.stops(life.place, "finds that it is fenced"),
            MemberAction::StopForLostClaim(_) => self.stops(life.place, "finds that its claim is lost"),
        }
    }

    fn fence(&mut self, life: Life, query: Query) {
        let no = self.send(life, query);
        if let Some(node) = self.node(life.place) {
            node.beat_thread.insert(no, BeatWork::Fence);
        }
    }

    /// Gives shards away. Some are busy at any time, in turns of some seconds. One that stops waits for no commit.
    fn shed(&mut self, life: Life, shed: Shed) {
        let turn = self.schedule.now() / BUSY_TURN;
        let is_busy = |shard: ShardNo| (u64::from(shard.0) + turn).is_multiple_of(BUSY_ONE_OF);
        let Some(node) = self.node(life.place) else { return };
        let owned: Vec<ShardNo> = node.member.owned().map(|(shard, _)| shard).collect();
        for shard in shed.choose(owned.into_iter().rev(), is_busy) {
            let Some(node) = self.node(life.place) else { return };
            let Some(term) = node.member.release(shard) else { continue };
            node.ready.remove(&shard);
            let is_draining = node.member.is_draining();
            if !is_draining && self.processes[life.place].long_commits_until > self.schedule.now() {
                self.schedule.after(KEEPS_AFTER, Event::Keeps(life, shard));
            } else if self.plan.bug == Some(PlantedClusterBug::ReleaseOutsideLane) {
                self.release_outside_lane(life, shard, term);
            } else {
                self.enqueue(life, Write::Release { shard, term });
            }
        }
    }

    fn release_outside_lane(&mut self, life: Life, shard: ShardNo, term: Term) {
        let Some(owner) = self.node(life.place).map(|node| node.owner) else { return };
        let no = self.send(life, Query::Release { owner, shard, term });
        if let Some(node) = self.node(life.place) {
            node.beat_thread.insert(no, BeatWork::Release(shard, term));
        }
    }

    /// Keeps a shard that was to be given away: the commit under way takes too long. Its own writes come first, as where a run
    /// is claimed again.
    fn keeps(&mut self, life: Life, shard: ShardNo) {
        let Some(node) = self.node(life.place) else { return };
        if node.lane.writes_to(shard) {
            self.schedule.after(KEEPS_AFTER, Event::Keeps(life, shard));
            return;
        }
        self.check_kept(shard);
        let input = match self.plan.bug {
            Some(PlantedClusterBug::KeptShedAtOnce) => MemberInput::Released(shard),
            _ => MemberInput::Kept(shard),
        };
        self.tell(life, input);
    }

    pub(super) fn read_shard(&mut self, life: Life, shard: ShardNo, term: Term) {
        let no = self.send(life, Query::Read(shard));
        let Some(node) = self.node(life.place) else { return };
        node.reading.insert(no, (shard, term));
        node.ready.remove(&shard);
        let route = Route { owner: node.owner, term };
        node.routes.note(shard, route);
    }

    fn leave_if_done(&mut self, life: Life) {
        let Some(node) = self.node(life.place) else { return };
        let is_done = node.member.is_draining() && node.member.owned().count() == 0 && node.lane.is_idle();
        if is_done && node.leaves.is_none() {
            let query = Query::Leave(node.owner);
            let no = self.send(life, query);
            self.node(life.place).expect("it is there").leaves = Some(no);
        }
    }

    fn replied(&mut self, life: Life, no: StatementNo, reply: Reply) {
        if let Reply::Registered(owner) = reply {
            return self.registered(life, owner);
        }
        let Some(node) = self.node(life.place) else {
            // The number was given to nobody.
            self.send(life, Query::Register);
            return;
        };
        if let Some(work) = node.beat_thread.remove(&no) {
            return self.beat_replied(life, work, reply);
        }
        if let Some((shard, term)) = node.reading.remove(&no) {
            return self.shard_read(life, shard, term, reply);
        }
        if node.looks == Some(no) {
            return self.owners_read(life, reply);
        }
        if node.leaves == Some(no) {
            node.leaves = None;
            if matches!(reply, Reply::Done) {
                self.left(life);
            }
            return;
        }
        self.lane_replied(life, no, reply);
    }

    fn beat_replied(&mut self, life: Life, work: BeatWork, reply: Reply) {
        match (work, reply) {
            (BeatWork::Beat(sent), Reply::View(mut view)) => {
                self.look_for_lost_claims(life, sent, &mut view);
                if self.plan.bug == Some(PlantedClusterBug::FenceLeftToBeginner) {
                    view.half_fenced.clear();
                }
                let peers = view.owners.iter().map(|seen| seen.owner).collect();
                self.note_peers(life, peers, sent);
                self.tell(life, MemberInput::Beaten { sent, view });
            }
            (BeatWork::Beat(_), Reply::Fenced) => self.tell(life, MemberInput::Fenced),
            (BeatWork::Beat(_), _) => self.tell(life, MemberInput::BeatLost),
            (BeatWork::Fence, Reply::Marked { owner, holds: true }) => {
                self.fence(life, Query::FinishFence(owner));
            }
            (BeatWork::Fence, _) => {}
            (BeatWork::Release(shard, _), Reply::Written) => self.tell(life, MemberInput::Released(shard)),
            (BeatWork::Release(shard, term), _) => self.release_outside_lane(life, shard, term),
        }
    }

    fn look_for_lost_claims(&mut self, life: Life, sent: Timestamp, view: &mut ClusterView) {
        let is_planted = self.plan.bug == Some(PlantedClusterBug::LostClaimsUnseen);
        let Some(node) = self.node(life.place) else { return };
        if node.member.lost(sent, view).is_none() {
            return;
        }
        if is_planted {
            view.mine.retain(|(shard, _)| node.member.term(*shard).is_none());
            view.mine.extend(node.member.owned());
        }
        let owner = node.owner;
        self.count("claims that were lost");
        self.check_lost_claim(owner);
    }

    fn shard_read(&mut self, life: Life, shard: ShardNo, term: Term, reply: Reply) {
        let Some(node) = self.node(life.place) else { return };
        if node.member.term(shard) != Some(term) {
            return;
        }
        match reply {
            Reply::Read { last } => {
                node.ready.insert(shard, (term, last));
                self.watched.entry(shard).or_default().kept = 0;
            }
            _ => self.read_shard(life, shard, term),
        }
    }
}
