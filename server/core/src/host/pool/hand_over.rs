//! What runs want with calls that a host has room for, or has: offer, reclaim, cancel, release.

use super::{Pool, Timer, first_of};
use crate::host::call::{Call, Held, State};
use crate::host::frame::{Answer, CallRef, CallRequest, Outcome, Ran, ServerFrame};
use crate::host::io::{ConnectionId, News, Output};
use crate::id::{CallId, HostId, RunId};

impl Pool {
    pub(super) fn offer(&mut self, request: CallRequest) {
        let id = request.call.call.clone();
        match self.calls.get(&id).map(|call| call.state.clone()) {
            Some(State::Reserved { host, connection }) if host == request.host => {
                match self.stream(&host, connection) {
                    Some(stream) if stream.draining || !stream.tools.contains_key(&request.tool) => {
                        self.lose(&request.call, Ran::No, "the host takes no more calls of this tool");
                    }
                    Some(stream) if request.size() > stream.max_frame_bytes => {
                        let max = stream.max_frame_bytes;
                        self.too_large(request, "call", max);
                    }
                    Some(stream) if stream.is_too_small_for_runtime(&request) => {
                        let max = stream.max_frame_bytes;
                        self.too_large(request, "call's runtime", max);
                    }
                    Some(_) => self.hand_over(request, connection),
                    None => self.lose(&request.call, Ran::No, "the host disconnected before it got the call"),
                }
            }
            Some(State::Held(held) | State::Answering(held)) if held.is(&request.call) => {}
            Some(State::Held(held)) => {
                self.disown(&id, &held);
                self.lose(&request.call, Ran::No, "the call was offered without room for it");
            }
            Some(
                State::Waiting
                | State::Pinned { .. }
                | State::Promised { .. }
                | State::Reserved { .. }
                | State::Answering(_),
            )
            | None => {
                self.lose(&request.call, Ran::No, "the call was offered without room for it");
            }
        }
    }

    fn hand_over(&mut self, request: CallRequest, connection: ConnectionId) {
        let (id, host) = (request.call.call.clone(), request.host.clone());
        let stream = self.stream(&host, connection).expect("only called for a current stream");
        stream.credit.spend();
        let lease = request.lease.as_str().to_owned();
        self.hold(&id, Held::new(host, request.call.attempt, lease, Some(connection)));
        self.timers.set(Timer::Call(id), self.now.after(self.options.accept_timeout));
        self.open_runtime(connection, &request);
        self.send(connection, ServerFrame::CallRequest(Box::new(request)));
    }

    /// No host like this takes the call, so asking another changes nothing: the model is told.
    fn too_large(&mut self, request: CallRequest, what: &str, max: usize) {
        self.remove(&request.call.call);
        let message = format!("the {what} is too large for its tool host, which takes {max} bytes");
        let lease = request.lease.as_str().to_owned();
        self.out.push(Output::Answer {
            tenant: self.tenant.clone(),
            connection: None,
            host: request.host,
            answer: Box::new(Answer { call: request.call, lease, outcome: Outcome::Rejected { message } }),
        });
    }

    /// Puts a call into its host's hands. The room that it takes up is accounted for by the caller.
    pub(super) fn hold(&mut self, id: &CallId, held: Held) {
        let host = self.hosts.known(&held.host, self.now);
        host.calls.insert(id.clone());
        match self.calls.get_mut(id) {
            Some(call) => call.state = State::Held(held),
            None => {
                self.calls.insert(id.clone(), Call { tool: None, state: State::Held(held) });
            }
        }
    }

    pub(super) fn reclaim(&mut self, request: &CallRequest) {
        let id = &request.call.call;
        match self.calls.get(id).map(|call| call.state.clone()) {
            Some(State::Held(held)) if held.is(&request.call) && held.host == request.host => {
                return self.recognise(id, &held, &request.tool);
            }
            Some(State::Answering(held)) if held.is(&request.call) => return,
            Some(State::Held(held)) => self.disown(id, &held),
            Some(
                State::Waiting
                | State::Pinned { .. }
                | State::Promised { .. }
                | State::Reserved { .. }
                | State::Answering(_),
            ) => {
                self.remove(id);
            }
            None => {}
        }
        if self.hosts.get(&request.host).is_some_and(|host| host.connection.is_some()) {
            return self.lose(&request.call, Ran::Maybe, "the host does not have the call");
        }
        self.adrift(id, request.host.clone(), request.call.attempt, request.lease.as_str().to_owned());
        if let Some(call) = self.calls.get_mut(id) {
            call.tool = Some(request.tool.clone());
        }
    }

