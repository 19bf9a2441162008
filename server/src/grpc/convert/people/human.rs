//! Conversion of requests to humans (approvals, prompts, choices) and their answers.

use agentloop_core::id::{RunId, SessionId};
use agentloop_core::limits::{ANSWER_BYTES_MAX, ANSWER_IN_PLACE_BYTES_MAX, OPTIONS_MAX};
use agentloop_core::policy::PolicyAction;
use agentloop_core::run::human::{
    Answer, Decision, PartialApproval, Person, Question, QuestionKind, Remember, RememberScope, SelectOption,
};
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;
use agentloop_proto::v1 as wire;
use tonic::Status;
use wire::decision::Decision as Wire;
use wire::human_input::Input;

use super::policy;
use crate::engine::Resolution;
use crate::grpc::convert::message::call_id;
use crate::grpc::convert::{json_object, short, timestamp};
use crate::grpc::status::Violations;
use crate::store::RequestRow;

/// Converts a stored request to a human.
#[must_use]
pub fn row(row: &RequestRow) -> wire::HumanRequest {
    request(&row.run, &row.session, &row.question, &row.approvals, row.answer.as_ref())
}

/// Converts a request to a human, with its approvals so far, and its answer if there is one.
#[must_use]
pub fn request(
    run: &RunId,
    session: &SessionId,
    question: &Question,
    approvals: &[PartialApproval],
    answered: Option<&Answer>,
) -> wire::HumanRequest {
    let content = question.content.as_deref();
    wire::HumanRequest {
        request_id: question.request.to_string(),
        kind: kind(question.kind).into(),
        run_id: run.to_string(),
        session_id: session.to_string(),
        call_id: question.slot.map(|slot| call_id(run, slot)).unwrap_or_default(),
        tool: question.tool.clone(),
        arguments_json: question.arguments.clone(),
        digest: question.digest.to_string(),
        terms_digest: question.terms.as_ref().map(ToString::to_string).unwrap_or_default(),
        question: question.text().into_owned(),
        options: content.map(|content| content.options.iter().map(option).collect()).unwrap_or_default(),
        multiple: content.is_some_and(|content| content.multiple),
        created_at: Some(timestamp(question.asked_at)),
        expires_at: question.expires_at.map(timestamp),
        answer: answered.map(answer),
        suggested_rule: question.suggested_rule().as_ref().map(policy::rule),
        input_id: content.and_then(|content| content.input.clone()).unwrap_or_default(),
        form_schema_json: content.and_then(|content| content.form.clone()).unwrap_or_default(),
        url: content.and_then(|content| content.url.clone()).unwrap_or_default(),
        allow_empty: content.is_some_and(|content| content.allow_empty),
        metadata_json: content.and_then(|content| content.metadata.clone()).unwrap_or_default(),
        approvers: question.approvers.any_of.clone(),
        quorum: question.approvers.quorum,
        forbid_requester: question.approvers.forbid_requester,
        partial_approvals: approvals.iter().map(|one| partial_approval(&one.by, one.at)).collect(),
    }
}

/// Converts one of several approvals.
pub(crate) fn partial_approval(by: &str, at: Timestamp) -> wire::PartialApproval {
    wire::PartialApproval { decided_by: by.to_owned(), decided_at: Some(timestamp(at)) }
}

fn kind(kind: QuestionKind) -> wire::HumanRequestKind {
    match kind {
        QuestionKind::Approve => wire::HumanRequestKind::Approve,
        QuestionKind::InDoubt => wire::HumanRequestKind::InDoubt,
        QuestionKind::Prompt => wire::HumanRequestKind::Prompt,
        QuestionKind::Select => wire::HumanRequestKind::Select,
        QuestionKind::Form => wire::HumanRequestKind::Form,
        QuestionKind::Url => wire::HumanRequestKind::Url,
    }
}

/// Parses a kind of question from a request; `None` if it is unspecified or unknown.
#[must_use]
pub fn kind_of(wire: i32) -> Option<QuestionKind> {
    match wire::HumanRequestKind::try_from(wire).ok()? {
        wire::HumanRequestKind::Unspecified => None,
        wire::HumanRequestKind::Approve => Some(QuestionKind::Approve),
        wire::HumanRequestKind::InDoubt => Some(QuestionKind::InDoubt),
        wire::HumanRequestKind::Prompt => Some(QuestionKind::Prompt),
        wire::HumanRequestKind::Select => Some(QuestionKind::Select),
        wire::HumanRequestKind::Form => Some(QuestionKind::Form),
        wire::HumanRequestKind::Url => Some(QuestionKind::Url),
    }
}

fn option(option: &SelectOption) -> wire::SelectOption {
    wire::SelectOption { id: option.id.clone(), label: option.label.clone() }
}

/// Converts the answer of a human, or of a rule or timeout in their place.
#[must_use]
pub fn answer(answer: &Answer) -> wire::HumanAnswer {
    wire::HumanAnswer {
        decision: wire_decision(&answer.decision).map(|decision| wire::Decision { decision: Some(decision) }),
        decided_by: answer.by.clone(),
        decided_at: Some(timestamp(answer.at)),
        input: input(&answer.decision).map(|input| wire::HumanInput { input: Some(input) }),
        remembered_rule: answer.remembered.as_ref().map(|remembered| policy::rule(&remembered.rule)),
        applied_rule: answer.followed.as_deref().map(policy::rule),
    }
}

