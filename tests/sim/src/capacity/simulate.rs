//! Runs through the queues, from a seed.

use std::collections::VecDeque;

use super::queue::{Agenda, Cores};
use super::{Costs, GATHER_WAIT, Shape, Spread};
use crate::random::Random;

/// Seconds at the begin that do not count, as the queues fill.
const WARM_UP: f64 = 4.0;

/// The outcome of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Runs that ended in a second.
    pub runs: f64,
    /// Mean time of a run in seconds, without that of models and tools.
    pub mean: f64,
    /// The time that half of the runs are below.
    pub p50: f64,
    /// The time that 99 of 100 runs are below.
    pub p99: f64,
    /// The part of the time that the first machine's cores were busy.
    pub owner: f64,
    /// The part of the time that the first machine's first lane was in a commit.
    pub lane: f64,
    /// The part of the time that the database's cores were busy.
    pub database: f64,
    /// Writes of a commit.
    pub commit_writes: f64,
    /// Runs that were under way, on average, those that wait for models and tools too.
    pub live: f64,
}

/// Lets runs arrive at random, so many in a second, for so many seconds after a warm-up.
///
/// # Panics
/// When a shape has no machine, core or lane.
#[must_use]
pub fn simulate(costs: &Costs, shape: Shape, spread: Spread, rate: f64, seconds: f64, seed: u64) -> Seen {
    assert!(
        shape.machines > 0 && shape.cores > 0 && shape.lanes > 0 && shape.commit_writes > 0,
        "there is something to do the work"
    );
    let lane = || Lane { waiting: VecDeque::new(), state: State::Idle, last: 0, begun: 0, busy: 0.0 };
    let mut world = World {
        costs: *costs,
        shape,
        spread,
        random: Random::new(seed),
        agenda: Agenda::new(),
        runs: Vec::new(),
        machines: (0..shape.machines).map(|_| Cores::new(shape.cores)).collect(),
        database: Cores::new(shape.cores),
        lanes: (0..shape.machines * shape.lanes).map(|_| lane()).collect(),
        flushing: Vec::new(),
        to_flush: Vec::new(),
        commits: 0,
        writes: 0,
        times: Vec::new(),
        count: false,
        live: 0,
    };
    world.agenda.note(0.0, Event::Arrival);
    let mut before = None;
    let (mut live, mut at, end) = (0.0, WARM_UP, WARM_UP + seconds);
    while let Some((now, event)) = world.agenda.next() {
        if now >= WARM_UP && before.is_none() {
            before = Some(world.tally());
            world.count = true;
        }
        if before.is_some() {
            live += f64::from(world.live) * (now.min(end) - at);
            at = now;
        }
        if now >= end {
            break;
        }
        if matches!(event, Event::Arrival) {
            let next = now + world.random.exponential(1.0 / rate);
            world.agenda.note(next, Event::Arrival);
        }
        world.handle_event(now, event);
    }
    world.seen(&before.expect("arrivals never end"), seconds, live / seconds)
}

/// A change that the agenda has for a certain time.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// A new run arrives at one of the machines.
    Arrival,
    /// A core of this machine ends a piece of this run.
    Worked { machine: usize, run: usize },
    /// The run goes on after a wait for a message, the model or the tool.
    Waited { run: usize },
    /// A read of this run has reached the database.
    Asked { run: usize },
    /// The wait for more writes is over, if the lane has begun no commit since.
    Gathered { lane: usize, begun: u64 },
    /// The commit of this lane has reached the database.
    Sent { lane: usize },
    /// A core of the database ends its work.
    Computed { work: Work },
    /// The flush is done.
    Flushed,
    /// The answer to the commit of this lane is back.
    Answered { lane: usize },
}

/// Work of the database's cores.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// The commit of a lane.
    Commit { lane: usize },
    /// A read of a run.
    Read { run: usize },
    /// All that nothing waits for.
    Else,
}

/// A step of a run. After the last it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It waits for a read of the database.
    Read,
    /// The replica that the caller or the tool host is at works.
    SendsOn,
    /// The same, and the message is on its way to the owner.
    Travels,
    /// The owner's cores work on it.
    Owner,
    /// Its write waits for a lane, or is in a commit.
    Write,
    /// The model or the tool works.
    Elsewhere,
}

#[derive(Debug)]
struct Run {
    arrived: f64,
    /// Time in models and tools.
    elsewhere: f64,
    owner: usize,
    /// The machine that it arrived at.
    at: usize,
    /// Reads that are done.
    read: usize,
    /// Writes that are done.
    written: usize,
    step: Step,
}

/// A connection that commits.
#[derive(Debug)]
struct Lane {
    waiting: VecDeque<usize>,
    state: State,
    /// Writes of the last commit.
    last: usize,
    /// Commits that were begun.
    begun: u64,
    busy: f64,
}

