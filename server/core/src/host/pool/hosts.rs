//! Hosts connect, change their tools, drain and disconnect.

use std::collections::BTreeSet;

use super::{TenantPool, Timer};
use crate::host::call::{Assignment, FleetCallState};
use crate::host::connection::{HostConnection, OfferedTool};
use crate::host::frame::{CallInHand, CallRef, Disposition, Ran, ServerFrame};
use crate::host::io::{CallUpdate, CloseReason, ConnectionId, FleetOutput, HostJoin, ServedTool};
use crate::id::{CallId, HostId};

impl TenantPool {
    pub(super) fn join(&mut self, join: HostJoin) {
        if self.hosts.get(&join.host).is_some_and(|host| host.has_newer(&join)) {
            let message = "a newer connection of this process took this one's place".to_owned();
            self.send(join.connection, ServerFrame::ProtocolError { message, call: None });
            self.close(join.connection, CloseReason::Replaced);
            return;
        }
        if let Some(before) = self.hosts.get(&join.host).and_then(|host| host.connection.as_ref()) {
            self.replace(before.id);
        }
        self.record_connection(&join);
        let tools = self.accept_tools(join.connection, &join.tools);
        let calls = self.accept_claims(&join);
        self.drop_unclaimed(&join);
        self.clear_return_timers(&join.host);
        self.out.insert(0, FleetOutput::Joined { connection: join.connection, tools, calls });
        self.hosts_with_room.insert(join.host);
    }

    fn replace(&mut self, connection: ConnectionId) {
        let message = "another connection with this host id took this one's place".to_owned();
        self.send(connection, ServerFrame::ProtocolError { message, call: None });
        self.close_stream(connection, CloseReason::Replaced);
    }

    fn record_connection(&mut self, join: &HostJoin) {
        let host = self.hosts.get_or_insert_disconnected(&join.host, self.now);
        host.sdk.clone_from(&join.sdk);
        host.labels.clone_from(&join.labels);
        host.connected_at = self.now;
        host.last_heard = self.now;
        host.connection = Some(HostConnection::new(join));
        host.newest = join.instance.clone().map(|instance| (instance, join.connection_no));
        self.connections.insert(join.connection, join.host.clone());
        self.timers.set(Timer::Lease(join.host.clone()), self.now.after(self.options.lease_timeout));
    }

    /// Records the tools that a host offers. Returns per tool, in order, why it is refused, or `None`.
    fn accept_tools(&mut self, connection: ConnectionId, offered: &[ServedTool]) -> Vec<Option<String>> {
        let Some((id, _)) = self.host_of(connection) else { return Vec::new() };
        offered
            .iter()
            .map(|tool| {
                let refused = self.terms_conflict(tool, &id);
                if refused.is_none() {
                    let offered =
                        OfferedTool { terms: tool.terms.clone(), max_concurrency: tool.max_concurrency };
                    let stream = self.stream(&id, connection).expect("host_of found the stream");
                    stream.tools.insert(tool.name.clone(), offered);
                    if !stream.draining {
                        self.serve(&tool.name, &id);
                    }
                }
                refused
            })
            .collect()
    }

    /// Refuses a tool that another host serves under other terms, and says so. A draining host does not count, so
    /// that a new version can take over from an old one.
    fn terms_conflict(&self, tool: &ServedTool, newcomer: &HostId) -> Option<String> {
        let known = self.tools.get(&tool.name)?;
        let other = known.hosts.iter().find(|host| *host != newcomer)?;
        let theirs = &self.hosts[other].connection.as_ref()?.tools.get(&tool.name)?.terms.digest;
        (*theirs != tool.terms.digest).then(|| {
            format!(
                "this declaration has terms {}, but host {other} serves the tool with terms {theirs}; hosts that \
                 serve the same tool must declare the same name, effect class, approval, runtime and schema",
                tool.terms.digest
            )
        })
    }

