//! The load that several replicas over one PostgreSQL carry, on paper ([`Shape::ceilings`]) and by simulation ([`simulate`]).
//!
//! A run begins with reads of the database. Then it is a row of pieces of processor time at its owner, each but the last followed by
//! a write that must be durable, and by the model or the tool. Writes go through the owner's write lanes, one commit at a time in
//! each. A commit is a trip to the database, processor time there, and a flush of its log. Reads have connections of their own. All
//! machines own an equal part of the runs, and calls arrive at all alike. A replica that does not own the run spends time of its own
//! processor on it.
//!
//! The queues and their rules are the model. The [`Costs`] are measured. It says nothing about locks, caches and noise.

mod paper;
mod queue;
mod simulate;

pub use paper::{Ceiling, Part};
pub use simulate::{Seen, simulate};

/// Writes of one commit, at most, as the store on PostgreSQL has it.
pub const COMMIT_WRITES_MAX: usize = 256;
/// The longest wait, in seconds, for as many writes as the commit before had.
pub const GATHER_WAIT: f64 = 0.001;

/// The cost of a run at each part, in seconds and bytes.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    /// Processor time of the owner, for a run whose caller and tool host are at the owner.
    pub owner: f64,
    /// The same, for a run whose caller and tool host are at another replica.
    pub owner_sent_on: f64,
    /// Processor time of that other replica.
    pub sends_on: f64,
    /// Processor time of the replica that keeps the tool hosts, for the calls of a run that another one owns.
    pub hub: f64,
    /// Writes of a run that must be durable. There is one more piece of the owner's time.
    pub writes: usize,
    /// Processor time of the database for a commit, whatever it holds.
    pub commit: f64,
    /// More of it for each write of the commit.
    pub write: f64,
    /// Reads that a run begins with, one after another. Each is a trip.
    pub reads: usize,
    /// Processor time of the database for each read.
    pub read: f64,
    /// Processor time of the database for all else about a run. Nothing waits for it.
    pub rest: f64,
    /// Time to flush the database's log to the disk.
    pub flush: f64,
    /// Time for a message to another machine and back.
    pub trip: f64,
    /// Bytes of the database's log.
    pub log: f64,
    /// Bytes over the owner's network device.
    pub network: f64,
    /// Time of an answer of the model. After each write comes the model or the tool, in turn.
    pub model: f64,
    /// Time of an answer of the tool.
    pub tool: f64,
}

impl Costs {
    /// Measured with the example `replica-costs` of the tests and the benchmark's W1, but for `hub`, `flush`, `trip`, `model` and
    /// `tool`, which are assumed: see `server/docs/internals/capacity.md`.
    pub const MEASURED: Self = Self {
        owner: 700e-6,
        owner_sent_on: 640e-6,
        sends_on: 180e-6,
        hub: 100e-6,
        writes: 4,
        commit: 520e-6,
        write: 56e-6,
        reads: 0,
        read: 0.0,
        rest: 95e-6,
        flush: 500e-6,
        trip: 300e-6,
        log: 9_700.0,
        network: 21_000.0,
        model: 0.5,
        tool: 0.05,
    };

    /// Processor time of the database for a run with so many commits, or such a part of one that runs share.
    #[must_use]
    pub fn database(&self, commits: f64) -> f64 {
        self.commit * commits + self.write * self.writes as f64 + self.read * self.reads as f64 + self.rest
    }
}

/// The machines, each with a replica that owns an equal part of the runs. The database has a machine of its own, with as many cores
/// as each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Number of machines with a replica each.
    pub machines: usize,
    /// Number of cores of each machine.
    pub cores: usize,
    /// Write lanes of each owner: connections that commit. One is built.
    pub lanes: usize,
    /// Writes of one commit, at most.
    pub commit_writes: usize,
}

impl Shape {
    /// Commits are as large as those of the store on PostgreSQL.
    #[must_use]
    pub fn new(machines: usize, cores: usize, lanes: usize) -> Self {
        Self { machines, cores, lanes, commit_writes: COMMIT_WRITES_MAX }
    }

    /// The part of the runs that arrive at a replica which does not own them.
    fn sent_on(self) -> f64 {
        1.0 - 1.0 / self.machines as f64
    }
}

/// The spread of the pieces of processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Each piece takes the mean.
    Equal,
    /// Random, by an exponential distribution: many are short, few are long.
    Exponential,
}
