//! What hosts send. What makes no sense for the state of things, though an honest host may send it when messages
//! cross, is ignored and counted; what no honest host sends ends the stream.

use std::collections::BTreeSet;

use super::{Pool, Timer};
use crate::host::call::State;
use crate::host::frame::{Answer, CallRef, HostFrame, Outcome, Ran, RejectReason, ServerFrame};
use crate::host::io::{CloseReason, ConnectionId, News, Output};
use crate::id::HostId;
use crate::limits::CALLS_PER_HOST_MAX;

/// Heartbeats in a row that do not name a call before it is lost. One may have crossed the call's acceptance.
const MISSED_HEARTBEATS_MAX: u8 = 2;
/// Unknown calls of one heartbeat that the host is told about.
const DISOWNED_PER_HEARTBEAT_MAX: usize = 64;

impl Pool {
    pub(super) fn frame(&mut self, connection: ConnectionId, frame: HostFrame) {
        let now = self.now;
        let Some((host, record)) = self.host_of(connection) else { return };
        record.last_heard = now;
        match frame {
            HostFrame::Credit { total } => self.credit(connection, &host, total),
            HostFrame::Accepted(call) => self.accepted(connection, &host, &call),
            HostFrame::Rejected { call, reason, message } => {
                self.rejected(connection, &host, &call, reason, message);
            }
            HostFrame::Heartbeat { calls } => self.heartbeat(connection, &host, calls),
            HostFrame::Progress { call, message, fraction, checkpoint } => {
                self.progress(connection, &host, &call, message, fraction, checkpoint);
            }
            HostFrame::Output { call, chunk_seq, stderr, data } => {
                self.output(connection, &host, &call, chunk_seq, stderr, data);
            }
            HostFrame::Answer(answer) => self.answer(connection, host, answer),
            HostFrame::NeedInput { call, ask, timeout } => {
                self.need_input(connection, &host, &call, ask, timeout);
            }
            HostFrame::CancelAck { call, runs_on } => self.cancel_ack(connection, &host, &call, runs_on),
            HostFrame::Draining => self.drain(connection),
            HostFrame::Goodbye => self.goodbye(connection),
            HostFrame::Pong => {}
            HostFrame::Unknown => self.ignore(&host),
            HostFrame::Hello(_) => {
                self.violation(connection, "a second hello; it comes first, once".into(), None)
            }
            HostFrame::UpdateTools { .. } => unreachable!("tools are checked before they get here"),
        }
    }

    pub(super) fn touch(&mut self, connection: ConnectionId) {
        let now = self.now;
        if let Some((_, host)) = self.host_of(connection) {
            host.last_heard = now;
        }
    }

    fn ignore(&mut self, host: &HostId) {
        if let Some(host) = self.hosts.get_mut(host) {
            host.ignored_frames += 1;
        }
    }

    fn credit(&mut self, connection: ConnectionId, host: &HostId, total: u64) {
        let Some(stream) = self.stream(host, connection) else { return };
        if stream.credit.may_grow_to(total) {
            stream.credit.grow_to(total);
            self.freed.insert(host.clone());
        } else {
            let message = format!(
                "credit of {total}; a host takes at most {CALLS_PER_HOST_MAX} calls more than it got"
            );
            self.violation(connection, message, None);
        }
    }

    /// Whether this stream has the call as this try. A host that goes on with a call that is not its own is told.
    pub(super) fn owns(&mut self, connection: ConnectionId, host: &HostId, call: &CallRef) -> bool {
        if self.held(call).is_some_and(|held| held.connection == Some(connection)) {
            return true;
        }
        if !self.knows_end_of(connection, host, call) {
            self.send(connection, ServerFrame::LeaseLost(call.clone()));
        }
        self.ignore(host);
        false
    }

