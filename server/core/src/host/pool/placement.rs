//! Placement of calls: seeking a host, granting one, and waiting in the queue of a tool.

use std::ops::Bound;
use std::sync::Arc;

use super::{TenantPool, Timer};
use crate::host::call::{Assignment, FleetCallState, TrackedCall};
use crate::host::frame::ServerFrame;
use crate::host::host_state::HostState;
use crate::host::io::{CallUpdate, ConnectionId, FleetOutput};
use crate::id::{CallId, HostId};
use crate::tool::ToolTerms;

/// Up to this many hosts of a tool are compared one by one. Among more, walking all hosts from the least loaded on is
/// quicker.
const FEW_HOSTS: usize = 8;

impl TenantPool {
    pub(super) fn remember(&mut self, tools: Vec<String>) {
        for tool in tools {
            self.tools.entry(tool).or_default();
        }
    }

    pub(super) fn forget(&mut self, tool: &str) {
        if self.tools.get(tool).is_some_and(|known| known.hosts.is_empty() && known.queue.is_empty()) {
            self.tools.remove(tool);
        }
    }

    pub(super) fn seek(&mut self, id: CallId, tool: String, on: Option<HostId>) {
        match self.calls.get(&id).map(|call| call.state.clone()) {
            Some(
                FleetCallState::Queued
                | FleetCallState::Pinned { .. }
                | FleetCallState::AwaitingResult { .. },
            ) => return,
            Some(FleetCallState::Reserved { host, connection, terms })
                if self.declared(&host, connection, &tool).is_some_and(|declared| **declared == *terms) =>
            {
                return self.tell_granted(&id, host, connection, terms);
            }
            Some(FleetCallState::Assigned(assignment))
                if assignment.finished && assignment.connection.is_some() =>
            {
                self.remove(&id);
                return self.await_result(id, tool, assignment.attempt, on);
            }
            Some(FleetCallState::Assigned(assignment)) => self.revoke(&id, &assignment),
            Some(FleetCallState::Reserved { .. } | FleetCallState::Recording(_)) => {
                self.remove(&id);
            }
            None => {}
        }
        match on {
            Some(host) => self.place_on(id, tool, host),
            None => self.place(id, tool),
        }
    }

    pub(super) fn stop_seeking(&mut self, id: &CallId) {
        if let Some(
            FleetCallState::Queued
            | FleetCallState::Pinned { .. }
            | FleetCallState::AwaitingResult { .. }
            | FleetCallState::Reserved { .. },
        ) = self.calls.get(id).map(|call| &call.state)
        {
            self.remove(id);
        }
    }

    /// Takes an assigned call from its host, and tells the host that its lease is lost.
    pub(super) fn revoke(&mut self, id: &CallId, assignment: &Assignment) {
        self.remove(id);
        if let Some(connection) = assignment.connection {
            self.touch_call(&assignment.call_ref(id), assignment);
            self.send(connection, ServerFrame::LeaseLost(assignment.call_ref(id)));
        }
    }

    pub(super) fn place(&mut self, id: CallId, tool: String) {
        let Some(known) = self.tools.get(&tool) else {
            return self.deny(&id, format!("no tool host serves `{tool}`"));
        };
        let full = known.queue.len() >= self.options.queue_per_tool;
        match self.best_host(&id, &tool) {
            Some((host, connection)) => self.grant(id, tool, host, connection),
            None if full => self.deny(&id, format!("too many calls wait for `{tool}`; try again later")),
            None => self.queue(id, tool),
        }
    }

    pub(super) fn deny(&mut self, id: &CallId, message: String) {
        self.tell(id, CallUpdate::Denied { message });
    }

    /// The least loaded host with room for the call; among equals the one with the most credit.
    fn best_host(&mut self, id: &CallId, tool: &str) -> Option<(HostId, ConnectionId)> {
        let (hosts, serving, now) = (&mut self.hosts, &self.tools[tool].hosts, self.now);
        if self.closing {
            return None;
        }
        let has_room = |(_, host): &(&HostId, &HostState)| host.has_room_for(id, tool, now);
        let best = if serving.len() <= FEW_HOSTS {
            serving.iter().map(|id| (id, &hosts[id])).filter(has_room).min_by_key(|(_, host)| host.rank())
        } else {
            hosts.by_load().find(has_room)
        };
        best.and_then(|(id, host)| Some((id.clone(), host.connection.as_ref()?.id)))
    }

