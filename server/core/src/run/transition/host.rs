//! Inputs of tool hosts: a call is granted, accepted, finished or lost.

use crate::id::{Attempt, CallSlot, HostId, InstanceId};
use crate::limits::{TOOL_ATTEMPTS_MAX, TOOL_RETRY_DELAY_SECS_MAX};
use crate::message::ToolStatus;
use crate::policy::PolicyCall;
use crate::run::event::{AfterAttempt, Event, Ran};
use crate::run::input::{CallFinished, CallOutcome};
use crate::run::refusal::Refusal;
use crate::run::state::{CallState, RoundCall, RunState};
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::deadline;
use crate::run::transition::routine::calls::{ResultContent, ResultSource};
use crate::run::transition::routine::policy::Ruling;
use crate::run::transition::routine::{calls, doubt, extension, policy, question};
use crate::time::{Millis, Timestamp};
use crate::tool::{Digest, ToolTerms};

/// Wait before a call that a host turned away is offered again; doubled each time.
const TURNED_AWAY_BACKOFF: Millis = Millis(100);
/// Upper bound of that wait.
const TURNED_AWAY_BACKOFF_MAX: Millis = Millis::secs(5);
/// Upper bound of the wait after a host had no room. Nothing else bounds these attempts, and each one is in the journal.
const BUSY_BACKOFF_MAX: Millis = Millis::secs(30);

/// A host has room: the call is offered to it, unless a human has to be asked first under the host's terms.
pub(super) fn granted(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    host: HostId,
    instance: Option<InstanceId>,
    terms: Option<&ToolTerms>,
) -> Result<(), Refusal> {
    let call = calls::open(builder, slot)?;
    let CallState::Ready { not_before, .. } = call.state else { return Err(Refusal::StaleAttempt) };
    if not_before.is_some_and(|at| at > builder.now) || builder.state().free_parallel_calls() == 0 {
        return Err(Refusal::StaleAttempt);
    }
    let effect = terms.map_or(call.terms.effect, |terms| call.terms.effect.max(terms.effect));
    let (tool, attempt) = (call.requested.name.clone(), call.attempt.next());
    let digest = terms.map(|terms| terms.digest.clone());
    if !effect.repeatable() && !call.attempts.doubtful.is_empty() {
        question::ask_in_doubt_under(builder, slot, digest);
    } else if terms.is_some_and(|terms| lacks_approval(builder.state(), call, terms)) {
        question::ask_approval_under(builder, slot, digest);
    } else {
        let (effect, output_schema) = (Some(effect), terms.and_then(|terms| terms.output_schema.clone()));
        builder.emit(Event::CallOffered { slot, tool, attempt, host, instance, effect, output_schema });
    }
    Ok(())
}

/// True if a human has to approve the call under these terms and has not. An approval under other terms does not count.
fn lacks_approval(state: &RunState, call: &RoundCall, terms: &ToolTerms) -> bool {
    let needs_approval = || {
        let asked = PolicyCall::new(&call.requested.name, &call.arguments).under(Some(&terms.digest));
        policy::ruling(state, &asked, terms.requires_approval) == Ruling::Ask
    };
    !call.is_approved_under(&terms.digest) && (call.approvals.were_asked || needs_approval())
}

/// No host will have room: the model reads why.
pub(super) fn denied(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    message: String,
) -> Result<(), Refusal> {
    let call = calls::open(builder, slot)?;
    let CallState::Ready { .. } = call.state else {
        return Err(Refusal::StaleAttempt);
    };
    calls::settle(builder, slot, ToolStatus::Unavailable, message);
    Ok(())
}

/// A host confirms a call. A repeated confirmation changes nothing, but after a restart it says that the host is back.
pub(super) fn accepted(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    attempt: Attempt,
    host: HostId,
) -> Result<(), Refusal> {
    let call = calls::in_flight(builder, slot, attempt)?;
    let is_new = matches!(call.state, CallState::Offered { .. });
    // Calls of later are not kept: a run may have many.
    let is_of_before = builder.recovery.as_ref().is_some_and(|recovery| recovery.concerns(call));
    if is_new {
        builder.emit(Event::CallAccepted { slot, attempt, host });
    }
    let now = builder.now;
    if let Some(recovery) = builder.recovery.as_mut().filter(|_| is_of_before) {
        recovery.confirm(slot, attempt, now);
    }
    Ok(())
}

/// A host saved a checkpoint of a call. A repeated checkpoint is ignored.
pub(super) fn checkpoint(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    attempt: Attempt,
    checkpoint: Vec<u8>,
) -> Result<(), Refusal> {
    if calls::in_flight(builder, slot, attempt)?.last.checkpoint.as_ref() != Some(&checkpoint) {
        builder.emit(Event::CallCheckpoint { slot, attempt, checkpoint, resume_no: 0 });
    }
    Ok(())
}