#[derive(Debug)]
enum State {
    Idle,
    Gathering,
    Committing { since: f64, runs: Vec<usize> },
}

/// The times that parts were busy up to a moment, and the commits until then.
struct Tally {
    machine: f64,
    database: f64,
    lane: f64,
    commits: u64,
    writes: u64,
}

struct World {
    costs: Costs,
    shape: Shape,
    spread: Spread,
    random: Random,
    agenda: Agenda<Event>,
    runs: Vec<Run>,
    machines: Vec<Cores<usize>>,
    database: Cores<Work>,
    lanes: Vec<Lane>,
    /// Lanes whose commits are being flushed, and those that wait for the next flush.
    flushing: Vec<usize>,
    to_flush: Vec<usize>,
    commits: u64,
    writes: u64,
    times: Vec<f64>,
    /// False in the warm-up.
    count: bool,
    live: u32,
}

impl World {
    fn handle_event(&mut self, now: f64, event: Event) {
        match event {
            Event::Arrival => self.arrives(now),
            Event::Worked { machine, run } => {
                if let Some((length, next)) = self.machines[machine].ends() {
                    self.agenda.note(now + length, Event::Worked { machine, run: next });
                }
                self.begin_next_step(now, run);
            }
            Event::Waited { run } => self.begin_next_step(now, run),
            Event::Gathered { lane, begun } => {
                if self.lanes[lane].begun == begun && matches!(self.lanes[lane].state, State::Gathering) {
                    self.commits(now, lane);
                }
            }
            Event::Sent { lane } => {
                let State::Committing { runs, .. } = &self.lanes[lane].state else { return };
                let length = self.costs.commit + self.costs.write * runs.len() as f64;
                self.computes(now, length, Work::Commit { lane });
            }
            Event::Asked { run } => self.computes(now, self.costs.read, Work::Read { run }),
            Event::Computed { work } => {
                if let Some((length, work)) = self.database.ends() {
                    self.agenda.note(now + length, Event::Computed { work });
                }
                match work {
                    Work::Commit { lane } => {
                        self.to_flush.push(lane);
                        self.flushes(now);
                    }
                    Work::Read { run } => {
                        self.runs[run].read += 1;
                        self.agenda.note(now + self.costs.trip / 2.0, Event::Waited { run });
                    }
                    Work::Else => {}
                }
            }
            Event::Flushed => {
                for lane in std::mem::take(&mut self.flushing) {
                    self.agenda.note(now + self.costs.trip / 2.0, Event::Answered { lane });
                }
                self.flushes(now);
            }
            Event::Answered { lane } => {
                let state = std::mem::replace(&mut self.lanes[lane].state, State::Idle);
                let State::Committing { since, runs } = state else { return };
                self.lanes[lane].busy += now - since;
                for run in runs {
                    self.runs[run].written += 1;
                    self.begin_next_step(now, run);
                }
                self.gathers(now, lane);
            }
        }
    }

    fn arrives(&mut self, now: f64) {
        let owner = self.random.place(self.shape.machines);
        let at = self.random.place(self.shape.machines);
        let run = self.runs.len();
        self.runs.push(Run {
            arrived: now,
            elsewhere: 0.0,
            owner,
            at,
            read: 0,
            written: 0,
            step: Step::Read,
        });
        self.live += 1;
        self.computes(now, self.costs.rest, Work::Else);
        self.begin_next_step(now, run);
    }

    /// Begins the step after the one that a run has ended.
    fn begin_next_step(&mut self, now: f64, run: usize) {
        let Run { step, read, written, .. } = self.runs[run];
        match step {
            Step::Read if read == self.costs.reads => self.reaches_owner(now, run),
            Step::Read => self.agenda.note(now + self.costs.trip / 2.0, Event::Asked { run }),
            Step::SendsOn => {
                self.runs[run].step = Step::Travels;
                self.agenda.note(now + self.costs.trip / 2.0, Event::Waited { run });
            }
            Step::Travels => self.works(now, run),
            Step::Owner if written == self.costs.writes => self.ends(now, run),
            Step::Owner => {
                self.runs[run].step = Step::Write;
                // A run has one lane, so its writes keep their order.
                let lane = self.runs[run].owner * self.shape.lanes + run % self.shape.lanes;
                self.lanes[lane].waiting.push_back(run);
                self.gathers(now, lane);
            }
            // The last piece only tells what the last write made durable.
            Step::Write if written == self.costs.writes => self.works(now, run),
            Step::Write => {
                let length = if written % 2 == 1 { self.costs.model } else { self.costs.tool };
                let run_of = &mut self.runs[run];
                run_of.step = Step::Elsewhere;
                run_of.elsewhere += length;
                self.agenda.note(now + length, Event::Waited { run });
            }
            // The result of a tool comes through the replica that its host is at.
            Step::Elsewhere if written % 2 == 0 => self.reaches_owner(now, run),
            Step::Elsewhere => self.works(now, run),
        }
    }

