//! What happens by time alone.

use super::{Pool, Timer};
use crate::host::call::State;
use crate::host::frame::{Ran, ServerFrame};
use crate::host::io::{CloseReason, ConnectionId, Output};
use crate::id::{CallId, HostId};
use crate::time::{Millis, Timestamp};

impl Pool {
    pub(in crate::host) fn handle_time(&mut self, now: Timestamp) -> Vec<Output> {
        self.now = now;
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Call(id) => self.call_is_due(&id),
                Timer::Checkpoint(id) => self.tell_checkpoint(&id),
                Timer::Lease(host) => self.check_lease(&host),
                Timer::Busy(host) => self.end_pause(host),
            }
        }
        self.finish()
    }

    fn call_is_due(&mut self, id: &CallId) {
        if self.closing {
            // Whoever takes over waits for it anew: it is in the run's journal.
            return;
        }
        match self.calls.get(id).map(|call| call.state.clone()) {
            Some(State::Waiting) => self.waited_in_vain(id),
            // The host did not come back, and with it goes what the call needed of it.
            Some(State::Pinned { .. }) => self.place_anywhere(id),
            Some(State::Promised { .. }) => self.await_no_answer(id),
            Some(State::Held(held)) => {
                let call = held.call_ref(id);
                let message = if held.connection.is_some() {
                    // What keeps it from confirming one call keeps it from confirming the next.
                    self.pause(&held.host, self.options.accept_timeout);
                    self.stop(&call, &held, "not confirmed in time".to_owned());
                    format!("host {} did not confirm the call in time", held.host)
                } else {
                    format!("host {} did not come back in time", held.host)
                };
                self.lose(&call, Ran::Maybe, message);
            }
            Some(State::Reserved { .. } | State::Answering(_)) | None => {}
        }
    }

    /// Leaves a host alone for a while.
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
            self.freed.insert(host);
        }
    }

    /// The server goes down: no call is placed any more, and every host is asked to connect elsewhere. Calls in hand
    /// go on until the streams end.
    pub(in crate::host) fn go_away(&mut self, reconnect_after: Millis) -> Vec<Output> {
        self.closing = true;
        let connections: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for connection in connections {
            let reason = "the server is shutting down".to_owned();
            self.send(connection, ServerFrame::GoAway { reconnect_after, reason });
        }
        self.finish()
    }

    /// Every stream ends.
    pub(in crate::host) fn close_all(&mut self) -> Vec<Output> {
        self.closing = true;
        let connections: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for connection in connections {
            self.drop_connection(connection, CloseReason::ShuttingDown);
        }
        self.finish()
    }
}
