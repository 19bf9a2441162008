//! The event of a decision, and the events that begin what was decided.

use crate::id::RequestId;
use crate::run::event::Event;
use crate::run::plan::Instruction;
use crate::run::state::{Approval, CallState, Phase, RunState, StepRequest};

impl RunState {
    /// `approved` is an open question that the step answers, `named` one that was answered before.
    pub(super) fn planned(
        &mut self,
        instruction: &Instruction,
        step: Option<&str>,
        approved: Option<&RequestId>,
        named: Option<&RequestId>,
    ) {
        self.counters.decisions += 1;
        self.planning.result = None;
        self.planning.approving = approved.cloned();
        if let Some(step) = step {
            let request = StepRequest { seq: self.position.seq, approve: approved.or(named).cloned() };
            self.carried_out.steps.insert(step.to_owned(), request);
        }
        let begun = self.release_calls(instruction) && approved.is_none();
        self.planning.pending = if begun { None } else { Some(instruction.clone()) };
    }

    /// Forgets the pending instruction if this event begins it.
    pub(super) fn begin_instruction(&mut self, event: &Event) {
        if self.planning.pending.as_ref().is_some_and(|instruction| begins(instruction, event)) {
            self.planning.pending = None;
        }
    }

    /// Moves on the calls that wait for this instruction. Returns true if there were any.
    fn release_calls(&mut self, instruction: &Instruction) -> bool {
        let since = self.now();
        let ask_about_all = *instruction == Instruction::RequestApproval;
        if !ask_about_all && *instruction != Instruction::CallTools {
            return false;
        }
        let Phase::Tools(calls) = &mut self.phase else { return false };
        let mut any = false;
        for call in calls {
            let CallState::AwaitingInstruction { approval } = call.state else { continue };
            let ask = match approval {
                Approval::Needed => true,
                Approval::NotNeeded => ask_about_all,
                Approval::Given => false,
            };
            call.state = if ask {
                CallState::AwaitingApproval { request: None }
            } else {
                CallState::Ready { since, not_before: None }
            };
            any = true;
        }
        any
    }
}

/// True if the event begins to carry out the instruction. Any event does where calls wait for the instruction.
fn begins(instruction: &Instruction, event: &Event) -> bool {
    match instruction {
        Instruction::CallTools | Instruction::RequestApproval => true,
        Instruction::CallModel
        | Instruction::RequestPrompt { .. }
        | Instruction::RequestSelect { .. }
        | Instruction::RequestForm { .. }
        | Instruction::RequestUrl { .. }
        | Instruction::Compact { .. }
        | Instruction::Finish { .. } => matches!(
            event,
            Event::ModelCallStarted { .. }
                | Event::CompactionStarted { .. }
                | Event::HumanRequested { .. }
                | Event::Finished { .. }
        ),
    }
}
