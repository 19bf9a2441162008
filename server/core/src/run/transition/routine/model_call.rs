//! Begins model calls and their attempts.

use crate::id::Attempt;
use crate::run::event::Event;
use crate::run::refusal::Refusal;
use crate::run::state::{ModelCall, Phase};
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::routine::{compaction, finish, limit, waiting};

/// Begins the next model call, unless a limit is reached or the context must be compacted first.
pub(in crate::run::transition) fn next(builder: &mut TransitionBuilder<'_>) {
    let state = builder.state();
    match (limit::on_model_call(state), state.compaction_due()) {
        (Some(error), _) => finish::fail(builder, error),
        (None, Some(reason)) => compaction::begin(builder, None, reason, 0),
        (None, None) => attempt(builder, state.model_calls() + 1, Attempt::FIRST, Attempt::FIRST),
    }
}

/// Begins the next attempt of a call that failed.
pub(in crate::run::transition) fn retry(builder: &mut TransitionBuilder<'_>, failed: ModelCall) {
    attempt(builder, failed.number, failed.attempt.next(), failed.first_counted);
}

/// Begins the next attempt, with a new set of retries.
pub(in crate::run::transition) fn retry_afresh(builder: &mut TransitionBuilder<'_>, before: ModelCall) {
    attempt(builder, before.number, before.attempt.next(), before.attempt.next());
}

fn attempt(builder: &mut TransitionBuilder<'_>, model_call: u32, attempt: Attempt, first_counted: Attempt) {
    waiting::enter_all(builder);
    let last_entry = builder.state().last_entry();
    builder.emit(Event::ModelCallStarted { model_call, attempt, first_counted, last_entry });
}

/// The model call that is running.
///
/// # Errors
/// [`Refusal::StaleModelCall`] if another call or attempt is running, or none.
pub(in crate::run::transition) fn running(
    builder: &TransitionBuilder<'_>,
    model_call: u32,
    attempt: Attempt,
) -> Result<ModelCall, Refusal> {
    match builder.state().phase() {
        Phase::ModelRunning(call) if (call.number, call.attempt) == (model_call, attempt) => Ok(*call),
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
