//! The name of a host's process as a proof that a call was not begun. Every order of what a call, its host and the server can
//! do is tried, up to a bound. No call that a process began may be reported as not begun.

use std::collections::{BTreeSet, VecDeque};

use super::bench::{Bench, claim, joining, request};
use crate::host::frame::{CancelCause, Disposition};
use crate::host::io::{FleetInput, HostJoin};
use crate::id::{Attempt, InstanceId};
use crate::time::Millis;

const CALL: &str = "a/1.0";
/// Longest path that is explored.
const DEPTH: usize = 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    /// The run offers its call, if no attempt is open.
    Offer,
    /// The process reads the next frame: begins a call, or gives one up.
    Read,
    /// The process confirms the call that it began.
    Accept,
    /// The stream breaks; frames that were not read are lost.
    Break,
    /// The process connects again.
    Return,
    /// Another process starts under the same host id.
    NewProcess,
    /// Nothing happens for a while.
    Wait,
    /// The run has its attempt stopped at its deadline, which its journal does not say.
    Cancel,
    /// The run's task ends: updates of its calls are lost.
    RunStops,
    /// The run is loaded from its journal.
    RunReturns,
    /// The server is killed and starts again.
    Restart,
}

const MOVES: [Move; 11] = [
    Move::Offer,
    Move::Read,
    Move::Accept,
    Move::Break,
    Move::Return,
    Move::NewProcess,
    Move::Wait,
    Move::Cancel,
    Move::RunStops,
    Move::RunReturns,
    Move::Restart,
];

#[derive(Debug, Clone, Copy)]
enum Sent {
    Call(Attempt),
    Stop(Attempt),
}

