//! Finds the tool call that an input is about, and settles tool calls.

use std::borrow::Cow;
use std::sync::Arc;

use crate::id::{CallSlot, HostId};
use crate::limits::QUOTED_ARGUMENTS_BYTES_MAX;
use crate::message::{Image, Message, Part, Role, ToolResult, ToolStatus};
use crate::run::event::Event;
use crate::run::refusal::Refusal;
use crate::run::state::{CallState, RoundCall};
use crate::run::transition::builder::TransitionBuilder;
use crate::time::Millis;

/// An unsettled call of the current round.
///
/// # Errors
/// [`Refusal::StaleAttempt`] if the call is settled, [`Refusal::UnknownCall`] if the run never had it.
pub(in crate::run::transition) fn open<'a>(
    builder: &'a TransitionBuilder<'_>,
    slot: CallSlot,
) -> Result<&'a RoundCall, Refusal> {
    match builder.state().call(slot) {
        Some(call) if call.is_settled() => Err(Refusal::StaleAttempt),
        Some(call) => Ok(call),
        None if builder.state().settled_by(slot).is_some() => Err(Refusal::StaleAttempt),
        None => Err(Refusal::UnknownCall),
    }
}

/// A call that a host has, in this attempt.
///
/// # Errors
/// As [`open`], and [`Refusal::StaleAttempt`] if another attempt is the last, or no host has the call.
pub(in crate::run::transition) fn in_flight<'a>(
    builder: &'a TransitionBuilder<'_>,
    slot: CallSlot,
    attempt: u32,
) -> Result<&'a RoundCall, Refusal> {
    let call = open(builder, slot)?;
    if call.attempt == attempt && call.in_flight() { Ok(call) } else { Err(Refusal::StaleAttempt) }
}

/// A call that this attempt may still settle: it is in flight, in doubt, or waits for the next attempt.
///
/// # Errors
/// [`Refusal::DuplicateResult`] if this attempt has settled the call; else as [`in_flight`].
pub(in crate::run::transition) fn answerable<'a>(
    builder: &'a TransitionBuilder<'_>,
    slot: CallSlot,
    attempt: u32,
) -> Result<&'a RoundCall, Refusal> {
    let settled_by = match builder.state().call(slot) {
        Some(call) if !call.is_settled() => {
            return if call.attempt == attempt { Ok(call) } else { Err(Refusal::StaleAttempt) };
        }
        Some(call) => call.answered_attempt,
        None => builder.state().settled_by(slot).ok_or(Refusal::UnknownCall)?,
    };
    Err(if settled_by == attempt { Refusal::DuplicateResult } else { Refusal::StaleAttempt })
}

/// Settles a call without a host's result.
pub(in crate::run::transition) fn settle(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    status: ToolStatus,
    output: String,
) {
    settle_as(builder, slot, None, status, output, Vec::new());
}

/// Settles a call by the result of its host.
pub(in crate::run::transition) fn settle_by_host(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    host: HostId,
    status: ToolStatus,
    output: String,
    images: Vec<Image>,
) {
    settle_as(builder, slot, Some(host), status, output, images);
}

/// Gives a call its one result.
fn settle_as(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    host: Option<HostId>,
    status: ToolStatus,
    output: String,
    images: Vec<Image>,
) {
    let call = builder.state().call(slot).expect("only an open call is settled");
    let result = ToolResult {
        slot,
        provider_id: call.requested.provider_id.clone(),
        name: call.requested.name.clone(),
        status,
        output: with_edited_arguments(call, output),
        images,
    };
    let duration = call.first_offered.map_or(Millis(0), |first| builder.now.since(first));
    builder.emit(Event::CallSettled {
        slot,
        attempt: call.attempt,
        host,
        entry: builder.state().last_entry().next(),
        message: Arc::new(Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] }),
        duration,
    });
}

/// The output, headed by the arguments if they are not the model's own: the model must know what the call ran with.
fn with_edited_arguments(call: &RoundCall, output: String) -> String {
    if call.arguments == call.requested.arguments {
        return output;
    }
    let editor = if call.edited_by_hook { "hook" } else { "human" };
    format!("[a {editor} changed the arguments to {}]\n{output}", quoted(&call.arguments))
}

/// Arguments cut for a quotation: the result must fit into one message together with them.
fn quoted(arguments: &str) -> Cow<'_, str> {
    let end = arguments.floor_char_boundary(QUOTED_ARGUMENTS_BYTES_MAX);
    match &arguments[..end] {
        all if all.len() == arguments.len() => all.into(),
        first => format!("{first} [cut: the first {end} of {} bytes]", arguments.len()).into(),
    }
}

/// A warning for the model if the call may have taken effect and must not run twice; else empty.
pub(in crate::run::transition) fn doubt(call: &RoundCall) -> &'static str {
    let may_have_run = call.in_flight() || matches!(call.state, CallState::InDoubt { .. });
    if may_have_run && !call.effect.repeatable() { "; it may have taken effect all the same" } else { "" }
}
