//! One seed from its first event to its last.

use super::plan::{FaultKind, Plan, PlantedClusterBug};
use super::schedule::Event;
use super::world::{ClusterOutcome, World};

/// No faults after this time.
const CALM_AT: u64 = 90_000;
const END_AT: u64 = 170_000;
const LOOK_EVERY: u64 = 250;

/// Options for running a seed.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClusterOptions {
    /// True prints every line of the trace.
    pub trace: bool,
    /// A fault that is built in on purpose.
    pub bug: Option<PlantedClusterBug>,
    /// True if an asynchronous standby takes the primary's place again and again. Acknowledged writes are lost then, and what
    /// follows from that is not checked.
    pub goes_back: bool,
}

/// Runs the simulation of a seed.
#[must_use]
pub fn simulate_cluster(seed: u64, options: ClusterOptions) -> ClusterOutcome {
    let mut world = World::new(Plan::draw(seed, options.bug, options.goes_back), seed, options.trace);
    world.run();
    world.outcome()
}

impl World {
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
        if self.plan.kinds.contains(&FaultKind::GoesBack) {
            self.schedule.at(0, Event::Ships);
        }
        while let Some(event) = self.schedule.pop(END_AT) {
            self.handle(event);
            // One problem is enough.
            if self.has_problem() {
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
            Event::Ships => self.ships(),
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
            | Event::Keeps(life, _)
            | Event::Arrives(life, _)
            | Event::Leaves(life, _) => self.handle_event(life, event),
        }
    }
}
