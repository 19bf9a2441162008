//! The pool for people to look at.

use super::{Pool, Tool};
use crate::host::call::State;
use crate::host::io::{FleetCounts, HostHealth, HostView, ToolView};
use crate::host::session::Host;
use crate::id::{CallId, HostId};

impl Pool {
    pub(in crate::host) fn host_views(&self) -> Vec<HostView> {
        self.hosts.iter().map(|(id, host)| host_view(id, host)).collect()
    }

    pub(in crate::host) fn tool_views(&self) -> Vec<ToolView> {
        self.tools.iter().map(|(name, tool)| self.tool_view(name, tool)).collect()
    }

    fn tool_view(&self, name: &str, tool: &Tool) -> ToolView {
        let on_hosts = self
            .calls
            .values()
            .filter(|call| call.tool.as_deref() == Some(name))
            .filter(|call| matches!(call.state, State::Reserved { .. } | State::Held(_)));
        ToolView {
            name: name.to_owned(),
            hosts: tool.hosts.iter().cloned().collect(),
            calls: on_hosts.count(),
            queued: tool.queue.len(),
        }
    }

    pub(in crate::host) fn counts(&self) -> FleetCounts {
        let is_on_a_host =
            |state: &State| matches!(state, State::Reserved { .. } | State::Held(_) | State::Answering(_));
        FleetCounts {
            connected: self.hosts.values().filter(|host| host.connection.is_some()).count(),
            calls: self.calls.values().filter(|call| is_on_a_host(&call.state)).count(),
            queued: self.tools.values().map(|tool| tool.queue.len()).sum(),
        }
    }

    /// Whether somebody serves the tool and takes calls.
    pub(in crate::host) fn serves(&self, tool: &str) -> bool {
        self.tools.get(tool).is_some_and(|known| !known.hosts.is_empty())
    }

    /// The host that has a call, or may have it.
    pub(in crate::host) fn holder(&self, call: &CallId) -> Option<HostId> {
        match &self.calls.get(call)?.state {
            State::Held(held) | State::Answering(held) => Some(held.host.clone()),
            State::Waiting | State::Pinned { .. } | State::Promised { .. } | State::Reserved { .. } => None,
        }
    }
}

fn host_view(id: &HostId, host: &Host) -> HostView {
    let connection = host.connection.as_ref();
    HostView {
        host: id.clone(),
        health: match connection {
            Some(stream) if stream.draining => HostHealth::Draining,
            Some(_) => HostHealth::Connected,
            None => HostHealth::Lost,
        },
        sdk: host.sdk.clone(),
        labels: host.labels.clone(),
        tools: connection.map(|stream| stream.tools.keys().cloned().collect()).unwrap_or_default(),
        calls: host.calls.len(),
        free_credit: connection.map(|stream| stream.credit.free()).unwrap_or_default(),
        connected_at: host.connected_at,
        last_heard: host.last_heard,
        ignored_frames: host.ignored_frames,
    }
}
