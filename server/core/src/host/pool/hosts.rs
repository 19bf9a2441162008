//! Hosts come, change and go.

use std::collections::BTreeSet;

use super::{Pool, Timer};
use crate::host::call::{Held, State};
use crate::host::frame::{CallInHand, CallRef, Disposition, Ran, ServerFrame};
use crate::host::io::{CloseReason, ConnectionId, Joining, News, Output, ServedTool};
use crate::host::session::{Connection, Slot};
use crate::id::{CallId, HostId};
use crate::limits::CALLS_PER_HOST_MAX;

impl Pool {
    pub(super) fn join(&mut self, joining: Joining) {
        if joining.credit > CALLS_PER_HOST_MAX as u64 {
            return self.refuse_credit(joining.connection, joining.credit);
        }
        if let Some(before) = self.hosts.get(&joining.host).and_then(|host| host.connection.as_ref()) {
            self.replace(before.id);
        }
        self.seat(&joining);
        let tools = self.take_tools(joining.connection, &joining.tools);
        let calls = self.take_claims(&joining);
        self.drop_unclaimed(&joining);
        self.await_no_longer(&joining.host);
        self.out.insert(0, Output::Joined { connection: joining.connection, tools, calls });
        self.freed.insert(joining.host);
    }

    fn refuse_credit(&mut self, connection: ConnectionId, credit: u64) {
        let message = format!("credit for {credit} calls; a host has at most {CALLS_PER_HOST_MAX}");
        self.send(connection, ServerFrame::ProtocolError { message, call: None });
        self.close(connection, CloseReason::Violation);
    }

    fn replace(&mut self, connection: ConnectionId) {
        let message = "another connection with this host id took this one's place".to_owned();
        self.send(connection, ServerFrame::ProtocolError { message, call: None });
        self.drop_connection(connection, CloseReason::Replaced);
    }

    fn seat(&mut self, joining: &Joining) {
        let host = self.hosts.known(&joining.host, self.now);
        host.sdk.clone_from(&joining.sdk);
        host.labels.clone_from(&joining.labels);
        host.connected_at = self.now;
        host.last_heard = self.now;
        host.connection = Some(Connection::new(joining));
        self.connections.insert(joining.connection, joining.host.clone());
        self.timers.set(Timer::Lease(joining.host.clone()), self.now.after(self.options.lease_timeout));
    }

    /// Takes what tools it can; says of each why not, if not.
    fn take_tools(&mut self, connection: ConnectionId, offered: &[ServedTool]) -> Vec<Option<String>> {
        let Some((id, _)) = self.host_of(connection) else { return Vec::new() };
        offered
            .iter()
            .map(|tool| {
                let refused = self.disagreement(tool, &id);
                if refused.is_none() {
                    let slot = Slot { digest: tool.digest.clone(), max_concurrency: tool.max_concurrency };
                    let stream = self.stream(&id, connection).expect("it was found above");
                    stream.tools.insert(tool.name.clone(), slot);
                    if !stream.draining {
                        self.serve(&tool.name, &id);
                    }
                }
                refused
            })
            .collect()
    }

    /// Who else serves this tool under another declaration. A host that is leaving does not count, so that a new
    /// version can take over from the old one.
    fn disagreement(&self, tool: &ServedTool, newcomer: &HostId) -> Option<String> {
        let known = self.tools.get(&tool.name)?;
        let other = known.hosts.iter().find(|host| *host != newcomer)?;
        let theirs = &self.hosts[other].connection.as_ref()?.tools.get(&tool.name)?.digest;
        (*theirs != tool.digest).then(|| {
            format!(
                "this declaration has digest {}, but host {other} serves the tool with digest {theirs}; \
                 hosts that serve the same tool must declare the same",
                tool.digest
            )
        })
    }

    fn take_claims(&mut self, joining: &Joining) -> Vec<(CallRef, Disposition)> {
        joining
            .claims
            .iter()
            .map(|(claim, disposition)| {
                let verdict = match disposition {
                    Disposition::Continue => self.adopt(joining, claim),
                    Disposition::Stop | Disposition::AlreadyRecorded => {
                        self.drop_settled(&claim.call, &joining.host);
                        *disposition
                    }
                };
                (claim.call.clone(), verdict)
            })
            .collect()
    }

