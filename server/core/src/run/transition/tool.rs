//! What becomes of tool calls.

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::Refusal;
use crate::extension::ExtensionCall;
use crate::id::{CallSlot, HostId};
use crate::limits::{QUOTED_ARGUMENTS_BYTES_MAX, TOOL_ATTEMPTS_MAX, TOOL_RETRY_DELAY_SECS_MAX};
use crate::message::{Image, Message, Part, Role, ToolResult, ToolStatus};
use crate::run::event::{AfterAttempt, Event, Ran};
use crate::run::input::CallOutcome;
use crate::run::machine::Turn;
use crate::run::state::{Call, CallState};
use crate::run::transition::plan::plan;
use crate::run::transition::{human, prepare};
use crate::time::{Millis, Timestamp};
use crate::tool::Digest;

/// Before a call that a host turned away is offered again; doubled each time.
const TURNED_AWAY_BACKOFF: Millis = Millis(100);
/// No such wait is longer.
const TURNED_AWAY_BACKOFF_MAX: Millis = Millis::secs(5);

/// A host has room: the call is given to it.
pub(crate) fn granted(turn: &mut Turn<'_>, slot: CallSlot, host: HostId) -> Result<(), Refusal> {
    let call = open(turn, slot)?;
    let CallState::Ready { not_before, .. } = call.state else { return Err(Refusal::StaleAttempt) };
    if not_before.is_some_and(|at| at > turn.now) || turn.state.room() == 0 {
        return Err(Refusal::StaleAttempt);
    }
    let (tool, attempt) = (call.wanted.name.clone(), call.attempt + 1);
    turn.emit(Event::CallOffered { slot, tool, attempt, host });
    Ok(())
}

/// No host will have room: the model is told.
pub(crate) fn denied(turn: &mut Turn<'_>, slot: CallSlot, message: String) -> Result<(), Refusal> {
    let CallState::Ready { .. } = open(turn, slot)?.state else { return Err(Refusal::StaleAttempt) };
    settle(turn, slot, None, ToolStatus::Unavailable, message, Vec::new());
    plan(turn);
    Ok(())
}

/// A host confirms a call.
pub(crate) fn accepted(
    turn: &mut Turn<'_>,
    slot: CallSlot,
    attempt: u32,
    host: HostId,
) -> Result<(), Refusal> {
    let call = in_flight(turn, slot, attempt)?;
    if matches!(call.state, CallState::Offered { .. }) {
        turn.emit(Event::CallAccepted { slot, attempt, host });
    }
    Ok(())
}

/// A host saved how far it is.
pub(crate) fn checkpoint(
    turn: &mut Turn<'_>,
    slot: CallSlot,
    attempt: u32,
    checkpoint: Vec<u8>,
) -> Result<(), Refusal> {
    if in_flight(turn, slot, attempt)?.checkpoint.as_ref() != Some(&checkpoint) {
        turn.emit(Event::CallCheckpoint { slot, attempt, checkpoint });
    }
    Ok(())
}

/// What a host answers, and what hooks were asked about it.
pub(crate) struct Answered {
    pub(crate) host: HostId,
    pub(crate) outcome: CallOutcome,
    pub(crate) applied: Vec<ExtensionCall>,
}

/// A host answers. The first answer to a call's last try is the recorded one.
pub(crate) fn finished(
    turn: &mut Turn<'_>,
    slot: CallSlot,
    attempt: u32,
    lease: &Digest,
    Answered { host, outcome, applied }: Answered,
) -> Result<(), Refusal> {
    if attempt == 0 || *lease != turn.state.lease(slot, attempt) {
        return Err(Refusal::UnknownCall);
    }
    let call = answerable(turn, slot, attempt)?.clone();
    match outcome {
        CallOutcome::Succeeded { output, images } => {
            prepare::record(turn, Some(slot), applied);
            human::withdraw(turn, slot);
            settle(turn, slot, Some(host), ToolStatus::Succeeded, output, images);
        }
        CallOutcome::Rejected { message } => {
            prepare::record(turn, Some(slot), applied);
            human::withdraw(turn, slot);
            settle(turn, slot, Some(host), ToolStatus::Rejected, message, Vec::new());
        }
        CallOutcome::Failed { message, retryable, delay, ran } => {
            let again = retryable && may_repeat(&call, ran) && call.attempt < TOOL_ATTEMPTS_MAX;
            if again && matches!(call.state, CallState::Ready { .. } | CallState::Held { .. }) {
                // The next try is due already, and a failure that is told twice must not put it off.
                return Ok(());
            }
            prepare::record(turn, Some(slot), applied);
            human::withdraw(turn, slot);
            let delay = delay.min(Millis::secs(TOOL_RETRY_DELAY_SECS_MAX));
            let then = if again {
                AfterAttempt::Retry { at: (delay.0 > 0).then(|| turn.now.after(delay)) }
            } else {
                AfterAttempt::Settle
            };
            turn.emit(Event::CallAttemptFailed { slot, attempt, message: message.clone(), ran, then });
            if !again {
                settle(turn, slot, Some(host), ToolStatus::Failed, message, Vec::new());
            }
        }
    }
    plan(turn);
    Ok(())
}

