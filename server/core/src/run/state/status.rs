//! The status of a run, as it follows from its phase and its calls.

use crate::run::event::Outcome;
use crate::run::state::{CallState, Phase, RoundCall, RunState};
use crate::run::status::RunStatus;

impl RunState {
    /// The status that callers see; `None` until the run starts.
    #[must_use]
    pub fn status(&self) -> Option<RunStatus> {
        match &self.phase {
            _ if self.awaits_step() => Some(RunStatus::Paused),
            _ if self.planned_question().is_some() => Some(RunStatus::AwaitingHuman),
            Phase::New => None,
            Phase::Queued => Some(RunStatus::Queued),
            Phase::Preparing => Some(RunStatus::Preparing),
            Phase::ModelRunning(_) | Phase::Observed { .. } => Some(RunStatus::ModelRunning),
            Phase::BackingOff { .. } => Some(RunStatus::BackingOff),
            Phase::Compacting(_) => Some(RunStatus::Compacting),
            Phase::Tools(calls) => Some(round_status(calls, self.free_parallel_calls())),
            Phase::Paused { .. } => Some(RunStatus::Paused),
            Phase::Finished { outcome: Outcome::Completed } => Some(RunStatus::Completed),
            Phase::Finished { outcome: Outcome::Failed } => Some(RunStatus::Failed),
            Phase::Finished { outcome: Outcome::Aborted } => Some(RunStatus::Aborted),
        }
    }

    /// True from the start of the run to its end.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !matches!(self.phase, Phase::New | Phase::Finished { .. })
    }
}

/// A round awaits a person only when none of its calls can go on without one.
fn round_status(calls: &[RoundCall], free_slots: usize) -> RunStatus {
    let any_asks = calls.iter().any(RoundCall::awaits_input);
    let waits = |call: &RoundCall| match call.state {
        CallState::AwaitingInstruction { .. } => any_asks,
        _ => call.awaits_human() || call.waits_for_input(calls, free_slots),
    };
    let mut open = calls.iter().filter(|call| !call.is_settled()).peekable();
    if open.peek().is_some() && open.all(waits) { RunStatus::AwaitingHuman } else { RunStatus::ToolRunning }
}
