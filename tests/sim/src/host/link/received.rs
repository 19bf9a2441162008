//! A host's answer to each frame of the server, and the calls that it has because of them.

use agentloop_core::host::frame::{
    CallRef, CallRequest, CancelOutcome, Disposition, HostFrame, RejectReason, ResultVerdict, ServerFrame,
};
use agentloop_core::run::event::Event;

use super::super::calls::{self, HostCall};
use super::Host;
use crate::plan::PlantedBug;
use crate::random::Random;
use crate::world::tenant;

impl Host {
    /// A frame from the server; `false` where the stream is to end.
    pub(super) fn receives(&mut self, frame: ServerFrame) -> bool {
        // Pings say nothing to a host of the simulation. They draw no chance, so that a seed's history is what it was.
        if matches!(frame, ServerFrame::Ping { .. }) {
            return true;
        }
        if matches!(frame, ServerFrame::CallRequest(_)) {
            self.link.iter_mut().for_each(|link| link.taken += 1);
        }
        let fails = self.link_fails();
        if self.random.chance(fails / 2) {
            self.world.fault("frames lost");
            self.world.trace.line(&self.name, "a frame of the server is lost");
            self.credit();
            return true;
        }
        match frame {
            ServerFrame::Welcome(welcome) => {
                welcome.calls.iter().for_each(|(call, said)| self.told_of(call, *said))
            }
            ServerFrame::CallRequest(request) => {
                let taken = self.takes(&request);
                let again = fails.max(if self.runs_twice() { 300 } else { 0 });
                // A host does not do a call that it has turned down, however often it is given.
                if self.random.chance(again) && taken {
                    self.takes(&request);
                }
            }
            ServerFrame::Cancel { call, .. } => self.cancels(call),
            ServerFrame::ResultAck { call, verdict } => self.acknowledged(&call, verdict),
            ServerFrame::LeaseLost(call) => self.forgets(&call),
            ServerFrame::InputResponse { call, answer, .. } => {
                if let Some(held) = self.held.get_mut(&call) {
                    held.asks = None;
                    held.answers.send_replace(Some(answer));
                }
            }
            ServerFrame::GoAway { .. } => return false,
            ServerFrame::ProtocolError { message, .. } => {
                self.world.problem(format_args!("a host is told that it broke the protocol: {message}"));
                return false;
            }
            ServerFrame::ToolsUpdated(_)
            | ServerFrame::OpenRuntime { .. }
            | ServerFrame::CloseRuntime { .. }
            | ServerFrame::ResumeStateAck { .. }
            | ServerFrame::Ping { .. } => {}
        }
        self.credit();
        true
    }

    fn runs_twice(&self) -> bool {
        self.world.plan.bug == Some(PlantedBug::HostRunsTwice)
    }

    /// Handles the server's disposition for a call that the host still has.
    fn told_of(&mut self, call: &CallRef, said: Disposition) {
        match said {
            Disposition::Continue => {
                self.answers(call);
                self.asks(call.clone());
            }
            Disposition::Stop => self.forgets(call),
            Disposition::AlreadyRecorded => self.remembers(call),
        }
    }

    /// Takes a call, or rejects it; true if it was taken.
    fn takes(&mut self, request: &CallRequest) -> bool {
        let call = request.call.clone();
        if let Some(outcome) = self.memory.remove(&call) {
            self.held.insert(call.clone(), HostCall::finished(request, outcome));
        }
        if self.held.contains_key(&call) && !self.runs_twice() {
            if let Some(held) = self.held.get_mut(&call) {
                held.lease = request.lease.as_str().to_owned();
            }
            self.send(HostFrame::Accepted(call.clone()));
            self.answers(&call);
            return true;
        }
        if !self.world.is_calm() && self.random.chance(self.world.plan.host_fails / 4) {
            let reason =
                self.random.pick(&[RejectReason::Busy, RejectReason::Busy, RejectReason::BadArguments]);
            self.world.fault("calls turned down");
            self.send_surely(HostFrame::Rejected { call, reason, message: "not now".to_owned() });
            return false;
        }
        let random = Random::new(self.random.next());
        let held = calls::start(self.world.clone(), &self.name, request, random, self.tell.clone());
        self.held.insert(call.clone(), held);
        self.send(HostFrame::Accepted(call));
        true
    }

    fn cancels(&mut self, call: CallRef) {
        let Some(held) = self.held.get(&call) else {
            return self.send(HostFrame::CancelAck { call, outcome: CancelOutcome::Stopped });
        };
        let stops = !*held.done.borrow() && self.random.chance(700);
        if stops {
            self.forgets(&call);
        }
        let outcome = if stops { CancelOutcome::Stopped } else { CancelOutcome::RunsOn };
        self.send(HostFrame::CancelAck { call, outcome });
    }

    pub(super) fn acknowledged(&mut self, call: &CallRef, verdict: ResultVerdict) {
        match verdict {
            ResultVerdict::Recorded | ResultVerdict::Duplicate => {
                if !self.is_recorded(call) && !self.world.is_gone(&call.call.run) {
                    self.world.problem(format_args!("{} is acknowledged and not recorded", call.call));
                }
                self.remembers(call);
            }
            ResultVerdict::Stale => self.forgets(call),
        }
    }

    /// True if the store has a result for this attempt.
    fn is_recorded(&self, call: &CallRef) -> bool {
        let tables = self.world.truth.tables();
        let Some(run) = tables.run(&tenant(), &call.call.run) else { return false };
        run.records.iter().any(|record| match &record.event {
            Event::CallSettled { slot, .. } => *slot == call.call.slot,
            Event::CallAttemptFailed { slot, attempt, .. } => {
                *slot == call.call.slot && *attempt == call.attempt
            }
            _ => false,
        })
    }

    fn remembers(&mut self, call: &CallRef) {
        if let Some(held) = self.held.remove(call) {
            held.stop();
            self.memory.extend(held.outcome.map(|outcome| (call.clone(), outcome)));
        }
    }

    /// Nobody waits for it any more: it is stopped, if it can be.
    fn forgets(&mut self, call: &CallRef) {
        if let Some(held) = self.held.remove(call) {
            self.forgotten += 1;
            held.stop();
        }
    }
}
