//! Inputs of a directed run: the decision of its planner, and calls of `Step`.

use crate::id::RequestId;
use crate::run::event::Event;
use crate::run::human::{Answer, Decision, Person, Question};
use crate::run::input::PlanFailure;
use crate::run::plan::{Instruction, react};
use crate::run::refusal::Refusal;
use crate::run::transition::builder::{PendingStep, TransitionBuilder};
use crate::run::transition::decided::approvable;
use crate::run::transition::routine::{answer, plan, question};

/// The planner decided, or failed to, which fails the run.
pub(super) fn planned(
    builder: &mut TransitionBuilder<'_>,
    decision: u32,
    result: Result<Instruction, PlanFailure>,
) -> Result<(), Refusal> {
    let state = builder.state();
    let spec = state.spec();
    let is_asked = spec.planner.is_some() && (!spec.stepped || builder.pending_step.is_some());
    let situation = state.situation().filter(|_| is_asked && decision == state.decisions() + 1);
    let Some(situation) = situation else { return Err(Refusal::StaleDecision) };
    let planner = spec.planner.clone().unwrap_or_default();
    let checked = result.map_err(|failure| failure.message).and_then(|instruction| {
        instruction.check().map_err(|problem| format!("{} does not do: {problem}", instruction.name()))?;
        Ok(instruction)
    });
    let (instruction, planner) = match checked {
        Ok(instruction) => (instruction, planner),
        Err(problem) => {
            let failure = format!("the planner {planner} failed: {problem}");
            (Instruction::Finish { failure: Some(failure) }, String::new())
        }
    };
    plan::decide(builder, &situation, instruction, planner);
    Ok(())
}

/// A caller wants the next instruction carried out. The same request again is confirmed if it names the same question.
pub(super) fn step(
    builder: &mut TransitionBuilder<'_>,
    request: String,
    approve: Option<&RequestId>,
    by: Person,
) -> Result<(), Refusal> {
    let state = builder.state();
    let carried_out = state.steps().get(&request).map(|step| step.approve.as_ref());
    let pending = builder.pending_step.as_ref().filter(|step| step.request == request);
    if let Some(first) = carried_out.or(pending.map(|step| step.approve.as_ref())) {
        return if first == approve { Ok(()) } else { Err(Refusal::IdReused) };
    }
    if !state.is_live() || builder.pending_step.is_some() {
        return Err(Refusal::WrongPhase(state.status()));
    }
    if !state.spec().stepped {
        return Err(Refusal::NotStepped);
    }
    if let Some(question) = approve
        && let Some(question) = approvable(builder, question, &by)?
    {
        approve_and_run(builder, request, &question, by.name);
        return Ok(());
    }
    let Some(situation) = builder.state().situation() else {
        return Err(Refusal::WrongPhase(builder.state().status()));
    };
    *builder.pending_step = Some(PendingStep { request, approve: approve.cloned() });
    if builder.state().has_approved_call() || builder.state().spec().planner.is_none() {
        // A person's approval is a decision already: the planner is not called.
        plan::decide(builder, &situation, react(&situation), String::new());
    }
    Ok(())
}

/// Answers the question and runs its call: that is the step.
fn approve_and_run(builder: &mut TransitionBuilder<'_>, step: String, question: &Question, by: String) {
    builder.emit(Event::Planned {
        instruction: Instruction::CallTools,
        planner: String::new(),
        step: Some(step),
        approved: Some(question.request.clone()),
        named: None,
    });
    answer::resolve(builder, question, Answer::new(Decision::Approve, by, builder.now));
    question::ask_approvals(builder);
}