fn input(decision: &Decision) -> Option<Input> {
    match decision.clone() {
        Decision::Text { text } => Some(Input::Text(text)),
        Decision::Selected { options } => Some(Input::Selection(wire::Selection { option_ids: options })),
        Decision::Filled { fields } => Some(Input::FormJson(fields)),
        Decision::Visited { done } => Some(Input::Url(url_outcome(done).into())),
        Decision::Declined { message } => Some(Input::Declined(wire::Declined { message })),
        Decision::Approve
        | Decision::ApproveWithEdits { .. }
        | Decision::Deny { .. }
        | Decision::DenyAndStop { .. }
        | Decision::AnswerInPlace { .. }
        | Decision::Expired
        | Decision::Withdrawn => None,
    }
}

/// Converts the outcome of a visit to a link.
pub(crate) fn url_outcome(done: bool) -> wire::UrlOutcome {
    if done { wire::UrlOutcome::Done } else { wire::UrlOutcome::NotDone }
}

fn wire_decision(decision: &Decision) -> Option<Wire> {
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
        Decision::Text { .. }
        | Decision::Selected { .. }
        | Decision::Filled { .. }
        | Decision::Visited { .. }
        | Decision::Declined { .. } => return None,
    })
}

/// Parses the decision of a `SubmitApproval`. The caller reads the request id.
///
/// # Errors
/// INVALID_ARGUMENT with what is wrong.
pub(crate) fn approval_resolution(message: wire::SubmitApprovalRequest) -> Result<Resolution, Status> {
    let action = message.remember_rule.as_ref().map(wire::PolicyRule::action);
    let remember = remember(message.remember, message.remember_rule)?;
    let decision =
        decision(message.decision).map_err(|(field, problem)| Violations::single(field, problem))?;
    // A suggested rule may be sent back with a denial. But whoever writes a denial must not open the tool by it.
    if decision == Decision::Approve
        && matches!(action, Some(wire::PolicyAction::Deny | wire::PolicyAction::Ask))
    {
        return Err(Violations::single("remember_rule.action", "must be ALLOW or absent beside an approval"));
    }
    let by = short(message.decided_by).map_err(|problem| Violations::single("decided_by", problem))?;
    let digest = (!message.digest.is_empty()).then(|| Digest::claimed(message.digest));
    Ok(Resolution { decision, digest, by: Person::from(by), remember })
}

/// Parses the answer of a `SubmitInput`. The caller reads the request id.
///
/// # Errors
/// INVALID_ARGUMENT with what is wrong.
pub(crate) fn input_resolution(message: wire::SubmitInputRequest) -> Result<Resolution, Status> {
    use wire::submit_input_request::Input;
    let by = short(message.answered_by).map_err(|problem| Violations::single("answered_by", problem))?;
    let decision = match message.input {
        None => {
            return Err(Violations::single(
                "input",
                "one of text, selection, form_json, url and declined is required",
            ));
        }
        Some(Input::Text(text)) if text.len() > ANSWER_BYTES_MAX => {
            return Err(Violations::single("text", format!("must be at most {ANSWER_BYTES_MAX} bytes")));
        }
        Some(Input::Text(text)) => Decision::Text { text },
        Some(Input::Selection(selection)) if selection.option_ids.len() > OPTIONS_MAX => {
            return Err(Violations::single("selection.option_ids", format!("must be at most {OPTIONS_MAX}")));
        }
        Some(Input::Selection(selection)) => Decision::Selected { options: selection.option_ids },
        Some(Input::FormJson(fields)) => Decision::Filled { fields },
        Some(Input::Url(outcome)) => match wire::UrlOutcome::try_from(outcome) {
            Ok(wire::UrlOutcome::Done) => Decision::Visited { done: true },
            Ok(wire::UrlOutcome::NotDone) => Decision::Visited { done: false },
            Ok(wire::UrlOutcome::Unspecified) | Err(_) => {
                return Err(Violations::single("url", "must be URL_OUTCOME_DONE or URL_OUTCOME_NOT_DONE"));
            }
        },
        Some(Input::Declined(declined)) => {
            let message = short(declined.message);
            let message = message.map_err(|problem| Violations::single("declined.message", problem))?;
            Decision::Declined { message }
        }
    };
    Ok(Resolution { decision, digest: None, by: Person::from(by), remember: None })
}

fn remember(scope: i32, rule: Option<wire::PolicyRule>) -> Result<Option<Remember>, Status> {
    let scope = match wire::RememberScope::try_from(scope) {
        Ok(wire::RememberScope::Unspecified | wire::RememberScope::Once) => None,
        Ok(wire::RememberScope::Run) => Some(RememberScope::Run),
        Ok(wire::RememberScope::Session) => Some(RememberScope::Session),
        Ok(wire::RememberScope::Rule) => Some(RememberScope::Tenant),
        Err(_) => return Err(Violations::single("remember", "is not a value that this server knows")),
    };
    match (scope, rule) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Violations::single("remember_rule", "needs remember beside it")),
        (Some(scope), rule) => {
            // `Ask` stands in for the action, which the engine sets from the decision.
            let rule = rule.map(|rule| policy::with_action(rule, PolicyAction::Ask, scope.origin()));
            Ok(Some(Remember { scope, rule }))
        }
    }
}

/// Parses a decision and checks the sizes of its texts.
///
/// # Errors
/// The path of the invalid field, and the problem with it.
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
        Wire::AnswerInPlace(answer) if answer.output.len() > ANSWER_IN_PLACE_BYTES_MAX => {
            let problem = format!("must be at most {ANSWER_IN_PLACE_BYTES_MAX} bytes");
            return Err(("decision.answer_in_place.output", problem));
        }
        Wire::AnswerInPlace(answer) => Decision::AnswerInPlace { output: answer.output },
        Wire::Expired(_) | Wire::Withdrawn(_) => {
            return Err(("decision", "is not one that a caller can make".to_owned()));
        }
    })
}
