//! Calls that only one host may get, because it has the runtime of their run; and opening and closing runtimes.

use super::{TenantPool, Timer};
use crate::host::call::{FleetCallState, TrackedCall};
use crate::host::frame::{CallRequest, ServerFrame};
use crate::host::io::ConnectionId;
use crate::id::{CallId, HostId};
use crate::time::Timestamp;

impl TenantPool {
    /// Grants a call room on one host, now or as soon as it has some. A disconnected host has the grace period to
    /// reconnect. If the host no longer serves the tool, its runtime is gone too, and any host may get the call.
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
                let until = self.end_of_absence();
                self.timers.set(Timer::Call(id.clone()), until);
                self.pin(id, tool, host);
            }
        }
    }

    fn pin(&mut self, id: CallId, tool: String, host: HostId) {
        if self.pinned.get(&host).is_some_and(|calls| calls.len() >= self.options.queue_per_tool) {
            self.timers.clear(&Timer::Call(id.clone()));
            return self.deny(&id, format!("too many calls wait for host {host}; try again later"));
        }
        self.pinned.entry(host.clone()).or_default().push_back(id.clone());
        self.calls.insert(id, TrackedCall { tool: Some(tool), state: FleetCallState::Pinned { host } });
    }

    /// Removes a call from the queue of its host.
    pub(super) fn unpin(&mut self, id: &CallId, host: &HostId) {
        let Some(calls) = self.pinned.get_mut(host) else { return };
        calls.retain(|waiting| waiting != id);
        if calls.is_empty() {
            self.pinned.remove(host);
        }
    }

    /// Places a pinned call on any host.
    pub(super) fn place_anywhere(&mut self, id: &CallId) {
        if let Some(tool) = self.remove(id).and_then(|call| call.tool) {
            self.place(id.clone(), tool);
        }
    }

    /// Grants the room that a host has to calls pinned to it. Calls of tools that it no longer serves go to any host.
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

    /// A host connected: calls pinned to it wait without a time limit.
    pub(super) fn clear_return_timers(&mut self, host: &HostId) {
        for id in self.pinned.get(host).into_iter().flatten() {
            self.timers.clear(&Timer::Call(id.clone()));
        }
    }

    /// A host disconnected: calls pinned to it wait until then for its return.
    pub(super) fn set_return_timers(&mut self, host: &HostId, until: Timestamp) {
        for id in self.pinned.get(host).into_iter().flatten() {
            self.timers.set(Timer::Call(id.clone()), until);
        }
    }

    /// Tells the host to open the runtime that a call needs, unless it is open.
    pub(super) fn open_runtime(&mut self, connection: ConnectionId, request: &CallRequest) {
        let Some(runtime) = &request.runtime else { return };
        let Some(stream) = self.stream(&request.host, connection) else { return };
        if stream.runtimes.insert(runtime.id.to_string()) {
            let (runtime, session) = (Box::new(runtime.clone()), request.session.clone());
            self.send(connection, ServerFrame::OpenRuntime { runtime, session });
        }
    }

    /// Tells the host to close a runtime. A disconnected host names its open runtimes when it reconnects.
    pub(super) fn close_runtime(&mut self, host: &HostId, runtime: String) {
        let Some(stream) = self.hosts.get_mut(host).and_then(|host| host.connection.as_mut()) else { return };
        stream.runtimes.remove(&runtime);
        let connection = stream.id;
        self.send(connection, ServerFrame::CloseRuntime { runtime });
    }

    /// True if the host is connected.
    #[cfg(test)]
    pub(super) fn is_connected(&self, host: &HostId) -> bool {
        self.hosts.get(host).is_some_and(|host| host.connection.is_some())
    }
}
