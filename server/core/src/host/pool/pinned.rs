//! Calls that need what one host has, and the runtimes that they need.

use super::{Pool, Timer};
use crate::host::call::{Call, State};
use crate::host::frame::{CallRequest, ServerFrame};
use crate::host::io::ConnectionId;
use crate::id::{CallId, HostId};

impl Pool {
    /// Gives a call to one host, now or as soon as it has room. A host that is away has the grace period to come back;
    /// one that does not take such calls any more has lost what made the call wait for it.
    pub(super) fn place_on(&mut self, id: CallId, tool: String, host: HostId) {
        let stream = self.hosts.get(&host).and_then(|host| host.connection.as_ref());
        match stream.map(|stream| (stream.id, stream.serves(&tool))) {
            Some((_, false)) => self.place(id, tool),
            Some((connection, true))
                if !self.closing && self.hosts[&host].has_room_for(&id, &tool, self.now) =>
            {
                self.grant(id, tool, host, connection);
            }
            Some(_) => self.pin(id, tool, host),
            None => {
                let until = self.now.after(self.options.grace_period);
                self.timers.set(Timer::Call(id.clone()), until);
                self.pin(id, tool, host);
            }
        }
    }

    fn pin(&mut self, id: CallId, tool: String, host: HostId) {
        if self.pinned.get(&host).is_some_and(|calls| calls.len() >= self.options.queue_per_tool_max) {
            self.timers.clear(&Timer::Call(id.clone()));
            return self.deny(&id, format!("too many calls wait for host {host}; try again later"));
        }
        self.pinned.entry(host.clone()).or_default().push_back(id.clone());
        self.calls.insert(id, Call { tool: Some(tool), state: State::Pinned { host } });
    }

    /// A call waits for its host no longer.
    pub(super) fn unpin(&mut self, id: &CallId, host: &HostId) {
        let Some(calls) = self.pinned.get_mut(host) else { return };
        calls.retain(|waiting| waiting != id);
        if calls.is_empty() {
            self.pinned.remove(host);
        }
    }

    /// A call waits for any host from here on.
    pub(super) fn place_anywhere(&mut self, id: &CallId) {
        if let Some(tool) = self.remove(id).and_then(|call| call.tool) {
            self.place(id.clone(), tool);
        }
    }

    /// Gives what room a host has to the calls that wait for it alone; those that it does not take any more go
    /// elsewhere.
    pub(super) fn fill_pinned(&mut self, host: &HostId) {
        let Some(waiting) = self.pinned.get(host) else { return };
        for id in Vec::from_iter(waiting.iter().cloned()) {
            let Some(tool) = self.calls.get(&id).and_then(|call| call.tool.clone()) else { continue };
            let Some(known) = self.hosts.get(host).filter(|_| !self.closing) else { return };
            let Some(stream) = known.connection.as_ref() else { return };
            let connection = stream.id;
            if !stream.serves(&tool) {
                self.place_anywhere(&id);
            } else if known.has_room_for(&id, &tool, self.now) {
                self.remove(&id);
                self.grant(id, tool, host.clone(), connection);
            }
        }
    }

    /// A host is there: what waits for it has no time set any more.
    pub(super) fn await_no_longer(&mut self, host: &HostId) {
        for id in self.pinned.get(host).into_iter().flatten() {
            self.timers.clear(&Timer::Call(id.clone()));
        }
    }

    /// A host is gone: what waits for it waits for the grace period.
    pub(super) fn await_return(&mut self, host: &HostId) {
        let until = self.now.after(self.options.grace_period);
        for id in self.pinned.get(host).into_iter().flatten() {
            self.timers.set(Timer::Call(id.clone()), until);
        }
    }

    /// Has the host open the runtime that a call needs, unless it has it.
    pub(super) fn open_runtime(&mut self, connection: ConnectionId, request: &CallRequest) {
        let Some(runtime) = &request.runtime else { return };
        let Some(stream) = self.stream(&request.host, connection) else { return };
        if stream.runtimes.insert(runtime.id.to_string()) {
            let (runtime, session) = (Box::new(runtime.clone()), request.session.clone());
            self.send(connection, ServerFrame::OpenRuntime { runtime, session });
        }
    }

    /// Has the host close a runtime. One that is away says so when it comes back with it.
    pub(super) fn close_runtime(&mut self, host: &HostId, runtime: String) {
        let Some(stream) = self.hosts.get_mut(host).and_then(|host| host.connection.as_mut()) else { return };
        stream.runtimes.remove(&runtime);
        let connection = stream.id;
        self.send(connection, ServerFrame::CloseRuntime { runtime });
    }

    /// Whether a host has a stream.
    #[cfg(test)]
    pub(super) fn is_connected(&self, host: &HostId) -> bool {
        self.hosts.get(host).is_some_and(|host| host.connection.is_some())
    }
}
