//! Requests of runs about calls that are granted or assigned: offer, reclaim, cancel, release; and recorded results.

use super::{TenantPool, Timer, first_of};
use crate::host::call::{Assignment, FleetCallState, TrackedCall};
use crate::host::connection::StoppingCall;
use crate::host::frame::{CallOutcome, CallRef, CallRequest, CallResult, CancelCause, Ran, ServerFrame};
use crate::host::io::{CallUpdate, ConnectionId, FleetOutput, UnfitArguments};
use crate::id::{Attempt, CallId, HostId, RunId};

impl TenantPool {
    /// Sends a granted call to its host. `unfit` says that the arguments do not fit the schema of some terms.
    pub(super) fn offer(&mut self, request: CallRequest, unfit: Option<UnfitArguments>) {
        let id = request.call.call.clone();
        match self.calls.get(&id).map(|call| call.state.clone()) {
            Some(FleetCallState::Reserved { host, connection, terms }) if host == request.host => {
                let fault = unfit.filter(|unfit| unfit.terms == terms.digest).map(|unfit| unfit.message);
                match (self.stream(&host, connection), fault) {
                    (Some(stream), _) if stream.draining || !stream.tools.contains_key(&request.tool) => {
                        self.report_lost(&request.call, Ran::No, "the host takes no more calls of this tool");
                    }
                    (Some(stream), _) if stream.tools[&request.tool].terms != terms => {
                        self.report_lost(&request.call, Ran::No, "the host declared the tool anew");
                    }
                    (Some(_), Some(fault)) => self.reject(request, fault),
                    (Some(stream), None) if request.size() > stream.max_frame_bytes => {
                        let max = stream.max_frame_bytes;
                        self.too_large(request, "call", max);
                    }
                    (Some(stream), None) if stream.is_too_small_for_runtime(&request) => {
                        let max = stream.max_frame_bytes;
                        self.too_large(request, "call's runtime", max);
                    }
                    (Some(_), None) => self.send_call(request, connection),
                    (None, _) => self.report_lost(
                        &request.call,
                        Ran::No,
                        "the host disconnected before it got the call",
                    ),
                }
            }
            Some(FleetCallState::Assigned(assignment) | FleetCallState::Recording(assignment))
                if assignment.is(&request.call) => {}
            Some(FleetCallState::Assigned(assignment)) => {
                self.revoke(&id, &assignment);
                self.report_lost(&request.call, Ran::No, "the call was offered without room for it");
            }
            Some(
                FleetCallState::Queued
                | FleetCallState::Pinned { .. }
                | FleetCallState::AwaitingResult { .. }
                | FleetCallState::Reserved { .. }
                | FleetCallState::Recording(_),
            )
            | None => {
                self.report_lost(&request.call, Ran::No, "the call was offered without room for it");
            }
        }
    }

    fn send_call(&mut self, request: CallRequest, connection: ConnectionId) {
        let (id, host) = (request.call.call.clone(), request.host.clone());
        let stream = self.stream(&host, connection).expect("the caller checked that the stream is current");
        stream.credit.spend();
        let unbegun_at = stream.instance.clone();
        let lease = request.lease.as_str().to_owned();
        let assignment = Assignment::new(host, request.call.attempt, lease, Some(connection));
        self.assign(&id, Assignment { unbegun_at, ..assignment });
        self.timers.set(Timer::Call(id), self.now.after(self.options.accept_timeout));
        self.open_runtime(connection, &request);
        self.send(connection, ServerFrame::CallRequest(Box::new(request)));
    }

    fn too_large(&mut self, request: CallRequest, what: &str, max: usize) {
        let message = format!("the {what} is too large for its tool host, which takes {max} bytes");
        self.reject(request, message);
    }

    /// Rejects a call that its host must not get. Another host would not do either, so the model is told.
    fn reject(&mut self, request: CallRequest, message: String) {
        self.remove(&request.call.call);
        let lease = request.lease.as_str().to_owned();
        self.out.push(FleetOutput::Result {
            tenant: self.tenant.clone(),
            connection: None,
            host: request.host,
            result: Box::new(CallResult {
                call: request.call,
                lease,
                outcome: CallOutcome::Rejected { message },
            }),
        });
    }