struct World {
    bench: Bench,
    connection: u64,
    connected: bool,
    unread: VecDeque<Sent>,
    process: u32,
    forgotten: u32,
    /// Attempts that the process works on.
    in_hand: BTreeSet<Attempt>,
    /// Attempts that any process ever began.
    begun: BTreeSet<Attempt>,
    attempt: Attempt,
    /// True while the journal says that the last attempt is with its host.
    open: bool,
    /// The process that the journal names.
    offered_to: Option<InstanceId>,
    run_is_live: bool,
    in_doubt: bool,
    proofs: usize,
    path: Vec<Move>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            bench: Bench::new(),
            connection: 0,
            connected: false,
            unread: VecDeque::new(),
            process: 1,
            forgotten: 0,
            in_hand: BTreeSet::new(),
            begun: BTreeSet::new(),
            attempt: Attempt::NONE,
            open: false,
            offered_to: None,
            run_is_live: true,
            in_doubt: false,
            proofs: 0,
            path: Vec::new(),
        };
        world.join();
        world
    }

    fn join(&mut self) {
        self.connection += 1;
        self.connected = true;
        let named = |attempt: &Attempt| {
            let current = self.open && *attempt == self.attempt;
            let verdict = if current { Disposition::Continue } else { Disposition::Stop };
            claim(&format!("{CALL}#{attempt}"), false, verdict)
        };
        let claims: Vec<_> = self.in_hand.iter().map(named).collect();
        let name = format!("p{}.{}", self.process, self.forgotten);
        let join = HostJoin {
            instance: Some(InstanceId::parse(name).expect("a good name")),
            claims,
            ..joining(self.connection, "h", 8, &["t"])
        };
        let lines = self.bench.input(FleetInput::Join(Box::new(join)));
        for attempt in self.in_hand.clone() {
            if lines.iter().any(|line| line.contains(&format!("{CALL}#{attempt} Stop"))) {
                self.give_up(attempt);
            }
        }
        self.take(lines);
    }

    fn give_up(&mut self, attempt: Attempt) {
        if self.in_hand.remove(&attempt) {
            self.forgotten += 1;
        }
    }

    /// False if the move is not possible here.
    fn does(&mut self, step: Move) -> bool {
        self.path.push(step);
        match step {
            Move::Offer if self.run_is_live && !self.open => {
                let lines = self.bench.seek(CALL, "t");
                self.take(lines);
            }
            Move::Read if !self.unread.is_empty() => match self.unread.pop_front() {
                Some(Sent::Call(attempt)) => {
                    self.begun.insert(attempt);
                    self.in_hand.insert(attempt);
                }
                Some(Sent::Stop(attempt)) => self.give_up(attempt),
                None => unreachable!("there is one"),
            },
            Move::Accept if self.connected && self.in_hand.contains(&self.attempt) => {
                let lines = self.bench.accept(self.connection, &format!("{CALL}#{}", self.attempt));
                self.take(lines);
            }
            Move::Break if self.connected => {
                self.connected = false;
                self.unread.clear();
                let lines = self.bench.disconnect(self.connection);
                self.take(lines);
            }
            Move::Return if !self.connected => self.join(),
            Move::NewProcess if !self.connected => {
                self.process += 1;
                self.forgotten = 0;
                self.in_hand.clear();
            }
            Move::Wait => {
                let lines = self.bench.pass(Millis::secs(12));
                self.take(lines);
            }
            Move::Cancel if self.run_is_live && self.open => {
                let lines = self.bench.cancel_for(&format!("{CALL}#{}", self.attempt), CancelCause::Deadline);
                self.take(lines);
            }
            Move::RunStops if self.run_is_live => {
                self.run_is_live = false;
                let lines = self.bench.release("a");
                self.take(lines);
            }
            Move::RunReturns if !self.run_is_live => {
                self.run_is_live = true;
                if self.open {
                    let mut request = request(&format!("{CALL}#{}", self.attempt), "h", "t");
                    request.instance.clone_from(&self.offered_to);
                    let lines = self.bench.input(FleetInput::Reclaim(request));
                    self.take(lines);
                }
            }
            Move::Restart => {
                (self.bench, self.connected, self.run_is_live) = (Bench::new(), false, false);
                self.unread.clear();
                self.connection = 0;
            }
            _ => return false,
        }
        true
    }

    fn take(&mut self, lines: Vec<String>) {
        for line in lines {
            if let Some((_, attempt)) = line.split_once(&format!("<- call {CALL}#")) {
                self.unread.push_back(Sent::Call(Attempt(attempt.parse().expect("a number"))));
            } else if let Some((_, attempt)) = line.split_once(&format!("<- cancel {CALL}#")) {
                self.unread.push_back(Sent::Stop(Attempt(attempt.parse().expect("a number"))));
            } else if let Some((_, attempt)) = line.split_once(&format!("<- lease lost {CALL}#")) {
                self.unread.push_back(Sent::Stop(Attempt(attempt.parse().expect("a number"))));
            } else if let Some(process) = line.strip_prefix(&format!("{CALL}: granted h")) {
                let process = process.strip_prefix(" at ");
                self.granted(process.map(|name| InstanceId::parse(name).expect("a good name")));
            } else if let Some((_, lost)) = line.split_once(&format!("{CALL}: lost #")) {
                let (attempt, ran) = lost.split_once(" ran ").expect("it says if it ran");
                self.lost(Attempt(attempt.parse().expect("a number")), ran);
            }
        }
    }

    fn granted(&mut self, at: Option<InstanceId>) {
        if !self.run_is_live || self.open {
            return;
        }
        self.attempt = self.attempt.next();
        self.open = true;
        self.offered_to = at;
        let lines = self.bench.offer(&format!("{CALL}#{}", self.attempt), "h", "t");
        self.take(lines);
    }

    fn lost(&mut self, attempt: Attempt, ran: &str) {
        if ran == "No" {
            assert!(
                !self.begun.contains(&attempt),
                "attempt {attempt} is said not to have begun, and did: {:?}",
                self.path
            );
            self.proofs += 1;
        }
        if self.run_is_live && self.open && attempt == self.attempt {
            self.open = false;
            self.in_doubt |= ran != "No";
        }
    }
}

/// Runs the path, then every path that goes on from there. Returns the number of paths and of proofs.
fn explore(path: &mut Vec<Move>) -> (usize, usize) {
    let mut world = World::new();
    for step in path.iter() {
        if !world.does(*step) {
            return (0, 0);
        }
    }
    let (mut paths, mut proofs) = (1, world.proofs);
    if path.len() < DEPTH && !world.in_doubt {
        for step in MOVES {
            path.push(step);
            let more = explore(path);
            (paths, proofs) = (paths + more.0, proofs + more.1);
            path.pop();
        }
    }
    (paths, proofs)
}

