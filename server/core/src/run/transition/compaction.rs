//! Inputs about the size of the context: a model call that is too large, and the end of a compaction.

use crate::entry::CompactionReason;
use crate::id::Attempt;
use crate::message::Usage;
use crate::model::error::ModelErrorKind;
use crate::run::event::Event;
use crate::run::input::Compacted;
use crate::run::refusal::Refusal;
use crate::run::state::{AfterCompaction, Phase, RunState, RunningCompaction};
use crate::run::status::{RunError, RunErrorCode};
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::routine::{compaction, finish, model_call};

const NO_ROOM: &str = "the conversation does not fit into the model's context, and cannot be made smaller";

/// The model call would pass the run's own limits on its context: it is compacted before the next call.
pub(super) fn too_large(
    builder: &mut TransitionBuilder<'_>,
    model_call: u32,
    attempt: Attempt,
    reason: CompactionReason,
    tokens: u64,
) -> Result<(), Refusal> {
    model_call::running(builder, model_call, attempt)?;
    compaction::begin_stronger(builder, reason, tokens);
    Ok(())
}

/// The compaction has ended: the model is called, or the planner. After an overflow, a context that is no
/// smaller fails the run: the provider would refuse it again.
pub(super) fn compacted(builder: &mut TransitionBuilder<'_>, done: Compacted) -> Result<(), Refusal> {
    let RunningCompaction { then, reason, strategy, .. } = running(builder, done.number)?.clone();
    if reason == CompactionReason::Overflow && done.tokens_after >= done.tokens_before {
        let error = context_full(builder.state());
        let Compacted { number, usage, .. } = done;
        builder.emit(Event::CompactionFailed { number, strategy, error: error.clone(), usage });
        finish::fail(builder, error);
        return Ok(());
    }
    builder.emit(Event::Compacted {
        entry: builder.state().last_entry().next(),
        compaction: done.compaction,
        usage: done.usage,
        tokens_before: done.tokens_before,
        tokens_after: done.tokens_after,
    });
    match then {
        AfterCompaction::Call { .. } => model_call::next(builder),
        AfterCompaction::Plan(_) => {}
    }
    Ok(())
}

/// The compaction failed: the context is trimmed, which needs no model. If trimming failed, the run fails.
pub(super) fn failed(
    builder: &mut TransitionBuilder<'_>,
    number: u32,
    error: RunError,
) -> Result<(), Refusal> {
    let RunningCompaction { strategy, reason, .. } = running(builder, number)?.clone();
    let was_trim = strategy == compaction::TRIM;
    // The event below becomes the last error.
    let context_full = context_full(builder.state());
    builder.emit(Event::CompactionFailed { number, strategy, error, usage: Usage::default() });
    if was_trim {
        finish::fail(builder, context_full);
    } else {
        compaction::begin(builder, Some(compaction::TRIM.to_owned()), reason, 0);
    }
    Ok(())
}

/// The error of a context that cannot be made smaller, with the provider's words if it refused the last request.
fn context_full(state: &RunState) -> RunError {
    let code = RunErrorCode::Model(ModelErrorKind::ContextOverflow);
    match state.last_error().filter(|last| last.code == code) {
        Some(refused) => RunError {
            code,
            message: format!("{NO_ROOM}: {}", refused.message),
            http_status: refused.http_status,
        },
        None => RunError::new(code, NO_ROOM),
    }
}

fn running<'a>(builder: &'a TransitionBuilder<'_>, number: u32) -> Result<&'a RunningCompaction, Refusal> {
    match builder.state().phase() {
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
