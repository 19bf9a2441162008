//! The invariants of a pool, as tests check them between any two inputs.

use std::collections::{BTreeMap, BTreeSet};

use super::{TenantPool, Timer};
use crate::host::call::FleetCallState;
use crate::id::{CallId, HostId};

impl TenantPool {
    /// Asserts all invariants. Only valid between two inputs.
    pub(in crate::host) fn check(&self) {
        assert!(self.hosts_with_room.is_empty() && self.out.is_empty(), "an input was not finished");
        self.hosts.check();
        self.check_connections();
        self.check_holders();
        self.check_unacknowledged();
        self.check_bounds();
        self.check_queues();
        self.check_pinned();
        if !self.closing {
            self.check_timers();
        }
    }

    fn check_connections(&self) {
        let with_stream: BTreeMap<_, _> =
            self.hosts.iter().filter_map(|(id, host)| Some((host.connection.as_ref()?.id, id))).collect();
        let known: BTreeMap<_, _> =
            self.connections.iter().map(|(connection, host)| (*connection, host)).collect();
        assert_eq!(with_stream, known);
        for (name, tool) in &self.tools {
            for host in &tool.hosts {
                let stream = self.hosts[host].connection.as_ref().expect("only connected hosts serve");
                assert!(!stream.draining && stream.tools.contains_key(name), "{host} serves {name}");
            }
        }
    }

    /// Calls and hosts agree on assignments, and a disconnected host is kept only for its calls.
    fn check_holders(&self) {
        let mut by_host: BTreeMap<&HostId, BTreeSet<&CallId>> = BTreeMap::new();
        for (id, call) in &self.calls {
            if let FleetCallState::Assigned(assignment) = &call.state {
                by_host.entry(&assignment.host).or_default().insert(id);
                let current = self.hosts[&assignment.host].connection.as_ref().map(|stream| stream.id);
                assert!(
                    assignment.connection.is_none() || assignment.connection == current,
                    "{id} is on a dead stream"
                );
            }
        }
        for (id, host) in self.hosts.iter() {
            assert_eq!(by_host.remove(id).unwrap_or_default(), host.calls.iter().collect(), "{id}");
            assert!(host.connection.is_some() || !host.calls.is_empty(), "{id} is kept for nothing");
        }
        assert!(by_host.is_empty());
    }

    /// Pool and connections agree on the unacknowledged results of cancelled calls.
    fn check_unacknowledged(&self) {
        let mut ending: BTreeMap<_, BTreeSet<HostId>> = BTreeMap::new();
        for (id, host) in self.hosts.iter() {
            for call in host.connection.iter().flat_map(|stream| &stream.unacknowledged) {
                ending.entry(call.clone()).or_default().insert(id.clone());
            }
        }
        assert_eq!(ending, self.unacknowledged);
    }

    /// Every call that takes up room is counted, and credit is never overdrawn.
    fn check_bounds(&self) {
        for (_, host) in self.hosts.iter() {
            let Some(stream) = &host.connection else { continue };
            let mut running: BTreeMap<&str, u32> = BTreeMap::new();
            let mut reserved = 0;
            for call in self.calls.values() {
                let here = match &call.state {
                    FleetCallState::Reserved { connection, .. } => {
                        reserved += usize::from(*connection == stream.id);
                        *connection == stream.id
                    }
                    FleetCallState::Assigned(assignment) => assignment.connection == Some(stream.id),
                    FleetCallState::Queued
                    | FleetCallState::Pinned { .. }
                    | FleetCallState::AwaitingResult { .. }
                    | FleetCallState::Recording(_) => false,
                };
                if let Some(tool) = call.tool.as_deref().filter(|_| here) {
                    *running.entry(tool).or_default() += 1;
                }
            }
            for tool in stream.stopping.values().filter_map(|stopping| stopping.tool.as_ref()) {
                *running.entry(tool).or_default() += 1;
            }
            assert_eq!(stream.credit.reserved(), reserved);
            assert!(stream.credit.is_sound(), "{:?}", stream.credit);
            let tools: BTreeSet<&str> =
                stream.tools.keys().map(String::as_str).chain(running.keys().copied()).collect();
            for tool in tools {
                assert_eq!(stream.running(tool), running.get(tool).copied().unwrap_or_default(), "{tool}");
            }
        }
    }

