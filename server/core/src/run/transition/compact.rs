//! The context is made smaller, so that the model can be called.

use crate::context::compact::TRIM_LEVELS;
use crate::entry::CompactionReason;
use crate::error::{ModelErrorKind, Refusal};
use crate::message::Usage;
use crate::run::event::Event;
use crate::run::input::Compacted;
use crate::run::machine::Turn;
use crate::run::state::{AfterCompaction, CompactionInHand, Phase};
use crate::run::status::{RunError, RunErrorCode};
use crate::run::transition::plan::plan;
use crate::run::transition::{finish, model};

/// The strategy that needs no model and cannot fail.
const TRIM: &str = "trim";

const NO_ROOM: &str = "the conversation does not fit into the model's context, and cannot be made smaller";

/// Whether another compaction may help: each is harder than the one before it.
pub(crate) fn may_squeeze(turn: &Turn<'_>) -> bool {
    turn.state.squeezes <= TRIM_LEVELS
}

/// Makes it smaller: as the policy says the first time, harder each time that it did not help.
pub(crate) fn squeeze(turn: &mut Turn<'_>, reason: CompactionReason, tokens: u64) {
    let strategy = (turn.state.squeezes > 0).then(|| TRIM.to_owned());
    begin(turn, strategy, reason, tokens);
}

/// Makes it smaller by this strategy, or by the run's.
pub(crate) fn begin(turn: &mut Turn<'_>, strategy: Option<String>, reason: CompactionReason, tokens: u64) {
    let state = &*turn.state;
    turn.emit(Event::CompactionStarted {
        number: state.compactions + 1,
        strategy: strategy.unwrap_or_else(|| state.spec.context.strategy.clone()),
        reason,
        level: state.squeezes,
        tokens,
    });
}

/// The model call would pass the run's own bounds.
pub(crate) fn too_large(
    turn: &mut Turn<'_>,
    model_call: u32,
    attempt: u32,
    reason: CompactionReason,
    tokens: u64,
) -> Result<(), Refusal> {
    model::current(turn, model_call, attempt)?;
    squeeze(turn, reason, tokens);
    Ok(())
}

/// It is smaller: the model is called, or the planner asked. Where it is not, although the provider says that it must
/// be, the provider would say so again.
pub(crate) fn compacted(turn: &mut Turn<'_>, done: Compacted) -> Result<(), Refusal> {
    let CompactionInHand { then, reason, strategy, .. } = in_hand(turn, done.number)?.clone();
    if reason == CompactionReason::Overflow && done.tokens_after >= done.tokens_before {
        let error = RunError::new(RunErrorCode::Model(ModelErrorKind::ContextOverflow), NO_ROOM);
        let Compacted { number, usage, .. } = done;
        turn.emit(Event::CompactionFailed { number, strategy, error: error.clone(), usage });
        finish::fail(turn, error);
        return Ok(());
    }
    turn.emit(Event::Compacted {
        entry: turn.state.last_entry.next(),
        compaction: done.compaction,
        usage: done.usage,
        tokens_before: done.tokens_before,
        tokens_after: done.tokens_after,
    });
    match then {
        AfterCompaction::Call => model::next_call(turn),
        AfterCompaction::Plan(_) => plan(turn),
    }
    Ok(())
}

/// That way it cannot be made smaller: trim it, which needs nobody.
pub(crate) fn failed(turn: &mut Turn<'_>, number: u32, error: RunError) -> Result<(), Refusal> {
    let CompactionInHand { strategy, reason, .. } = in_hand(turn, number)?.clone();
    let was_trim = strategy == TRIM;
    turn.emit(Event::CompactionFailed { number, strategy, error, usage: Usage::default() });
    if was_trim {
        finish::fail(turn, RunError::new(RunErrorCode::Model(ModelErrorKind::ContextOverflow), NO_ROOM));
    } else {
        begin(turn, Some(TRIM.to_owned()), reason, 0);
    }
    Ok(())
}

fn in_hand<'a>(turn: &'a Turn<'_>, number: u32) -> Result<&'a CompactionInHand, Refusal> {
    match &turn.state.phase {
        Phase::Compacting(compaction) if compaction.number == number => Ok(compaction),
        Phase::New
        | Phase::Queued
        | Phase::Preparing
        | Phase::ModelRunning(_)
        | Phase::BackingOff { .. }
        | Phase::Compacting(_)
        | Phase::Observed { .. }
        | Phase::Tools(_)
        | Phase::Paused { .. }
        | Phase::Finished { .. } => Err(Refusal::StaleModelCall),
    }
}
