//! Random inputs from a seed. After every step the pool's invariants are checked. This file also checks that every run
//! gets the updates that it waits for, and that nothing is left at the end.

use std::collections::BTreeMap;

use super::bench::{Bench, call, call_ref, claim, host, joining};
use crate::host::frame::{CancelCause, CancelOutcome, Disposition, HostFrame, RejectReason};
use crate::host::{ConnectionId, FleetInput, FleetOptions, HostJoin};
use crate::id::Attempt;
use crate::time::Millis;

/// `SplitMix64`: small, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.roll(from.len() as u64)).unwrap()]
    }
}

/// State of a call as its run knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CallView {
    Seeking,
    Granted(String),
    /// Offered to a host, and not over as far as the run knows.
    Offered {
        host: String,
        attempt: Attempt,
    },
}

struct Stream {
    host: &'static str,
    /// Credit that the host gave in all.
    credit: u64,
    /// Calls that were sent on the stream.
    sent: u64,
}

struct World {
    bench: Bench,
    dice: Dice,
    calls: BTreeMap<String, CallView>,
    attempts: BTreeMap<String, Attempt>,
    /// Open connections by number.
    streams: BTreeMap<u64, Stream>,
    connections: u64,
    log: Vec<String>,
}

const HOSTS: [&str; 3] = ["h", "g", "f"];
const TOOLS: [&str; 3] = ["t", "u*2", "v@2"];

/// The tool of a call never changes; nobody serves `w`.
fn tool_of(id: &str) -> &'static str {
    ["t", "u", "v", "w"][usize::from(id.as_bytes()[id.len() - 1] & 3)]
}

impl World {
    fn new(seed: u64) -> Self {
        let options = FleetOptions { queue_per_tool: 5, ..FleetOptions::default() };
        Self {
            bench: Bench::with(options),
            dice: Dice(seed),
            calls: BTreeMap::new(),
            attempts: BTreeMap::new(),
            streams: BTreeMap::new(),
            connections: 0,
            log: Vec::new(),
        }
    }

    fn call(&mut self) -> String {
        let run = self.dice.pick(&["a", "b", "c"]);
        format!("{run}/1.{}", self.dice.roll(4))
    }

    fn stream(&mut self) -> Option<u64> {
        let streams: Vec<u64> = self.streams.keys().copied().collect();
        (!streams.is_empty()).then(|| self.dice.pick(&streams))
    }

    /// A stream and a call: mostly a call that is on that stream.
    fn stream_and_call(&mut self) -> Option<(u64, String)> {
        let given: Vec<(u64, String)> = self
            .calls
            .iter()
            .filter_map(|(id, known)| {
                let CallView::Offered { host, .. } = known else { return None };
                let stream = self.streams.iter().find(|(_, stream)| stream.host == host)?;
                Some((*stream.0, id.clone()))
            })
            .collect();
        if !given.is_empty() && self.dice.roll(4) > 0 {
            let index = self.dice.roll(given.len() as u64);
            return given.into_iter().nth(usize::try_from(index).unwrap());
        }
        Some((self.stream()?, self.call()))
    }

    /// The call at its current attempt, or sometimes at another.
    fn attempt(&mut self, call: &str) -> String {
        let attempt = self.attempts.get(call).copied().unwrap_or(Attempt::FIRST);
        let off = u32::from(self.dice.roll(8) == 0);
        format!("{call}#{}", attempt.0 + off)
    }

    fn step(&mut self) {
        let lonely = self.streams.len() < 2 && self.dice.roll(2) == 0;
        let lines = match self.dice.roll(20) {
            _ if lonely => self.join(),
            0 => self.join(),
            1 if self.dice.roll(2) == 0 => self.leave(),
            1 | 2 => self.credit(),
            3..=5 => self.seek(),
            6..=8 => self.offer(),
            9..=11 => self.answer(),
            12 => self.heartbeat(),
            13 => self.credit(),
            14 => self.cancel_or_stop(),
            15 => self.reject(),
            16 => self.accept(),
            17 => self.release_or_reclaim(),
            18 => self.unexpected_frame(),
            _ => {
                let length = Millis(self.dice.roll(3_000));
                self.log.push(format!("pass {}", length.0));
                self.bench.pass(length)
            }
        };
        self.deliver(&lines);
    }