/// A call left a state to go on from, and waits until it is recorded. A state that is recorded already is confirmed.
pub(super) fn resumable(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    attempt: Attempt,
    resume_no: u64,
    state: Vec<u8>,
) -> Result<(), Refusal> {
    let call = calls::in_flight(builder, slot, attempt)?;
    let recorded = call.resume.as_ref().filter(|resume| resume.attempt == attempt);
    let recorded = recorded.map_or(0, |resume| resume.no);
    if resume_no > recorded {
        builder.emit(Event::CallCheckpoint { slot, attempt, checkpoint: state, resume_no });
    }
    builder.ack_resume_state(slot, attempt, resume_no.max(recorded));
    Ok(())
}

/// A host reports a result. The first result of a call's last attempt is recorded.
pub(super) fn finished(builder: &mut TransitionBuilder<'_>, finished: CallFinished) -> Result<(), Refusal> {
    let CallFinished { slot, attempt, lease, host, outcome, sent, applied } = finished;
    if attempt == Attempt::NONE || lease != builder.state().lease(slot, attempt) {
        return Err(Refusal::UnknownCall);
    }
    let sent = sent.unwrap_or_else(|| outcome.digest());
    let call = calls::open_to_result(builder, slot, attempt, &sent)?;
    // A host that was released says nothing more than a result that it has after all.
    if call.was_released() && !matches!(outcome, CallOutcome::Succeeded { .. }) {
        return Err(Refusal::StaleAttempt);
    }
    let (retry, ran) = match &outcome {
        CallOutcome::Failed { retryable, ran, .. } => {
            // A failure that settles a doubt ends the call: a human was asked what became of it.
            let settles = call.is_in_doubt() && !call.terms.effect.repeatable() && *ran != Ran::No;
            let may_retry = *retryable && !settles && may_repeat(call, *ran);
            (may_retry && call.tries() < TOOL_ATTEMPTS_MAX, *ran)
        }
        CallOutcome::Succeeded { .. } | CallOutcome::Rejected { .. } => (false, Ran::Yes),
    };
    if retry && is_due_again(call, ran) {
        // A failure that is told twice must not put the next attempt off.
        return Ok(());
    }
    extension::record(builder, Some(slot), applied);
    question::withdraw(builder, slot);
    let by = ResultSource { host, sent };
    match outcome {
        CallOutcome::Succeeded { output, images, attachments } => {
            let content = ResultContent { output, images, attachments: *attachments };
            calls::settle_by_host(builder, slot, by, ToolStatus::Succeeded, content);
        }
        CallOutcome::Rejected { message } => {
            calls::settle_by_host(builder, slot, by, ToolStatus::Rejected, ResultContent::text(message));
        }
        CallOutcome::Failed { message, delay, ran, .. } if retry => {
            let delay = delay.min(Millis::secs(TOOL_RETRY_DELAY_SECS_MAX));
            let then = AfterAttempt::Retry { at: (delay.0 > 0).then(|| builder.now.after(delay)) };
            builder.emit(Event::CallAttemptFailed { slot, attempt, message, ran, then, busy: false });
        }
        CallOutcome::Failed { message, ran, .. } => {
            let then = AfterAttempt::Settle;
            let (told, busy) = (message.clone(), false);
            builder.emit(Event::CallAttemptFailed { slot, attempt, message: told, ran, then, busy });
            calls::settle_by_host(builder, slot, by, ToolStatus::Failed, ResultContent::text(message));
        }
    }
    Ok(())
}

/// The reason why a host will report no result.
pub(super) struct Loss {
    pub(super) message: String,
    pub(super) ran: Ran,
    /// True if it had no room.
    pub(super) busy: bool,
}

/// True if the next attempt is due already, once a person agrees if one is asked. The report that the last attempt of a
/// call in doubt did not run settles the doubt.
fn is_due_again(call: &RoundCall, ran: Ran) -> bool {
    match call.state {
        CallState::Ready { .. }
        | CallState::AwaitingInstruction { .. }
        | CallState::AwaitingApproval { .. } => true,
        CallState::InDoubt { .. } => ran != Ran::No,
        CallState::Proposed
        | CallState::Offered { .. }
        | CallState::Accepted { .. }
        | CallState::AwaitingInput { .. }
        | CallState::Suspended { .. }
        | CallState::Settled => false,
    }
}

/// The host that had a call will report no result. The call is tried again if that is safe; else a person decides.
pub(super) fn lost(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    attempt: Attempt,
    Loss { message, ran, busy }: Loss,
) -> Result<(), Refusal> {
    let call = calls::in_flight(builder, slot, attempt)?;
    let is_overdue = call.is_doubtful_at_deadline() && deadline::is_overdue(builder, call);
    if !may_repeat(call, ran) || (is_overdue && ran != Ran::No) {
        let message = if builder.recovery.as_ref().is_some_and(|recovery| recovery.concerns(call)) {
            format!("the server restarted during the call: {message}")
        } else {
            message
        };
        doubt::put_in_doubt(builder, slot, message, ran);
    } else if is_overdue {
        never_began(builder, slot, attempt);
    } else {
        try_again(builder, slot, attempt, Loss { message, ran, busy });
    }
    Ok(())
}

