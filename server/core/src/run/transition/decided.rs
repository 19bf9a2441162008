//! Input of a person who answers a question.

use crate::id::RequestId;
use crate::limits::{INPUT_ANSWERS_PER_CALL_BYTES_MAX, POLICY_RULES_MAX};
use crate::policy::{PolicyAction, PolicyCall, PolicyRule};
use crate::question::InputReply;
use crate::run::event::Event;
use crate::run::human::{
    Answer, BadAnswer, CannotRemember, Decision, Person, Question, QuestionKind, Remember, check_person,
};
use crate::run::refusal::Refusal;
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::routine::{answer, policy};
use crate::time::Timestamp;
use crate::tool::Digest;

/// The answer that a person submits.
#[derive(Debug)]
pub(super) struct Submission<'a> {
    pub(super) decision: Decision,
    /// Digest of the content that the person was shown; `None` skips the check.
    pub(super) digest: Option<&'a Digest>,
    pub(super) by: Person,
    pub(super) remember: Option<&'a Remember>,
}

/// Records an answer. The first answer counts; the same answer again is confirmed.
pub(super) fn decided(
    builder: &mut TransitionBuilder<'_>,
    request: &RequestId,
    submission: Submission<'_>,
) -> Result<(), Refusal> {
    if matches!(submission.decision, Decision::Expired | Decision::Withdrawn) {
        return Err(Refusal::NotADecision);
    }
    let asked = builder.state().question(request).ok_or(Refusal::UnknownRequest)?;
    asked.question.check_person(&submission.by).map_err(Refusal::NotAnApprover)?;
    let is_as_shown = submission.digest.is_none_or(|digest| *digest == asked.question.digest);
    let is_recorded = asked.answer.as_ref().is_some_and(|answer| answer.decision == submission.decision);
    if is_as_shown && is_recorded && submission.remember.is_none() {
        // Also an answer that would be refused by now.
        return Ok(());
    }
    let decision = asked.question.checked_answer(submission.decision).map_err(Refusal::BadAnswer)?;
    if !is_as_shown {
        return Err(Refusal::DigestMismatch);
    }
    let remembered = submission.remember.map(|remember| {
        let widening = builder.state().spec().tool_policy.widening;
        asked.question.remembered(&decision, remember, widening)
    });
    let remembered = remembered.transpose().map_err(Refusal::CannotRemember)?.map(Box::new);
    if let Some(answer) = &asked.answer {
        let same = answer.decision == decision && (remembered.is_none() || answer.remembered == remembered);
        return if same { Ok(()) } else { Err(Refusal::AlreadyResolved(Box::new(answer.clone()))) };
    }
    if let Some(expired) = expired(&asked.question, builder.now) {
        return Err(Refusal::AlreadyResolved(Box::new(expired)));
    }
    let question = asked.question.clone();
    check_bounds(builder, &question, &decision).map_err(Refusal::BadAnswer)?;
    if let Decision::ApproveWithEdits { arguments } = &decision {
        check_edits(builder, &question, arguments, &submission.by)?;
    }
    if remembered.is_some() && builder.state().remembered_rules().len() >= POLICY_RULES_MAX {
        return Err(Refusal::CannotRemember(CannotRemember::TooMany));
    }
    if decision == Decision::Approve && !is_last_approval(builder, &question, &submission.by) {
        return Ok(());
    }
    let answer =
        Answer { remembered: remembered.clone(), ..Answer::new(decision, submission.by.name, builder.now) };
    answer::resolve(builder, &question, answer.clone());
    if let Some(remembered) = remembered {
        follow_rule(builder, &remembered.rule, &question, &answer);
        if remembered.rule.action == PolicyAction::Deny {
            policy::refuse_waiting(builder);
        }
    }
    Ok(())
}

/// Refuses an answer to a call's question for which there is no room beside the call's other answers. To decline is always
/// possible.
fn check_bounds(
    builder: &TransitionBuilder<'_>,
    question: &Question,
    decision: &Decision,
) -> Result<(), BadAnswer> {
    let call = question.slot.and_then(|slot| builder.state().call(slot));
    let (Some(input), Some(call), Some(answer)) = (question.input(), call, decision.input_answer()) else {
        return Ok(());
    };
    let bytes = builder.state().answered_bytes(call) + InputReply::size_of(input, &answer);
    if bytes > INPUT_ANSWERS_PER_CALL_BYTES_MAX && !matches!(decision, Decision::Declined { .. }) {
        return Err(BadAnswer::NoRoom { bytes });
    }
    Ok(())
}

