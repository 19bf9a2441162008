//! The hosts, tools and calls of one tenant.

#[cfg(test)]
mod check;
mod checkpoints;
mod frames;
mod hand_over;
mod hosts;
mod inputs;
mod pinned;
mod places;
mod promises;
mod time;
mod views;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::host::call::{Call, Held, State};
use crate::host::frame::{CallRef, Ran, ServerFrame};
use crate::host::io::{CloseReason, ConnectionId, Input, News, Output};
use crate::host::options::FleetOptions;
use crate::host::queue::FairQueue;
use crate::host::roster::HostsByLoad;
use crate::host::session::{Connection, Host};
use crate::host::timer::Timers;
use crate::id::{CallId, CallSlot, HostId, RunId, TenantId};
use crate::time::Timestamp;

/// The hosts, tools and calls of one tenant.
#[derive(Debug)]
pub(super) struct Pool {
    tenant: TenantId,
    options: FleetOptions,
    /// Of the input at hand.
    now: Timestamp,
    /// Whether no call is placed any more.
    closing: bool,
    calls: BTreeMap<CallId, Call>,
    hosts: HostsByLoad,
    connections: BTreeMap<ConnectionId, HostId>,
    /// The hosts that answered calls which they were told to stop, until the answers are dealt with.
    ending: BTreeMap<CallRef, BTreeSet<HostId>>,
    tools: BTreeMap<String, Tool>,
    /// Calls that wait for one host each, in order.
    pinned: BTreeMap<HostId, VecDeque<CallId>>,
    /// Those of `tools` for which calls wait.
    waiting: BTreeSet<String>,
    /// Hosts that may have got room by the input at hand.
    freed: BTreeSet<HostId>,
    timers: Timers<Timer>,
    out: Vec<Output>,
}

/// A tool that is known.
#[derive(Debug, Default)]
struct Tool {
    /// Connected hosts that serve it and take calls.
    hosts: BTreeSet<HostId>,
    queue: FairQueue,
}

/// What happens by time alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// What it means depends on where the call stands: no host came, the host did not confirm, did not come back, or
    /// did not send what it said it had.
    Call(CallId),
    /// The call's run is told of a checkpoint that came too soon after another.
    Checkpoint(CallId),
    /// The host is to be heard from.
    Lease(HostId),
    /// The host may be asked again.
    Busy(HostId),
}

impl Pool {
    pub(super) fn new(tenant: TenantId, options: FleetOptions) -> Self {
        Self {
            tenant,
            options,
            now: Timestamp(0),
            closing: false,
            calls: BTreeMap::new(),
            hosts: HostsByLoad::default(),
            connections: BTreeMap::new(),
            ending: BTreeMap::new(),
            tools: BTreeMap::new(),
            pinned: BTreeMap::new(),
            waiting: BTreeSet::new(),
            freed: BTreeSet::new(),
            timers: Timers::default(),
            out: Vec::new(),
        }
    }

    pub(super) fn handle(&mut self, input: Input, now: Timestamp) -> Vec<Output> {
        self.now = now;
        match input {
            Input::Remember { tools } => self.remember(tools),
            Input::Forget { tool } => self.forget(&tool),
            Input::Seek { call, tool, on } => self.seek(call, tool, on),
            Input::StopSeeking { call } => self.stop_seeking(&call),
            Input::Offer(request) => self.offer(*request),
            Input::Reclaim(request) => self.reclaim(&request),
            Input::Cancel { call, reason } => self.cancel(&call, reason),
            Input::AnswerInput { call, input, answer } => self.answer_input(call, input, answer),
            Input::CloseRuntime { host, runtime } => self.close_runtime(&host, runtime),
            Input::Release { run } => self.release(&run),
            Input::Settled { call } => self.settled(&call),
            Input::Unsettled { call } => self.unsettled(&call),
            Input::AnsweredOutside { call, lease } => self.answered_outside(&call, &lease),
            Input::Join(joining) => self.join(*joining),
            Input::ReplaceTools { connection, tools } => self.replace_tools(connection, &tools),
            Input::Frame { connection, frame } => self.frame(connection, frame),
            Input::Touch { connection } => self.touch(connection),
            Input::Violation { connection, message, call } => self.violation(connection, message, call),
            Input::Drop { connection, reason } => self.drop_connection(connection, reason),
            Input::Leave { connection } => self.leave(connection),
        }
        self.finish()
    }