    fn input(&mut self, input: FleetInput) -> Vec<String> {
        self.log.push(format!("{input:?}"));
        self.bench.input(input)
    }

    fn frame(&mut self, connection: u64, frame: HostFrame) -> Vec<String> {
        self.input(FleetInput::Frame { connection: ConnectionId(connection), frame })
    }

    fn join(&mut self) -> Vec<String> {
        self.connections += 1;
        let (host, credit) = (self.dice.pick(&HOSTS), self.dice.roll(4));
        let tools: Vec<&str> = TOOLS.into_iter().filter(|_| self.dice.roll(3) > 0).collect();
        let mut claims = Vec::new();
        for (id, known) in self.calls.clone() {
            if matches!(&known, CallView::Offered { host: at, .. } if at == host) && self.dice.roll(4) > 0 {
                let text = self.attempt(&id);
                let disposition =
                    self.dice.pick(&[Disposition::Continue, Disposition::Continue, Disposition::Stop]);
                if disposition == Disposition::Stop && text == format!("{id}#{}", self.attempts[&id]) {
                    // Its owner says that it is over, so the owner must think so too.
                    self.calls.remove(&id);
                }
                claims.push(claim(&text, self.dice.roll(3) == 0, disposition));
            }
        }
        // Some host has the answer of a call that seeks its next host.
        for (id, known) in self.calls.clone() {
            if known == CallView::Seeking && self.attempts.contains_key(&id) && self.dice.roll(3) == 0 {
                let text = format!("{id}#{}", self.attempts[&id]);
                claims.push(claim(&text, self.dice.roll(4) > 0, Disposition::Continue));
            }
        }
        self.streams.retain(|_, stream| stream.host != host);
        self.streams.insert(self.connections, Stream { host, credit, sent: 0 });
        self.input(FleetInput::Join(Box::new(HostJoin {
            claims,
            ..joining(self.connections, host, credit, &tools)
        })))
    }

    fn leave(&mut self) -> Vec<String> {
        let Some(connection) = self.stream() else { return Vec::new() };
        self.streams.remove(&connection);
        self.input(FleetInput::Disconnected { connection: ConnectionId(connection) })
    }

    fn seek(&mut self) -> Vec<String> {
        let id = self.call();
        // A run seeks for a call that is not under way.
        if matches!(self.calls.get(&id), Some(CallView::Offered { .. })) {
            return Vec::new();
        }
        self.calls.entry(id.clone()).or_insert(CallView::Seeking);
        let tool = tool_of(&id);
        let on = (self.dice.roll(3) == 0).then(|| host(self.dice.pick(&HOSTS)));
        self.input(FleetInput::Seek { call: call(&id), tool: tool.into(), on })
    }

    fn offer(&mut self) -> Vec<String> {
        let granted: Vec<(String, String)> = self
            .calls
            .iter()
            .filter_map(|(id, known)| match known {
                CallView::Granted(host) => Some((id.clone(), host.clone())),
                CallView::Seeking | CallView::Offered { .. } => None,
            })
            .collect();
        let Some((id, host)) = granted.first().cloned() else { return Vec::new() };
        let attempt = self.attempts.entry(id.clone()).or_default();
        *attempt = attempt.next();
        let attempt = *attempt;
        self.calls.insert(id.clone(), CallView::Offered { host: host.clone(), attempt });
        let tool = tool_of(&id);
        let request = super::bench::request(&format!("{id}#{attempt}"), &host, tool);
        self.input(FleetInput::Offer { request, unfit: None })
    }