    /// Whether the host was told already that the call is over, or said so itself.
    fn knows_end_of(&mut self, connection: ConnectionId, host: &HostId, call: &CallRef) -> bool {
        let answering = match self.calls.get(&call.call).map(|call| &call.state) {
            Some(State::Answering(held)) => held.is(call) && held.host == *host,
            Some(
                State::Held(_)
                | State::Waiting
                | State::Pinned { .. }
                | State::Promised { .. }
                | State::Reserved { .. },
            )
            | None => false,
        };
        answering || self.stream(host, connection).is_some_and(|stream| stream.stopping.contains_key(call))
    }

    fn accepted(&mut self, connection: ConnectionId, host: &HostId, call: &CallRef) {
        if self.owns(connection, host, call) {
            self.accept(host, call);
        }
    }

    /// Its host works on a call: it said so, or what it said means it.
    pub(super) fn accept(&mut self, host: &HostId, call: &CallRef) {
        let Some(held) = self.held(call).filter(|held| !held.accepted) else { return };
        held.accepted = true;
        self.timers.clear(&Timer::Call(call.call.clone()));
        self.news(&call.call, News::Accepted { attempt: call.attempt, host: host.clone() });
    }

    fn rejected(
        &mut self,
        connection: ConnectionId,
        host: &HostId,
        call: &CallRef,
        reason: RejectReason,
        message: String,
    ) {
        let Some(held) = self.held(call).filter(|held| held.connection == Some(connection)) else {
            if self.stream(host, connection).is_some_and(|stream| stream.stopped(call)) {
                self.freed.insert(host.clone());
            } else {
                self.ignore(host);
            }
            return;
        };
        // A host that took the call before may have begun with it, whatever it says now.
        let ran = if held.accepted { Ran::Maybe } else { Ran::No };
        let lease = held.lease.clone();
        match reason {
            RejectReason::BadArguments | RejectReason::TooLarge if ran == Ran::No => {
                let answer = Answer { call: call.clone(), lease, outcome: Outcome::Rejected { message } };
                self.begin_answer(&call.call);
                self.put_answer(None, host.clone(), Box::new(answer));
                return;
            }
            RejectReason::Busy => self.pause(host, self.options.busy_pause),
            RejectReason::Draining => self.drain(connection),
            RejectReason::UnknownTool => self.forget_slot(connection, host, call),
            RejectReason::BadArguments | RejectReason::TooLarge => {}
        }
        self.lose(call, ran, format!("rejected by host {host} ({}): {message}", rejection(reason)));
    }

    /// The host does not have the tool, whatever it declared.
    fn forget_slot(&mut self, connection: ConnectionId, host: &HostId, call: &CallRef) {
        let Some(tool) = self.calls.get(&call.call).and_then(|call| call.tool.clone()) else { return };
        if let Some(stream) = self.stream(host, connection) {
            stream.tools.remove(&tool);
        }
        self.unserve(&tool, host);
    }

    fn heartbeat(&mut self, connection: ConnectionId, host: &HostId, calls: Vec<CallRef>) {
        let listed: BTreeSet<CallRef> = calls.into_iter().collect();
        self.clear_stopped(connection, host, &listed);
        self.check_listed(connection, host, &listed);
        self.check_unlisted(connection, host, &listed);
    }

    fn clear_stopped(&mut self, connection: ConnectionId, host: &HostId, listed: &BTreeSet<CallRef>) {
        let Some(stream) = self.stream(host, connection) else { return };
        let gone: Vec<CallRef> =
            stream.stopping.keys().filter(|call| !listed.contains(call)).cloned().collect();
        for call in &gone {
            stream.stopped(call);
        }
        if !gone.is_empty() {
            self.freed.insert(host.clone());
        }
    }

    fn check_listed(&mut self, connection: ConnectionId, host: &HostId, listed: &BTreeSet<CallRef>) {
        let mut disowned = 0;
        for call in listed {
            if let Some(held) = self.held(call).filter(|held| held.connection == Some(connection)) {
                held.missed = 0;
                self.accept(host, call);
            } else if !self.knows_end_of(connection, host, call) && disowned < DISOWNED_PER_HEARTBEAT_MAX {
                disowned += 1;
                self.ignore(host);
                self.send(connection, ServerFrame::LeaseLost(call.clone()));
            }
        }
    }