    /// A queued call is in the queue of its tool, and waits only while no host has room for it.
    fn check_queues(&self) {
        let waiting = self.calls.iter().filter(|(_, call)| matches!(call.state, FleetCallState::Queued));
        let waiting: BTreeSet<_> = waiting
            .map(|(id, call)| (call.tool.clone().expect("a waiting call has a tool"), id.clone()))
            .collect();
        let mut queued = BTreeSet::new();
        for (name, tool) in &self.tools {
            assert!(tool.queue.len() <= self.options.queue_per_tool);
            assert_eq!(tool.queue.len(), tool.queue.iter().count());
            assert_eq!(self.waiting.contains(name), !tool.queue.is_empty(), "{name}");
            queued.extend(tool.queue.iter().map(|id| (name.clone(), id.clone())));
            if !tool.queue.is_empty() && !self.closing {
                let idle = |id: &CallId| {
                    tool.hosts.iter().find(|host| self.hosts[*host].has_room_for(id, name, self.now))
                };
                let waits_for_nothing = tool.queue.iter().find(|id| idle(id).is_some());
                assert_eq!(waits_for_nothing, None, "{name}");
            }
        }
        assert_eq!(waiting, queued);
    }

    /// A pinned call waits only while its host is disconnected or has no room.
    fn check_pinned(&self) {
        let pinned = self.calls.iter().filter_map(|(id, call)| match &call.state {
            FleetCallState::Pinned { host } => Some((host.clone(), id.clone(), call.tool.clone()?)),
            FleetCallState::Queued
            | FleetCallState::AwaitingResult { .. }
            | FleetCallState::Reserved { .. }
            | FleetCallState::Assigned(_)
            | FleetCallState::Recording(_) => None,
        });
        let mut listed = 0;
        for (host, id, tool) in pinned {
            listed += 1;
            assert!(self.pinned[&host].contains(&id), "{id} waits for {host}");
            if let Some(host) =
                self.hosts.get(&host).filter(|host| host.connection.is_some() && !self.closing)
            {
                assert!(!host.has_room_for(&id, &tool, self.now), "{id} waits for nothing");
                assert!(host.connection.as_ref().is_some_and(|stream| stream.serves(&tool)), "{id}");
            }
        }
        assert_eq!(self.pinned.values().map(std::collections::VecDeque::len).sum::<usize>(), listed);
        assert!(self.pinned.values().all(|calls| !calls.is_empty()));
    }

    /// Every state that must not last for ever has a timer, and nothing else has one.
    fn check_timers(&self) {
        let mut expected = self.connections.len();
        for (id, call) in &self.calls {
            let timed = match &call.state {
                FleetCallState::Queued => {
                    self.tools[call.tool.as_ref().expect("it has a tool")].hosts.is_empty()
                }
                FleetCallState::Pinned { host } => !self.is_connected(host),
                FleetCallState::AwaitingResult { .. } => true,
                FleetCallState::Assigned(assignment) => {
                    assignment.connection.is_none() || !assignment.accepted
                }
                FleetCallState::Reserved { .. } | FleetCallState::Recording(_) => false,
            };
            assert_eq!(self.timers.get(&Timer::Call(id.clone())).is_some(), timed, "{id} {:?}", call.state);
            expected += usize::from(timed);
            let saved = matches!(&call.state, FleetCallState::Assigned(assignment) if assignment.checkpoint.is_some());
            assert_eq!(self.timers.get(&Timer::Checkpoint(id.clone())).is_some(), saved, "{id}");
            expected += usize::from(saved);
        }
        for (id, host) in self.hosts.iter() {
            let Some(stream) = &host.connection else { continue };
            assert!(self.timers.get(&Timer::Lease(id.clone())).is_some(), "{id}");
            assert_eq!(self.timers.get(&Timer::Busy(id.clone())), stream.busy_until, "{id}");
            expected += usize::from(stream.busy_until.is_some());
        }
        assert_eq!(self.timers.len(), expected);
    }
}
