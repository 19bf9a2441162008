//! What to do next is decided, and done.

use std::sync::Arc;

use crate::entry::CompactionReason;
use crate::error::Refusal;
use crate::id::{CallSlot, RequestId};
use crate::message::{Message, Role, ToolStatus};
use crate::run::event::Event;
use crate::run::human::{Answer, Decision, Question, QuestionContent};
use crate::run::input::PlanFailure;
use crate::run::machine::{Stepping, Turn};
use crate::run::plan::{Instruction, Situation, react};
use crate::run::state::{Call, CallState};
use crate::run::status::{RunError, RunErrorCode};
use crate::run::transition::{compact, finish, human, model, queue, tool};

/// Asks the built-in loop, as long as the run stands still for no outside reason. A run with a planner, or one that
/// is stepped, rests there.
pub(crate) fn plan(turn: &mut Turn<'_>) {
    if turn.state.spec.is_directed() {
        return;
    }
    if let Some(situation) = turn.state.situation() {
        let instruction = react(&situation);
        carry_out(turn, &situation, instruction);
    }
}

/// A human answered what the planner asked: the session has it, once no tool call is open.
pub(crate) fn heard(turn: &mut Turn<'_>, question: &Question, decision: &Decision) {
    let words = if question.slot.is_none() { question.words(decision) } else { None };
    let Some(words) = words else { return };
    let message = Arc::new(Message::text(Role::User, words));
    if turn.state.round().iter().all(Call::is_settled) {
        turn.emit(Event::InputAdded { entry: turn.state.last_entry.next(), message });
    } else {
        turn.emit(Event::InputHeld { message, steer: None });
    }
}

/// The planner decided, or failed to.
pub(crate) fn planned(
    turn: &mut Turn<'_>,
    decision: u32,
    result: Result<Instruction, PlanFailure>,
) -> Result<(), Refusal> {
    let spec = &turn.state.spec;
    let asked = spec.planner.is_some() && (!spec.stepped || turn.stepping.is_some());
    let situation = turn.state.situation().filter(|_| asked && decision == turn.state.decisions + 1);
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
    decide(turn, &situation, instruction, planner);
    Ok(())
}

/// Someone wants the next instruction carried out. The same request again is confirmed, if it is the same in all.
pub(crate) fn step(
    turn: &mut Turn<'_>,
    request: String,
    approve: Option<&RequestId>,
    by: String,
) -> Result<(), Refusal> {
    let state = &*turn.state;
    let carried_out = state.steps.get(&request).map(|step| step.approve.as_ref());
    let under_way = turn.stepping.as_ref().filter(|step| step.request == request);
    if let Some(first) = carried_out.or(under_way.map(|step| step.approve.as_ref())) {
        return if first == approve { Ok(()) } else { Err(Refusal::IdReused) };
    }
    if !state.is_live() || turn.stepping.is_some() {
        return Err(Refusal::WrongPhase(state.status()));
    }
    if !state.spec.stepped {
        return Err(Refusal::NotStepped);
    }
    if let Some(question) = approve
        && let Some(question) = human::approvable(turn, question)?
    {
        approve_and_run(turn, request, &question, by);
        return Ok(());
    }
    let Some(situation) = turn.state.situation() else {
        return Err(Refusal::WrongPhase(turn.state.status()));
    };
    *turn.stepping = Some(Stepping { request, approve: approve.cloned() });
    if turn.state.has_leave() || turn.state.spec.planner.is_none() {
        // A human's leave is a decision already.
        decide(turn, &situation, react(&situation), String::new());
    }
    Ok(())
}

/// The question is answered, and its call runs: that is the step.
fn approve_and_run(turn: &mut Turn<'_>, step: String, question: &Question, by: String) {
    turn.emit(Event::Planned {
        instruction: Instruction::CallTools,
        planner: String::new(),
        step: Some(step),
        approved: Some(question.request.clone()),
        named: None,
    });
    human::resolve(turn, question, Answer::new(Decision::Approve, by, turn.now));
    ask_for_leave(turn);
}

/// Records a decision and does what it says.
fn decide(turn: &mut Turn<'_>, situation: &Situation, instruction: Instruction, planner: String) {
    let (step, named) = turn.stepping.take().map(|step| (step.request, step.approve)).unzip();
    let named = named.flatten();
    turn.emit(Event::Planned { instruction: instruction.clone(), planner, step, approved: None, named });
    carry_out(turn, situation, instruction);
}

fn carry_out(turn: &mut Turn<'_>, situation: &Situation, instruction: Instruction) {
    match instruction {
        Instruction::CallModel => {
            leave_out(turn);
            model::next_call(turn);
        }
        // Whether a call waited, its fold has seen to.
        Instruction::CallTools | Instruction::RequestApproval if turn.state.beginning.is_none() => {
            ask_for_leave(turn);
        }
        Instruction::CallTools | Instruction::RequestApproval => {
            fail(turn, format!("{} where no tool call waits", instruction.name()));
        }
        Instruction::RequestPrompt { question } => {
            ask(turn, QuestionContent { text: question, ..QuestionContent::default() });
        }
        Instruction::RequestSelect { question, options, multiple } => {
            ask(turn, QuestionContent { text: question, options, multiple, ..QuestionContent::default() });
        }
        Instruction::Compact { .. } if *situation == Situation::Compacted => {
            fail(turn, "compact where nothing came since the last time".to_owned());
        }
        Instruction::Compact { strategy } => {
            let strategy = Some(strategy).filter(|strategy| !strategy.is_empty());
            compact::begin(turn, strategy, CompactionReason::Planned, 0);
        }
        Instruction::Finish { failure: None } => {
            leave_out(turn);
            finish::complete(turn);
        }
        Instruction::Finish { failure: Some(failure) } => fail(turn, failure),
    }
}

/// Asks a human for text or a choice.
fn ask(turn: &mut Turn<'_>, ask: QuestionContent) {
    let (state, now) = (&*turn.state, turn.now);
    let question = Question::planned(&state.run, state.decisions, ask, now, state.spec.approval_timeout);
    turn.emit(Event::HumanRequested { question });
}

/// Whoever decides asked for what cannot be done, or gave up.
fn fail(turn: &mut Turn<'_>, problem: String) {
    finish::fail(turn, RunError::new(RunErrorCode::ExtensionFailed, problem));
}

/// Asks a human about each call that needs it.
fn ask_for_leave(turn: &mut Turn<'_>) {
    let unasked = |state: &CallState| matches!(state, CallState::AwaitingApproval { request: None });
    let slots: Vec<CallSlot> =
        turn.state.round().iter().filter(|call| unasked(&call.state)).map(|call| call.slot).collect();
    for slot in slots {
        human::ask_approval(turn, slot);
    }
}

/// Calls that were decided against have a result all the same, so that the session can go on.
fn leave_out(turn: &mut Turn<'_>) {
    let open: Vec<CallSlot> =
        turn.state.round().iter().filter(|call| !call.is_settled()).map(|call| call.slot).collect();
    for slot in open {
        human::withdraw(turn, slot);
        let output = "not run: it was decided to go on without it".to_owned();
        tool::settle(turn, slot, None, ToolStatus::Rejected, output, Vec::new());
    }
    if turn.state.spec.is_directed() {
        // The built-in loop answers what was said meanwhile; a planner has decided without.
        queue::let_in(turn);
    }
}