    fn answer(&mut self) -> Vec<String> {
        let Some((connection, id)) = self.stream_and_call() else { return Vec::new() };
        let text = self.attempt(&id);
        self.log.push(format!("answer {text} on c{connection}"));
        let lines = self.bench.answer(connection, &text);
        self.deliver(&lines);
        if lines.iter().all(|line| !line.starts_with("answer")) {
            return Vec::new();
        }
        // Its owner records the answer of the host that has it, or cannot.
        let host = self.streams.get(&connection).map(|stream| stream.host.to_owned());
        let given = self.calls.get(&id).cloned();
        let fits = matches!(&given, Some(CallView::Offered { host: at, attempt })
            if Some(at) == host.as_ref() && text == format!("{id}#{attempt}"));
        if fits && self.dice.roll(8) == 0 {
            return self.input(FleetInput::ResultNotRecorded { call: call_ref(&text) });
        }
        if fits {
            self.calls.remove(&id);
        }
        self.input(FleetInput::ResultHandled { call: call_ref(&text) })
    }

    fn heartbeat(&mut self) -> Vec<String> {
        let Some(connection) = self.stream() else { return Vec::new() };
        let host = self.streams[&connection].host;
        let mut calls = Vec::new();
        for (id, known) in self.calls.clone() {
            if matches!(&known, CallView::Offered { host: at, .. } if at == host) && self.dice.roll(4) > 0 {
                calls.push(call_ref(&self.attempt(&id)));
            }
        }
        self.frame(connection, HostFrame::Heartbeat { calls, status: String::new() })
    }

    fn credit(&mut self) -> Vec<String> {
        let Some(connection) = self.stream() else { return Vec::new() };
        let stream = self.streams.get_mut(&connection).unwrap();
        let total = stream.credit + self.dice.roll(4);
        stream.credit = total;
        self.frame(connection, HostFrame::Credit { total })
    }

    fn cancel_or_stop(&mut self) -> Vec<String> {
        let id = self.call();
        match self.calls.remove(&id) {
            Some(CallView::Offered { attempt, .. }) => {
                let call = call_ref(&format!("{id}#{attempt}"));
                self.input(FleetInput::Cancel { call, cause: CancelCause::Deadline, reason: String::new() })
            }
            Some(CallView::Seeking | CallView::Granted(_)) => {
                self.input(FleetInput::StopSeeking { call: call(&id) })
            }
            None => Vec::new(),
        }
    }

    fn reject(&mut self) -> Vec<String> {
        let Some((connection, id)) = self.stream_and_call() else { return Vec::new() };
        let text = self.attempt(&id);
        let reason = self.dice.pick(&[
            RejectReason::Busy,
            RejectReason::UnknownTool,
            RejectReason::BadArguments,
            RejectReason::Draining,
        ]);
        let lines = self
            .frame(connection, HostFrame::Rejected { call: call_ref(&text), reason, message: String::new() });
        if lines.iter().any(|line| line.starts_with(&format!("answer {text} rejected"))) {
            self.calls.remove(&id);
            let more = self.input(FleetInput::ResultHandled { call: call_ref(&text) });
            self.deliver(&more);
        }
        lines
    }

    fn accept(&mut self) -> Vec<String> {
        let Some((connection, id)) = self.stream_and_call() else { return Vec::new() };
        let text = self.attempt(&id);
        self.frame(connection, HostFrame::Accepted(call_ref(&text)))
    }

    fn release_or_reclaim(&mut self) -> Vec<String> {
        let run = self.dice.pick(&["a", "b", "c"]);
        let lines = self.input(FleetInput::Release { run: call(&format!("{run}/1.0")).run });
        self.deliver(&lines);
        self.calls.retain(|id, known| !id.starts_with(run) || matches!(known, CallView::Offered { .. }));
        // Its run comes back at once, with what its journal says.
        for (id, known) in self.calls.clone() {
            if let (true, CallView::Offered { host, attempt }) = (id.starts_with(run), known) {
                let tool = tool_of(&id);
                let request = super::bench::request(&format!("{id}#{attempt}"), &host, tool);
                let lines = self.input(FleetInput::Reclaim(request));
                self.deliver(&lines);
            }
        }
        Vec::new()
    }