    /// A host brings a call along. It goes on, unless the call went another way in the meantime. An answer that it has
    /// is heard also where the call seeks its next host.
    fn adopt(&mut self, joining: &Joining, claim: &CallInHand) -> Disposition {
        let id = &claim.call.call;
        let tool = match self.calls.get(id) {
            None => None,
            Some(call) => match &call.state {
                State::Held(held) if held.is(&claim.call) && held.host == joining.host => {
                    if held.connection == Some(joining.connection) {
                        return Disposition::Continue;
                    }
                    call.tool.clone()
                }
                State::Answering(held) if held.is(&claim.call) => return Disposition::Continue,
                State::Waiting | State::Pinned { .. } if claim.finished => {
                    self.promise(id, claim.call.attempt);
                    return Disposition::Continue;
                }
                // Its run says what the answer is worth when it comes.
                State::Promised { .. } | State::Reserved { .. } if claim.finished => {
                    return Disposition::Continue;
                }
                State::Held(_)
                | State::Answering(_)
                | State::Waiting
                | State::Pinned { .. }
                | State::Promised { .. }
                | State::Reserved { .. } => {
                    return Disposition::Stop;
                }
            },
        };
        let (host, lease) = (joining.host.clone(), claim.lease.clone());
        let held = Held::new(host, claim.call.attempt, lease, Some(joining.connection));
        let held = Held { accepted: true, finished: claim.finished, ..held };
        self.hold(id, held);
        self.timers.clear(&Timer::Call(id.clone()));
        if let Some(stream) = self.stream(&joining.host, joining.connection) {
            stream.occupy(tool.as_deref());
        }
        self.news(id, News::Accepted { attempt: claim.call.attempt, host: joining.host.clone() });
        Disposition::Continue
    }

    /// The owner of a call says that it is over: nobody waits for news of it.
    fn drop_settled(&mut self, call: &CallRef, host: &HostId) {
        if self.held(call).is_some_and(|held| held.host == *host) {
            self.remove(&call.call);
        }
    }

    /// Calls that this host had and does not bring along are lost. It may have run them: another process may use
    /// the same name.
    fn drop_unclaimed(&mut self, joining: &Joining) {
        let host = &self.hosts[&joining.host];
        let lost: Vec<CallRef> = host
            .calls
            .iter()
            .filter_map(|id| match &self.calls.get(id)?.state {
                State::Held(held) if held.connection != Some(joining.connection) => Some(held.call_ref(id)),
                State::Held(_)
                | State::Answering(_)
                | State::Waiting
                | State::Pinned { .. }
                | State::Promised { .. }
                | State::Reserved { .. } => None,
            })
            .collect();
        for call in lost {
            self.lose(&call, Ran::Maybe, "the host came back without the call");
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
        let verdicts = self.take_tools(connection, tools);
        for (tool, _) in tools.iter().zip(&verdicts).filter(|(_, refused)| refused.is_some()) {
            self.unserve(&tool.name, &id);
        }
        self.out.insert(0, Output::ToolsReplaced { connection, tools: verdicts });
        self.freed.insert(id);
    }

    pub(super) fn drain(&mut self, connection: ConnectionId) {
        let Some((id, host)) = self.host_of(connection) else { return };
        let Some(stream) = host.connection.as_mut() else { return };
        stream.draining = true;
        let tools: Vec<String> = stream.tools.keys().cloned().collect();
        for tool in tools {
            self.unserve(&tool, &id);
        }
        self.freed.insert(id);
    }

    /// The host says that it has no calls any more, and will not come back. What it had may have run all the same.
    pub(super) fn goodbye(&mut self, connection: ConnectionId) {
        let Some((id, host)) = self.host_of(connection) else { return };
        let calls: Vec<CallId> = host.calls.iter().cloned().collect();
        self.drop_connection(connection, CloseReason::Goodbye);
        for call in calls {
            if let Some(State::Held(held)) = self.calls.get(&call).map(|call| &call.state) {
                let call = held.call_ref(&call);
                self.lose(&call, Ran::Maybe, format!("host {id} left without answering"));
            }
        }
    }

    pub(super) fn violation(&mut self, connection: ConnectionId, message: String, call: Option<CallId>) {
        self.send(connection, ServerFrame::ProtocolError { message, call });
        self.drop_connection(connection, CloseReason::Violation);
    }

    /// Ends a stream from our side.
    pub(super) fn drop_connection(&mut self, connection: ConnectionId, reason: CloseReason) {
        self.close(connection, reason);
        self.leave(connection);
    }

    /// A host's stream is gone; it may come back for its calls.
    pub(super) fn leave(&mut self, connection: ConnectionId) {
        let Some(id) = self.connections.remove(&connection) else { return };
        self.timers.clear(&Timer::Lease(id.clone()));
        self.timers.clear(&Timer::Busy(id.clone()));
        let host = self.hosts.get_mut(&id).expect("a connection has its host");
        let stream = host.connection.take().expect("a connection has its stream");
        for tool in stream.tools.keys() {
            self.unserve(tool, &id);
        }
        for call in stream.ending {
            let Some(hosts) = self.ending.get_mut(&call) else { continue };
            hosts.remove(&id);
            if hosts.is_empty() {
                self.ending.remove(&call);
            }
        }
        self.set_adrift(&id);
        self.await_return(&id);
    }

    fn set_adrift(&mut self, id: &HostId) {
        let calls = self.hosts[id].calls.clone();
        if calls.is_empty() {
            self.hosts.remove(id);
            return;
        }
        let until = self.now.after(self.options.grace_period);
        for call in &calls {
            self.tell_checkpoint(call);
            if let Some(State::Held(held)) = self.calls.get_mut(call).map(|call| &mut call.state) {
                held.connection = None;
            }
            self.timers.set(Timer::Call(call.clone()), until);
        }
    }
}