/// Refuses edited arguments that a rule denies, or that other people must approve. The person may answer the question.
fn check_edits(
    builder: &TransitionBuilder<'_>,
    question: &Question,
    arguments: &str,
    by: &Person,
) -> Result<(), Refusal> {
    if let Some(rule) = policy::denial(builder.state(), &question.tool, arguments) {
        return Err(Refusal::DeniedByRule(Box::new(rule.clone())));
    }
    let edited = PolicyCall::new(&question.tool, arguments).under(question.terms.as_ref());
    let approvers = builder.state().approvers_of(&edited);
    check_person(&approvers, by).map_err(Refusal::NotAnApprover)?;
    match question.approvers.people().max(approvers.people()) {
        1 => Ok(()),
        several => Err(Refusal::BadAnswer(BadAnswer::NoEdits(several))),
    }
}

/// Records an approval that is not the last one which the question needs. A person counts once. Returns true for the last.
fn is_last_approval(builder: &mut TransitionBuilder<'_>, question: &Question, by: &Person) -> bool {
    let quorum = question.approvers.people();
    let asked = builder.state().question(&question.request).expect("an open question");
    if asked.approvals.iter().any(|approval| approval.by == by.name) {
        return false;
    }
    let approvals = u32::try_from(asked.approvals.len()).unwrap_or(u32::MAX).saturating_add(1);
    if approvals >= quorum {
        return true;
    }
    let (request, slot, by) = (question.request.clone(), question.slot, by.name.clone());
    builder.emit(Event::HumanApproved { request, slot, by, approvals, quorum });
    false
}

/// Answers the other open questions of this run that the new rule decides: the person meant those too. Questions for
/// others stay open.
fn follow_rule(builder: &mut TransitionBuilder<'_>, rule: &PolicyRule, decided: &Question, first: &Answer) {
    let open = builder.state().open_questions().filter(|question| {
        question.kind == QuestionKind::Approve
            && question.approvers == decided.approvers
            && question.expires_at.is_none_or(|at| at > builder.now)
            && builder.state().rule_for(&question.call()) == Some(rule)
    });
    let answer = Answer { remembered: None, followed: Some(Box::new(rule.clone())), ..first.clone() };
    for question in open.cloned().collect::<Vec<_>>() {
        answer::resolve(builder, &question, answer.clone());
    }
}

/// The open question with this id, if an approval fits it; `None` if it was approved before.
///
/// # Errors
/// A [`Refusal`] if the question is unknown, of another kind, answered otherwise or expired, or if a step is under way.
pub(super) fn approvable(
    builder: &TransitionBuilder<'_>,
    request: &RequestId,
    by: &Person,
) -> Result<Option<Question>, Refusal> {
    let asked = builder.state().question(request).ok_or(Refusal::UnknownRequest)?;
    asked.question.check_person(by).map_err(Refusal::NotAnApprover)?;
    asked.question.checked_answer(Decision::Approve).map_err(Refusal::BadAnswer)?;
    match &asked.answer {
        Some(Answer { decision: Decision::Approve | Decision::ApproveWithEdits { .. }, .. }) => {
            return Ok(None);
        }
        Some(answer) => return Err(Refusal::AlreadyResolved(Box::new(answer.clone()))),
        None => {}
    }
    if let Some(expired) = expired(&asked.question, builder.now) {
        return Err(Refusal::AlreadyResolved(Box::new(expired)));
    }
    match asked.question.approvers.people() {
        1 => {}
        several => return Err(Refusal::SeveralApprovals(several)),
    }
    if !builder.state().is_at_rest() {
        return Err(Refusal::WrongPhase(builder.state().status()));
    }
    Ok(Some(asked.question.clone()))
}

/// The expiry of a question whose time is up but whose deadline was not handled yet: a late answer must not win.
fn expired(question: &Question, now: Timestamp) -> Option<Answer> {
    let at = question.expires_at.filter(|at| *at <= now)?;
    Some(Answer::new(Decision::Expired, String::new(), at))
}