    /// A run takes up a call again that its host never let go of.
    fn recognise(&mut self, id: &CallId, held: &Held, tool: &str) {
        let call = self.calls.get_mut(id).expect("it is held");
        if call.tool.is_none() {
            call.tool = Some(tool.to_owned());
            if let Some(stream) = held.connection.and_then(|connection| self.stream(&held.host, connection)) {
                stream.occupy(Some(tool));
            }
        }
        if held.accepted && held.connection.is_some() {
            self.news(id, News::Accepted { attempt: held.attempt, host: held.host.clone() });
        }
    }

    /// A host may have this call, and is to come back with it.
    fn adrift(&mut self, id: &CallId, host: HostId, attempt: u32, lease: String) {
        self.hold(id, Held { accepted: true, ..Held::new(host, attempt, lease, None) });
        self.timers.set(Timer::Call(id.clone()), self.now.after(self.options.grace_period));
    }

    /// Ends one try. A call that is sought, or has room kept for it, is on its way to a later try: its run may seek
    /// that before it gives up the one that failed.
    pub(super) fn cancel(&mut self, call: &CallRef, reason: String) {
        match self.calls.get(&call.call).map(|call| call.state.clone()) {
            Some(State::Held(held)) if held.is(call) => self.stop(call, &held, reason),
            Some(State::Answering(held)) if held.is(call) => {
                self.remove(&call.call);
            }
            Some(
                State::Held(_)
                | State::Answering(_)
                | State::Waiting
                | State::Pinned { .. }
                | State::Promised { .. }
                | State::Reserved { .. },
            )
            | None => {}
        }
    }

    /// Tells the host to stop. Until it has, the call takes up its room.
    pub(super) fn stop(&mut self, call: &CallRef, held: &Held, reason: String) {
        let tool = self.remove(&call.call).and_then(|call| call.tool);
        let Some(connection) = held.connection else { return };
        if let Some(stream) = self.stream(&held.host, connection) {
            stream.occupy(tool.as_deref());
            stream.stopping.insert(call.clone(), tool);
            let grace = self.options.cancel_grace;
            self.send(connection, ServerFrame::Cancel { call: call.clone(), reason, grace });
        }
    }

    /// Calls that a host has stay with it: their run may come back for them.
    pub(super) fn release(&mut self, run: &RunId) {
        let sought: Vec<CallId> = self
            .calls
            .range(first_of(run)..)
            .take_while(|(id, _)| id.run == *run)
            .filter(|(_, call)| {
                matches!(
                    call.state,
                    State::Waiting | State::Pinned { .. } | State::Promised { .. } | State::Reserved { .. }
                )
            })
            .map(|(id, _)| id.clone())
            .collect();
        for id in sought {
            self.remove(&id);
        }
    }

    pub(super) fn settled(&mut self, call: &CallRef) {
        for host in self.ending.remove(call).into_iter().flatten() {
            if let Some(stream) = self.hosts.get_mut(&host).and_then(|host| host.connection.as_mut()) {
                stream.ending.remove(call);
            }
            self.freed.insert(host);
        }
        if self.answering(call).is_some() {
            self.remove(&call.call);
        } else if self.awaits_answer(call) {
            self.await_no_answer(&call.call);
        }
    }

    pub(super) fn unsettled(&mut self, call: &CallRef) {
        if let Some(held) = self.answering(call).cloned() {
            self.adrift(&call.call, held.host, held.attempt, held.lease);
        }
    }

    fn answering(&self, call: &CallRef) -> Option<&Held> {
        match &self.calls.get(&call.call)?.state {
            State::Answering(held) if held.is(call) => Some(held),
            State::Answering(_)
            | State::Waiting
            | State::Pinned { .. }
            | State::Promised { .. }
            | State::Reserved { .. }
            | State::Held(_) => None,
        }
    }

    pub(super) fn answered_outside(&mut self, call: &CallRef, lease: &str) {
        if self.held(call).is_some_and(|held| held.lease == lease) {
            self.begin_answer(&call.call);
        }
    }

    /// A call is answered: its host has it no longer, and its run gets no other news of it.
    pub(super) fn begin_answer(&mut self, id: &CallId) {
        let Some(call) = self.remove(id) else { return };
        if let State::Held(held) = call.state {
            self.calls.insert(id.clone(), Call { tool: call.tool, state: State::Answering(held) });
        }
    }
}