    fn accept_claims(&mut self, join: &HostJoin) -> Vec<(CallRef, Disposition)> {
        join.claims
            .iter()
            .map(|(claim, disposition)| {
                let verdict = match disposition {
                    Disposition::Continue => self.accept_claim(join, claim),
                    Disposition::Stop | Disposition::AlreadyRecorded => {
                        self.drop_finished(&claim.call, &join.host);
                        *disposition
                    }
                };
                (claim.call.clone(), verdict)
            })
            .collect()
    }

    /// Decides on a call that a reconnecting host has. The call goes on, unless another host has it by now. A finished
    /// call may still send its result while the next attempt looks for a host.
    fn accept_claim(&mut self, join: &HostJoin, claim: &CallInHand) -> Disposition {
        let id = &claim.call.call;
        let tool = match self.calls.get(id) {
            None => None,
            Some(call) => match &call.state {
                FleetCallState::Assigned(assignment)
                    if assignment.is(&claim.call) && assignment.host == join.host =>
                {
                    if assignment.connection == Some(join.connection) {
                        return Disposition::Continue;
                    }
                    call.tool.clone()
                }
                FleetCallState::Recording(assignment) if assignment.is(&claim.call) => {
                    return Disposition::Continue;
                }
                FleetCallState::Queued | FleetCallState::Pinned { .. } if claim.finished => {
                    self.await_late_result(id, claim.call.attempt);
                    return Disposition::Continue;
                }
                // The run judges the result when it comes.
                FleetCallState::AwaitingResult { .. } | FleetCallState::Reserved { .. } if claim.finished => {
                    return Disposition::Continue;
                }
                FleetCallState::Assigned(_)
                | FleetCallState::Recording(_)
                | FleetCallState::Queued
                | FleetCallState::Pinned { .. }
                | FleetCallState::AwaitingResult { .. }
                | FleetCallState::Reserved { .. } => {
                    return Disposition::Stop;
                }
            },
        };
        let (host, lease) = (join.host.clone(), claim.lease.clone());
        let assignment = Assignment::new(host, claim.call.attempt, lease, Some(join.connection));
        let assignment = Assignment { accepted: true, finished: claim.finished, ..assignment };
        self.assign(id, assignment);
        self.timers.clear(&Timer::Call(id.clone()));
        if let Some(stream) = self.stream(&join.host, join.connection) {
            stream.occupy(tool.as_deref());
        }
        self.tell(id, CallUpdate::Accepted { attempt: claim.call.attempt, host: join.host.clone() });
        Disposition::Continue
    }

    /// Forgets a call that its run says is over.
    fn drop_finished(&mut self, call: &CallRef, host: &HostId) {
        if self.assignment(call).is_some_and(|assignment| assignment.host == *host) {
            self.remove(&call.call);
        }
    }

    /// Reports as lost the calls that this host had and does not name any more. The process that a call was sent to did
    /// not begin it, or would name it. Another process under the same host id knows nothing of the call.
    fn drop_unclaimed(&mut self, join: &HostJoin) {
        let host = &self.hosts[&join.host];
        let lost: Vec<(CallRef, Ran)> = host
            .calls
            .iter()
            .filter_map(|id| match &self.calls.get(id)?.state {
                FleetCallState::Assigned(assignment) if assignment.connection != Some(join.connection) => {
                    Some((assignment.call_ref(id), assignment.ran_if_not_at(join.instance.as_ref())))
                }
                FleetCallState::Assigned(_)
                | FleetCallState::Recording(_)
                | FleetCallState::Queued
                | FleetCallState::Pinned { .. }
                | FleetCallState::AwaitingResult { .. }
                | FleetCallState::Reserved { .. } => None,
            })
            .collect();
        for (call, ran) in lost {
            self.report_lost(&call, ran, "the host came back without the call");
        }
    }

