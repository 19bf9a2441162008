//! The pool: hosts, tools and calls of one tenant, and the one dispatch of fleet inputs.

mod assignment;
mod checkpoints;
mod frames;
mod hosts;
#[cfg(test)]
mod invariants;
mod late_results;
mod pinned;
mod placement;
mod questions;
mod time;
mod views;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::host::call::{Assignment, FleetCallState, TrackedCall};
use crate::host::connection::HostConnection;
use crate::host::frame::{CallRef, Ran, ServerFrame};
use crate::host::host_state::HostState;
use crate::host::hosts_by_load::HostsByLoad;
use crate::host::io::{CallUpdate, CloseReason, ConnectionId, FleetInput, FleetOutput};
use crate::host::options::FleetOptions;
use crate::host::queue::ToolQueue;
use crate::host::timer::Timers;
use crate::id::{CallId, CallSlot, HostId, RunId, TenantId};
use crate::time::Timestamp;

/// The hosts, tools and calls of one tenant.
///
/// A call is in `calls` from the moment it seeks a host, or is claimed by one, until its result is handled.
#[derive(Debug)]
pub(super) struct TenantPool {
    tenant: TenantId,
    options: FleetOptions,
    /// No host counts as away before this time.
    expected_by: Timestamp,
    /// The time of the input that is being handled.
    now: Timestamp,
    /// True while the server shuts down: no call is granted.
    closing: bool,
    calls: BTreeMap<CallId, TrackedCall>,
    hosts: HostsByLoad,
    connections: BTreeMap<ConnectionId, HostId>,
    /// Hosts that sent the result of a cancelled call, by call, until that result is handled.
    unacknowledged: BTreeMap<CallRef, BTreeSet<HostId>>,
    tools: BTreeMap<String, PoolTool>,
    /// Calls that only one host may get, by that host, in order of arrival.
    pinned: BTreeMap<HostId, VecDeque<CallId>>,
    /// Names of the tools whose queue is not empty.
    waiting: BTreeSet<String>,
    /// Hosts that may have gained room by the current input. [`Self::finish`] grants that room.
    hosts_with_room: BTreeSet<HostId>,
    timers: Timers<Timer>,
    out: Vec<FleetOutput>,
}

/// A tool that hosts serve, or that is remembered.
#[derive(Debug, Default)]
struct PoolTool {
    /// Connected hosts that serve it and are not draining.
    hosts: BTreeSet<HostId>,
    queue: ToolQueue,
}

/// Key of a timer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The wait of a call ends. By its state: no host connected, the host did not confirm, did not reconnect, or did
    /// not send the result that it said it had.
    Call(CallId),
    /// A waiting checkpoint of a call is to be reported.
    Checkpoint(CallId),
    /// The lease of a host's stream ends, unless it was heard from since.
    Lease(HostId),
    /// The pause of a host ends.
    Busy(HostId),
}

impl TenantPool {
    pub(super) fn new(tenant: TenantId, options: FleetOptions, expected_by: Timestamp) -> Self {
        Self {
            tenant,
            options,
            expected_by,
            now: Timestamp(0),
            closing: false,
            calls: BTreeMap::new(),
            hosts: HostsByLoad::default(),
            connections: BTreeMap::new(),
            unacknowledged: BTreeMap::new(),
            tools: BTreeMap::new(),
            pinned: BTreeMap::new(),
            waiting: BTreeSet::new(),
            hosts_with_room: BTreeSet::new(),
            timers: Timers::default(),
            out: Vec::new(),
        }
    }

    pub(super) fn handle(&mut self, input: FleetInput, now: Timestamp) -> Vec<FleetOutput> {
        self.now = now;
        match input {
            FleetInput::Remember { tools } => self.remember(tools),
            FleetInput::Forget { tool } => self.forget(&tool),
            FleetInput::Seek { call, tool, on } => self.seek(call, tool, on),
            FleetInput::StopSeeking { call } => self.stop_seeking(&call),
            FleetInput::Offer { request, unfit } => self.offer(*request, unfit),
            FleetInput::Reclaim(request) => self.reclaim(&request),
            FleetInput::Cancel { call, cause, reason } => self.cancel(&call, cause, reason),
            FleetInput::AnswerInput { call, input, answer } => self.answer_input(call, input, answer),
            FleetInput::AckResumeState { call, resume_no } => self.ack_resume_state(call, resume_no),
            FleetInput::ReleaseCall { call } => self.release_call(&call),
            FleetInput::CloseRuntime { host, runtime } => self.close_runtime(&host, runtime),
            FleetInput::Release { run } => self.release(&run),
            FleetInput::ResultHandled { call } => self.result_handled(&call),
            FleetInput::ResultNotRecorded { call } => self.result_not_recorded(&call),
            FleetInput::ResultWithoutStream { call, lease } => self.result_without_stream(&call, &lease),
            FleetInput::Join(joining) => self.join(*joining),
            FleetInput::ReplaceTools { connection, tools } => self.replace_tools(connection, &tools),
            FleetInput::Frame { connection, frame } => self.frame(connection, frame),
            FleetInput::Touch { connection } => self.touch(connection),
            FleetInput::Violation { connection, message, call } => self.violation(connection, message, call),
            FleetInput::CloseStream { connection, reason } => self.close_stream(connection, reason),
            FleetInput::Disconnected { connection } => self.disconnected(connection),
            FleetInput::LinkLost { host } => self.link_lost(&host),
        }
        self.finish()
    }