    fn check_unlisted(&mut self, connection: ConnectionId, host: &HostId, listed: &BTreeSet<CallRef>) {
        let mut lost = Vec::new();
        for id in &self.hosts[host].calls {
            let Some(State::Held(held)) = self.calls.get_mut(id).map(|call| &mut call.state) else {
                continue;
            };
            let call = held.call_ref(id);
            if !held.accepted || held.finished || listed.contains(&call) {
                continue;
            }
            held.missed += 1;
            if held.missed >= MISSED_HEARTBEATS_MAX {
                lost.push(call);
            }
        }
        for call in lost {
            self.send(connection, ServerFrame::LeaseLost(call.clone()));
            self.lose(&call, Ran::Maybe, format!("host {host} no longer has the call"));
        }
    }

    fn progress(
        &mut self,
        connection: ConnectionId,
        host: &HostId,
        call: &CallRef,
        message: String,
        fraction: Option<f64>,
        checkpoint: Option<Vec<u8>>,
    ) {
        if !self.owns(connection, host, call) {
            return;
        }
        self.accept(host, call);
        let attempt = call.attempt;
        if let Some(checkpoint) = checkpoint {
            self.checkpoint(call, checkpoint);
        }
        if !message.is_empty() || fraction.is_some() {
            self.news(&call.call, News::Progress { attempt, message, fraction });
        }
    }

    fn output(
        &mut self,
        connection: ConnectionId,
        host: &HostId,
        call: &CallRef,
        chunk_seq: u64,
        stderr: bool,
        data: Vec<u8>,
    ) {
        let news = News::Output { attempt: call.attempt, chunk_seq, stderr, data };
        match self.held(call).filter(|held| held.connection == Some(connection)) {
            Some(held) if chunk_seq > held.last_chunk => {
                held.last_chunk = chunk_seq;
                self.accept(host, call);
                self.news(&call.call, news);
            }
            Some(_) | None => self.ignore(host),
        }
    }

    /// An answer always goes to whoever can say what it is worth; here it only ends the host's hold on the call.
    fn answer(&mut self, connection: ConnectionId, host: HostId, answer: Box<Answer>) {
        let call = &answer.call;
        if self.held(call).is_some_and(|held| held.host == host && held.lease == answer.lease) {
            self.begin_answer(&call.call);
        } else if let Some(stream) = self.stream(&host, connection).filter(|s| s.stopping.contains_key(call))
        {
            stream.stopped(call);
            stream.ending.insert(call.clone());
            self.ending.entry(call.clone()).or_default().insert(host.clone());
            self.freed.insert(host.clone());
        } else if !self.awaits_answer(call) {
            self.ignore(&host);
        }
        self.put_answer(Some(connection), host, answer);
    }

    fn put_answer(&mut self, connection: Option<ConnectionId>, host: HostId, answer: Box<Answer>) {
        self.out.push(Output::Answer { tenant: self.tenant.clone(), connection, host, answer });
    }

    fn cancel_ack(&mut self, connection: ConnectionId, host: &HostId, call: &CallRef, runs_on: bool) {
        let Some(stream) = self.stream(host, connection) else { return };
        if !stream.stopping.contains_key(call) {
            self.ignore(host);
        } else if !runs_on && stream.stopped(call) {
            self.freed.insert(host.clone());
        }
    }

    /// The host was not heard from in time, or was and the next time is to be set.
    pub(super) fn check_lease(&mut self, id: &HostId) {
        let Some(host) = self.hosts.get(id) else { return };
        let until = host.last_heard.after(self.options.lease_timeout);
        match &host.connection {
            Some(stream) if until <= self.now => self.drop_connection(stream.id, CloseReason::Silent),
            Some(_) => self.timers.set(Timer::Lease(id.clone()), until),
            None => {}
        }
    }
}

fn rejection(reason: RejectReason) -> &'static str {
    match reason {
        RejectReason::Busy => "busy",
        RejectReason::Draining => "draining",
        RejectReason::UnknownTool => "unknown tool",
        RejectReason::BadArguments => "bad arguments",
        RejectReason::TooLarge => "too large",
    }
}
