//! The current round: the tool calls of the model's last message.

use crate::id::CallSlot;
use crate::run::state::{Approval, CallState, Phase, RoundCall, RunState};

impl RunState {
    /// The calls of the current round; empty if the run is in no round.
    #[must_use]
    pub fn round(&self) -> &[RoundCall] {
        match self.phase.interrupted() {
            Phase::Tools(calls) => calls,
            Phase::New
            | Phase::Queued
            | Phase::Preparing
            | Phase::ModelRunning(_)
            | Phase::BackingOff { .. }
            | Phase::Compacting(_)
            | Phase::Observed { .. }
            | Phase::Paused { .. }
            | Phase::Finished { .. } => &[],
        }
    }

    /// A call of the current round.
    #[must_use]
    pub fn call(&self, slot: CallSlot) -> Option<&RoundCall> {
        self.round().iter().find(|call| call.slot == slot)
    }

    /// The calls of the current round that have no result yet.
    pub fn open_calls(&self) -> impl Iterator<Item = &RoundCall> {
        self.round().iter().filter(|call| !call.is_settled())
    }

    /// Number of further calls that may be offered to hosts now.
    #[must_use]
    pub fn free_parallel_calls(&self) -> usize {
        let in_flight = self.round().iter().filter(|call| call.in_flight()).count();
        (self.spec.tool_policy.max_parallel.max(1) as usize).saturating_sub(in_flight)
    }

    /// True if a person has approved a call that waits for an instruction.
    #[must_use]
    pub fn has_approved_call(&self) -> bool {
        let approved = CallState::AwaitingInstruction { approval: Approval::Given };
        self.round().iter().any(|call| call.state == approved)
    }

    /// True if a host has one of the calls, or may have.
    #[must_use]
    pub fn has_calls_in_flight(&self) -> bool {
        self.round().iter().any(RoundCall::in_flight)
    }
}
