//! Inputs of tool hosts: a call is granted, accepted, finished or lost.

use crate::extension::ExtensionCall;
use crate::id::{CallSlot, HostId};
use crate::limits::{TOOL_ATTEMPTS_MAX, TOOL_RETRY_DELAY_SECS_MAX};
use crate::message::ToolStatus;
use crate::run::event::{AfterAttempt, Event, Ran};
use crate::run::input::CallOutcome;
use crate::run::refusal::Refusal;
use crate::run::state::{CallState, RoundCall};
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::routine::{calls, extension, question};
use crate::time::{Millis, Timestamp};
use crate::tool::Digest;

/// Wait before a call that a host turned away is offered again; doubled each time.
const TURNED_AWAY_BACKOFF: Millis = Millis(100);
/// Upper bound of that wait.
const TURNED_AWAY_BACKOFF_MAX: Millis = Millis::secs(5);

/// A host has room: the call is offered to it.
pub(super) fn granted(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    host: HostId,
) -> Result<(), Refusal> {
    let call = calls::open(builder, slot)?;
    let CallState::Ready { not_before, .. } = call.state else { return Err(Refusal::StaleAttempt) };
    if not_before.is_some_and(|at| at > builder.now) || builder.state().free_call_slots() == 0 {
        return Err(Refusal::StaleAttempt);
    }
    let (tool, attempt) = (call.requested.name.clone(), call.attempt + 1);
    builder.emit(Event::CallOffered { slot, tool, attempt, host });
    Ok(())
}

/// No host will have room: the model reads why.
pub(super) fn denied(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    message: String,
) -> Result<(), Refusal> {
    let CallState::Ready { .. } = calls::open(builder, slot)?.state else {
        return Err(Refusal::StaleAttempt);
    };
    calls::settle(builder, slot, ToolStatus::Unavailable, message);
    Ok(())
}

/// A host confirms a call. A repeated confirmation is ignored.
pub(super) fn accepted(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    attempt: u32,
    host: HostId,
) -> Result<(), Refusal> {
    let call = calls::in_flight(builder, slot, attempt)?;
    if matches!(call.state, CallState::Offered { .. }) {
        builder.emit(Event::CallAccepted { slot, attempt, host });
    }
    Ok(())
}

/// A host saved a checkpoint of a call. A repeated checkpoint is ignored.
pub(super) fn checkpoint(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    attempt: u32,
    checkpoint: Vec<u8>,
) -> Result<(), Refusal> {
    if calls::in_flight(builder, slot, attempt)?.checkpoint.as_ref() != Some(&checkpoint) {
        builder.emit(Event::CallCheckpoint { slot, attempt, checkpoint });
    }
    Ok(())
}

/// A host's result, and the calls of hooks about it.
pub(super) struct HostResult {
    pub(super) host: HostId,
    pub(super) outcome: CallOutcome,
    pub(super) applied: Vec<ExtensionCall>,
}

/// A host reports a result. The first result of a call's last attempt is recorded.
pub(super) fn finished(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    attempt: u32,
    lease: &Digest,
    HostResult { host, outcome, applied }: HostResult,
) -> Result<(), Refusal> {
    if attempt == 0 || *lease != builder.state().lease(slot, attempt) {
        return Err(Refusal::UnknownCall);
    }
    let call = calls::answerable(builder, slot, attempt)?;
    let retry = match &outcome {
        CallOutcome::Failed { retryable, ran, .. } => {
            *retryable && may_repeat(call, *ran) && call.attempt < TOOL_ATTEMPTS_MAX
        }
        CallOutcome::Succeeded { .. } | CallOutcome::Rejected { .. } => false,
    };
    if retry && matches!(call.state, CallState::Ready { .. } | CallState::AwaitingInstruction { .. }) {
        // The next attempt is due already, and a failure that is told twice must not put it off.
        return Ok(());
    }
    extension::record(builder, Some(slot), applied);
    question::withdraw(builder, slot);
    match outcome {
        CallOutcome::Succeeded { output, images } => {
            calls::settle_by_host(builder, slot, host, ToolStatus::Succeeded, output, images);
        }
        CallOutcome::Rejected { message } => {
            calls::settle_by_host(builder, slot, host, ToolStatus::Rejected, message, Vec::new());
        }
        CallOutcome::Failed { message, delay, ran, .. } if retry => {
            let delay = delay.min(Millis::secs(TOOL_RETRY_DELAY_SECS_MAX));
            let then = AfterAttempt::Retry { at: (delay.0 > 0).then(|| builder.now.after(delay)) };
            builder.emit(Event::CallAttemptFailed { slot, attempt, message, ran, then });
        }
        CallOutcome::Failed { message, ran, .. } => {
            let then = AfterAttempt::Settle;
            builder.emit(Event::CallAttemptFailed { slot, attempt, message: message.clone(), ran, then });
            calls::settle_by_host(builder, slot, host, ToolStatus::Failed, message, Vec::new());
        }
    }
    Ok(())
}

/// The host that had a call will report no result. The call is tried again if that is safe; else a person decides.
pub(super) fn lost(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    attempt: u32,
    message: String,
    ran: Ran,
) -> Result<(), Refusal> {
    let call = calls::in_flight(builder, slot, attempt)?;
    let (may_repeat, last) = (may_repeat(call, ran), call.attempt >= TOOL_ATTEMPTS_MAX);
    question::withdraw(builder, slot);
    if !may_repeat {
        builder.emit(Event::CallAttemptFailed { slot, attempt, message, ran, then: AfterAttempt::InDoubt });
        question::ask_in_doubt(builder, slot);
    } else if last {
        let output = format!("given up after {attempt} tries: {message}");
        builder.emit(Event::CallAttemptFailed { slot, attempt, message, ran, then: AfterAttempt::Settle });
        calls::settle(builder, slot, ToolStatus::Unavailable, output);
    } else {
        let at = (ran == Ran::No).then(|| turned_away(builder.now, attempt));
        let then = AfterAttempt::Retry { at };
        builder.emit(Event::CallAttemptFailed { slot, attempt, message, ran, then });
    }
    Ok(())
}

fn may_repeat(call: &RoundCall, ran: Ran) -> bool {
    ran == Ran::No || call.effect.repeatable()
}

/// The time of the next offer of a call that hosts have turned away `attempt` times.
fn turned_away(now: Timestamp, attempt: u32) -> Timestamp {
    let wait = TURNED_AWAY_BACKOFF.0 << (attempt - 1).min(16);
    now.after(Millis(wait.min(TURNED_AWAY_BACKOFF_MAX.0)))
}
