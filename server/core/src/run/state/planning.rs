//! The instruction that is being carried out, and when the next one is due.

use crate::id::RequestId;
use crate::run::plan::{Instruction, Situation};
use crate::run::state::{CallState, Phase, RoundCall, RunState};

/// Facts about the last decision of a planner or a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Planning {
    /// The last instruction, until the event that begins it.
    pub(super) pending: Option<Instruction>,
    pub(super) result: Option<InstructionResult>,
    /// The question that the last step answers.
    pub(super) approving: Option<RequestId>,
}

/// The result of an instruction that does not move the run to another phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstructionResult {
    /// A person answered the planner's question, or nobody did in time.
    HumanAnswered,
    /// The context is smaller.
    Compacted,
}

impl RunState {
    /// The last instruction, as long as no event has begun it.
    #[must_use]
    pub fn pending_instruction(&self) -> Option<&Instruction> {
        self.planning.pending.as_ref()
    }

    /// The result of the last instruction, until the next decision.
    #[must_use]
    pub fn instruction_result(&self) -> Option<InstructionResult> {
        self.planning.result
    }

    /// Reason why the run needs an instruction; `None` if none is due.
    #[must_use]
    pub fn situation(&self) -> Option<Situation> {
        if self.pending_instruction().is_some() || self.planned_question().is_some() {
            return None;
        }
        let by_phase = self.situation_of_phase()?;
        Some(match self.instruction_result() {
            None => by_phase,
            Some(InstructionResult::HumanAnswered) => Situation::HumanAnswered,
            Some(InstructionResult::Compacted) => Situation::Compacted,
        })
    }

    fn situation_of_phase(&self) -> Option<Situation> {
        match &self.phase {
            Phase::Preparing if self.is_unprepared() => None,
            Phase::Preparing => Some(Situation::Prompted),
            Phase::Observed { finish } => Some(Situation::Responded { finish: finish.clone() }),
            Phase::Tools(calls) if calls.iter().any(RoundCall::can_progress) => None,
            Phase::Tools(calls) if calls.iter().all(RoundCall::is_settled) => Some(Situation::ToolsSettled),
            Phase::Tools(calls) => calls
                .iter()
                .any(|call| matches!(call.state, CallState::AwaitingInstruction { .. }))
                .then_some(Situation::CallsWaiting),
            Phase::New
            | Phase::Queued
            | Phase::ModelRunning(_)
            | Phase::BackingOff { .. }
            | Phase::Compacting(_)
            | Phase::Paused { .. }
            | Phase::Finished { .. } => None,
        }
    }

    /// True while hooks and context sources must be called before anything else is done.
    #[must_use]
    pub fn is_unprepared(&self) -> bool {
        self.phase == Phase::Preparing && self.spec.prepares() && self.initial_messages().next().is_some()
    }

    /// True if the run is stepped and does nothing more until a caller calls `Step`.
    #[must_use]
    pub fn awaits_step(&self) -> bool {
        self.spec.stepped && self.situation().is_some()
    }

    /// True once the last step is done: the run awaits the next step or someone outside, or has ended.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        if self.pending_instruction().is_some() {
            return false;
        }
        match &self.phase {
            Phase::Paused { .. } | Phase::Finished { .. } => true,
            _ if self.planned_question().is_some() => true,
            Phase::Tools(calls) => {
                let free = self.free_parallel_calls();
                !calls.iter().any(|call| call.can_progress() && !call.waits_for_input(calls, free))
            }
            Phase::New
            | Phase::Queued
            | Phase::Preparing
            | Phase::ModelRunning(_)
            | Phase::BackingOff { .. }
            | Phase::Compacting(_)
            | Phase::Observed { .. } => self.situation().is_some(),
        }
    }
}
