//! Results that are on their way while the next attempt of their call already looks for a host.

use super::{TenantPool, Timer};
use crate::host::call::{FleetCallState, TrackedCall};
use crate::host::frame::CallRef;
use crate::id::{Attempt, CallId, HostId};

impl TenantPool {
    /// A reconnecting host says that it has the result of the last attempt of a call that is queued or pinned.
    ///
    /// The next attempt is not placed until that result arrives or the wait times out. If the result ends the call, its
    /// run stops seeking a host.
    pub(super) fn await_late_result(&mut self, id: &CallId, attempt: Attempt) {
        let Some(TrackedCall { tool: Some(tool), state }) = self.remove(id) else { return };
        let on = match state {
            FleetCallState::Pinned { host } => Some(host),
            FleetCallState::Queued
            | FleetCallState::AwaitingResult { .. }
            | FleetCallState::Reserved { .. }
            | FleetCallState::Assigned(_)
            | FleetCallState::Recording(_) => None,
        };
        self.await_result(id.clone(), tool, attempt, on);
    }

    /// Makes a call wait for the result of its last attempt. The call must not be tracked at the moment.
    pub(super) fn await_result(&mut self, id: CallId, tool: String, attempt: Attempt, on: Option<HostId>) {
        self.timers.set(Timer::Call(id.clone()), self.now.after(self.options.accept_timeout));
        self.calls.insert(
            id,
            TrackedCall { tool: Some(tool), state: FleetCallState::AwaitingResult { attempt, on } },
        );
    }

    /// True if the next attempt of a call waits for the result of this one.
    pub(super) fn awaits_result(&self, call: &CallRef) -> bool {
        match self.calls.get(&call.call).map(|call| &call.state) {
            Some(FleetCallState::AwaitingResult { attempt, .. }) => *attempt == call.attempt,
            Some(
                FleetCallState::Queued
                | FleetCallState::Pinned { .. }
                | FleetCallState::Reserved { .. }
                | FleetCallState::Assigned(_)
                | FleetCallState::Recording(_),
            )
            | None => false,
        }
    }

    /// Ends the wait, because the result did not come or did not end the call: the next attempt is placed.
    pub(super) fn stop_awaiting_result(&mut self, id: &CallId) {
        let Some(TrackedCall { tool: Some(tool), state: FleetCallState::AwaitingResult { on, .. } }) =
            self.remove(id)
        else {
            return;
        };
        match on {
            Some(host) => self.place_on(id.clone(), tool, host),
            None => self.place(id.clone(), tool),
        }
    }
}