    pub(super) fn grant(&mut self, id: CallId, tool: String, host: HostId, connection: ConnectionId) {
        let stream = self.stream(&host, connection).expect("a host with room is connected");
        stream.credit.reserve();
        stream.occupy(Some(&tool));
        let terms = stream.tools.get(&tool).expect("a host with room serves the tool").terms.clone();
        self.tell_granted(&id, host.clone(), connection, terms.clone());
        let state = FleetCallState::Reserved { host, connection, terms };
        self.calls.insert(id, TrackedCall { tool: Some(tool), state });
    }

    fn tell_granted(&mut self, id: &CallId, host: HostId, connection: ConnectionId, terms: Arc<ToolTerms>) {
        let instance = self.stream(&host, connection).and_then(|stream| stream.instance.clone());
        self.tell(id, CallUpdate::Granted { host, instance, terms: Some(terms) });
    }

    /// The terms that a connected host declares for a tool by now.
    pub(super) fn declared(
        &mut self,
        host: &HostId,
        connection: ConnectionId,
        tool: &str,
    ) -> Option<&Arc<ToolTerms>> {
        self.stream(host, connection)?.tools.get(tool).map(|offered| &offered.terms)
    }

    fn queue(&mut self, id: CallId, tool: String) {
        let known = self.tools.get_mut(&tool).expect("a call waits for a known tool");
        known.queue.push(id.clone());
        if known.hosts.is_empty() {
            self.timers.set(Timer::Call(id.clone()), self.now.after(self.options.host_wait));
        }
        self.waiting.insert(tool.clone());
        self.calls.insert(id, TrackedCall { tool: Some(tool), state: FleetCallState::Queued });
    }

    pub(super) fn unqueue(&mut self, id: &CallId, tool: Option<&str>) {
        let Some((name, tool)) = tool.and_then(|tool| Some((tool, self.tools.get_mut(tool)?))) else {
            return;
        };
        tool.queue.remove(id);
        if tool.queue.is_empty() {
            self.waiting.remove(name);
        }
    }

    /// Grants the room that a host has: first to calls pinned to it, then to its tools' queues round-robin.
    pub(super) fn fill(&mut self, host: &HostId) {
        self.fill_pinned(host);
        while let Some((tool, connection)) = self.next_for(host) {
            let known = self.tools.get_mut(&tool).expect("a call waits for a known tool");
            let may_get = |id: &CallId| self.hosts[host].may_get(id);
            let id = known.queue.pop(may_get).expect("next_for found a call that fits");
            if known.queue.is_empty() {
                self.waiting.remove(&tool);
            }
            if let Some(stream) = self.stream(host, connection) {
                stream.last_tool.clone_from(&tool);
            }
            self.grant(id, tool, host.clone(), connection);
        }
    }

    /// The next tool, by name after the last one served, with a queued call that this host has room for and may get.
    fn next_for(&self, id: &HostId) -> Option<(String, ConnectionId)> {
        let host = self.hosts.get(id).filter(|_| !self.closing)?;
        let connection = host.connection.as_ref()?;
        let after = (Bound::Excluded(connection.last_tool.as_str()), Bound::Unbounded);
        let wrapped = (Bound::Unbounded, Bound::Included(connection.last_tool.as_str()));
        self.waiting
            .range::<str, _>(after)
            .chain(self.waiting.range::<str, _>(wrapped))
            .find(|tool| host.has_room(tool, self.now) && self.tools[*tool].queue.has(|id| host.may_get(id)))
            .map(|tool| (tool.clone(), connection.id))
    }

    /// Records that a connected host serves a tool.
    pub(super) fn serve(&mut self, tool: &str, host: &HostId) {
        let known = self.tools.entry(tool.to_owned()).or_default();
        if known.hosts.is_empty() {
            for waiting in known.queue.iter() {
                self.timers.clear(&Timer::Call(waiting.clone()));
            }
            self.out.push(FleetOutput::Served { tenant: self.tenant.clone(), tool: tool.to_owned() });
        }
        known.hosts.insert(host.clone());
    }

    /// Records that a host no longer serves a tool. After the last such host, queued calls wait for one to connect.
    pub(super) fn unserve(&mut self, tool: &str, host: &HostId) {
        let Some(known) = self.tools.get_mut(tool) else { return };
        if !known.hosts.remove(host) || !known.hosts.is_empty() {
            return;
        }
        let until = self.now.after(self.options.host_wait);
        for waiting in known.queue.iter() {
            self.timers.set(Timer::Call(waiting.clone()), until);
        }
        self.out.push(FleetOutput::Unserved { tenant: self.tenant.clone(), tool: tool.to_owned() });
    }

    /// Denies a queued call because no host of its tool connected in time.
    pub(super) fn deny_without_host(&mut self, id: &CallId) {
        let Some(call) = self.remove(id) else { return };
        let tool = call.tool.unwrap_or_default();
        self.deny(id, format!("no tool host that serves `{tool}` is connected"));
    }
}
