//! Answers that are on their way when their calls seek the next host already.

use super::{Pool, Timer};
use crate::host::call::{Call, State};
use crate::host::frame::CallRef;
use crate::id::{CallId, HostId};

impl Pool {
    /// A host says that it has the result of the last try of a call that waits for a host. The next try is not placed
    /// until that result arrives or times out. The call's owner says what came of it, and stops waiting for a host if the
    /// result settled the call.
    pub(super) fn promise(&mut self, id: &CallId, attempt: u32) {
        let Some(Call { tool: Some(tool), state }) = self.remove(id) else { return };
        let on = match state {
            State::Pinned { host } => Some(host),
            State::Waiting
            | State::Promised { .. }
            | State::Reserved { .. }
            | State::Held(_)
            | State::Answering(_) => None,
        };
        self.await_answer(id.clone(), tool, attempt, on);
    }

    /// A call waits for the answer of its last try.
    pub(super) fn await_answer(&mut self, id: CallId, tool: String, attempt: u32, on: Option<HostId>) {
        self.timers.set(Timer::Call(id.clone()), self.now.after(self.options.accept_timeout));
        self.calls.insert(id, Call { tool: Some(tool), state: State::Promised { attempt, on } });
    }

    /// Whether the next try of a call waits for the answer of this one.
    pub(super) fn awaits_answer(&self, call: &CallRef) -> bool {
        match self.calls.get(&call.call).map(|call| &call.state) {
            Some(State::Promised { attempt, .. }) => *attempt == call.attempt,
            Some(
                State::Waiting
                | State::Pinned { .. }
                | State::Reserved { .. }
                | State::Held(_)
                | State::Answering(_),
            )
            | None => false,
        }
    }

    /// The answer did not come, or the call goes on without it: its next try is placed.
    pub(super) fn await_no_answer(&mut self, id: &CallId) {
        let Some(Call { tool: Some(tool), state: State::Promised { on, .. } }) = self.remove(id) else {
            return;
        };
        match on {
            Some(host) => self.place_on(id.clone(), tool, host),
            None => self.place(id.clone(), tool),
        }
    }
}
