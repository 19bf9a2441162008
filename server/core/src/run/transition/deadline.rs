//! Input of time: deadlines, and what happens when one passes.

use crate::id::{Attempt, CallSlot};
use crate::limits::CANCEL_GRACE_SECS;
use crate::message::ToolStatus;
use crate::run::event::Ran;
use crate::run::human::Question;
use crate::run::refusal::Refusal;
use crate::run::state::{CallState, Phase, RoundCall, RunState};
use crate::run::status::{RunError, RunErrorCode};
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::recovery::Recovery;
use crate::run::transition::routine::{answer, calls, doubt, finish, model_call};
use crate::time::{Millis, Timestamp};

/// Time that a host has after the deadline of a call that must not run twice, to stop it and to say whether it began.
const CANCEL_GRACE: Millis = Millis::secs(CANCEL_GRACE_SECS);

/// The earliest time at which something is due. `seen` is the latest time that the machine was told: a call's backoff
/// that ended by then is no longer due, the call waits for a host.
pub(in crate::run) fn next(
    state: &RunState,
    seen: Timestamp,
    recovery: Option<&Recovery>,
) -> Option<Timestamp> {
    if !state.is_live() || *state.phase() == Phase::Queued {
        return None;
    }
    let run = state.spec().limits.max_run_duration.map(|length| state.entered_at().after(length));
    let backoff = match state.phase() {
        Phase::BackingOff { until, .. } => Some(*until),
        Phase::New
        | Phase::Queued
        | Phase::Preparing
        | Phase::ModelRunning(_)
        | Phase::Compacting(_)
        | Phase::Observed { .. }
        | Phase::Tools(_)
        | Phase::Paused { .. }
        | Phase::Finished { .. } => None,
    };
    let calls = state.round().iter().filter_map(|call| match call.state {
        CallState::Ready { not_before, .. } => not_before.filter(|at| *at > seen),
        CallState::Proposed
        | CallState::AwaitingApproval { .. }
        | CallState::AwaitingInstruction { .. }
        | CallState::Offered { .. }
        | CallState::Accepted { .. }
        | CallState::InDoubt { .. }
        | CallState::AwaitingInput { .. }
        | CallState::Suspended { .. }
        | CallState::Settled => {
            let times = [timeout_at(call, recovery), given_up_at(call, recovery)];
            times.into_iter().flatten().find(|at| *at > seen).or(times[1])
        }
    });
    let questions = state.open_questions().filter_map(|question| question.expires_at);
    run.into_iter().chain(backoff).chain(calls).chain(questions).min()
}

/// The time at which the last attempt of a call is given up: at the end of its time, or after its host had time to say
/// whether it began.
fn given_up_at(call: &RoundCall, recovery: Option<&Recovery>) -> Option<Timestamp> {
    let timeout = timeout_at(call, recovery)?;
    Some(if call.is_doubtful_at_deadline() { timeout.after(CANCEL_GRACE) } else { timeout })
}

/// The end of the time of a call's last attempt. Once its host has confirmed a call of before a restart, its own deadline
/// holds again.
fn timeout_at(call: &RoundCall, recovery: Option<&Recovery>) -> Option<Timestamp> {
    let deadline = call.deadline()?;
    Some(deadline.max(recovery.and_then(|recovery| recovery.not_before(call)).unwrap_or(deadline)))
}

/// True if the time of a call is up, so that its host was told to stop.
pub(super) fn is_overdue(builder: &TransitionBuilder<'_>, call: &RoundCall) -> bool {
    timeout_at(call, builder.recovery.as_ref()).is_some_and(|timeout| timeout <= builder.now)
}

/// Tells hosts to stop the calls whose time is up since the machine was last told the time, and that are not given up
/// at once.
pub(super) fn cancel_overdue(builder: &mut TransitionBuilder<'_>, seen: Timestamp) {
    let recovery = builder.recovery.as_ref();
    let is_due = |call: &&RoundCall| {
        let timeout = timeout_at(call, recovery);
        call.is_doubtful_at_deadline() && timeout.is_some_and(|at| seen < at && at <= builder.now)
    };
    let overdue = builder.state().round().iter().filter(is_due);
    let overdue: Vec<(CallSlot, Attempt)> = overdue.map(|call| (call.slot, call.attempt)).collect();
    for (slot, attempt) in overdue {
        builder.cancel_at_deadline(slot, attempt);
    }
}

/// Does everything that is due by now, which may be nothing.
pub(super) fn passed(builder: &mut TransitionBuilder<'_>) -> Result<(), Refusal> {
    let state = builder.state();
    if !state.is_live() {
        return Err(Refusal::WrongPhase(state.status()));
    }
    if *state.phase() == Phase::Queued {
        return Ok(());
    }
    let limit = state.spec().limits.max_run_duration;
    if let Some(limit) = limit.filter(|limit| state.entered_at().after(*limit) <= builder.now) {
        let message = match limit.0 % 1_000 {
            0 => format!("ran for longer than {} s", limit.0 / 1_000),
            _ => format!("ran for longer than {} ms", limit.0),
        };
        finish::fail(builder, RunError::new(RunErrorCode::LimitDuration, message));
        return Ok(());
    }
    if let Phase::BackingOff { call, until } = *state.phase()
        && until <= builder.now
    {
        model_call::retry(builder, call);
        return Ok(());
    }
    expire_questions(builder);
    time_out_calls(builder);
    Ok(())
}

fn expire_questions(builder: &mut TransitionBuilder<'_>) {
    let due = |question: &&Question| question.expires_at.is_some_and(|at| at <= builder.now);
    let expired: Vec<Question> = builder.state().open_questions().filter(due).cloned().collect();
    for question in expired {
        answer::expire(builder, &question);
    }
}

fn time_out_calls(builder: &mut TransitionBuilder<'_>) {
    let due = |at: Timestamp| at <= builder.now;
    let late = builder.state().round().iter();
    let late = late.filter(|call| given_up_at(call, builder.recovery.as_ref()).is_some_and(due));
    let late: Vec<CallSlot> = late.map(|call| call.slot).collect();
    for slot in late {
        time_out(builder, slot);
    }
}

fn time_out(builder: &mut TransitionBuilder<'_>, slot: CallSlot) {
    let call = builder.state().call(slot).expect("only an open call times out");
    if call.is_doubtful_at_deadline() {
        let message = calls::no_result_in_time(call);
        return doubt::put_in_doubt(builder, slot, message, Ran::Maybe);
    }
    let output = calls::no_result_in_time(call);
    calls::settle_under_way(builder, slot, ToolStatus::TimedOut, output);
}