/// The host that had a call will not answer: another try where that is safe, a human's word where it is not.
pub(crate) fn lost(
    turn: &mut Turn<'_>,
    slot: CallSlot,
    attempt: u32,
    message: String,
    ran: Ran,
) -> Result<(), Refusal> {
    let call = in_flight(turn, slot, attempt)?.clone();
    human::withdraw(turn, slot);
    if !may_repeat(&call, ran) {
        turn.emit(Event::CallAttemptFailed { slot, attempt, message, ran, then: AfterAttempt::InDoubt });
        human::ask_in_doubt(turn, slot);
        return Ok(());
    }
    if call.attempt >= TOOL_ATTEMPTS_MAX {
        let then = AfterAttempt::Settle;
        turn.emit(Event::CallAttemptFailed { slot, attempt, message: message.clone(), ran, then });
        let output = format!("given up after {attempt} tries: {message}");
        settle(turn, slot, None, ToolStatus::Unavailable, output, Vec::new());
        plan(turn);
        return Ok(());
    }
    let then = AfterAttempt::Retry { at: (ran == Ran::No).then(|| turned_away(turn.now, attempt)) };
    turn.emit(Event::CallAttemptFailed { slot, attempt, message, ran, then });
    Ok(())
}

/// The call's deadline passed: the model is told.
pub(crate) fn time_out(turn: &mut Turn<'_>, slot: CallSlot) {
    let call = turn.state.call(slot).expect("only an open call times out");
    let output = format!("no answer within {} s{}", call.timeout.0.div_ceil(1_000), doubt(call));
    settle(turn, slot, None, ToolStatus::TimedOut, output, Vec::new());
}

/// What the model is told beside, lest it does again what was done.
pub(crate) fn doubt(call: &Call) -> &'static str {
    let may_have_run = call.in_flight() || matches!(call.state, CallState::InDoubt { .. });
    if may_have_run && !call.effect.repeatable() { "; it may have taken effect all the same" } else { "" }
}

/// Gives a call its one result.
pub(crate) fn settle(
    turn: &mut Turn<'_>,
    slot: CallSlot,
    host: Option<HostId>,
    status: ToolStatus,
    output: String,
    images: Vec<Image>,
) {
    let call = turn.state.call(slot).expect("only an open call is settled");
    let output = if call.arguments == call.wanted.arguments {
        output
    } else {
        let who = if call.changed_by_hook { "hook" } else { "human" };
        format!("[a {who} changed the arguments to {}]\n{output}", quoted(&call.arguments))
    };
    let result = ToolResult {
        slot,
        provider_id: call.wanted.provider_id.clone(),
        name: call.wanted.name.clone(),
        status,
        output,
        images,
    };
    let duration = call.first_offered.map_or(Millis(0), |first| turn.now.since(first));
    turn.emit(Event::CallSettled {
        slot,
        attempt: call.attempt,
        host,
        entry: turn.state.last_entry.next(),
        message: Arc::new(Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] }),
        duration,
    });
}

/// Arguments as a result quotes them: the result has to fit into one message with them.
fn quoted(arguments: &str) -> Cow<'_, str> {
    let end = arguments.floor_char_boundary(QUOTED_ARGUMENTS_BYTES_MAX);
    match &arguments[..end] {
        whole if whole.len() == arguments.len() => whole.into(),
        first => format!("{first} [cut: the first {end} of {} bytes]", arguments.len()).into(),
    }
}

fn may_repeat(call: &Call, ran: Ran) -> bool {
    ran == Ran::No || call.effect.repeatable()
}

fn turned_away(now: Timestamp, attempt: u32) -> Timestamp {
    let wait = TURNED_AWAY_BACKOFF.0 << (attempt - 1).min(16);
    now.after(Millis(wait.min(TURNED_AWAY_BACKOFF_MAX.0)))
}

/// An unsettled call of the current round.
fn open<'a>(turn: &'a Turn<'_>, slot: CallSlot) -> Result<&'a Call, Refusal> {
    match turn.state.call(slot) {
        Some(call) if call.is_settled() => Err(Refusal::StaleAttempt),
        Some(call) => Ok(call),
        None if turn.state.settled.contains_key(&slot) => Err(Refusal::StaleAttempt),
        None => Err(Refusal::UnknownCall),
    }
}

/// A call whose last try is this one, and with a host.
pub(crate) fn in_flight<'a>(turn: &'a Turn<'_>, slot: CallSlot, attempt: u32) -> Result<&'a Call, Refusal> {
    let call = open(turn, slot)?;
    if call.attempt == attempt && call.in_flight() { Ok(call) } else { Err(Refusal::StaleAttempt) }
}

/// A call that this try may still answer: it is in flight, in doubt, or waits for the next try.
fn answerable<'a>(turn: &'a Turn<'_>, slot: CallSlot, attempt: u32) -> Result<&'a Call, Refusal> {
    let settled_by = match turn.state.call(slot) {
        Some(call) if !call.is_settled() => {
            return if call.attempt == attempt { Ok(call) } else { Err(Refusal::StaleAttempt) };
        }
        Some(call) => call.answered,
        None => *turn.state.settled.get(&slot).ok_or(Refusal::UnknownCall)?,
    };
    Err(if settled_by == attempt { Refusal::DuplicateResult } else { Refusal::StaleAttempt })
}
