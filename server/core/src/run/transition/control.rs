//! Inputs that abort or resume a run.

use crate::run::event::Event;
use crate::run::input::AbortCause;
use crate::run::refusal::Refusal;
use crate::run::state::Phase;
use crate::run::status::{RunError, RunErrorCode};
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::routine::{finish, model_call};

/// Ends a live run.
pub(super) fn abort(
    builder: &mut TransitionBuilder<'_>,
    cause: AbortCause,
    reason: String,
) -> Result<(), Refusal> {
    if !builder.state().is_live() {
        return Err(Refusal::WrongPhase(builder.state().status()));
    }
    match cause {
        AbortCause::Caller => finish::stop(builder, RunErrorCode::AbortedByCaller, reason),
        AbortCause::Disconnect => finish::stop(builder, RunErrorCode::AbortedByDisconnect, reason),
        AbortCause::Fault => finish::fail(builder, RunError::new(RunErrorCode::Internal, reason)),
        AbortCause::Memory => finish::fail(builder, RunError::new(RunErrorCode::LimitMemory, reason)),
    }
    Ok(())
}

/// Resumes a paused run, with a new set of retries. The same request again is confirmed.
pub(super) fn resume(
    builder: &mut TransitionBuilder<'_>,
    request: String,
    by: String,
) -> Result<(), Refusal> {
    if builder.state().was_resumed_by(&request) {
        return Ok(());
    }
    let Phase::Paused { call, .. } = *builder.state().phase() else {
        return Err(Refusal::WrongPhase(builder.state().status()));
    };
    builder.emit(Event::Resumed { by, request });
    model_call::retry_afresh(builder, call);
    Ok(())
}
