//! Records an answer to a question and does what it says.

use std::sync::Arc;

use crate::id::CallSlot;
use crate::message::{Message, Role, ToolStatus};
use crate::question::InputAnswer;
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
            Some(input) => tell_host(builder, slot, input, &decision),
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

/// The answer to a running call's question goes to its host, unless the call has ended.
fn tell_host(builder: &mut TransitionBuilder<'_>, slot: CallSlot, input: &str, decision: &Decision) {
    let Some(attempt) = builder.state().call(slot).map(|call| call.attempt) else { return };
    if let Some(answer) = input_answer(decision) {
        builder.answer(slot, attempt, input.to_owned(), answer);
    }
}

/// An answer as the host of the call reads it; `None` if the host need not know.
pub(in crate::run::transition) fn input_answer(decision: &Decision) -> Option<InputAnswer> {
    match decision {
        Decision::Text { text } => Some(InputAnswer::Text(text.clone())),
        Decision::Selected { options } => Some(InputAnswer::Selected(options.clone())),
        Decision::Filled { fields } => Some(InputAnswer::Filled(fields.clone())),
        Decision::Visited { done } => Some(InputAnswer::Visited(*done)),
        Decision::Declined { message } if message.is_empty() => {
            Some(InputAnswer::Refused("declined".to_owned()))
        }
        Decision::Declined { message } => Some(InputAnswer::Refused(format!("declined: {message}"))),
        Decision::Expired => Some(InputAnswer::Refused("nobody answered in time".to_owned())),
        Decision::Approve
        | Decision::ApproveWithEdits { .. }
        | Decision::Deny { .. }
        | Decision::DenyAndStop { .. }
        | Decision::AnswerInPlace { .. }
        | Decision::Withdrawn => None,
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
