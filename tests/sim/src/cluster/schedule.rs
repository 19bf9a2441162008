//! The queue of everything that is to happen, and the trace of what has happened.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hasher as _};

use agentloop_core::cluster::shard::{OwnerNo, ShardNo};

use super::database::{Reply, Statement, StatementNo};
use super::frame::{Frame, Life};

/// Lines that are kept for whoever looks at a failure.
const TAIL_LINES: usize = 60;

/// Something that is to happen.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A process starts in this place.
    Starts(usize),
    /// The thread that beats looks if it has something to do.
    BeatThread(Life),
    /// The runtime of a process does its work.
    Runtime(Life),
    /// A statement reaches the database.
    AtDatabase(Box<Statement>),
    /// A transaction that was open is committed.
    Commits(OwnerNo, StatementNo),
    /// Somebody who waits for a lane ends the connection that holds it.
    Terminates(OwnerNo, StatementNo),
    /// The response to a statement, or word that there will be none.
    Replied(Life, StatementNo, Reply),
    /// A frame arrives from another replica or a caller.
    Arrives(Life, Frame),
    /// A replica keeps a shard that it was to give away.
    Keeps(Life, ShardNo),
    /// Bytes leave the process, after it was checked that they may.
    Leaves(Life, Frame),
    /// A frame reaches the receiver outside.
    Received(Frame),
    /// A caller makes its next attempt.
    Calls(usize),
    /// The next fault of the plan begins.
    Fault,
    /// The standby gets the state of the database.
    Ships,
    /// A frozen process, or a runtime that stood still, goes on.
    Thaws(Life),
    RuntimeGoesOn(Life),
    /// The checks that look at the time.
    Look,
    /// No more faults from now on.
    Calm,
}

/// The queue. Events of one moment happen in the order in which they were put in.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    now: u64,
    next: u64,
    events: BTreeMap<(u64, u64), Event>,
}

impl Schedule {
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn after(&mut self, milliseconds: u64, event: Event) {
        self.at(self.now + milliseconds, event);
    }

    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.next += 1;
        self.events.insert((time.max(self.now), self.next), event);
    }

    pub(super) fn pop(&mut self, end: u64) -> Option<Event> {
        let ((time, _), event) = self.events.pop_first()?;
        self.now = time;
        (time <= end).then_some(event)
    }
}

/// The trace. Equal simulations have equal traces.
#[derive(Debug, Default)]
pub(super) struct Log {
    loud: bool,
    digest: DefaultHasher,
    pub(super) lines: u64,
    tail: VecDeque<String>,
}

impl Log {
    pub(super) fn new(loud: bool) -> Self {
        Self { loud, ..Self::default() }
    }

    pub(super) fn line(&mut self, now: u64, what: &str) {
        let line = format!("{:>8}.{:03} {what}", now / 1_000, now % 1_000);
        if self.loud {
            println!("{line}");
        }
        self.digest.write(line.as_bytes());
        self.lines += 1;
        if self.tail.len() == TAIL_LINES {
            self.tail.pop_front();
        }
        self.tail.push_back(line);
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    pub(super) fn tail(&self) -> Vec<String> {
        self.tail.iter().cloned().collect()
    }
}