    /// Something for a run comes to the replica that its caller and its tool host are at.
    fn reaches_owner(&mut self, now: f64, run: usize) {
        let Run { owner, at, .. } = self.runs[run];
        if owner == at {
            return self.works(now, run);
        }
        self.runs[run].step = Step::SendsOn;
        // It comes once at the start, and once for each tool call.
        let times = self.costs.writes.div_ceil(2).max(1);
        self.piece(now, at, self.costs.sends_on / times as f64, run);
    }

    fn works(&mut self, now: f64, run: usize) {
        let Run { owner, at, .. } = self.runs[run];
        self.runs[run].step = Step::Owner;
        let whole = if owner == at { self.costs.owner } else { self.costs.owner_sent_on };
        self.piece(now, owner, whole / (self.costs.writes + 1) as f64, run);
    }

    fn piece(&mut self, now: f64, machine: usize, mean: f64, run: usize) {
        let length = match self.spread {
            Spread::Equal => mean,
            Spread::Exponential => self.random.exponential(mean),
        };
        if let Some((length, run)) = self.machines[machine].takes(length, run) {
            self.agenda.note(now + length, Event::Worked { machine, run });
        }
    }

    fn ends(&mut self, now: f64, run: usize) {
        self.live -= 1;
        let Run { arrived, elsewhere, .. } = self.runs[run];
        if self.count {
            self.times.push(now - arrived - elsewhere);
        }
    }

    /// A lane that is idle begins to wait for writes, or commits those that it has.
    fn gathers(&mut self, now: f64, lane: usize) {
        let of = &mut self.lanes[lane];
        let enough = of.waiting.len() >= of.last.min(self.shape.commit_writes);
        match of.state {
            State::Committing { .. } => {}
            State::Idle | State::Gathering if of.waiting.is_empty() => of.state = State::Idle,
            State::Idle | State::Gathering if enough => self.commits(now, lane),
            State::Idle => {
                of.state = State::Gathering;
                self.agenda.note(now + GATHER_WAIT, Event::Gathered { lane, begun: of.begun });
            }
            State::Gathering => {}
        }
    }

    fn commits(&mut self, now: f64, lane: usize) {
        let of = &mut self.lanes[lane];
        let count = of.waiting.len().min(self.shape.commit_writes);
        let runs: Vec<_> = of.waiting.drain(..count).collect();
        of.last = runs.len();
        of.begun += 1;
        self.commits += 1;
        self.writes += runs.len() as u64;
        of.state = State::Committing { since: now, runs };
        self.agenda.note(now + self.costs.trip / 2.0, Event::Sent { lane });
    }

    fn computes(&mut self, now: f64, length: f64, work: Work) {
        if let Some((length, work)) = self.database.takes(length, work) {
            self.agenda.note(now + length, Event::Computed { work });
        }
    }

    /// All commits that wait share one flush, and a flush waits for the one before.
    fn flushes(&mut self, now: f64) {
        if self.flushing.is_empty() && !self.to_flush.is_empty() {
            self.flushing = std::mem::take(&mut self.to_flush);
            self.agenda.note(now + self.costs.flush, Event::Flushed);
        }
    }

    fn tally(&self) -> Tally {
        Tally {
            machine: self.machines[0].busy,
            database: self.database.busy,
            lane: self.lanes[0].busy,
            commits: self.commits,
            writes: self.writes,
        }
    }

    fn seen(mut self, before: &Tally, seconds: f64, live: f64) -> Seen {
        self.times.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let last = self.times.len().saturating_sub(1);
            self.times.get((last as f64 * share) as usize).copied().unwrap_or(f64::NAN)
        };
        let commits = (self.commits - before.commits).max(1);
        Seen {
            runs: self.times.len() as f64 / seconds,
            mean: self.times.iter().sum::<f64>() / self.times.len() as f64,
            p50: at(0.5),
            p99: at(0.99),
            owner: self.machines[0].utilisation(before.machine, seconds),
            lane: (self.lanes[0].busy - before.lane) / seconds,
            database: self.database.utilisation(before.database, seconds),
            commit_writes: (self.writes - before.writes) as f64 / commits as f64,
            live,
        }
    }
}

impl Random {
    /// From 0 to 1, without either.
    fn part(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Times between things that happen independently of each other, with this mean.
    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.part().ln()
    }

    /// One of so many places.
    fn place(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).expect("below a usize")
    }
}
