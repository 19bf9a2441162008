//! The most that each part carries, by division.

use super::{Costs, Shape};

/// A part that may be full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The cores of a machine with a replica.
    OwnerCores,
    /// The cores of the machine that keeps the tool hosts.
    HubCores,
    /// The connections that commit.
    WriteLanes,
    /// The cores of the database's machine.
    DatabaseCores,
}

impl Part {
    /// Every part, in the order in which tables show them.
    pub const ALL: [Part; 4] = [Part::OwnerCores, Part::HubCores, Part::WriteLanes, Part::DatabaseCores];

    /// Its name in a table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Part::OwnerCores => "owners' cores",
            Part::HubCores => "tool hosts' machine",
            Part::WriteLanes => "write lanes",
            Part::DatabaseCores => "database's cores",
        }
    }
}

/// The most runs per second that a part carries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceiling {
    /// The part that is full at this many runs.
    pub part: Part,
    /// Runs per second of all machines together.
    pub runs: f64,
}

impl Shape {
    /// The ceiling of each part, the lowest first.
    #[must_use]
    pub fn ceilings(self, costs: &Costs) -> Vec<Ceiling> {
        let mut all: Vec<_> =
            Part::ALL.into_iter().map(|part| Ceiling { part, runs: self.ceiling(part, costs) }).collect();
        all.sort_by(|one, other| one.runs.total_cmp(&other.runs));
        all
    }

    fn ceiling(self, part: Part, costs: &Costs) -> f64 {
        let (machines, cores) = (self.machines as f64, self.cores as f64);
        let sent_on = self.sent_on();
        let owned = costs.owner * (1.0 - sent_on) + costs.owner_sent_on * sent_on;
        let on_each = (owned + costs.sends_on * sent_on) / machines;
        let largest = self.commit_writes as f64;
        match part {
            Part::OwnerCores => cores / on_each,
            Part::HubCores if self.machines == 1 => f64::INFINITY,
            Part::HubCores => cores / (on_each + costs.hub * sent_on),
            Part::WriteLanes => {
                let lanes = machines * self.lanes as f64;
                // Beside other lanes, a commit also waits for the flush that is under way, at worst for all of it.
                let flushes = if lanes > 1.0 { 2.0 } else { 1.0 };
                let commit = costs.trip + costs.commit + costs.write * largest + costs.flush * flushes;
                lanes * largest / commit / costs.writes as f64
            }
            Part::DatabaseCores => cores / costs.database(costs.writes as f64 / largest),
        }
    }
}
