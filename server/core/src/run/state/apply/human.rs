//! Events of questions to people and their answers.

use crate::id::{CallSlot, RequestId};
use crate::run::human::{Answer, Decision, Question, QuestionKind};
use crate::run::state::{Approval, AskedQuestion, CallState, InstructionResult, RoundCall, RunState};
use crate::time::Timestamp;

impl RunState {
    pub(super) fn human_requested(&mut self, question: &Question) {
        if let Some(slot) = question.slot {
            self.await_answer(slot, question);
        }
        let asked = AskedQuestion { question: question.clone(), answer: None };
        self.questions.asked.insert(question.request.clone(), asked);
    }

    fn await_answer(&mut self, slot: CallSlot, question: &Question) {
        let since = self.now();
        let call = self.open_call_mut(slot);
        let request = Some(question.request.clone());
        match question.kind {
            _ if question.input().is_some() => call.open_inputs += 1,
            QuestionKind::Approve => call.state = CallState::AwaitingApproval { request },
            QuestionKind::InDoubt => call.state = CallState::InDoubt { request, since },
            QuestionKind::Prompt | QuestionKind::Select => {
                call.state = CallState::AwaitingInput { request };
            }
        }
    }

    pub(super) fn human_resolved(&mut self, request: &RequestId, slot: Option<CallSlot>, answer: &Answer) {
        let asked = self.questions.asked.get_mut(request).expect("only what was asked is answered");
        assert!(asked.answer.is_none(), "a question is answered once");
        asked.answer = Some(answer.clone());
        let by_running_call = asked.question.input().is_some();
        self.questions
            .remembered
            .extend(answer.remembered.as_ref().map(|remembered| remembered.rule.clone()));
        let now = self.now();
        match slot {
            Some(slot) if by_running_call => self.open_call_mut(slot).input_resolved(now),
            Some(slot) => self.approve(slot, request, &answer.decision),
            None => self.planning.result = Some(InstructionResult::HumanAnswered),
        }
    }

    /// An approval makes a call ready, or leaves it to the next step. Every other decision is followed by the event
    /// that settles the call.
    fn approve(&mut self, slot: CallSlot, request: &RequestId, decision: &Decision) {
        let awaits_step = self.spec.stepped && self.planning.approving.as_ref() != Some(request);
        let approved = if awaits_step {
            CallState::AwaitingInstruction { approval: Approval::Given }
        } else {
            CallState::Ready { since: self.now(), not_before: None }
        };
        let call = self.open_call_mut(slot);
        match decision {
            Decision::Approve => call.state = approved,
            Decision::ApproveWithEdits { arguments } => {
                call.arguments.clone_from(arguments);
                call.edited_by_hook = false;
                call.state = approved;
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
}

impl RoundCall {
    /// A question of the running call is answered: its timeout starts anew.
    fn input_resolved(&mut self, now: Timestamp) {
        self.open_inputs = self.open_inputs.checked_sub(1).expect("only what was asked is answered");
        if let CallState::Offered { at } | CallState::Accepted { at } = &mut self.state {
            *at = now;
        }
    }
}
