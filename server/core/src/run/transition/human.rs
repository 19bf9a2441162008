//! Humans are asked, and decide.

use crate::error::Refusal;
use crate::id::{CallSlot, RequestId};
use crate::message::ToolStatus;
use crate::run::event::Event;
use crate::run::human::{Answer, Decision, Question, QuestionKind};
use crate::run::machine::Turn;
use crate::run::status::RunErrorCode;
use crate::run::transition::plan::{self, plan};
use crate::run::transition::{finish, policy, tool};
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
        slot: Some(slot),
        tool: call.wanted.name.clone(),
        arguments: call.arguments.clone(),
        digest: call.digest(),
        ask: None,
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
    let decision = asked.question.settle(decision).map_err(Refusal::BadAnswer)?;
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
    let question = asked.question.clone();
    if let Decision::ApproveWithEdits { arguments } = &decision
        && let Some(rule) = policy::denial(turn.state, &question.tool, arguments)
    {
        return Err(Refusal::DeniedByRule(Box::new(rule.clone())));
    }
    resolve(turn, &question, decision.clone(), by);
    plan::heard(turn, &question, &decision);
    carry_out(turn, &question, decision);
    plan(turn);
    Ok(())
}

/// The question, where a call waits for its approval, or `None` where that was given before.
pub(crate) fn approvable(turn: &Turn<'_>, request: &RequestId) -> Result<Option<Question>, Refusal> {
    let asked = turn.state.questions.get(request).ok_or(Refusal::UnknownRequest)?;
    asked.question.settle(Decision::Approve).map_err(Refusal::BadAnswer)?;
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
    Ok(Some(asked.question.clone()))
}

/// Its expiry, where that is about to be recorded: leave that comes too late must not overtake it.
fn expired(question: &Question, now: Timestamp) -> Option<Answer> {
    let at = question.expires_at.filter(|at| *at <= now)?;
    Some(Answer { decision: Decision::Expired, by: String::new(), at })
}

/// Nobody answered in time, which denies.
pub(crate) fn expire(turn: &mut Turn<'_>, question: &Question) {
    resolve(turn, question, Decision::Expired, String::new());
    carry_out(turn, question, Decision::Expired);
}

/// The run ends: what still waits is moot, but for what its calls wait for, which goes with them.
pub(crate) fn withdraw_planned(turn: &mut Turn<'_>) {
    let open: Vec<_> =
        turn.state.open_questions().filter(|question| question.slot.is_none()).cloned().collect();
    for question in open {
        resolve(turn, &question, Decision::Withdrawn, String::new());
    }
}

/// The call is being settled otherwise: its question, if one still waits, is moot.
pub(crate) fn withdraw(turn: &mut Turn<'_>, slot: CallSlot) {
    let open = turn.state.open_questions().filter(|question| question.slot == Some(slot));
    for question in open.cloned().collect::<Vec<_>>() {
        resolve(turn, &question, Decision::Withdrawn, String::new());
    }
}

pub(crate) fn resolve(turn: &mut Turn<'_>, question: &Question, decision: Decision, by: String) {
    let answer = Answer { decision, by, at: turn.now };
    turn.emit(Event::HumanResolved { request: question.request.clone(), slot: question.slot, answer });
}

fn carry_out(turn: &mut Turn<'_>, question: &Question, decision: Decision) {
    let Some(slot) = question.slot else { return };
    if let Decision::DenyAndStop { message } = decision {
        finish::stop(turn, RunErrorCode::AbortedByDenial, message);
        return;
    }
    let settled = match question.kind {
        QuestionKind::Approve => approval(decision),
        QuestionKind::InDoubt => doubt_settled(decision),
        QuestionKind::Prompt | QuestionKind::Select => None,
    };
    if let Some((status, output)) = settled {
        tool::settle(turn, slot, None, status, output, Vec::new());
    }
}

/// What settles a call that waited for leave; nothing where it got it.
fn approval(decision: Decision) -> Option<(ToolStatus, String)> {
    match decision {
        Decision::Deny { message } => Some((ToolStatus::Denied, denial(&message))),
        Decision::Expired => Some((ToolStatus::Denied, "denied: nobody answered in time".to_owned())),
        Decision::AnswerInPlace { output } => Some((ToolStatus::Answered, output)),
        Decision::Approve
        | Decision::ApproveWithEdits { .. }
        | Decision::DenyAndStop { .. }
        | Decision::Text { .. }
        | Decision::Selected { .. }
        | Decision::Withdrawn => None,
    }
}

/// What settles a call in doubt; nothing where it is to run once more.
fn doubt_settled(decision: Decision) -> Option<(ToolStatus, String)> {
    match decision {
        Decision::Deny { message } => {
            let output = format!("{OUTCOME_UNKNOWN} {message}").trim_end().to_owned();
            Some((ToolStatus::OutcomeUnknown, output))
        }
        Decision::Expired => Some((ToolStatus::OutcomeUnknown, OUTCOME_UNKNOWN.to_owned())),
        Decision::AnswerInPlace { output } => Some((ToolStatus::Answered, output)),
        Decision::Approve
        | Decision::ApproveWithEdits { .. }
        | Decision::DenyAndStop { .. }
        | Decision::Text { .. }
        | Decision::Selected { .. }
        | Decision::Withdrawn => None,
    }
}

const OUTCOME_UNKNOWN: &str =
    "outcome unknown: the tool's host was lost during the call, which may or may not have taken effect.";

fn denial(message: &str) -> String {
    if message.is_empty() { "denied by a human".to_owned() } else { format!("denied by a human: {message}") }
}
