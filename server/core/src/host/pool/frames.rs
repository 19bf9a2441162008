//! Frames from hosts: each kind has one method.
//!
//! A frame that does not fit the state is ignored and counted, since frames cross on the wire. A frame that no correct
//! host sends closes the stream.

use std::collections::BTreeSet;

use super::questions::NeededInput;
use super::{TenantPool, Timer};
use crate::host::call::FleetCallState;
use crate::host::frame::{
    CallOutcome, CallRef, CallResult, CancelOutcome, HostFrame, Ran, RejectReason, Resumable, ServerFrame,
};
use crate::host::io::{CallUpdate, CloseReason, ConnectionId, FleetOutput};
use crate::id::HostId;

/// A call is lost after this many consecutive heartbeats without it. One may have crossed the call's confirmation.
const MISSED_HEARTBEATS_MAX: u8 = 2;
/// Most unknown calls of one heartbeat whose lease is reported as lost.
const LEASES_LOST_PER_HEARTBEAT_MAX: usize = 64;

/// The content of a progress frame.
struct ReportedProgress {
    message: String,
    fraction: Option<f64>,
    checkpoint: Option<Vec<u8>>,
    resumable: Option<Resumable>,
}

impl TenantPool {
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
            HostFrame::Heartbeat { calls, status } => {
                record.status = status;
                self.heartbeat(connection, &host, calls);
            }
            HostFrame::Progress { call, message, fraction, checkpoint, resumable } => {
                self.progress(
                    connection,
                    &host,
                    &call,
                    ReportedProgress { message, fraction, checkpoint, resumable },
                );
            }
            HostFrame::Output { call, chunk_seq, stderr, data } => {
                self.output(connection, &host, &call, chunk_seq, stderr, data);
            }
            HostFrame::Result(result) => self.call_result(connection, host, result),
            HostFrame::NeedInput { call, question, timeout, resume_state } => {
                self.need_input(connection, &host, &call, NeededInput { question, timeout, resume_state });
            }
            HostFrame::CancelAck { call, outcome } => self.cancel_ack(connection, &host, &call, outcome),
            HostFrame::Draining => self.drain(connection),
            HostFrame::Goodbye => self.goodbye(connection),
            HostFrame::Pong => {}
            HostFrame::Unknown => self.ignore(&host),
            HostFrame::Hello(_) => {
                self.violation(connection, "a second hello; it comes first, once".into(), None)
            }
            HostFrame::UpdateTools { .. } => {
                unreachable!("the caller turns UpdateTools into FleetInput::ReplaceTools")
            }
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
        stream.credit.grow_to(total);
        self.hosts_with_room.insert(host.clone());
    }

    /// True if this attempt is assigned to this stream. Otherwise the host is told that it has no lease.
    pub(super) fn owns(&mut self, connection: ConnectionId, host: &HostId, call: &CallRef) -> bool {
        if self.assignment(call).is_some_and(|assignment| assignment.connection == Some(connection)) {
            return true;
        }
        if !self.knows_call_is_over(connection, host, call) {
            self.send(connection, ServerFrame::LeaseLost(call.clone()));
        }
        self.ignore(host);
        false
    }

    /// True if the host was already told that the call is over, or said so itself.
    fn knows_call_is_over(&mut self, connection: ConnectionId, host: &HostId, call: &CallRef) -> bool {
        let recording = match self.calls.get(&call.call).map(|call| &call.state) {
            Some(FleetCallState::Recording(assignment)) => assignment.is(call) && assignment.host == *host,
            Some(
                FleetCallState::Assigned(_)
                | FleetCallState::Queued
                | FleetCallState::Pinned { .. }
                | FleetCallState::AwaitingResult { .. }
                | FleetCallState::Reserved { .. },
            )
            | None => false,
        };
        recording || self.stream(host, connection).is_some_and(|stream| stream.stopping.contains_key(call))
    }

    fn accepted(&mut self, connection: ConnectionId, host: &HostId, call: &CallRef) {
        if let Some(stream) = self.stream(host, connection) {
            stream.began_cancelled(call);
        }
        if self.owns(connection, host, call) {
            self.accept(host, call);
        }
    }

    /// Marks a call as confirmed by its host. Every frame about a call confirms it.
    pub(super) fn accept(&mut self, host: &HostId, call: &CallRef) {
        let Some(assignment) = self.assignment(call).filter(|assignment| !assignment.accepted) else {
            return;
        };
        assignment.accepted = true;
        assignment.unbegun_at = None;
        self.timers.clear(&Timer::Call(call.call.clone()));
        self.tell(&call.call, CallUpdate::Accepted { attempt: call.attempt, host: host.clone() });
    }

    fn rejected(
        &mut self,
        connection: ConnectionId,
        host: &HostId,
        call: &CallRef,
        reason: RejectReason,
        message: String,
    ) {
        let Some(assignment) =
            self.assignment(call).filter(|assignment| assignment.connection == Some(connection))
        else {
            return self.rejected_late(connection, host, call, reason);
        };
        // A host that confirmed the call may have begun it, even if it rejects the call now.
        let ran = if assignment.accepted { Ran::Maybe } else { Ran::No };
        let lease = assignment.lease.clone();
        let tool = self.calls.get(&call.call).and_then(|call| call.tool.clone());
        match reason {
            RejectReason::BadArguments | RejectReason::TooLarge if ran == Ran::No => {
                let result =
                    CallResult { call: call.clone(), lease, outcome: CallOutcome::Rejected { message } };
                self.begin_recording(&call.call);
                self.push_result(None, host.clone(), Box::new(result));
                return;
            }
            RejectReason::Busy
            | RejectReason::Draining
            | RejectReason::UnknownTool
            | RejectReason::BadArguments
            | RejectReason::TooLarge => self.heed_rejection(connection, host, tool, reason),
        }
        let message = format!("rejected by host {host} ({}): {message}", rejection(reason));
        let busy = reason == RejectReason::Busy && ran == Ran::No;
        self.lose(call, ran, busy, message);
    }

    /// Handles the rejection of a call that the host has lost meanwhile. If the host never confirmed the call, it did not begin
    /// it, so the call is not in doubt any more.
    fn rejected_late(
        &mut self,
        connection: ConnectionId,
        host: &HostId,
        call: &CallRef,
        reason: RejectReason,
    ) {
        let Some(stopped) = self.stream(host, connection).and_then(|stream| stream.explained(call)) else {
            return self.ignore(host);
        };
        self.hosts_with_room.insert(host.clone());
        self.heed_rejection(connection, host, stopped.tool, reason);
        if !stopped.accepted {
            let (attempt, lease) = (call.attempt, stopped.lease);
            self.tell(&call.call, CallUpdate::Stopped { attempt, lease, begun: false });
        }
    }

    /// Sends a host no calls that it would reject for the same reason.
    fn heed_rejection(
        &mut self,
        connection: ConnectionId,
        host: &HostId,
        tool: Option<String>,
        reason: RejectReason,
    ) {
        match reason {
            RejectReason::Busy => self.pause(host, self.options.busy_pause),
            RejectReason::Draining => self.drain(connection),
            RejectReason::UnknownTool => self.withdraw_tool(connection, host, tool),
            RejectReason::BadArguments | RejectReason::TooLarge => {}
        }
    }

    /// Stops offering this tool to a host that declared it and does not have it.
    fn withdraw_tool(&mut self, connection: ConnectionId, host: &HostId, tool: Option<String>) {
        let Some(tool) = tool else { return };
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
            stream.stopped_without_a_word(call);
        }
        if !gone.is_empty() {
            self.hosts_with_room.insert(host.clone());
        }
    }

    fn check_listed(&mut self, connection: ConnectionId, host: &HostId, listed: &BTreeSet<CallRef>) {
        let mut leases_lost = 0;
        for call in listed {
            if let Some(assignment) =
                self.assignment(call).filter(|assignment| assignment.connection == Some(connection))
            {
                assignment.missed = 0;
                self.accept(host, call);
            } else if !self.knows_call_is_over(connection, host, call)
                && leases_lost < LEASES_LOST_PER_HEARTBEAT_MAX
            {
                leases_lost += 1;
                self.ignore(host);
                self.send(connection, ServerFrame::LeaseLost(call.clone()));
            } else if self.ignores_cancel(connection, host, call)
                && leases_lost < LEASES_LOST_PER_HEARTBEAT_MAX
            {
                leases_lost += 1;
                self.send(connection, ServerFrame::LeaseLost(call.clone()));
            }
        }
    }

    /// True for a cancelled call that its host still runs long after the grace. The host gets no later attempt of the call
    /// before it has given this one up, so it is told that the lease is lost.
    fn ignores_cancel(&mut self, connection: ConnectionId, host: &HostId, call: &CallRef) -> bool {
        let (now, grace) = (self.now, self.options.cancel_grace);
        self.stream(host, connection)
            .and_then(|stream| stream.stopping.get(call))
            .is_some_and(|stopping| stopping.since.after(grace).after(grace) <= now)
    }

    fn check_unlisted(&mut self, connection: ConnectionId, host: &HostId, listed: &BTreeSet<CallRef>) {
        let mut lost = Vec::new();
        for id in &self.hosts[host].calls {
            let Some(FleetCallState::Assigned(assignment)) =
                self.calls.get_mut(id).map(|call| &mut call.state)
            else {
                continue;
            };
            let call = assignment.call_ref(id);
            if !assignment.accepted || assignment.finished || listed.contains(&call) {
                continue;
            }
            assignment.missed += 1;
            if assignment.missed >= MISSED_HEARTBEATS_MAX {
                lost.push(call);
            }
        }
        for call in lost {
            self.send(connection, ServerFrame::LeaseLost(call.clone()));
            self.report_lost(&call, Ran::Maybe, format!("host {host} no longer has the call"));
        }
    }

    fn progress(
        &mut self,
        connection: ConnectionId,
        host: &HostId,
        call: &CallRef,
        progress: ReportedProgress,
    ) {
        if !self.owns(connection, host, call) {
            return;
        }
        let ReportedProgress { message, fraction, checkpoint, resumable } = progress;
        self.accept(host, call);
        let attempt = call.attempt;
        if let Some(resumable) = resumable {
            self.resumable(connection, call, resumable);
        }
        if let Some(checkpoint) = checkpoint {
            self.checkpoint(call, checkpoint);
        }
        if !message.is_empty() || fraction.is_some() {
            self.tell(&call.call, CallUpdate::Progress { attempt, message, fraction });
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
        let update = CallUpdate::Output { attempt: call.attempt, chunk_seq, stderr, data };
        match self.assignment(call).filter(|assignment| assignment.connection == Some(connection)) {
            Some(assignment) if chunk_seq > assignment.last_chunk => {
                assignment.last_chunk = chunk_seq;
                self.accept(host, call);
                self.tell(&call.call, update);
            }
            Some(_) | None => self.ignore(host),
        }
    }

    /// Passes a result on to be recorded, whatever the state of the call: only the run can judge it. If the result is of
    /// the current attempt, the host no longer has the call.
    fn call_result(&mut self, connection: ConnectionId, host: HostId, result: Box<CallResult>) {
        let call = &result.call;
        if self
            .assignment(call)
            .is_some_and(|assignment| assignment.host == host && assignment.lease == result.lease)
        {
            self.begin_recording(&call.call);
        } else if let Some(stream) = self.stream(&host, connection).filter(|s| s.stopping.contains_key(call))
        {
            stream.stopped(call);
            stream.unacknowledged.insert(call.clone());
            self.unacknowledged.entry(call.clone()).or_default().insert(host.clone());
            self.hosts_with_room.insert(host.clone());
        } else if !self.awaits_result(call) {
            self.ignore(&host);
        }
        self.push_result(Some(connection), host, result);
    }

    fn push_result(&mut self, connection: Option<ConnectionId>, host: HostId, result: Box<CallResult>) {
        self.out.push(FleetOutput::Result { tenant: self.tenant.clone(), connection, host, result });
    }

    fn cancel_ack(
        &mut self,
        connection: ConnectionId,
        host: &HostId,
        call: &CallRef,
        outcome: CancelOutcome,
    ) {
        let Some(stream) = self.stream(host, connection) else { return };
        if outcome == CancelOutcome::RunsOn {
            if !stream.stopping.contains_key(call) {
                self.ignore(host);
            }
            return;
        }
        let Some(stopped) = stream.explained(call) else { return self.ignore(host) };
        self.hosts_with_room.insert(host.clone());
        let begun = match outcome {
            CancelOutcome::NotBegun => false,
            CancelOutcome::Stopped if stopped.overdue => true,
            CancelOutcome::Stopped | CancelOutcome::Finished | CancelOutcome::RunsOn => return,
        };
        self.tell(&call.call, CallUpdate::Stopped { attempt: call.attempt, lease: stopped.lease, begun });
    }

    /// Closes the stream of a host that was silent for too long; otherwise sets the next check.
    pub(super) fn check_lease(&mut self, id: &HostId) {
        let Some(host) = self.hosts.get(id) else { return };
        let until = host.last_heard.after(self.options.lease_timeout);
        match &host.connection {
            Some(stream) if until <= self.now => self.close_stream(stream.id, CloseReason::Silent),
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
