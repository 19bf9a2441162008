//! Questions and answers.

use agentloop_core::id::{RunId, SessionId};
use agentloop_core::limits::TOOL_RESULT_BYTES_MAX;
use agentloop_core::run::human::{Answer, Decision, Question, QuestionKind, SelectOption};
use agentloop_proto::v1 as wire;
use wire::decision::Decision as Wire;
use wire::human_input::Input;

use super::message::call_id;
use super::{json_object, short, timestamp};

/// A question as callers see it.
#[must_use]
pub fn request(
    run: &RunId,
    session: &SessionId,
    question: &Question,
    answered: Option<&Answer>,
) -> wire::HumanRequest {
    let ask = question.ask.as_deref();
    wire::HumanRequest {
        request_id: question.request.to_string(),
        kind: kind(question.kind).into(),
        run_id: run.to_string(),
        session_id: session.to_string(),
        call_id: question.slot.map(|slot| call_id(run, slot)).unwrap_or_default(),
        tool: question.tool.clone(),
        arguments_json: question.arguments.clone(),
        digest: question.digest.to_string(),
        question: text(question),
        options: ask.map(|ask| ask.options.iter().map(option).collect()).unwrap_or_default(),
        multiple: ask.is_some_and(|ask| ask.multiple),
        created_at: Some(timestamp(question.asked_at)),
        expires_at: question.expires_at.map(timestamp),
        answer: answered.map(answer),
        suggested_rule: None,
        input_id: ask.and_then(|ask| ask.input.clone()).unwrap_or_default(),
    }
}

fn kind(kind: QuestionKind) -> wire::HumanRequestKind {
    match kind {
        QuestionKind::Approve => wire::HumanRequestKind::Approve,
        QuestionKind::InDoubt => wire::HumanRequestKind::InDoubt,
        QuestionKind::Prompt => wire::HumanRequestKind::Prompt,
        QuestionKind::Select => wire::HumanRequestKind::Select,
    }
}

fn text(question: &Question) -> String {
    match question.kind {
        QuestionKind::Approve => format!("May {} run with these arguments?", question.tool),
        QuestionKind::InDoubt => {
            format!("The host of {} was lost during this call. What became of it?", question.tool)
        }
        QuestionKind::Prompt | QuestionKind::Select => {
            question.ask.as_ref().map(|ask| ask.text.clone()).unwrap_or_default()
        }
    }
}

fn option(option: &SelectOption) -> wire::SelectOption {
    wire::SelectOption { id: option.id.clone(), label: option.label.clone() }
}

/// An answer as callers see it.
#[must_use]
pub fn answer(answer: &Answer) -> wire::HumanAnswer {
    wire::HumanAnswer {
        decision: dress(&answer.decision).map(|decision| wire::Decision { decision: Some(decision) }),
        decided_by: answer.by.clone(),
        decided_at: Some(timestamp(answer.at)),
        input: input(&answer.decision).map(|input| wire::HumanInput { input: Some(input) }),
        remembered_rule: None,
    }
}

fn input(decision: &Decision) -> Option<Input> {
    match decision.clone() {
        Decision::Text { text } => Some(Input::Text(text)),
        Decision::Selected { options } => Some(Input::Selection(wire::Selection { option_ids: options })),
        Decision::Approve
        | Decision::ApproveWithEdits { .. }
        | Decision::Deny { .. }
        | Decision::DenyAndStop { .. }
        | Decision::AnswerInPlace { .. }
        | Decision::Expired
        | Decision::Withdrawn => None,
    }
}

fn dress(decision: &Decision) -> Option<Wire> {
    Some(match decision.clone() {
        Decision::Approve => Wire::Approve(wire::Approve {}),
        Decision::ApproveWithEdits { arguments } => {
            Wire::ApproveWithEdits(wire::ApproveWithEdits { arguments_json: arguments })
        }
        Decision::Deny { message } => Wire::Deny(wire::Deny { message }),
        Decision::DenyAndStop { message } => Wire::DenyAndStop(wire::DenyAndStop { message }),
        Decision::AnswerInPlace { output } => Wire::AnswerInPlace(wire::AnswerInPlace { output }),
        Decision::Expired => Wire::Expired(wire::Expired {}),
        Decision::Withdrawn => Wire::Withdrawn(wire::Withdrawn {}),
        Decision::Text { .. } | Decision::Selected { .. } => return None,
    })
}

/// A decision from outside.
///
/// # Errors
/// The field, relative to the decision, and what is wrong with it.
pub fn decision(decision: Option<wire::Decision>) -> Result<Decision, (&'static str, String)> {
    let Some(decision) = decision.and_then(|decision| decision.decision) else {
        return Err(("decision", "is required".to_owned()));
    };
    Ok(match decision {
        Wire::Approve(_) => Decision::Approve,
        Wire::ApproveWithEdits(edits) => {
            json_object(&edits.arguments_json)
                .map_err(|problem| ("decision.approve_with_edits.arguments_json", problem))?;
            Decision::ApproveWithEdits { arguments: edits.arguments_json }
        }
        Wire::Deny(deny) => Decision::Deny {
            message: short(deny.message).map_err(|problem| ("decision.deny.message", problem))?,
        },
        Wire::DenyAndStop(deny) => Decision::DenyAndStop {
            message: short(deny.message).map_err(|problem| ("decision.deny_and_stop.message", problem))?,
        },
        Wire::AnswerInPlace(answer) if answer.output.len() > TOOL_RESULT_BYTES_MAX => {
            let problem = format!("must be at most {TOOL_RESULT_BYTES_MAX} bytes");
            return Err(("decision.answer_in_place.output", problem));
        }
        Wire::AnswerInPlace(answer) => Decision::AnswerInPlace { output: answer.output },
        Wire::Expired(_) | Wire::Withdrawn(_) => {
            return Err(("decision", "is not one that a caller can make".to_owned()));
        }
    })
}
