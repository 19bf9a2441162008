//! Timers that go off, pauses of hosts, and shutting down.

use super::{TenantPool, Timer};
use crate::host::call::FleetCallState;
use crate::host::frame::{CancelCause, Ran, ServerFrame};
use crate::host::io::{CloseReason, ConnectionId, FleetOutput};
use crate::id::{CallId, HostId};
use crate::time::{Millis, Timestamp};

impl TenantPool {
    pub(in crate::host) fn handle_time(&mut self, now: Timestamp) -> Vec<FleetOutput> {
        self.now = now;
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Call(id) => self.call_timed_out(&id),
                Timer::Checkpoint(id) => self.report_checkpoint(&id),
                Timer::Lease(host) => self.check_lease(&host),
                Timer::Busy(host) => self.end_pause(host),
            }
        }
        self.finish()
    }

    fn call_timed_out(&mut self, id: &CallId) {
        if self.closing {
            // The next process waits for the call again: it is in the run's journal.
            return;
        }
        match self.calls.get(id).map(|call| call.state.clone()) {
            Some(FleetCallState::Queued) => self.deny_without_host(id),
            // The host did not reconnect, so the runtime that the call needed is gone.
            Some(FleetCallState::Pinned { .. }) => self.place_anywhere(id),
            Some(FleetCallState::AwaitingResult { .. }) => self.stop_awaiting_result(id),
            Some(FleetCallState::Assigned(assignment)) => {
                let call = assignment.call_ref(id);
                let message = if assignment.connection.is_some() {
                    // A host that does not confirm one call would not confirm the next one either.
                    self.pause(&assignment.host, self.options.accept_timeout);
                    self.stop(&call, &assignment, CancelCause::Settled, "not confirmed in time".to_owned());
                    format!("host {} did not confirm the call in time", assignment.host)
                } else {
                    format!("host {} did not come back in time", assignment.host)
                };
                self.report_lost(&call, Ran::Maybe, message);
            }
            Some(FleetCallState::Reserved { .. } | FleetCallState::Recording(_)) | None => {}
        }
    }

    /// Grants a host no calls for this long. A longer pause that is under way stands.
    pub(super) fn pause(&mut self, host: &HostId, length: Millis) {
        let until = self.now.after(length);
        if let Some(stream) = self.hosts.get_mut(host).and_then(|host| host.connection.as_mut()) {
            let until = stream.busy_until.map_or(until, |before| before.max(until));
            stream.busy_until = Some(until);
            self.timers.set(Timer::Busy(host.clone()), until);
        }
    }

    fn end_pause(&mut self, host: HostId) {
        if let Some(stream) = self.hosts.get_mut(&host).and_then(|host| host.connection.as_mut()) {
            stream.busy_until = None;
            self.hosts_with_room.insert(host);
        }
    }

    /// Begins a shutdown: no call is granted any more.
    pub(in crate::host) fn stop_granting(&mut self) {
        self.closing = true;
    }

    /// Goes on with a shutdown: no call is granted any more, and every host is told to reconnect. Assigned calls go on
    /// until the streams are closed.
    pub(in crate::host) fn go_away(&mut self, reconnect_after: Millis) -> Vec<FleetOutput> {
        self.closing = true;
        let connections: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for connection in connections {
            let reason = "the server is shutting down".to_owned();
            self.send(connection, ServerFrame::GoAway { reconnect_after, reason });
        }
        self.finish()
    }

    /// Ends a shutdown: every stream is closed.
    pub(in crate::host) fn close_all(&mut self) -> Vec<FleetOutput> {
        self.closing = true;
        let connections: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for connection in connections {
            self.close_stream(connection, CloseReason::ShuttingDown);
        }
        self.finish()
    }
}