/// A host stopped a call that was cancelled. This matters if the deadline was the reason, or if the call is in doubt and
/// did not begin. The owner before may have cancelled it at its deadline; this one has given it time anew.
pub(super) fn stopped(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    attempt: Attempt,
    lease: &Digest,
    begun: bool,
) -> Result<(), Refusal> {
    if attempt == Attempt::NONE || *lease != builder.state().lease(slot, attempt) {
        return Err(Refusal::UnknownCall);
    }
    let call = calls::open(builder, slot)?;
    if call.attempt != attempt {
        return Err(Refusal::StaleAttempt);
    }
    let overdue = match call.state {
        CallState::Offered { .. } | CallState::Accepted { .. } if deadline::is_overdue(builder, call) => true,
        CallState::Offered { .. } | CallState::Accepted { .. } => {
            let (message, ran) = if begun { (STOPPED, Ran::Maybe) } else { (NEVER_BEGAN, Ran::No) };
            let loss = Loss { message: message.to_owned(), ran, busy: false };
            return lost(builder, slot, attempt, loss);
        }
        CallState::InDoubt { due, .. } if !begun => due <= builder.now,
        CallState::InDoubt { .. }
        | CallState::Proposed
        | CallState::AwaitingApproval { .. }
        | CallState::AwaitingInput { .. }
        | CallState::AwaitingInstruction { .. }
        | CallState::Ready { .. }
        | CallState::Suspended { .. }
        | CallState::Settled => return Err(Refusal::StaleAttempt),
    };
    if begun {
        let message = format!("{}, and its host stopped it", calls::no_result_in_time(call));
        doubt::put_in_doubt(builder, slot, message, Ran::Maybe);
    } else if overdue {
        never_began(builder, slot, attempt);
    } else {
        let message = NEVER_BEGAN.to_owned();
        try_again(builder, slot, attempt, Loss { message, ran: Ran::No, busy: false });
    }
    Ok(())
}

const NEVER_BEGAN: &str = "the host did not begin the call";
const STOPPED: &str = "the host stopped the call at its deadline";

/// The time of a call is up, and its host did not begin it: there is nothing to doubt.
fn never_began(builder: &mut TransitionBuilder<'_>, slot: CallSlot, attempt: Attempt) {
    question::withdraw(builder, slot);
    let (message, then) = (NEVER_BEGAN.to_owned(), AfterAttempt::Settle);
    builder.emit(Event::CallAttemptFailed { slot, attempt, message, ran: Ran::No, then, busy: false });
    let call = builder.state().call(slot).expect("only an open call times out");
    let not_done = if call.resume.is_some() { "did not go on" } else { "did not begin" };
    let output = format!("{}; the call {not_done}", calls::no_result_in_time(call));
    calls::settle(builder, slot, ToolStatus::TimedOut, output);
}

/// Leads to another attempt after one without a result, as long as there may be one. A call that busy hosts reject waits
/// for room, as it would in the queue of its tool.
fn try_again(builder: &mut TransitionBuilder<'_>, slot: CallSlot, attempt: Attempt, loss: Loss) {
    question::withdraw(builder, slot);
    let Loss { message, ran, busy } = loss;
    let call = builder.state().call(slot).expect("only an open call is tried again");
    let tries = call.tries();
    if tries >= TOOL_ATTEMPTS_MAX && !busy {
        let (output, then) = (format!("given up after {tries} tries: {message}"), AfterAttempt::Settle);
        builder.emit(Event::CallAttemptFailed { slot, attempt, message, ran, then, busy });
        calls::settle(builder, slot, ToolStatus::Unavailable, output);
    } else {
        let longest = if busy { BUSY_BACKOFF_MAX } else { TURNED_AWAY_BACKOFF_MAX };
        let at = (ran == Ran::No).then(|| turned_away(builder.now, attempt, longest));
        let then = AfterAttempt::Retry { at };
        builder.emit(Event::CallAttemptFailed { slot, attempt, message, ran, then, busy });
    }
}

fn may_repeat(call: &RoundCall, ran: Ran) -> bool {
    ran == Ran::No || call.terms.effect.repeatable() || call.is_resumable()
}

/// The time of the next offer of a call that hosts have turned away `attempt` times.
fn turned_away(now: Timestamp, attempt: Attempt, longest: Millis) -> Timestamp {
    let wait = TURNED_AWAY_BACKOFF.0 << (attempt.0 - 1).min(16);
    now.after(Millis(wait.min(longest.0)))
}
