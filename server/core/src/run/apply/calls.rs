//! How events move tool calls.

use crate::id::{CallSlot, HostId, RuntimeId};
use crate::message::SharedMessage;
use crate::run::human::{Answer, Decision, Question, QuestionKind};
use crate::run::plan::Instruction;
use crate::run::state::{Call, CallState, Leave, Phase, State};
use crate::time::{Millis, Timestamp};
use crate::tool::EffectClass;

impl State {
    pub(super) fn propose(
        &mut self,
        slot: CallSlot,
        effect: EffectClass,
        timeout: Millis,
        needs_approval: bool,
        at: Timestamp,
    ) {
        self.tool_calls += 1;
        let directed = self.spec.is_directed();
        let call = self.open_call(slot);
        assert_eq!(call.state, CallState::Proposed, "a call is taken up once");
        call.effect = effect;
        call.timeout = timeout;
        call.state = if directed {
            CallState::Held { leave: if needs_approval { Leave::Needed } else { Leave::NotNeeded } }
        } else if needs_approval {
            CallState::AwaitingApproval { request: None }
        } else {
            CallState::Ready { since: at, not_before: None }
        };
    }

    /// A call that needs a runtime goes to a host: the one that has it, or one where a new one is opened.
    pub(super) fn take_runtime(&mut self, host: &HostId) -> RuntimeId {
        let number = match &self.runtime {
            Some((id, on)) if on == host => return id.clone(),
            Some((id, _)) => id.number + 1,
            None => 1,
        };
        let id = RuntimeId { run: self.run.clone(), number };
        self.runtime = Some((id.clone(), host.clone()));
        id
    }

    pub(super) fn settle(&mut self, slot: CallSlot, attempt: u32, answered: u32, message: &SharedMessage) {
        let call = self.open_call(slot);
        assert_eq!(attempt, call.attempt, "the last try settles a call");
        call.state = CallState::Settled;
        call.answered = answered;
        let failed = message.tool_result().is_some_and(|result| result.status.is_error());
        self.failures_in_a_row = if failed { self.failures_in_a_row + 1 } else { 0 };
    }

    pub(super) fn await_answer(&mut self, slot: CallSlot, question: &Question, at: Timestamp) {
        let call = self.open_call(slot);
        let request = Some(question.request.clone());
        match question.kind {
            _ if question.input().is_some() => call.asking += 1,
            QuestionKind::Approve => call.state = CallState::AwaitingApproval { request },
            QuestionKind::InDoubt => call.state = CallState::InDoubt { request, since: at },
            QuestionKind::Prompt | QuestionKind::Select => {
                call.state = CallState::AwaitingInput { request };
            }
        }
    }

    /// Held calls go on, if that was decided; whether any does.
    pub(super) fn release(&mut self, instruction: &Instruction, at: Timestamp) -> bool {
        let ask_about_all = *instruction == Instruction::RequestApproval;
        if !ask_about_all && *instruction != Instruction::CallTools {
            return false;
        }
        let Phase::Tools(calls) = &mut self.phase else { return false };
        let mut any = false;
        for call in calls {
            call.state = match call.state {
                CallState::Held { leave: Leave::Needed } => CallState::AwaitingApproval { request: None },
                CallState::Held { leave: Leave::NotNeeded } if ask_about_all => {
                    CallState::AwaitingApproval { request: None }
                }
                CallState::Held { .. } => CallState::Ready { since: at, not_before: None },
                CallState::Proposed
                | CallState::AwaitingApproval { .. }
                | CallState::AwaitingInput { .. }
                | CallState::Ready { .. }
                | CallState::Offered { .. }
                | CallState::Accepted { .. }
                | CallState::InDoubt { .. }
                | CallState::Settled => continue,
            };
            any = true;
        }
        any
    }

    /// Leave to run makes a call ready, unless it is held for the next step; every other decision is followed by the
    /// event that settles it.
    pub(super) fn resolve(&mut self, slot: CallSlot, answer: &Answer, hold: bool, at: Timestamp) {
        let call = self.open_call(slot);
        let ready = if hold {
            CallState::Held { leave: Leave::Given }
        } else {
            CallState::Ready { since: at, not_before: None }
        };
        match &answer.decision {
            Decision::Approve => call.state = ready,
            Decision::ApproveWithEdits { arguments } => {
                call.arguments.clone_from(arguments);
                call.changed_by_hook = false;
                call.state = ready;
            }
            Decision::Deny { .. }
            | Decision::DenyAndStop { .. }
            | Decision::AnswerInPlace { .. }
            | Decision::Text { .. }
            | Decision::Selected { .. }
            | Decision::Expired
            | Decision::Withdrawn => {}
        }
    }

    pub(super) fn open_call(&mut self, slot: CallSlot) -> &mut Call {
        let calls = self.round_mut().expect("a tool call is open");
        let call = calls.iter_mut().find(|call| call.slot == slot).expect("the call is of this round");
        assert!(!call.is_settled(), "a settled call does not move");
        call
    }
}

impl Call {
    /// A question that it asked while it ran is settled: its time starts anew.
    pub(super) fn heard(&mut self, now: Timestamp) {
        self.asking = self.asking.checked_sub(1).expect("only what was asked is answered");
        if let CallState::Offered { at } | CallState::Accepted { at } = &mut self.state {
            *at = now;
        }
    }
}

/// The round that a message asks for, if it asks for any.
pub(super) fn round_of(message: &SharedMessage) -> Option<Vec<Call>> {
    let calls: Vec<Call> = message
        .tool_calls()
        .map(|wanted| Call {
            slot: wanted.slot,
            arguments: wanted.arguments.clone(),
            changed_by_hook: false,
            wanted: wanted.clone(),
            effect: EffectClass::Unsafe,
            timeout: Millis(0),
            asks_human: false,
            needs_runtime: false,
            title: String::new(),
            runtime: None,
            attempt: 0,
            answered: 0,
            host: None,
            first_offered: None,
            checkpoint: None,
            asking: 0,
            state: CallState::Proposed,
        })
        .collect();
    (!calls.is_empty()).then_some(calls)
}
