//! The state of a simulation, which all its parts work on.

use std::collections::BTreeMap;

use agentloop_core::cluster::shard::{OwnerNo, ShardNo, Term};

use super::database::{BatchNo, Database};
use super::frame::Life;
use super::plan::Plan;
use super::process::Process;
use super::room::Link;
use super::schedule::{Log, Schedule};
use super::standby::Standby;
use super::terms::TermsSeen;
use crate::random::Random;

/// No new calls after this time.
const QUIET_AT: u64 = 150_000;

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

/// Everything that a simulation consists of.
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
    pub(super) standby: Standby,
    /// The last time that the database was away from everybody for so long that each replica has a gap in its beats.
    pub(super) away: Option<Away>,
    log: Log,
    problems: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    pub(super) call: u64,
    pub(super) place: usize,
    pub(super) shard: ShardNo,
    /// When it first sent its call to this process; `None` between two calls.
    pub(super) waits_since: Option<u64>,
}

/// A time in which nobody reached the database.
#[derive(Debug, Clone, Copy)]
pub(super) struct Away {
    pub(super) since: u64,
    pub(super) until: u64,
}

/// Facts that the checks remember of a shard.
#[derive(Debug, Default, Clone)]
pub(super) struct Watched {
    pub(super) free_since: Option<u64>,
    pub(super) unserved_since: Option<u64>,
    pub(super) claimed_at: u64,
    /// Since when more than one replica would act for it.
    pub(super) shared_since: Option<u64>,
    pub(super) accepted: Term,
    /// Times that its owner has kept it since it was last served.
    pub(super) kept: u32,
    pub(super) owners: BTreeMap<Term, OwnerNo>,
    pub(super) acknowledged: BTreeMap<u64, (OwnerNo, BatchNo)>,
    /// When its owner failed, and the term that it had then, until somebody writes again.
    pub(super) failed: Option<(u64, Term)>,
}

impl World {
    pub(super) fn new(plan: Plan, seed: u64, trace: bool) -> Self {
        let process = |place| Process { place, ..Process::default() };
        let caller = Caller { call: 0, place: 0, shard: ShardNo(0), waits_since: None };
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
            standby: Standby::default(),
            away: None,
            log: Log::new(trace),
            problems: Vec::new(),
            counts: BTreeMap::new(),
            plan,
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
    /// True once there was a violation.
    pub(super) fn has_problem(&self) -> bool {
        !self.problems.is_empty()
    }

    pub(super) fn outcome(self) -> ClusterOutcome {
        ClusterOutcome {
            problems: self.problems,
            digest: self.log.digest(),
            lines: self.log.lines,
            tail: self.log.tail(),
            counts: self.counts,
            takeovers: self.takeovers,
        }
    }
}
