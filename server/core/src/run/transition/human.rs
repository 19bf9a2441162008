//! Humans are asked, and decide.

use crate::error::Refusal;
use crate::id::{CallSlot, RequestId};
use crate::message::ToolStatus;
use crate::run::event::Event;
use crate::run::human::{Answer, Decision, Question, QuestionKind};
use crate::run::machine::Turn;
use crate::run::state::CallState;
use crate::run::status::RunErrorCode;
use crate::run::transition::plan::plan;
use crate::run::transition::{finish, tool};
use crate::time::Timestamp;
use crate::tool::Digest;

/// May this call run?
pub(crate) fn ask_approval(turn: &mut Turn<'_>, slot: CallSlot) {
    let expires_at = turn.state.spec.approval_timeout.map(|wait| turn.now.after(wait));
    ask(turn, slot, QuestionKind::Approve, expires_at);
}

/// What became of this call?
pub(crate) fn ask_in_doubt(turn: &mut Turn<'_>, slot: CallSlot) {
    let expires_at = turn.state.spec.in_doubt_timeout.map(|wait| turn.now.after(wait));
    ask(turn, slot, QuestionKind::InDoubt, expires_at);
}

fn ask(turn: &mut Turn<'_>, slot: CallSlot, kind: QuestionKind, expires_at: Option<Timestamp>) {
    let call = turn.state.call(slot).expect("only an open call is asked about");
    let question = Question {
        request: turn.state.call_id(slot).request(call.attempt),
        kind,
        slot,
        tool: call.wanted.name.clone(),
        arguments: call.arguments.clone(),
        digest: call.digest(),
        asked_at: turn.now,
        expires_at,
    };
    turn.emit(Event::HumanRequested { question });
}

/// A human decided: the first answer counts, the same one again is confirmed.
pub(crate) fn decided(
    turn: &mut Turn<'_>,
    request: &RequestId,
    decision: Decision,
    digest: Option<&Digest>,
    by: String,
) -> Result<(), Refusal> {
    if matches!(decision, Decision::Expired | Decision::Withdrawn) {
        return Err(Refusal::NotADecision);
    }
    let asked = turn.state.questions.get(request).ok_or(Refusal::UnknownRequest)?;
    if digest.is_some_and(|digest| *digest != asked.question.digest) {
        return Err(Refusal::DigestMismatch);
    }
    if let Some(answer) = &asked.answer {
        return if answer.decision == decision {
            Ok(())
        } else {
            Err(Refusal::AlreadyResolved(Box::new(answer.clone())))
        };
    }
    if let Some(expired) = expired(&asked.question, turn.now) {
        return Err(Refusal::AlreadyResolved(Box::new(expired)));
    }
    let (slot, kind) = (asked.question.slot, asked.question.kind);
    resolve(turn, request.clone(), slot, decision.clone(), by);
    carry_out(turn, slot, kind, decision);
    plan(turn);
    Ok(())
}

/// The call that waits for this question's approval, or `None` where that was given before.
pub(crate) fn approvable(turn: &Turn<'_>, request: &RequestId) -> Result<Option<CallSlot>, Refusal> {
    let asked = turn.state.questions.get(request).ok_or(Refusal::UnknownRequest)?;
    match &asked.answer {
        Some(Answer { decision: Decision::Approve | Decision::ApproveWithEdits { .. }, .. }) => {
            return Ok(None);
        }
        Some(answer) => return Err(Refusal::AlreadyResolved(Box::new(answer.clone()))),
        None => {}
    }
    if let Some(expired) = expired(&asked.question, turn.now) {
        return Err(Refusal::AlreadyResolved(Box::new(expired)));
    }
    if !turn.state.rests() {
        return Err(Refusal::WrongPhase(turn.state.status()));
    }
    Ok(Some(asked.question.slot))
}

/// Its expiry, where that is about to be recorded: leave that comes too late must not overtake it.
fn expired(question: &Question, now: Timestamp) -> Option<Answer> {
    let at = question.expires_at.filter(|at| *at <= now)?;
    Some(Answer { decision: Decision::Expired, by: String::new(), at })
}

/// Nobody answered in time, which denies.
pub(crate) fn expire(turn: &mut Turn<'_>, request: RequestId, slot: CallSlot, kind: QuestionKind) {
    resolve(turn, request, slot, Decision::Expired, String::new());
    carry_out(turn, slot, kind, Decision::Expired);
}

/// The call is being settled otherwise: its question, if one still waits, is moot.
pub(crate) fn withdraw(turn: &mut Turn<'_>, slot: CallSlot) {
    let request = match turn.state.call(slot).map(|call| &call.state) {
        Some(
            CallState::AwaitingApproval { request: Some(request) }
            | CallState::InDoubt { request: Some(request), .. },
        ) => request.clone(),
        Some(_) | None => return,
    };
    if turn.state.questions.get(&request).is_none_or(|asked| asked.answer.is_some()) {
        return;
    }
    resolve(turn, request, slot, Decision::Withdrawn, String::new());
}

pub(crate) fn resolve(
    turn: &mut Turn<'_>,
    request: RequestId,
    slot: CallSlot,
    decision: Decision,
    by: String,
) {
    let answer = Answer { decision, by, at: turn.now };
    turn.emit(Event::HumanResolved { request, slot, answer });
}

fn carry_out(turn: &mut Turn<'_>, slot: CallSlot, kind: QuestionKind, decision: Decision) {
    let (status, output) = match (decision, kind) {
        (Decision::Approve | Decision::ApproveWithEdits { .. } | Decision::Withdrawn, _) => return,
        (Decision::DenyAndStop { message }, _) => {
            finish::stop(turn, RunErrorCode::AbortedByDenial, message);
            return;
        }
        (Decision::AnswerInPlace { output }, _) => (ToolStatus::Answered, output),
        (Decision::Deny { message }, QuestionKind::Approve) => (ToolStatus::Denied, denial(&message)),
        (Decision::Expired, QuestionKind::Approve) => {
            (ToolStatus::Denied, "denied: nobody answered in time".to_owned())
        }
        (Decision::Deny { message }, QuestionKind::InDoubt) => {
            (ToolStatus::OutcomeUnknown, format!("{OUTCOME_UNKNOWN} {message}").trim_end().to_owned())
        }
        (Decision::Expired, QuestionKind::InDoubt) => {
            (ToolStatus::OutcomeUnknown, OUTCOME_UNKNOWN.to_owned())
        }
    };
    tool::settle(turn, slot, None, status, output, Vec::new());
}

const OUTCOME_UNKNOWN: &str =
    "outcome unknown: the tool's host was lost during the call, which may or may not have taken effect.";

fn denial(message: &str) -> String {
    if message.is_empty() { "denied by a human".to_owned() } else { format!("denied by a human: {message}") }
}