    /// Assigns a call to its host. The caller counts the room that the call takes up.
    pub(super) fn assign(&mut self, id: &CallId, assignment: Assignment) {
        let host = self.hosts.get_or_insert_disconnected(&assignment.host, self.now);
        host.calls.insert(id.clone());
        match self.calls.get_mut(id) {
            Some(call) => call.state = FleetCallState::Assigned(assignment),
            None => {
                self.calls.insert(
                    id.clone(),
                    TrackedCall { tool: None, state: FleetCallState::Assigned(assignment) },
                );
            }
        }
    }

    pub(super) fn reclaim(&mut self, request: &CallRequest) {
        let id = &request.call.call;
        match self.calls.get(id).map(|call| call.state.clone()) {
            Some(FleetCallState::Assigned(assignment))
                if assignment.is(&request.call) && assignment.host == request.host =>
            {
                return self.confirm_assignment(id, &assignment, &request.tool);
            }
            Some(FleetCallState::Recording(assignment)) if assignment.is(&request.call) => return,
            Some(FleetCallState::Assigned(assignment)) => self.revoke(id, &assignment),
            Some(
                FleetCallState::Queued
                | FleetCallState::Pinned { .. }
                | FleetCallState::AwaitingResult { .. }
                | FleetCallState::Reserved { .. }
                | FleetCallState::Recording(_),
            ) => {
                self.remove(id);
            }
            None => {}
        }
        if let Some(stream) = self.hosts.get(&request.host).and_then(|host| host.connection.as_ref()) {
            let ran = stream.ran_if_missing(&request.call, request.instance.as_ref());
            return self.report_lost(&request.call, ran, "the host does not have the call");
        }
        self.assign_to_absent(
            id,
            request.host.clone(),
            request.call.attempt,
            request.lease.as_str().to_owned(),
        );
        if let Some(call) = self.calls.get_mut(id) {
            call.tool = Some(request.tool.clone());
            if let FleetCallState::Assigned(assignment) = &mut call.state {
                assignment.unbegun_at.clone_from(&request.instance);
            }
        }
    }

    /// Confirms to a run that its host still has the call. Counts the call's tool, where the host brought the call first.
    fn confirm_assignment(&mut self, id: &CallId, assignment: &Assignment, tool: &str) {
        let call = self.calls.get_mut(id).expect("the caller found the call");
        if call.tool.is_none() {
            call.tool = Some(tool.to_owned());
            if let Some(stream) =
                assignment.connection.and_then(|connection| self.stream(&assignment.host, connection))
            {
                stream.occupy(Some(tool));
            }
        }
        if assignment.accepted && assignment.connection.is_some() {
            self.tell(
                id,
                CallUpdate::Accepted { attempt: assignment.attempt, host: assignment.host.clone() },
            );
        }
    }

    /// Assigns a call to a disconnected host, which has the grace period to reconnect with it.
    fn assign_to_absent(&mut self, id: &CallId, host: HostId, attempt: Attempt, lease: String) {
        self.assign(id, Assignment { accepted: true, ..Assignment::new(host, attempt, lease, None) });
        self.timers.set(Timer::Call(id.clone()), self.end_of_absence());
    }

    /// Cancels one attempt. A call that seeks a host, or was granted one, is already at its next attempt and is left
    /// alone. Its run may seek a host before it gives up the failed attempt.
    pub(super) fn cancel(&mut self, call: &CallRef, cause: CancelCause, reason: String) {
        match self.calls.get(&call.call).map(|call| call.state.clone()) {
            Some(FleetCallState::Assigned(assignment)) if assignment.is(call) => {
                self.stop(call, &assignment, cause, reason)
            }
            Some(FleetCallState::Recording(assignment)) if assignment.is(call) => {
                self.remove(&call.call);
            }
            Some(
                FleetCallState::Assigned(_)
                | FleetCallState::Recording(_)
                | FleetCallState::Queued
                | FleetCallState::Pinned { .. }
                | FleetCallState::AwaitingResult { .. }
                | FleetCallState::Reserved { .. },
            )
            | None => {}
        }
    }

