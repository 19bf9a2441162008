//! Puts questions to people, and withdraws them.

use crate::id::{Attempt, CallSlot, RequestId};
use crate::message::ToolStatus;
use crate::policy::PolicyCall;
use crate::run::ask_human;
use crate::run::event::Event;
use crate::run::human::{Answer, Decision, Question, QuestionContent, QuestionKind};
use crate::run::state::{CallState, RunState};
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::routine::calls;
use crate::time::Timestamp;
use crate::tool::Digest;

/// The reason of a doubt that begins when a host declares the call's tool anew.
const NOT_REPEATABLE_ANY_MORE: &str =
    "an earlier attempt may have run, and the tool is declared by now as one that must not run twice";

/// Asks whether each call that needs an approval may run.
pub(in crate::run::transition) fn ask_approvals(builder: &mut TransitionBuilder<'_>) {
    let unasked = |state: &CallState| matches!(state, CallState::AwaitingApproval { request: None });
    let calls = builder.state().round().iter().filter(|call| unasked(&call.state));
    let slots: Vec<CallSlot> = calls.map(|call| call.slot).collect();
    for slot in slots {
        ask_approval(builder, slot);
    }
}

/// Asks whether a call may run.
pub(in crate::run::transition) fn ask_approval(builder: &mut TransitionBuilder<'_>, slot: CallSlot) {
    let terms = builder.state().call(slot).and_then(|call| call.terms.digest.clone());
    ask_approval_under(builder, slot, terms);
}

/// Asks whether a call may run under these terms.
pub(in crate::run::transition) fn ask_approval_under(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    terms: Option<Digest>,
) {
    let expires_at = builder.state().spec().approval_timeout.map(|wait| builder.now.after(wait));
    ask_about(builder, slot, QuestionKind::Approve, expires_at, terms);
}

/// Asks what became of a call in doubt.
pub(in crate::run::transition) fn ask_in_doubt(builder: &mut TransitionBuilder<'_>, slot: CallSlot) {
    let terms = builder.state().call(slot).and_then(|call| call.terms.digest.clone());
    ask_in_doubt_under(builder, slot, terms);
}

/// Asks what became of a call, before it is offered again under these terms.
pub(in crate::run::transition) fn ask_in_doubt_under(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    terms: Option<Digest>,
) {
    let expires_at = builder.state().spec().in_doubt_timeout.map(|wait| builder.now.after(wait));
    ask_about(builder, slot, QuestionKind::InDoubt, expires_at, terms);
}

fn ask_about(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    kind: QuestionKind,
    expires_at: Option<Timestamp>,
    terms: Option<Digest>,
) {
    let call = builder.state().call(slot).expect("only an open call is asked about");
    let why = match (&call.state, kind) {
        (CallState::InDoubt { why, .. }, _) => why.clone(),
        (_, QuestionKind::InDoubt) => NOT_REPEATABLE_ANY_MORE.to_owned(),
        _ => String::new(),
    };
    let asked = PolicyCall::new(&call.requested.name, &call.arguments).under(terms.as_ref());
    let question = Question {
        request: next_request(builder.state(), slot, call.attempt),
        kind,
        slot: Some(slot),
        tool: call.requested.name.clone(),
        arguments: call.arguments.clone(),
        digest: call.digest(),
        terms,
        content: None,
        why,
        asked_at: builder.now,
        expires_at,
        approvers: builder.state().approvers_of(&asked),
    };
    builder.emit(Event::HumanRequested { question, resume_state: None });
}

/// An id that no question has yet. Each question before it took a person's answer, so there are few.
fn next_request(state: &RunState, slot: CallSlot, attempt: Attempt) -> RequestId {
    let call = state.call_id(slot);
    let first = std::iter::once_with(|| call.request(attempt));
    let mut ids = first.chain((2..).map(|number| call.request_again(attempt, number)));
    ids.find(|id| state.question(id).is_none()).expect("a run has few questions")
}

/// Asks the question of a call whose result is a person's answer. Arguments that are no question settle the call.
pub(in crate::run::transition) fn ask_input(builder: &mut TransitionBuilder<'_>, slot: CallSlot) {
    let call = builder.state().call(slot).expect("only an open call asks");
    let (tool, attempt) = (call.requested.name.clone(), call.attempt);
    match ask_human::question(&call.arguments) {
        Ok(content) => {
            let timeout = builder.state().spec().approval_timeout;
            let request = builder.state().call_id(slot).input(attempt, 1);
            let question = Question::with_content(request, content, builder.now, timeout);
            let question = Question { slot: Some(slot), tool, ..question };
            builder.emit(Event::HumanRequested { question, resume_state: None });
        }
        Err(problem) => calls::settle(builder, slot, ToolStatus::Rejected, problem),
    }
}

/// Asks the planner's question.
pub(in crate::run::transition) fn ask_planned(builder: &mut TransitionBuilder<'_>, content: QuestionContent) {
    let (state, now) = (builder.state(), builder.now);
    let question =
        Question::planned(state.run(), state.decisions(), content, now, state.spec().approval_timeout);
    builder.emit(Event::HumanRequested { question, resume_state: None });
}

/// Withdraws the planner's open question: the run ends.
pub(in crate::run::transition) fn withdraw_planned(builder: &mut TransitionBuilder<'_>) {
    withdraw_of(builder, None);
}

/// Withdraws the open questions of a call that is about to be settled otherwise.
pub(in crate::run::transition) fn withdraw(builder: &mut TransitionBuilder<'_>, slot: CallSlot) {
    withdraw_of(builder, Some(slot));
}

/// A withdrawal is recorded and leads to nothing else.
fn withdraw_of(builder: &mut TransitionBuilder<'_>, slot: Option<CallSlot>) {
    let open = builder.state().open_questions().filter(|question| question.slot == slot);
    let requests: Vec<_> = open.map(|question| question.request.clone()).collect();
    for request in requests {
        let answer = Answer::new(Decision::Withdrawn, String::new(), builder.now);
        builder.emit(Event::HumanResolved { request, slot, answer });
    }
}
