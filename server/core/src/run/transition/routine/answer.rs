//! Records an answer to a question and does what it says.

use std::sync::Arc;

use crate::id::CallSlot;
use crate::limits::TOOL_ATTEMPTS_MAX;
use crate::message::{Message, Role, ToolStatus};
use crate::run::event::Event;
use crate::run::human::{Answer, Decision, Question, QuestionKind};
use crate::run::state::RoundCall;
use crate::run::status::RunErrorCode;
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::routine::{calls, finish, waiting};

/// The result of a call in doubt that nobody settled otherwise.
fn outcome_unknown(why: &str) -> String {
    let why = if why.is_empty() { "no result of the call is known" } else { why };
    format!("outcome unknown: {why}; the call may or may not have taken effect.")
}

/// Records an answer and does what it says.
pub(in crate::run::transition) fn resolve(
    builder: &mut TransitionBuilder<'_>,
    question: &Question,
    answer: Answer,
) {
    let decision = answer.decision.clone();
    builder.emit(Event::HumanResolved { request: question.request.clone(), slot: question.slot, answer });
    match question.slot {
        None => tell_session(builder, question, &decision),
        Some(slot) => match question.input() {
            Some(input) => tell_call(builder, slot, input, &decision),
            None => move_call(builder, slot, question, decision),
        },
    }
}

/// Records that nobody answered in time, which denies.
pub(in crate::run::transition) fn expire(builder: &mut TransitionBuilder<'_>, question: &Question) {
    resolve(builder, question, Answer::new(Decision::Expired, String::new(), builder.now));
}

/// The answer to the planner's question enters the session as a message, once no tool call is open.
fn tell_session(builder: &mut TransitionBuilder<'_>, question: &Question, decision: &Decision) {
    // A planner learns of the time from its situation.
    let Some(words) = question.words(decision).filter(|_| *decision != Decision::Expired) else { return };
    let messages = vec![Arc::new(Message::text(Role::User, words))];
    if builder.state().round().iter().all(RoundCall::is_settled) {
        waiting::add(builder, messages);
    } else {
        waiting::hold(builder, messages, None);
    }
}

/// The answer to a call's question goes to its host, or comes with the next attempt if no host has the call. Each attempt
/// whose questions nobody answered is a try, so that a tool cannot ask and wait without end.
fn tell_call(builder: &mut TransitionBuilder<'_>, slot: CallSlot, input: &str, decision: &Decision) {
    let Some(call) = builder.state().call(slot) else { return };
    if !call.in_flight() {
        let is_out_of_tries = !call.awaits_input() && call.tries() >= TOOL_ATTEMPTS_MAX;
        if is_out_of_tries {
            let output = format!("given up after {TOOL_ATTEMPTS_MAX} tries: nobody answered in time");
            calls::settle(builder, slot, ToolStatus::Unavailable, output);
        }
        return;
    }
    let attempt = call.attempt;
    if let Some(answer) = decision.input_answer() {
        builder.answer(slot, attempt, input.to_owned(), answer);
    }
}

/// Settles the call that the question is about, or stops the run. An approval does neither: the event has released the
/// call.
fn move_call(builder: &mut TransitionBuilder<'_>, slot: CallSlot, question: &Question, decision: Decision) {
    if let Decision::DenyAndStop { message } = decision {
        finish::stop(builder, RunErrorCode::AbortedByDenial, message);
        return;
    }
    let result = match question.kind {
        QuestionKind::Approve => result_of_approval(decision),
        QuestionKind::InDoubt => result_of_doubt(&question.why, decision),
        QuestionKind::Prompt | QuestionKind::Select | QuestionKind::Form | QuestionKind::Url => {
            result_of_input(question, &decision)
        }
    };
    if let Some((status, output)) = result {
        calls::settle(builder, slot, status, output);
    }
}

/// The result of a call that waited for an approval; `None` if the call may run.
fn result_of_approval(decision: Decision) -> Option<(ToolStatus, String)> {
    match decision {
        Decision::Deny { message } if message.is_empty() => {
            Some((ToolStatus::Denied, "denied by a human".to_owned()))
        }
        Decision::Deny { message } => Some((ToolStatus::Denied, format!("denied by a human: {message}"))),
        Decision::Expired => Some((ToolStatus::Denied, "denied: nobody answered in time".to_owned())),
        Decision::AnswerInPlace { output } => Some((ToolStatus::Answered, output)),
        Decision::Approve
        | Decision::ApproveWithEdits { .. }
        | Decision::DenyAndStop { .. }
        | Decision::Text { .. }
        | Decision::Selected { .. }
        | Decision::Filled { .. }
        | Decision::Visited { .. }
        | Decision::Declined { .. }
        | Decision::Withdrawn => None,
    }
}

/// The result of a call that waited for the answer itself.
fn result_of_input(question: &Question, decision: &Decision) -> Option<(ToolStatus, String)> {
    let is_unanswered = matches!(decision, Decision::Expired | Decision::Declined { .. });
    let status = if is_unanswered { ToolStatus::Denied } else { ToolStatus::Answered };
    question.words(decision).map(|words| (status, words))
}

/// The result of a call in doubt; `None` if the call runs once more.
fn result_of_doubt(why: &str, decision: Decision) -> Option<(ToolStatus, String)> {
    match decision {
        Decision::Deny { message } => {
            let output = format!("{} {message}", outcome_unknown(why)).trim_end().to_owned();
            Some((ToolStatus::OutcomeUnknown, output))
        }
        Decision::Expired => Some((ToolStatus::OutcomeUnknown, outcome_unknown(why))),
        Decision::AnswerInPlace { output } => Some((ToolStatus::Answered, output)),
        Decision::Approve
        | Decision::ApproveWithEdits { .. }
        | Decision::DenyAndStop { .. }
        | Decision::Text { .. }
        | Decision::Selected { .. }
        | Decision::Filled { .. }
        | Decision::Visited { .. }
        | Decision::Declined { .. }
        | Decision::Withdrawn => None,
    }
}