    /// Tells the host to stop the call. The call takes up room until the host has stopped it.
    pub(super) fn stop(
        &mut self,
        call: &CallRef,
        assignment: &Assignment,
        cause: CancelCause,
        reason: String,
    ) {
        // It may have begun the call, and forgets it when it reads the cancel. Its run may not have heard of that when another
        // owner reclaims the call.
        self.touch_call(call, assignment);
        let tool = self.remove(&call.call).and_then(|call| call.tool);
        let Some(connection) = assignment.connection else { return };
        let now = self.now;
        if let Some(stream) = self.stream(&assignment.host, connection) {
            stream.occupy(tool.as_deref());
            let lease = assignment.lease.clone();
            let (overdue, accepted) = (cause == CancelCause::Deadline, assignment.accepted);
            let stopping = StoppingCall { tool, lease, overdue, accepted, since: now };
            stream.stopping.insert(call.clone(), stopping);
            let grace = self.options.cancel_grace;
            self.send(connection, ServerFrame::Cancel { call: call.clone(), cause, reason, grace });
        }
    }

    /// Ends the search for hosts of a run's calls. Calls that a host has stay with it: their run may reclaim them.
    pub(super) fn release(&mut self, run: &RunId) {
        let sought: Vec<CallId> = self
            .calls
            .range(first_of(run)..)
            .take_while(|(id, _)| id.run == *run)
            .filter(|(_, call)| {
                matches!(
                    call.state,
                    FleetCallState::Queued
                        | FleetCallState::Pinned { .. }
                        | FleetCallState::AwaitingResult { .. }
                        | FleetCallState::Reserved { .. }
                )
            })
            .map(|(id, _)| id.clone())
            .collect();
        for id in sought {
            self.remove(&id);
        }
    }

    pub(super) fn result_handled(&mut self, call: &CallRef) {
        for host in self.unacknowledged.remove(call).into_iter().flatten() {
            if let Some(stream) = self.hosts.get_mut(&host).and_then(|host| host.connection.as_mut()) {
                stream.unacknowledged.remove(call);
            }
            self.hosts_with_room.insert(host);
        }
        if self.recording(call).is_some() {
            self.remove(&call.call);
        } else if self.awaits_result(call) {
            self.stop_awaiting_result(&call.call);
        }
    }

    pub(super) fn result_not_recorded(&mut self, call: &CallRef) {
        if let Some(assignment) = self.recording(call).cloned() {
            self.assign_to_absent(&call.call, assignment.host, assignment.attempt, assignment.lease);
        }
    }

    fn recording(&self, call: &CallRef) -> Option<&Assignment> {
        match &self.calls.get(&call.call)?.state {
            FleetCallState::Recording(assignment) if assignment.is(call) => Some(assignment),
            FleetCallState::Recording(_)
            | FleetCallState::Queued
            | FleetCallState::Pinned { .. }
            | FleetCallState::AwaitingResult { .. }
            | FleetCallState::Reserved { .. }
            | FleetCallState::Assigned(_) => None,
        }
    }

    pub(super) fn result_without_stream(&mut self, call: &CallRef, lease: &str) {
        if self.assignment(call).is_some_and(|assignment| assignment.lease == lease) {
            self.begin_recording(&call.call);
        }
    }

    /// The result of a call arrived: the host no longer has the call, and the run gets no more updates of it.
    pub(super) fn begin_recording(&mut self, id: &CallId) {
        let Some(call) = self.remove(id) else { return };
        if let FleetCallState::Assigned(assignment) = call.state {
            self.calls.insert(
                id.clone(),
                TrackedCall { tool: call.tool, state: FleetCallState::Recording(assignment) },
            );
        }
    }
}
