//! Events of questions to people and their answers.

use crate::id::{CallSlot, RequestId, Seq};
use crate::run::human::{Answer, Decision, PartialApproval, Question, QuestionKind};
use crate::run::state::{
    Approval, AskedInput, AskedQuestion, CallState, InstructionResult, ResumeState, RoundCall, RunState,
};
use crate::time::Timestamp;

impl RunState {
    pub(super) fn human_requested(&mut self, question: &Question, resume_state: Option<&[u8]>) {
        if let Some(slot) = question.slot {
            self.await_answer(slot, question, resume_state);
        }
        let asked = AskedQuestion { question: question.clone(), answer: None, approvals: Vec::new() };
        self.questions.asked.insert(question.request.clone(), asked);
    }

    fn await_answer(&mut self, slot: CallSlot, question: &Question, resume_state: Option<&[u8]>) {
        let since = self.now();
        let call = self.open_call_mut(slot);
        let request = Some(question.request.clone());
        if question.terms.is_some() {
            call.terms.digest.clone_from(&question.terms);
        }
        match question.kind {
            _ if question.input().is_some() => {
                call.last.open_inputs += 1;
                call.inputs.push(AskedInput { attempt: call.attempt, request: question.request.clone() });
                if let Some(state) = resume_state {
                    let (attempt, state) = (call.attempt, state.to_vec());
                    call.resume = Some(ResumeState { attempt, no: 0, state });
                    call.state = CallState::Suspended { since };
                }
                // A call that asks has begun, also if its host never accepted it.
                call.last.instance = None;
            }
            QuestionKind::Approve => {
                call.approvals.were_asked = true;
                call.state = CallState::AwaitingApproval { request };
            }
            QuestionKind::InDoubt => {
                if let CallState::InDoubt { request: asked, .. } = &mut call.state {
                    *asked = request;
                } else {
                    // A host declares stricter terms than those under which it may have run.
                    let (due, why) = (since.after(call.terms.timeout), question.why.clone());
                    call.state = CallState::InDoubt { request, since, due, why };
                }
            }
            QuestionKind::Prompt | QuestionKind::Select | QuestionKind::Form | QuestionKind::Url => {
                call.state = CallState::AwaitingInput { request };
            }
        }
    }

    pub(super) fn human_approved(&mut self, request: &RequestId, by: &str) {
        let at = self.now();
        let asked = self.questions.asked.get_mut(request).expect("only what was asked is approved");
        assert!(asked.answer.is_none(), "an answered question takes no approval");
        asked.approvals.push(PartialApproval { by: by.to_owned(), at });
    }

    pub(super) fn human_resolved(&mut self, request: &RequestId, slot: Option<CallSlot>, answer: &Answer) {
        let asked = self.questions.asked.get_mut(request).expect("only what was asked is answered");
        assert!(asked.answer.is_none(), "a question is answered once");
        asked.answer = Some(answer.clone());
        let question = asked.question.clone();
        let by_running_call = question.input().is_some();
        self.questions
            .remembered
            .extend(answer.remembered.as_ref().map(|remembered| remembered.rule.clone()));
        let (now, seq) = (self.now(), self.seq());
        match slot {
            Some(slot) if by_running_call => {
                self.open_call_mut(slot).input_resolved(&answer.decision, now, seq)
            }
            Some(slot) => self.approve(slot, &question, &answer.decision),
            None => self.planning.result = Some(InstructionResult::HumanAnswered),
        }
    }

    /// An approval makes a call ready, or leaves it to the next step. Every other decision is followed by the event
    /// that settles the call.
    fn approve(&mut self, slot: CallSlot, question: &Question, decision: &Decision) {
        let awaits_step = self.spec.stepped && self.planning.approving.as_ref() != Some(&question.request);
        let approved = if awaits_step {
            CallState::AwaitingInstruction { approval: Approval::Given }
        } else {
            CallState::Ready { since: self.now(), not_before: None }
        };
        let call = self.open_call_mut(slot);
        if matches!(decision, Decision::Approve | Decision::ApproveWithEdits { .. }) {
            call.approved(question);
        }
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
            | Decision::Filled { .. }
            | Decision::Visited { .. }
            | Decision::Declined { .. }
            | Decision::Expired
            | Decision::Withdrawn => {}
        }
    }
}

impl RoundCall {
    /// Notes what an approval covers. To run a call in doubt again is an approval too, of the terms that its question
    /// names.
    fn approved(&mut self, question: &Question) {
        match question.kind {
            QuestionKind::Approve => self.approvals.terms.push(question.terms.clone()),
            QuestionKind::InDoubt => {
                self.attempts.repeated_in_doubt |= !self.attempts.doubtful.is_empty();
                self.attempts.doubtful.clear();
                self.approvals.terms.extend(question.terms.clone().map(Some));
            }
            QuestionKind::Prompt | QuestionKind::Select | QuestionKind::Form | QuestionKind::Url => {}
        }
    }

    /// A question of the call is answered: its timeout starts anew. A call without a host goes on with its next attempt
    /// once no question is open.
    fn input_resolved(&mut self, decision: &Decision, now: Timestamp, seq: Seq) {
        self.last.open_inputs =
            self.last.open_inputs.checked_sub(1).expect("only what was asked is answered");
        self.last.heard_person |= decision.is_input();
        match &mut self.state {
            CallState::Offered { at } | CallState::Accepted { at } => {
                *at = now;
                self.last.timed_from = seq;
            }
            CallState::Suspended { .. } if self.last.open_inputs == 0 && *decision != Decision::Withdrawn => {
                self.attempts.answered += u32::from(self.last.heard_person);
                self.state = CallState::Ready { since: now, not_before: None };
            }
            _ => {}
        }
    }
}
