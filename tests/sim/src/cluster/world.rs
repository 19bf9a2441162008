//! One seed from its first event to its last.

use std::collections::BTreeMap;

use agentloop_core::cluster::shard::{OwnerNo, ShardNo};
use agentloop_core::cluster::terms::TermsSeen;

use super::callers::Caller;
use super::check::Watched;
use super::database::Database;
use super::plan::{ClusterPlant, Plan};
use super::process::{Life, Process};
use super::room::Link;
use super::schedule::{Event, Log, Schedule};
use crate::random::Random;

/// No faults after this time.
const CALM_AT: u64 = 90_000;
/// No new calls after this time.
const QUIET_AT: u64 = 150_000;
const END_AT: u64 = 170_000;
const LOOK_EVERY: u64 = 250;

/// Options for running a seed.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClusterOptions {
    /// True prints every line of the trace.
    pub trace: bool,
    /// A fault that is built in on purpose.
    pub plant: Option<ClusterPlant>,
}

/// The result of a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterOutcome {
    /// The violations found; empty if there are none.
    pub problems: Vec<String>,
    /// Digest of the whole trace. Equal histories have equal digests.
    pub digest: u64,
    /// Lines of the trace.
    pub lines: u64,
    /// The last of them.
    pub tail: Vec<String>,
    /// Number of times that each thing happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// Milliseconds from the failure of a shard's owner to the next event of another owner, of each takeover during which
    /// some replica was well throughout.
    pub takeovers: Vec<u64>,
}

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) random: Random,
    pub(super) schedule: Schedule,
    pub(super) database: Database,
    pub(super) processes: Vec<Process>,
    /// The process of each owner.
    pub(super) lives: BTreeMap<OwnerNo, Life>,
    pub(super) links: BTreeMap<(OwnerNo, OwnerNo), Link>,
    pub(super) callers: Vec<Caller>,
    pub(super) calls: u64,
    pub(super) statements: u64,
    pub(super) receiver: TermsSeen,
    pub(super) watched: BTreeMap<ShardNo, Watched>,
    pub(super) takeovers: Vec<u64>,
    pub(super) is_calm: bool,
    log: Log,
    problems: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
}

/// Runs the simulation of a seed.
#[must_use]
pub fn simulate_cluster(seed: u64, options: ClusterOptions) -> ClusterOutcome {
    let mut world = World::new(Plan::draw(seed, options.plant), seed, options.trace);
    world.run();
    ClusterOutcome {
        problems: world.problems,
        digest: world.log.digest(),
        lines: world.log.lines,
        tail: world.log.tail(),
        counts: world.counts,
        takeovers: world.takeovers,
    }
}

impl World {
    fn new(plan: Plan, seed: u64, trace: bool) -> Self {
        let process = |place| Process { place, ..Process::default() };
        let caller = Caller { call: 0, place: 0, shard: ShardNo(0), asks_since: None };
        Self {
            random: Random::of(seed, "cluster"),
            schedule: Schedule::default(),
            database: Database::new(plan.shards),
            processes: (0..plan.replicas).map(process).collect(),
            lives: BTreeMap::new(),
            links: BTreeMap::new(),
            callers: vec![caller; plan.callers],
            calls: 0,
            statements: 0,
            receiver: TermsSeen::default(),
            watched: BTreeMap::new(),
            takeovers: Vec::new(),
            is_calm: false,
            log: Log::new(trace),
            problems: Vec::new(),
            counts: BTreeMap::new(),
            plan,
        }
    }

    fn run(&mut self) {
        let plan = format!("{:?}", self.plan);
        self.trace(&plan);
        for place in 0..self.processes.len() {
            let start = self.random.below(2_000);
            self.schedule.at(start, Event::Starts(place));
        }
        for caller in 0..self.callers.len() {
            self.schedule.at(1_000, Event::Calls(caller));
        }
        self.schedule.at(2_000, Event::Fault);
        self.schedule.at(CALM_AT, Event::Calm);
        self.schedule.at(LOOK_EVERY, Event::Look);
        while let Some(event) = self.schedule.pop(END_AT) {
            self.handle(event);
            // One problem is enough.
            if !self.problems.is_empty() {
                return;
            }
        }
        self.check_end();
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Starts(place) => self.starts(place),
            Event::AtDatabase(statement) => self.arrives_at_database(*statement),
            Event::Commits(lane, no) => self.commits(lane, no),
            Event::Terminates(lane, no) => self.terminates(lane, no),
            Event::Received(frame) => self.received(&frame),
            Event::Calls(caller) => self.calls(caller),
            Event::Fault => self.fault(),
            Event::Thaws(life) => self.thaws(life),
            Event::RuntimeGoesOn(life) => self.runtime_goes_on(life),
            Event::Look => {
                self.look();
                self.schedule.after(LOOK_EVERY, Event::Look);
            }
            Event::Calm => {
                self.trace("no more faults");
                self.is_calm = true;
                self.plan.connection_breaks = 0;
            }
            Event::BeatThread(life)
            | Event::Runtime(life)
            | Event::Replied(life, ..)
            | Event::Arrives(life, _)
            | Event::Leaves(life, _) => self.happens(life, event),
        }
    }

    /// True while callers come.
    pub(super) fn is_busy(&self) -> bool {
        self.schedule.now() < QUIET_AT
    }

    pub(super) fn trace(&mut self, what: &str) {
        self.log.line(self.schedule.now(), what);
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(super) fn problem(&mut self, what: String) {
        self.trace(&format!("PROBLEM: {what}"));
        self.problems.push(what);
    }
}
