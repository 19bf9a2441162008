//! Views of a pool, for listings and metrics.

use super::{PoolTool, TenantPool, first_of};
use crate::host::call::FleetCallState;
use crate::host::frame::CallInHand;
use crate::host::host_state::HostState;
use crate::host::view::{FleetCounts, HostHealth, HostView, ToolView};
use crate::id::{CallId, HostId, RunId, RuntimeId};

impl TenantPool {
    pub(in crate::host) fn host_views(&self) -> Vec<HostView> {
        self.hosts.iter().map(|(id, host)| host_view(id, host)).collect()
    }

    pub(in crate::host) fn tool_views(&self) -> Vec<ToolView> {
        self.tools.iter().map(|(name, tool)| self.tool_view(name, tool)).collect()
    }

    fn tool_view(&self, name: &str, tool: &PoolTool) -> ToolView {
        let on_hosts = self.calls.values().filter(|call| call.tool.as_deref() == Some(name)).filter(|call| {
            matches!(call.state, FleetCallState::Reserved { .. } | FleetCallState::Assigned(_))
        });
        ToolView {
            name: name.to_owned(),
            hosts: tool.hosts.iter().cloned().collect(),
            calls: on_hosts.count(),
            queued: tool.queue.len(),
        }
    }

    pub(in crate::host) fn counts(&self) -> FleetCounts {
        let is_on_a_host = |state: &FleetCallState| {
            matches!(
                state,
                FleetCallState::Reserved { .. } | FleetCallState::Assigned(_) | FleetCallState::Recording(_)
            )
        };
        FleetCounts {
            connected: self.hosts.iter().filter(|(_, host)| host.connection.is_some()).count(),
            calls: self.calls.values().filter(|call| is_on_a_host(&call.state)).count(),
            queued: self.tools.values().map(|tool| tool.queue.len()).sum(),
        }
    }

    /// True while a connected host has not said yet if it begins a call, or room is granted for a call.
    pub(in crate::host) fn has_open_offers(&self) -> bool {
        self.calls.values().any(|call| match &call.state {
            FleetCallState::Reserved { .. } => true,
            FleetCallState::Assigned(assignment) => assignment.is_unconfirmed(),
            FleetCallState::Queued
            | FleetCallState::Pinned { .. }
            | FleetCallState::AwaitingResult { .. }
            | FleetCallState::Recording(_) => false,
        })
    }

    /// True if the run of an offered call should wait until its host confirms or rejects it. A call that is not here was
    /// lost or rejected, and its run is about to be told so.
    pub(in crate::host) fn is_offer_open(&self, call: &CallId) -> bool {
        match self.calls.get(call).map(|call| &call.state) {
            Some(FleetCallState::Assigned(assignment)) => assignment.is_unconfirmed(),
            Some(FleetCallState::Recording(_)) | None => true,
            Some(
                FleetCallState::Queued
                | FleetCallState::Pinned { .. }
                | FleetCallState::AwaitingResult { .. }
                | FleetCallState::Reserved { .. },
            ) => false,
        }
    }

    /// True if a connected host serves the tool and is not draining.
    pub(in crate::host) fn serves(&self, tool: &str) -> bool {
        self.tools.get(tool).is_some_and(|known| !known.hosts.is_empty())
    }

    /// The calls of a run that connected hosts work on.
    pub(in crate::host) fn in_hand(&self, run: &RunId) -> Vec<CallInHand> {
        let of_run = self.calls.range(first_of(run)..).take_while(|(id, _)| id.run == *run);
        let at_hosts = of_run.filter_map(|(id, call)| match &call.state {
            FleetCallState::Assigned(assignment) if assignment.connection.is_some() => Some(CallInHand {
                call: assignment.call_ref(id),
                lease: assignment.lease.clone(),
                finished: assignment.finished,
            }),
            FleetCallState::Assigned(_)
            | FleetCallState::Recording(_)
            | FleetCallState::Queued
            | FleetCallState::Pinned { .. }
            | FleetCallState::AwaitingResult { .. }
            | FleetCallState::Reserved { .. } => None,
        });
        at_hosts.collect()
    }

    /// The runtimes of a run that connected hosts have open.
    pub(in crate::host) fn open_runtimes(&self, run: &RunId) -> Vec<(HostId, RuntimeId)> {
        // They are texts, of which those of one run stand together.
        let first = format!("{run}/");
        let of_host = |(id, host): (&HostId, &HostState)| -> Vec<(HostId, RuntimeId)> {
            let Some(stream) = &host.connection else { return Vec::new() };
            let of_run = stream.runtimes.range(first.clone()..).take_while(|text| text.starts_with(&first));
            of_run.filter_map(|text| Some((id.clone(), RuntimeId::parse(text)?))).collect()
        };
        self.hosts.iter().flat_map(of_host).collect()
    }

    /// The host that a call is assigned to, or whose result of it is being recorded.
    pub(in crate::host) fn holder(&self, call: &CallId) -> Option<HostId> {
        match &self.calls.get(call)?.state {
            FleetCallState::Assigned(assignment) | FleetCallState::Recording(assignment) => {
                Some(assignment.host.clone())
            }
            FleetCallState::Queued
            | FleetCallState::Pinned { .. }
            | FleetCallState::AwaitingResult { .. }
            | FleetCallState::Reserved { .. } => None,
        }
    }
}

fn host_view(id: &HostId, host: &HostState) -> HostView {
    let connection = host.connection.as_ref();
    HostView {
        host: id.clone(),
        instance: connection.and_then(|stream| stream.instance.clone()),
        health: match connection {
            Some(stream) if stream.draining => HostHealth::Draining,
            Some(_) => HostHealth::Connected,
            None => HostHealth::Lost,
        },
        sdk: host.sdk.clone(),
        labels: host.labels.clone(),
        status: host.status.clone(),
        tools: connection.map(|stream| stream.tools.keys().cloned().collect()).unwrap_or_default(),
        calls: host.calls.len(),
        free_credit: connection.map(|stream| stream.credit.free()).unwrap_or_default(),
        connected_at: host.connected_at,
        last_heard: host.last_heard,
        ignored_frames: host.ignored_frames,
    }
}
