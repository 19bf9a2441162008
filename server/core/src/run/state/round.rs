//! The round of tool calls that a run is in, and what hosts are told of its calls.

use crate::id::{CallId, CallSlot, HostId, RuntimeId};
use crate::run::human::Question;
use crate::run::state::{AfterCompaction, Call, CallState, CompactionInHand, Leave, Phase, State};
use crate::tool::Digest;

impl State {
    /// The calls of the current round.
    #[must_use]
    pub fn round(&self) -> &[Call] {
        match self.standing() {
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

    /// The calls of the current round, to be changed.
    pub(crate) fn round_mut(&mut self) -> Option<&mut Vec<Call>> {
        let phase = match &mut self.phase {
            Phase::Compacting(CompactionInHand { then: AfterCompaction::Plan(before), .. }) => before,
            phase => phase,
        };
        if let Phase::Tools(calls) = phase { Some(calls) } else { None }
    }

    /// Where it stands, or goes back to once the context that its planner wants smaller is.
    fn standing(&self) -> &Phase {
        match &self.phase {
            Phase::Compacting(CompactionInHand { then: AfterCompaction::Plan(before), .. }) => before,
            phase => phase,
        }
    }

    /// A call of the current round.
    #[must_use]
    pub fn call(&self, slot: CallSlot) -> Option<&Call> {
        self.round().iter().find(|call| call.slot == slot)
    }

    /// How many more calls may be given to hosts.
    #[must_use]
    pub fn room(&self) -> usize {
        let in_flight = self.round().iter().filter(|call| call.in_flight()).count();
        (self.spec.tool_policy.max_parallel.max(1) as usize).saturating_sub(in_flight)
    }

    /// Whether tool calls wait for a decision.
    #[must_use]
    pub fn holds_calls(&self) -> bool {
        self.round().iter().any(|call| matches!(call.state, CallState::Held { .. }))
    }

    /// Whether a human has let a held call run.
    #[must_use]
    pub fn has_leave(&self) -> bool {
        self.round().iter().any(|call| call.state == CallState::Held { leave: Leave::Given })
    }

    /// Whether a host has one of its calls, or may have.
    #[must_use]
    pub fn is_at_hosts(&self) -> bool {
        self.round().iter().any(Call::in_flight)
    }

    /// What a running call asks, the first question that still waits.
    #[must_use]
    pub fn question_of(&self, call: &Call) -> Option<&Question> {
        let mut open = self.open_questions().filter(|_| call.asks());
        open.find(|question| question.slot == Some(call.slot) && question.input().is_some())
    }

    /// Whether this is the runtime that the run's tools use.
    #[must_use]
    pub fn uses_runtime(&self, runtime: &RuntimeId, host: &HostId) -> bool {
        self.is_live() && self.runtime.as_ref().is_some_and(|(id, on)| (id, on) == (runtime, host))
    }

    /// The full id of a call.
    #[must_use]
    pub fn call_id(&self, slot: CallSlot) -> CallId {
        CallId { run: self.run.clone(), slot }
    }

    /// What a host proves with that it was given this try: derived, so that a restart does not forget it.
    #[must_use]
    pub fn lease(&self, slot: CallSlot, attempt: u32) -> Digest {
        Digest::of(&[
            b"lease",
            &self.seed.to_le_bytes(),
            &slot.0.to_le_bytes(),
            &slot.1.to_le_bytes(),
            &attempt.to_le_bytes(),
        ])
    }

    /// What a tool dedupes by: the same for every try.
    #[must_use]
    pub fn idempotency_key(&self, slot: CallSlot) -> String {
        format!("{:016x}-{slot}", self.seed)
    }
}