    fn unexpected_frame(&mut self) -> Vec<String> {
        let Some((connection, id)) = self.stream_and_call() else { return Vec::new() };
        let call = call_ref(&self.attempt(&id));
        let frame = match self.dice.roll(20) {
            0 => HostFrame::Draining,
            1..=4 => HostFrame::CancelAck {
                call,
                outcome: match self.dice.roll(4) {
                    0 => CancelOutcome::RunsOn,
                    1 => CancelOutcome::NotBegun,
                    2 => CancelOutcome::Finished,
                    _ => CancelOutcome::Stopped,
                },
            },
            5..=9 => {
                HostFrame::Output { call, chunk_seq: self.dice.roll(9), stderr: false, data: Vec::new() }
            }
            10..=14 => {
                let checkpoint = (self.dice.roll(2) == 0).then(|| vec![0]);
                HostFrame::Progress { call, message: "p".into(), fraction: None, checkpoint, resumable: None }
            }
            15 => HostFrame::Goodbye,
            _ => HostFrame::Pong,
        };
        if frame == HostFrame::Goodbye {
            self.streams.remove(&connection);
        }
        self.frame(connection, frame)
    }

    /// Passes the outputs to the runs and hosts of the test.
    fn deliver(&mut self, lines: &[String]) {
        for line in lines {
            self.log.push(format!("    {line}"));
            if let Some((id, update)) = line.split_once(": ") {
                self.update(id, update);
            } else if let Some((connection, frame)) = line.split_once(" <- ") {
                self.sent(connection, frame);
            } else if let Some((connection, _)) = line.split_once(" closed ") {
                self.streams.remove(&connection[1..].parse().unwrap());
            }
        }
    }

    fn update(&mut self, id: &str, update: &str) {
        let words: Vec<&str> = update.split(' ').collect();
        let known = self.calls.get(id).cloned();
        match (words[0], known) {
            ("granted", Some(CallView::Seeking | CallView::Granted(_))) => {
                self.calls.insert(id.to_owned(), CallView::Granted(words[1].to_owned()));
            }
            ("denied", Some(CallView::Seeking | CallView::Granted(_))) => {
                self.calls.remove(id);
            }
            ("granted" | "denied", known) => panic!("{id} {update} while {known:?}\n{}", self.log.join("\n")),
            ("lost", Some(CallView::Offered { attempt, .. })) if words[1] == format!("#{attempt}") => {
                self.calls.remove(id);
            }
            // A host claimed the call at another attempt than its run's.
            (_, _) => {}
        }
    }

    fn sent(&mut self, connection: &str, frame: &str) {
        let Some(stream) = self.streams.get_mut(&connection[1..].parse().unwrap()) else { return };
        if frame.starts_with("call ") {
            stream.sent += 1;
            assert!(
                stream.sent <= stream.credit,
                "{connection} was sent more than its credit\n{}",
                self.log.join("\n")
            );
        }
    }

    /// Disconnects all hosts and lets time pass. Then every call is over, except for granted ones that were not offered.
    fn end(&mut self) {
        let connections: Vec<u64> = self.streams.keys().copied().collect();
        for connection in connections {
            let lines = self.input(FleetInput::Disconnected { connection: ConnectionId(connection) });
            self.deliver(&lines);
        }
        let lines = self.bench.pass(Millis::secs(60));
        self.deliver(&lines);
        for (id, known) in &self.calls {
            assert!(
                matches!(known, CallView::Granted(_)),
                "{id}: {known:?} for ever\n{}",
                self.log.join("\n")
            );
        }
        for run in ["a", "b", "c"] {
            self.bench.release(run);
        }
        self.bench.assert_empty();
    }
}

#[test]
fn random_worlds_keep_their_promises() {
    for seed in 0..150 {
        let mut world = World::new(seed);
        for _ in 0..250 {
            world.step();
        }
        world.end();
    }
}

#[test]
fn one_seed_is_one_world() {
    let run = |seed| {
        let mut world = World::new(seed);
        for _ in 0..100 {
            world.step();
        }
        world.log
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