    /// When time alone will change something.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// Whether nothing is left that would be missed.
    pub(super) fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.hosts.is_empty() && self.tools.is_empty()
    }

    /// Ends an input: room that it made is given away.
    fn finish(&mut self) -> Vec<Output> {
        while let Some(host) = self.freed.pop_first() {
            self.fill(&host);
        }
        std::mem::take(&mut self.out)
    }

    fn send(&mut self, connection: ConnectionId, frame: ServerFrame) {
        self.out.push(Output::Send { connection, frame });
    }

    fn close(&mut self, connection: ConnectionId, reason: CloseReason) {
        self.out.push(Output::Close { connection, reason });
    }

    fn news(&mut self, call: &CallId, news: News) {
        self.out.push(Output::News { tenant: self.tenant.clone(), call: call.clone(), news });
    }

    /// The host behind a stream that is still its current one.
    fn host_of(&mut self, connection: ConnectionId) -> Option<(HostId, &mut Host)> {
        let id = self.connections.get(&connection)?.clone();
        let host = self.hosts.get_mut(&id).expect("a connection has its host");
        Some((id, host))
    }

    /// The stream of a host, if it is this one.
    fn stream(&mut self, host: &HostId, connection: ConnectionId) -> Option<&mut Connection> {
        self.hosts.get_mut(host)?.connection.as_mut().filter(|current| current.id == connection)
    }

    /// The call, if a host has it as this try.
    fn held(&mut self, call: &CallRef) -> Option<&mut Held> {
        match &mut self.calls.get_mut(&call.call)?.state {
            State::Held(held) if held.is(call) => Some(held),
            State::Held(_)
            | State::Waiting
            | State::Pinned { .. }
            | State::Promised { .. }
            | State::Reserved { .. }
            | State::Answering(_) => None,
        }
    }

    /// Takes a call out of everything that knows it.
    fn remove(&mut self, id: &CallId) -> Option<Call> {
        self.tell_checkpoint(id);
        let call = self.calls.remove(id)?;
        self.timers.clear(&Timer::Call(id.clone()));
        match &call.state {
            State::Waiting => self.unqueue(id, call.tool.as_deref()),
            State::Pinned { host } => self.unpin(id, host),
            State::Reserved { host, connection } => {
                if let Some(stream) = self.stream(host, *connection) {
                    stream.credit.give_back();
                    stream.vacate(call.tool.as_deref());
                    self.freed.insert(host.clone());
                }
            }
            State::Held(held) => self.unhold(id, held, call.tool.as_deref()),
            State::Promised { .. } | State::Answering(_) => {}
        }
        Some(call)
    }

    /// A host has a call no longer.
    fn unhold(&mut self, id: &CallId, held: &Held, tool: Option<&str>) {
        let Some(host) = self.hosts.get_mut(&held.host) else { return };
        host.calls.remove(id);
        if host.connection.is_none() && host.calls.is_empty() {
            self.hosts.remove(&held.host);
        } else if let Some(stream) =
            held.connection.and_then(|connection| self.stream(&held.host, connection))
        {
            stream.vacate(tool);
            self.freed.insert(held.host.clone());
        }
    }

    /// Gives a held call up and says so.
    fn lose(&mut self, call: &CallRef, ran: Ran, message: impl Into<String>) {
        self.remove(&call.call);
        self.news(&call.call, News::Lost { attempt: call.attempt, message: message.into(), ran });
    }
}

/// The least id that a call of this run can have.
fn first_of(run: &RunId) -> CallId {
    CallId { run: run.clone(), slot: CallSlot(0, 0) }
}