#[test]
fn no_call_that_a_process_began_counts_as_not_begun() {
    let (paths, proofs) = explore(&mut vec![Move::Offer]);
    assert!(paths > 10_000 && proofs > 100, "the search saw next to nothing: {paths} paths, {proofs} proofs");
}

/// A host whose process returns without the call, under this name and that one.
fn returns(first: Option<&str>, then: Option<&str>) -> Vec<String> {
    let named = |name: Option<&str>| name.map(|name| InstanceId::parse(name).expect("a good name"));
    let mut bench = Bench::new();
    let join = |connection, name| {
        FleetInput::Join(Box::new(HostJoin { instance: named(name), ..joining(connection, "h", 8, &["t"]) }))
    };
    bench.input(join(1, first));
    bench.seek(CALL, "t");
    bench.offer(CALL, "h", "t");
    bench.disconnect(1);
    bench.input(join(2, then))
}

#[test]
fn only_the_same_process_proves_that_it_did_not_begin_a_call() {
    let lost = |lines: Vec<String>| lines.last().cloned().unwrap_or_default();
    assert_eq!(lost(returns(Some("p"), Some("p"))), "a/1.0: lost #1 ran No");
    assert_eq!(lost(returns(Some("p"), Some("q"))), "a/1.0: lost #1 ran Maybe");
    assert_eq!(lost(returns(Some("p"), None)), "a/1.0: lost #1 ran Maybe");
    assert_eq!(lost(returns(None, None)), "a/1.0: lost #1 ran Maybe", "an older host proves nothing");
}

#[test]
fn a_late_hello_of_an_earlier_connection_changes_nothing() {
    let mut bench = Bench::new();
    let join = |connection, name: &str, connection_no, claims| {
        let instance = Some(InstanceId::parse(name).expect("a good name"));
        let joining = joining(connection, "h", 8, &["t"]);
        FleetInput::Join(Box::new(HostJoin { instance, connection_no, claims, ..joining }))
    };
    bench.input(join(1, "p", 2, Vec::new()));
    bench.seek(CALL, "t");
    bench.offer(CALL, "h", "t");
    bench.accept(1, CALL);
    let refused =
        |connection| [format!("c{connection} <- protocol error"), format!("c{connection} closed Replaced")];
    assert_eq!(bench.input(join(2, "p", 1, Vec::new())), refused(2), "the newer one is connected");
    bench.disconnect(1);
    assert_eq!(bench.input(join(3, "p", 1, Vec::new())), refused(3), "the call waits for the newest");
    let continued = vec![claim(&format!("{CALL}#1"), false, Disposition::Continue)];
    let lines = bench.input(join(4, "p", 3, continued));
    assert!(lines.iter().any(|line| line.contains("Continue")), "{lines:?}");
    // Another process counts from 1 again.
    let lines = bench.input(join(5, "q", 1, Vec::new()));
    assert!(lines.iter().any(|line| line == "c4 closed Replaced"), "{lines:?}");
}

#[test]
fn the_name_in_the_journal_counts_after_a_restart() {
    let reclaimed = |claimed: bool| {
        let mut bench = Bench::new();
        let instance = Some(InstanceId::parse("p").expect("a good name"));
        let claims = claimed.then(|| claim(CALL, false, Disposition::Continue)).into_iter().collect();
        let join = HostJoin { instance: instance.clone(), claims, ..joining(1, "h", 8, &["t"]) };
        bench.input(FleetInput::Join(Box::new(join)));
        if claimed {
            bench.accept(1, CALL);
            bench.heartbeat(1, &[]);
            bench.heartbeat(1, &[]);
        }
        let mut request = request(CALL, "h", "t");
        request.instance = instance;
        bench.input(FleetInput::Reclaim(request))
    };
    assert_eq!(reclaimed(false), ["a/1.0: lost #1 ran No"]);
    assert_eq!(reclaimed(true), ["a/1.0: lost #1 ran Maybe"], "it had the call after the restart");
}
