//! Questions and answers.

use agentloop_core::id::{RunId, SessionId};
use agentloop_core::limits::TOOL_RESULT_BYTES_MAX;
use agentloop_core::run::human::{Answer, Decision, Question, QuestionKind};
use agentloop_proto::v1 as wire;
use wire::decision::Decision as Wire;

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
    let (kind, text) = match question.kind {
        QuestionKind::Approve => {
            (wire::HumanRequestKind::Approve, format!("May {} run with these arguments?", question.tool))
        }
        QuestionKind::InDoubt => (
            wire::HumanRequestKind::InDoubt,
            format!("The host of {} was lost during this call. What became of it?", question.tool),
        ),
    };
    wire::HumanRequest {
        request_id: question.request.to_string(),
        kind: kind.into(),
        run_id: run.to_string(),
        session_id: session.to_string(),
        call_id: call_id(run, question.slot),
        tool: question.tool.clone(),
        arguments_json: question.arguments.clone(),
        digest: question.digest.to_string(),
        question: text,
        options: Vec::new(),
        multiple: false,
        created_at: Some(timestamp(question.asked_at)),
        expires_at: question.expires_at.map(timestamp),
        answer: answered.map(answer),
        suggested_rule: None,
        input_id: String::new(),
    }
}

/// An answer as callers see it.
#[must_use]
pub fn answer(answer: &Answer) -> wire::HumanAnswer {
    wire::HumanAnswer {
        decision: Some(wire::Decision { decision: Some(dress(&answer.decision)) }),
        decided_by: answer.by.clone(),
        decided_at: Some(timestamp(answer.at)),
        input: None,
        remembered_rule: None,
    }
}

fn dress(decision: &Decision) -> Wire {
    match decision.clone() {
        Decision::Approve => Wire::Approve(wire::Approve {}),
        Decision::ApproveWithEdits { arguments } => {
            Wire::ApproveWithEdits(wire::ApproveWithEdits { arguments_json: arguments })
        }
        Decision::Deny { message } => Wire::Deny(wire::Deny { message }),
        Decision::DenyAndStop { message } => Wire::DenyAndStop(wire::DenyAndStop { message }),
        Decision::AnswerInPlace { output } => Wire::AnswerInPlace(wire::AnswerInPlace { output }),
        Decision::Expired => Wire::Expired(wire::Expired {}),
        Decision::Withdrawn => Wire::Withdrawn(wire::Withdrawn {}),
    }
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