    pub(super) fn replace_tools(&mut self, connection: ConnectionId, tools: &[ServedTool]) {
        let now = self.now;
        let Some((id, host)) = self.host_of(connection) else { return };
        host.last_heard = now;
        let wanted: BTreeSet<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let before = host.connection.as_mut().map(|c| std::mem::take(&mut c.tools)).unwrap_or_default();
        for tool in before.keys().filter(|name| !wanted.contains(name.as_str())) {
            self.unserve(tool, &id);
        }
        let verdicts = self.accept_tools(connection, tools);
        for (tool, _) in tools.iter().zip(&verdicts).filter(|(_, refused)| refused.is_some()) {
            self.unserve(&tool.name, &id);
        }
        self.out.insert(0, FleetOutput::ToolsReplaced { connection, tools: verdicts });
        self.hosts_with_room.insert(id);
    }

    pub(super) fn drain(&mut self, connection: ConnectionId) {
        let Some((id, host)) = self.host_of(connection) else { return };
        let Some(stream) = host.connection.as_mut() else { return };
        stream.draining = true;
        let tools: Vec<String> = stream.tools.keys().cloned().collect();
        for tool in tools {
            self.unserve(&tool, &id);
        }
        self.hosts_with_room.insert(id);
    }

    /// The host leaves for good. Calls that it still had are lost; they may have run.
    pub(super) fn goodbye(&mut self, connection: ConnectionId) {
        let Some((id, host)) = self.host_of(connection) else { return };
        let calls: Vec<CallId> = host.calls.iter().cloned().collect();
        self.close_stream(connection, CloseReason::Goodbye);
        for call in calls {
            if let Some(FleetCallState::Assigned(assignment)) = self.calls.get(&call).map(|call| &call.state)
            {
                let call = assignment.call_ref(&call);
                self.report_lost(&call, Ran::Maybe, format!("host {id} left without a result"));
            }
        }
    }

    pub(super) fn violation(&mut self, connection: ConnectionId, message: String, call: Option<CallId>) {
        self.send(connection, ServerFrame::ProtocolError { message, call });
        self.close_stream(connection, CloseReason::Violation);
    }

    /// Closes a stream from the server's side.
    pub(super) fn close_stream(&mut self, connection: ConnectionId, reason: CloseReason) {
        self.close(connection, reason);
        self.disconnected(connection);
    }

    /// A host's stream ended. Its calls wait for it to reconnect.
    pub(super) fn disconnected(&mut self, connection: ConnectionId) {
        let Some(id) = self.connections.remove(&connection) else { return };
        self.timers.clear(&Timer::Lease(id.clone()));
        self.timers.clear(&Timer::Busy(id.clone()));
        let host = self.hosts.get_mut(&id).expect("a connection has its host");
        let stream = host.connection.take().expect("a connection has its stream");
        for tool in stream.tools.keys() {
            self.unserve(tool, &id);
        }
        for call in stream.unacknowledged {
            let Some(hosts) = self.unacknowledged.get_mut(&call) else { continue };
            hosts.remove(&id);
            if hosts.is_empty() {
                self.unacknowledged.remove(&call);
            }
        }
        self.detach_calls(&id);
        self.set_return_timers(&id, self.now.after(self.options.grace_period));
    }

    /// The host has more time to come back: it learns from silence alone that its stream is lost.
    pub(super) fn link_lost(&mut self, id: &HostId) {
        let host = self.hosts.get(id);
        if host.is_some_and(|host| host.connection.is_some()) {
            return;
        }
        let until = self.now.after(self.options.lease_timeout).after(self.options.grace_period);
        for call in host.into_iter().flat_map(|host| host.calls.clone()) {
            self.timers.set(Timer::Call(call), until);
        }
        self.set_return_timers(id, until);
    }

    fn detach_calls(&mut self, id: &HostId) {
        let calls = self.hosts[id].calls.clone();
        if calls.is_empty() {
            self.hosts.remove(id);
            return;
        }
        let until = self.now.after(self.options.grace_period);
        for call in &calls {
            self.report_checkpoint(call);
            if let Some(FleetCallState::Assigned(assignment)) =
                self.calls.get_mut(call).map(|call| &mut call.state)
            {
                assignment.connection = None;
            }
            self.timers.set(Timer::Call(call.clone()), until);
        }
    }
}
