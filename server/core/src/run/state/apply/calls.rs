//! Events of tool calls.

use crate::id::{Attempt, CallSlot, HostId, InstanceId, RuntimeId};
use crate::message::SharedMessage;
use crate::run::event::{AfterAttempt, Ran};
use crate::run::state::{
    Approval, CallState, CallTerms, Phase, PlacedRuntime, ResumeState, RoundCall, RunState, SettlingResult,
};
use crate::time::Millis;
use crate::tool::{Digest, EffectClass};

/// The fields of [`crate::run::event::Event::CallProposed`].
pub(super) struct Proposed<'a> {
    pub(super) effect: EffectClass,
    pub(super) timeout: Millis,
    pub(super) needs_approval: bool,
    pub(super) asks_human: bool,
    /// `Some` if a hook changed the model's arguments.
    pub(super) arguments: Option<&'a String>,
    pub(super) needs_runtime: bool,
    pub(super) title: &'a str,
    pub(super) deadline_is_outcome: bool,
    pub(super) terms: Option<&'a Digest>,
}

/// The host that a call is offered to, with what it declares.
pub(super) struct OfferTarget<'a> {
    pub(super) host: &'a HostId,
    pub(super) instance: Option<&'a InstanceId>,
    pub(super) output_schema: Option<&'a Digest>,
}

impl RunState {
    pub(super) fn call_proposed(&mut self, slot: CallSlot, proposed: Proposed<'_>) {
        self.counters.tool_calls += 1;
        let (directed, since) = (self.spec.is_directed(), self.now());
        let call = self.open_call_mut(slot);
        assert_eq!(call.state, CallState::Proposed, "a call is proposed once");
        call.terms = CallTerms {
            digest: proposed.terms.cloned(),
            effect: proposed.effect,
            timeout: proposed.timeout,
            deadline_is_outcome: proposed.deadline_is_outcome,
            asks_human: proposed.asks_human,
            needs_runtime: proposed.needs_runtime,
            title: proposed.title.to_owned(),
        };
        call.state = if proposed.asks_human {
            CallState::AwaitingInput { request: None }
        } else if directed {
            let approval = if proposed.needs_approval { Approval::Needed } else { Approval::NotNeeded };
            CallState::AwaitingInstruction { approval }
        } else if proposed.needs_approval {
            CallState::AwaitingApproval { request: None }
        } else {
            CallState::Ready { since, not_before: None }
        };
        if let Some(arguments) = proposed.arguments {
            call.arguments.clone_from(arguments);
            call.edited_by_hook = true;
        }
    }

    pub(super) fn call_offered(
        &mut self,
        slot: CallSlot,
        attempt: Attempt,
        OfferTarget { host, instance, output_schema }: OfferTarget<'_>,
        effect: Option<EffectClass>,
    ) {
        let (at, seq) = (self.now(), self.seq());
        let call = self.open_call_mut(slot);
        assert_eq!(attempt, call.attempt.next(), "attempts are dense");
        call.attempt = attempt;
        call.last.host = Some(host.clone());
        call.last.instance = instance.cloned();
        call.last.output_schema = output_schema.cloned();
        call.terms.effect = effect.unwrap_or(call.terms.effect);
        call.first_offered.get_or_insert(at);
        call.last.timed_from = seq;
        call.last.heard_person = false;
        call.state = CallState::Offered { at };
        if call.terms.needs_runtime {
            let runtime = self.place_runtime(host);
            self.open_call_mut(slot).last.runtime = Some(runtime);
        }
    }

    /// The runtime of the run on this host: the one that is there, or a new one with the next number.
    fn place_runtime(&mut self, host: &HostId) -> RuntimeId {
        let number = match &self.tools.runtime {
            Some(placed) if placed.host == *host => return placed.id.clone(),
            Some(placed) => placed.id.number + 1,
            None => 1,
        };
        let id = RuntimeId { run: self.run().clone(), number };
        self.tools.runtime = Some(PlacedRuntime { id: id.clone(), host: host.clone() });
        id
    }

    pub(super) fn call_accepted(&mut self, slot: CallSlot) {
        let call = self.open_call_mut(slot);
        if let CallState::Offered { at } = call.state {
            call.state = CallState::Accepted { at };
        }
    }

    pub(super) fn call_checkpoint(&mut self, slot: CallSlot, checkpoint: &[u8], resume_no: u64) {
        let call = self.open_call_mut(slot);
        if resume_no == 0 {
            call.last.checkpoint = Some(checkpoint.to_vec());
        } else {
            let (attempt, state) = (call.attempt, checkpoint.to_vec());
            call.resume = Some(ResumeState { attempt, no: resume_no, state });
        }
    }

    pub(super) fn call_attempt_failed(
        &mut self,
        slot: CallSlot,
        attempt: Attempt,
        ran: Ran,
        message: &str,
        then: AfterAttempt,
        busy: bool,
    ) {
        let since = self.now();
        let call = self.open_call_mut(slot);
        call.attempts.busy += u32::from(busy);
        call.attempts.doubtful.retain(|doubtful| *doubtful != attempt);
        if ran != Ran::No && !call.is_resumable() {
            call.attempts.doubtful.push(attempt);
        }
        match then {
            AfterAttempt::Retry { at: not_before } => call.state = CallState::Ready { since, not_before },
            AfterAttempt::InDoubt => {
                let (due, why) = (call.timeout_at().unwrap_or(since), message.to_owned());
                call.state = CallState::InDoubt { request: None, since, due, why };
            }
            AfterAttempt::Settle => {}
        }
    }

    pub(super) fn call_settled(
        &mut self,
        slot: CallSlot,
        attempt: Attempt,
        by: SettlingResult,
        message: &SharedMessage,
        duration: Millis,
    ) {
        self.counters.tool_time = self.counters.tool_time.plus(duration);
        let call = self.open_call_mut(slot);
        assert_eq!(attempt, call.attempt, "the last attempt settles a call");
        call.state = CallState::Settled;
        call.settled_by = by;
        let failed = message.tool_result().is_some_and(|result| result.status.is_error());
        self.counters.calls.tool_calls += 1;
        self.counters.calls.failed_tool_calls += u64::from(failed);
        self.tools.failures_in_a_row = if failed { self.tools.failures_in_a_row + 1 } else { 0 };
    }

    /// Keeps the result of each call of the round that ends, so that late results are told from unknown ones.
    pub(super) fn remember_settled_calls(&mut self) {
        if let Phase::Tools(calls) = &self.phase {
            self.tools.settled.extend(calls.iter().map(|call| (call.slot, call.settled_by.attempt)));
            let digests = calls.iter().filter_map(|call| Some((call.slot, call.settled_by.digest.clone()?)));
            self.tools.result_digests.extend(digests);
        }
    }

    pub(super) fn open_call_mut(&mut self, slot: CallSlot) -> &mut RoundCall {
        let Phase::Tools(calls) = self.phase.interrupted_mut() else {
            panic!("no round of tool calls is open")
        };
        let call = calls.iter_mut().find(|call| call.slot == slot).expect("the call is of this round");
        assert!(!call.is_settled(), "a settled call does not move");
        call
    }
}
