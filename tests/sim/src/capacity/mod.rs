//! The load that several replicas over one PostgreSQL carry, on paper ([`Shape::ceilings`]) and by simulation ([`simulate`]).
//!
//! A run is a row of pieces of processor time at its owner, each but the last followed by a write that must be durable, and by
//! the model or the tool. Writes go through the owner's write lanes, one commit at a time in each. A commit is a trip to the
//! database, processor time there, and a flush of its log. Calls arrive at all replicas alike. A replica that does not own the
//! run's shard spends time of its own processor on it.
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
    pub standby: f64,
    /// Processor time of the replica that keeps the tool hosts, for the calls of a run that another one owns.
    pub hub: f64,
    /// Writes of a run that must be durable. There is one more piece of the owner's time.
    pub writes: usize,
    /// Processor time of the database for a commit, whatever it holds.
    pub commit: f64,
    /// More of it for each write of the commit.
    pub write: f64,
    /// Processor time of all other processes of the database, for each write.
    pub database: f64,
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

/// The machines. The database has one of its own, with as many cores as each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Number of machines with a replica each.
    pub machines: usize,
    /// Number of cores of each machine.
    pub cores: usize,
    /// Replicas that own shards, from the first machine on.
    pub owners: usize,
    /// Write lanes of each owner: connections that commit.
    pub lanes: usize,
    /// Writes of one commit, at most.
    pub commit_writes: usize,
}

impl Shape {
    /// One owner with one lane, as it was built first.
    #[must_use]
    pub fn one_owner(machines: usize, cores: usize) -> Self {
        Self { machines, cores, owners: 1, lanes: 1, commit_writes: COMMIT_WRITES_MAX }
    }

    /// Each replica owns an equal part of the shards. This is built, with one lane each.
    #[must_use]
    pub fn all_own(machines: usize, cores: usize, lanes: usize) -> Self {
        Self { owners: machines, lanes, ..Self::one_owner(machines, cores) }
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
