//! Finds the tool call that an input is about, and settles tool calls.

use std::borrow::Cow;
use std::sync::Arc;

use crate::id::{Attempt, CallSlot, HostId};
use crate::limits::QUOTED_ARGUMENTS_BYTES_MAX;
use crate::message::{Attachments, Image, Message, Part, Role, ToolResult, ToolStatus};
use crate::run::event::{Event, Ran};
use crate::run::refusal::Refusal;
use crate::run::state::RoundCall;
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::routine::warning;
use crate::time::Millis;
use crate::tool::Digest;

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
    attempt: Attempt,
) -> Result<&'a RoundCall, Refusal> {
    let call = open(builder, slot)?;
    if call.attempt == attempt && call.in_flight() { Ok(call) } else { Err(Refusal::StaleAttempt) }
}

/// A call that this attempt may still settle: it is in flight, in doubt, or waits for the next attempt.
///
/// # Errors
/// [`Refusal::DuplicateResult`] if this attempt has settled the call with this result; else as [`in_flight`].
pub(in crate::run::transition) fn open_to_result<'a>(
    builder: &'a TransitionBuilder<'_>,
    slot: CallSlot,
    attempt: Attempt,
    result: &Digest,
) -> Result<&'a RoundCall, Refusal> {
    let state = builder.state();
    let (settled_by, recorded) = match state.call(slot) {
        Some(call) if !call.is_settled() => {
            return if call.attempt == attempt { Ok(call) } else { Err(Refusal::StaleAttempt) };
        }
        Some(call) => (call.settled_by.attempt, call.settled_by.digest.as_ref()),
        None => (state.settled_by(slot).ok_or(Refusal::UnknownCall)?, state.result_digest(slot)),
    };
    // Older journals do not have the digest.
    let same = settled_by == attempt && recorded.is_none_or(|recorded| recorded == result);
    Err(if same { Refusal::DuplicateResult } else { Refusal::StaleAttempt })
}

/// Settles a call without a host's result. Its last attempt did not run, if there was one.
pub(in crate::run::transition) fn settle(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    status: ToolStatus,
    output: String,
) {
    settle_as(builder, slot, None, Ran::No, status, ResultContent::text(output));
}

/// Settles a call without a host's result, which a host may be at work on.
pub(in crate::run::transition) fn settle_under_way(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    status: ToolStatus,
    output: String,
) {
    settle_as(builder, slot, None, Ran::Maybe, status, ResultContent::text(output));
}

/// The host that reports the result of a call, and the digest of the result as it sent it.
pub(in crate::run::transition) struct ResultSource {
    pub(in crate::run::transition) host: HostId,
    pub(in crate::run::transition) sent: Digest,
}

/// The content of a result.
pub(in crate::run::transition) struct ResultContent {
    pub(in crate::run::transition) output: String,
    pub(in crate::run::transition) images: Vec<Image>,
    pub(in crate::run::transition) attachments: Attachments,
}

impl ResultContent {
    pub(in crate::run::transition) fn text(output: String) -> Self {
        Self { output, images: Vec::new(), attachments: Attachments::default() }
    }
}

/// Settles a call by the result of its host.
pub(in crate::run::transition) fn settle_by_host(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    by: ResultSource,
    status: ToolStatus,
    content: ResultContent,
) {
    // A host that rejects an attempt has not run it.
    settle_as(builder, slot, Some(by), Ran::No, status, content);
}

/// Gives a call its one result. `last` tells if its last attempt ran.
fn settle_as(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    by: Option<ResultSource>,
    last: Ran,
    status: ToolStatus,
    content: ResultContent,
) {
    let ResultContent { output, images, attachments } = content;
    let call = builder.state().call(slot).expect("only an open call is settled");
    let output = warning::warned(call, status, last, output);
    let result = ToolResult {
        slot,
        provider_id: call.requested.provider_id.clone(),
        name: call.requested.name.clone(),
        status,
        output: with_edited_arguments(call, output, &attachments),
        images,
        attachments,
    };
    let (host, outcome) = by.map(|by| (by.host, by.sent)).unzip();
    let duration = call.first_offered.map_or(Millis(0), |first| builder.now.since(first));
    builder.emit(Event::CallSettled {
        slot,
        attempt: call.attempt,
        host,
        entry: builder.state().last_entry().next(),
        message: Arc::new(Message { role: Role::Tool, parts: vec![Part::ToolResult(result)] }),
        duration,
        outcome,
    });
}

/// The output, headed by the arguments if they are not the model's own: the model must know what the call ran with.
fn with_edited_arguments(call: &RoundCall, output: String, attachments: &Attachments) -> String {
    if call.arguments == call.requested.arguments {
        return output;
    }
    // The model reads the typed output only where the text is empty.
    let output = match &attachments.structured {
        Some(structured) if output.is_empty() => structured.clone(),
        _ => output,
    };
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

/// The first words of the output of a call whose time is up.
pub(in crate::run::transition) fn no_result_in_time(call: &RoundCall) -> String {
    format!("no answer within {} s", call.terms.timeout.0.div_ceil(1_000))
}