    /// The time of the earliest timer.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// True if the pool holds nothing and can be dropped.
    pub(super) fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.hosts.is_empty() && self.tools.is_empty()
    }

    /// Ends an input: grants the room that it freed, and returns the outputs.
    fn finish(&mut self) -> Vec<FleetOutput> {
        while let Some(host) = self.hosts_with_room.pop_first() {
            self.fill(&host);
        }
        std::mem::take(&mut self.out)
    }

    fn send(&mut self, connection: ConnectionId, frame: ServerFrame) {
        self.out.push(FleetOutput::Send { connection, frame });
    }

    fn close(&mut self, connection: ConnectionId, reason: CloseReason) {
        self.out.push(FleetOutput::Close { connection, reason });
    }

    fn tell(&mut self, call: &CallId, update: CallUpdate) {
        self.out.push(FleetOutput::Update { tenant: self.tenant.clone(), call: call.clone(), update });
    }

    /// The host of a stream. `None` if the stream was closed or replaced.
    fn host_of(&mut self, connection: ConnectionId) -> Option<(HostId, &mut HostState)> {
        let id = self.connections.get(&connection)?.clone();
        let host = self.hosts.get_mut(&id).expect("a connection has its host");
        Some((id, host))
    }

    /// The current stream of a host, if it is this one.
    fn stream(&mut self, host: &HostId, connection: ConnectionId) -> Option<&mut HostConnection> {
        self.hosts.get_mut(host)?.connection.as_mut().filter(|current| current.id == connection)
    }

    /// The assignment of this attempt, if a host has it.
    fn assignment(&mut self, call: &CallRef) -> Option<&mut Assignment> {
        match &mut self.calls.get_mut(&call.call)?.state {
            FleetCallState::Assigned(assignment) if assignment.is(call) => Some(assignment),
            FleetCallState::Assigned(_)
            | FleetCallState::Queued
            | FleetCallState::Pinned { .. }
            | FleetCallState::AwaitingResult { .. }
            | FleetCallState::Reserved { .. }
            | FleetCallState::Recording(_) => None,
        }
    }

    /// Removes a call from the pool: from queues and timers, and from its host. The room that it took is freed.
    fn remove(&mut self, id: &CallId) -> Option<TrackedCall> {
        self.report_checkpoint(id);
        let call = self.calls.remove(id)?;
        self.timers.clear(&Timer::Call(id.clone()));
        match &call.state {
            FleetCallState::Queued => self.unqueue(id, call.tool.as_deref()),
            FleetCallState::Pinned { host } => self.unpin(id, host),
            FleetCallState::Reserved { host, connection, .. } => {
                if let Some(stream) = self.stream(host, *connection) {
                    stream.credit.release();
                    stream.vacate(call.tool.as_deref());
                    self.hosts_with_room.insert(host.clone());
                }
            }
            FleetCallState::Assigned(assignment) => self.unassign(id, assignment, call.tool.as_deref()),
            FleetCallState::AwaitingResult { .. } | FleetCallState::Recording(_) => {}
        }
        Some(call)
    }

    /// Removes an assigned call from its host. A disconnected host without calls is forgotten.
    fn unassign(&mut self, id: &CallId, assignment: &Assignment, tool: Option<&str>) {
        let Some(host) = self.hosts.get_mut(&assignment.host) else { return };
        host.calls.remove(id);
        if host.connection.is_none() && host.calls.is_empty() {
            self.hosts.remove(&assignment.host);
        } else if let Some(stream) =
            assignment.connection.and_then(|connection| self.stream(&assignment.host, connection))
        {
            stream.vacate(tool);
            self.hosts_with_room.insert(assignment.host.clone());
        }
    }

    /// The time until which a host that is away now may come back.
    fn end_of_absence(&self) -> Timestamp {
        self.now.max(self.expected_by).after(self.options.grace_period)
    }

    /// Remembers that a connected host may have begun this attempt, though it will not be known to have it any more.
    fn touch_call(&mut self, call: &CallRef, assignment: &Assignment) {
        let Some(connection) = assignment.connection else { return };
        if let Some(stream) = self.stream(&assignment.host, connection) {
            stream.touch(call.clone());
        }
    }

    /// Removes a call and tells its run that the attempt is lost.
    fn report_lost(&mut self, call: &CallRef, ran: Ran, message: impl Into<String>) {
        self.lose(call, ran, false, message);
    }

    /// As [`Self::report_lost`]. `busy` is true if the host had no room, though it gave credit.
    fn lose(&mut self, call: &CallRef, ran: Ran, busy: bool, message: impl Into<String>) {
        if let Some(assignment) = self.assignment(call).cloned() {
            self.touch_call(call, &assignment);
        }
        self.remove(&call.call);
        self.tell(&call.call, CallUpdate::Lost { attempt: call.attempt, message: message.into(), ran, busy });
    }
}

/// The lowest id that a call of this run can have.
fn first_of(run: &RunId) -> CallId {
    CallId { run: run.clone(), slot: CallSlot { model_call: 0, position: 0 } }
}
