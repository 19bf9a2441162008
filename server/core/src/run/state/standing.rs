//! Where a run stands: its status, and whether it is to be decided what comes next.

use crate::run::event::Outcome;
use crate::run::plan::Situation;
use crate::run::state::{Call, CallState, News, Phase, State};
use crate::run::status::RunStatus;

impl State {
    /// Where the run stands; `None` before it started.
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
            Phase::Tools(calls) => Some(round_status(calls, self.room())),
            Phase::Paused { .. } => Some(RunStatus::Paused),
            Phase::Finished { outcome: Outcome::Completed } => Some(RunStatus::Completed),
            Phase::Finished { outcome: Outcome::Failed } => Some(RunStatus::Failed),
            Phase::Finished { outcome: Outcome::Aborted } => Some(RunStatus::Aborted),
        }
    }

    /// Why the run stands still, if it is to be decided what comes next.
    #[must_use]
    pub fn situation(&self) -> Option<Situation> {
        if self.beginning.is_some() || self.planned_question().is_some() {
            return None;
        }
        let by_phase = self.situation_of_phase()?;
        Some(match self.news {
            None => by_phase,
            Some(News::HumanAnswered) => Situation::HumanAnswered,
            Some(News::Compacted) => Situation::Compacted,
        })
    }

    fn situation_of_phase(&self) -> Option<Situation> {
        match &self.phase {
            Phase::Preparing if self.is_unprepared() => None,
            Phase::Preparing => Some(Situation::Prompted),
            Phase::Observed { finish } => Some(Situation::Answered { finish: finish.clone() }),
            Phase::Tools(calls) if calls.iter().any(Call::moves) => None,
            Phase::Tools(calls) if calls.iter().all(Call::is_settled) => Some(Situation::ToolsSettled),
            Phase::Tools(calls) => calls
                .iter()
                .any(|call| matches!(call.state, CallState::Held { .. }))
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

    /// Whether hooks and context sources are to be asked before anything else is done.
    #[must_use]
    pub fn is_unprepared(&self) -> bool {
        self.phase == Phase::Preparing && self.spec.prepares() && !self.brought.is_empty()
    }

    /// Whether it does nothing more before someone calls `Step`.
    #[must_use]
    pub fn awaits_step(&self) -> bool {
        self.spec.stepped && self.situation().is_some()
    }

    /// Whether a step that was begun has come to its end: the run awaits the next, or someone else, or is over.
    #[must_use]
    pub fn rests(&self) -> bool {
        if self.beginning.is_some() {
            return false;
        }
        match &self.phase {
            Phase::Paused { .. } | Phase::Finished { .. } => true,
            _ if self.planned_question().is_some() => true,
            Phase::Tools(calls) => {
                let room = self.room();
                !calls.iter().any(|call| call.moves() && !waits_for_answer(call, calls, room))
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

    /// Whether it has started and is not over.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !matches!(self.phase, Phase::New | Phase::Finished { .. })
    }
}

/// Whether it waits for what a human answers to a running call: it asks, or has no room beside those that do.
fn waits_for_answer(call: &Call, calls: &[Call], room: usize) -> bool {
    let no_room = matches!(call.state, CallState::Ready { .. }) && room == 0;
    call.asks() || (no_room && calls.iter().all(|call| call.asks() || !call.in_flight()))
}

/// A round waits for a human only when nothing in it can go on without one.
fn round_status(calls: &[Call], room: usize) -> RunStatus {
    let asks = calls.iter().any(Call::asks);
    let waits = |call: &Call| match call.state {
        CallState::Held { .. } => asks,
        _ => call.awaits_human() || waits_for_answer(call, calls, room),
    };
    let mut open = calls.iter().filter(|call| !call.is_settled()).peekable();
    if open.peek().is_some() && open.all(waits) { RunStatus::AwaitingHuman } else { RunStatus::ToolRunning }
}
