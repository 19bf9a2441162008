//! Decides the next instruction, and carries it out.

use crate::entry::CompactionReason;
use crate::id::CallSlot;
use crate::message::ToolStatus;
use crate::run::event::Event;
use crate::run::human::QuestionContent;
use crate::run::plan::{Instruction, Situation, react};
use crate::run::status::{RunError, RunErrorCode};
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::routine::{calls, compaction, finish, model_call, question, waiting};

/// Calls the built-in loop for an instruction, if one is due. A directed run waits for its planner or for `Step`
/// instead.
pub(in crate::run::transition) fn plan(builder: &mut TransitionBuilder<'_>) {
    if builder.state().spec().is_directed() {
        return;
    }
    if let Some(situation) = builder.state().situation() {
        let instruction = react(&situation);
        carry_out(builder, &situation, instruction);
    }
}

/// Records a decision and carries it out. `planner` is empty for the built-in loop.
pub(in crate::run::transition) fn decide(
    builder: &mut TransitionBuilder<'_>,
    situation: &Situation,
    instruction: Instruction,
    planner: String,
) {
    let (step, named) = builder.pending_step.take().map(|step| (step.request, step.approve)).unzip();
    builder.emit(Event::Planned {
        instruction: instruction.clone(),
        planner,
        step,
        approved: None,
        named: named.flatten(),
    });
    carry_out(builder, situation, instruction);
}

fn carry_out(builder: &mut TransitionBuilder<'_>, situation: &Situation, instruction: Instruction) {
    match instruction {
        Instruction::CallModel => call_model(builder),
        Instruction::CallTools | Instruction::RequestApproval => call_tools(builder, &instruction),
        Instruction::RequestPrompt { question, metadata } => {
            question::ask_planned(builder, about(question, metadata));
        }
        Instruction::RequestSelect { question, options, multiple, metadata } => {
            question::ask_planned(
                builder,
                QuestionContent { options, multiple, ..about(question, metadata) },
            );
        }
        Instruction::RequestForm { question, form, metadata } => {
            let form = Some(form);
            question::ask_planned(builder, QuestionContent { form, ..about(question, metadata) });
        }
        Instruction::RequestUrl { question, url, metadata } => {
            let url = Some(url);
            question::ask_planned(builder, QuestionContent { url, ..about(question, metadata) });
        }
        Instruction::Compact { strategy } => compact(builder, situation, strategy),
        Instruction::Finish { failure: None } => complete(builder),
        Instruction::Finish { failure: Some(failure) } => fail(builder, failure),
    }
}

/// The parts that all questions of planners have.
fn about(text: String, metadata: Option<String>) -> QuestionContent {
    QuestionContent { text, metadata, ..QuestionContent::default() }
}

fn call_model(builder: &mut TransitionBuilder<'_>) {
    settle_skipped(builder);
    model_call::next(builder);
}

/// The event of the decision has released the waiting calls. If there were none, the instruction is still pending.
fn call_tools(builder: &mut TransitionBuilder<'_>, instruction: &Instruction) {
    if builder.state().pending_instruction().is_none() {
        question::ask_approvals(builder);
    } else {
        fail(builder, format!("{} where no tool call waits", instruction.name()));
    }
}

fn compact(builder: &mut TransitionBuilder<'_>, situation: &Situation, strategy: String) {
    if *situation == Situation::Compacted {
        fail(builder, "compact where nothing came since the last time".to_owned());
    } else {
        let strategy = Some(strategy).filter(|strategy| !strategy.is_empty());
        compaction::begin(builder, strategy, CompactionReason::Planned, 0);
    }
}

/// Ends the run, unless messages came since the model's last message: the model must read those first.
fn complete(builder: &mut TransitionBuilder<'_>) {
    settle_skipped(builder);
    if builder.state().has_waiting_messages() {
        model_call::next(builder);
    } else {
        finish::complete(builder);
    }
}

/// The instruction cannot be carried out, or says that the run failed.
fn fail(builder: &mut TransitionBuilder<'_>, problem: String) {
    finish::fail(builder, RunError::new(RunErrorCode::ExtensionFailed, problem));
}

/// Settles the calls that the instruction passes over: every call needs a result before the session can go on.
fn settle_skipped(builder: &mut TransitionBuilder<'_>) {
    let open: Vec<CallSlot> = builder.state().open_calls().map(|call| call.slot).collect();
    for slot in open {
        question::withdraw(builder, slot);
        let output = "not run: it was decided to go on without it".to_owned();
        calls::settle(builder, slot, ToolStatus::Rejected, output);
    }
    if builder.state().spec().is_directed() {
        // The built-in loop calls the model for messages that came meanwhile; a planner has decided without them.
        waiting::enter_all(builder);
    }
}
