//! Time passes.

use crate::error::Refusal;
use crate::run::human::Question;
use crate::run::machine::Turn;
use crate::run::state::{Call, CallState, Phase, State};
use crate::run::status::{RunError, RunErrorCode};
use crate::run::transition::plan::plan;
use crate::run::transition::{finish, human, model, tool};
use crate::time::{Millis, Timestamp};

/// After a restart, hosts have this long to come back with the calls that they were given before it, even where a
/// call's own time is up: its result may be waiting there.
pub(crate) const RECLAIM_GRACE: Millis = Millis::secs(30);

/// The earliest time at which something falls due. The end of a call's wait that has been `seen` to pass is no
/// longer due: the call waits for room.
pub(crate) fn next(state: &State, seen: Timestamp, recovered_at: Option<Timestamp>) -> Option<Timestamp> {
    if !state.is_live() || state.phase == Phase::Queued {
        return None;
    }
    let run = state.spec.limits.max_run_duration.map(|length| state.entered_at.after(length));
    let backoff = match &state.phase {
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
        | CallState::Held { .. }
        | CallState::Offered { .. }
        | CallState::Accepted { .. }
        | CallState::InDoubt { .. }
        | CallState::AwaitingInput { .. }
        | CallState::Settled => given_up(call, recovered_at),
    });
    let questions = state.open_questions().filter_map(|question| question.expires_at);
    run.into_iter().chain(backoff).chain(calls).chain(questions).min()
}

/// When a call's try is given up.
fn given_up(call: &Call, recovered_at: Option<Timestamp>) -> Option<Timestamp> {
    let deadline = call.deadline()?;
    match (&call.state, recovered_at) {
        (CallState::Offered { at } | CallState::Accepted { at }, Some(recovered)) if *at <= recovered => {
            Some(deadline.max(recovered.after(RECLAIM_GRACE)))
        }
        _ => Some(deadline),
    }
}

/// Does what has fallen due; nothing, if nothing has.
pub(crate) fn passed(turn: &mut Turn<'_>) -> Result<(), Refusal> {
    if !turn.state.is_live() {
        return Err(Refusal::WrongPhase(turn.state.status()));
    }
    if turn.state.phase == Phase::Queued {
        return Ok(());
    }
    let limit = turn.state.spec.limits.max_run_duration;
    if let Some(limit) = limit.filter(|limit| turn.state.entered_at.after(*limit) <= turn.now) {
        let message = format!("ran for longer than {} s", limit.0.div_ceil(1_000));
        finish::fail(turn, RunError::new(RunErrorCode::LimitDuration, message));
        return Ok(());
    }
    if let Phase::BackingOff { call, until } = turn.state.phase
        && until <= turn.now
    {
        model::retry(turn, call);
        return Ok(());
    }
    expire_questions(turn);
    time_out_calls(turn);
    plan(turn);
    Ok(())
}

fn expire_questions(turn: &mut Turn<'_>) {
    let due = |question: &&Question| question.expires_at.is_some_and(|at| at <= turn.now);
    let expired: Vec<Question> = turn.state.open_questions().filter(due).cloned().collect();
    for question in expired {
        human::expire(turn, &question);
    }
}

fn time_out_calls(turn: &mut Turn<'_>) {
    let due = |at: Timestamp| at <= turn.now;
    let late: Vec<_> = turn
        .state
        .round()
        .iter()
        .filter(|call| given_up(call, turn.recovered_at).is_some_and(due))
        .map(|call| call.slot)
        .collect();
    for slot in late {
        tool::time_out(turn, slot);
    }
}
