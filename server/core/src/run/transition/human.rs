//! Humans are asked, and decide.

use crate::error::Refusal;
use crate::id::{CallSlot, RequestId};
use crate::limits::POLICY_RULES_MAX;
use crate::message::ToolStatus;
use crate::policy::{PolicyAction, PolicyRule};
use crate::run::ask_human;
use crate::run::event::Event;
use crate::run::human::{Answer, CannotRemember, Decision, Question, QuestionKind, Remember};
use crate::run::machine::Turn;
use crate::run::status::RunErrorCode;
use crate::run::transition::plan::{self, plan};
use crate::run::transition::{finish, need_input, policy, tool};
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

/// A call whose result is a human's answer. Arguments that ask for nothing are its end.
pub(crate) fn ask_input(turn: &mut Turn<'_>, slot: CallSlot) {
    let call = turn.state.call(slot).expect("only an open call asks");
    let (tool, attempt) = (call.wanted.name.clone(), call.attempt);
    match ask_human::ask(&call.arguments) {
        Ok(ask) => {
            let timeout = turn.state.spec.approval_timeout;
            let request = turn.state.call_id(slot).input(attempt, 1);
            let question =
                Question { slot: Some(slot), tool, ..Question::asking(request, ask, turn.now, timeout) };
            turn.emit(Event::HumanRequested { question });
        }
        Err(problem) => tool::settle(turn, slot, None, ToolStatus::Rejected, problem, Vec::new()),
    }
}

/// What a human says.
#[derive(Debug)]
pub(crate) struct Said<'a> {
    pub(crate) decision: Decision,
    pub(crate) by: String,
    pub(crate) remember: Option<&'a Remember>,
}

/// A human decided: the first answer counts, the same one again is confirmed.
pub(crate) fn decided(
    turn: &mut Turn<'_>,
    request: &RequestId,
    digest: Option<&Digest>,
    said: Said<'_>,
) -> Result<(), Refusal> {
    if matches!(said.decision, Decision::Expired | Decision::Withdrawn) {
        return Err(Refusal::NotADecision);
    }
    let asked = turn.state.questions.get(request).ok_or(Refusal::UnknownRequest)?;
    let decision = asked.question.settle(said.decision).map_err(Refusal::BadAnswer)?;
    if digest.is_some_and(|digest| *digest != asked.question.digest) {
        return Err(Refusal::DigestMismatch);
    }
    let remembered = said.remember.map(|remember| asked.question.remembered(&decision, remember));
    let remembered = remembered.transpose().map_err(Refusal::CannotRemember)?.map(Box::new);
    if let Some(answer) = &asked.answer {
        let same = answer.decision == decision && (remembered.is_none() || answer.remembered == remembered);
        return if same { Ok(()) } else { Err(Refusal::AlreadyResolved(Box::new(answer.clone()))) };
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
    if remembered.is_some() && turn.state.remembered.len() >= POLICY_RULES_MAX {
        return Err(Refusal::CannotRemember(CannotRemember::TooMany));
    }
    let answer = Answer { remembered: remembered.clone(), ..Answer::new(decision, said.by, turn.now) };
    resolve(turn, &question, answer.clone());
    if let Some(remembered) = remembered {
        follow(turn, &remembered.rule, &answer);
        if remembered.rule.action == PolicyAction::Deny {
            policy::refuse_waiting(turn);
        }
    }
    plan(turn);
    Ok(())
}

/// Answers what waits in this run and the new rule decides: whoever remembered the decision made it for those too.
fn follow(turn: &mut Turn<'_>, rule: &PolicyRule, first: &Answer) {
    let open = turn.state.open_questions().filter(|question| {
        question.kind == QuestionKind::Approve
            && question.expires_at.is_none_or(|at| at > turn.now)
            && turn.state.rule_for(&question.tool, &question.arguments) == Some(rule)
    });
    let answer = Answer { remembered: None, followed: Some(Box::new(rule.clone())), ..first.clone() };
    for question in open.cloned().collect::<Vec<_>>() {
        resolve(turn, &question, answer.clone());
    }
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
    Some(Answer::new(Decision::Expired, String::new(), at))
}

/// Nobody answered in time, which denies.
pub(crate) fn expire(turn: &mut Turn<'_>, question: &Question) {
    resolve(turn, question, Answer::new(Decision::Expired, String::new(), turn.now));
}

/// The run ends: what its planner asked is moot.
pub(crate) fn withdraw_planned(turn: &mut Turn<'_>) {
    withdraw_asked_by(turn, None);
}

/// The call is being settled otherwise: its questions, if any still wait, are moot.
pub(crate) fn withdraw(turn: &mut Turn<'_>, slot: CallSlot) {
    withdraw_asked_by(turn, Some(slot));
}

fn withdraw_asked_by(turn: &mut Turn<'_>, slot: Option<CallSlot>) {
    let open = turn.state.open_questions().filter(|question| question.slot == slot);
    for question in open.cloned().collect::<Vec<_>>() {
        resolve(turn, &question, Answer::new(Decision::Withdrawn, String::new(), turn.now));
    }
}

/// Records an answer and does what it says.
pub(crate) fn resolve(turn: &mut Turn<'_>, question: &Question, answer: Answer) {
    let decision = answer.decision.clone();
    turn.emit(Event::HumanResolved { request: question.request.clone(), slot: question.slot, answer });
    plan::heard(turn, question, &decision);
    carry_out(turn, question, decision);
}

fn carry_out(turn: &mut Turn<'_>, question: &Question, decision: Decision) {
    let Some(slot) = question.slot else { return };
    if let Some(input) = question.input() {
        return need_input::settled(turn, slot, input, &decision);
    }
    if let Decision::DenyAndStop { message } = decision {
        finish::stop(turn, RunErrorCode::AbortedByDenial, message);
        return;
    }
    let settled = match question.kind {
        QuestionKind::Approve => approval(decision),
        QuestionKind::InDoubt => doubt_settled(decision),
        QuestionKind::Prompt | QuestionKind::Select => input(question, &decision),
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

/// What settles a call that waited for the answer itself.
fn input(question: &Question, decision: &Decision) -> Option<(ToolStatus, String)> {
    if *decision == Decision::Expired {
        return Some((ToolStatus::Denied, "nobody answered in time".to_owned()));
    }
    question.words(decision).map(|words| (ToolStatus::Answered, words))
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
