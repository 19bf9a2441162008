//! Calls of which nobody knows whether they took effect.

use crate::id::CallSlot;
use crate::message::ToolStatus;
use crate::run::event::{AfterAttempt, Event, Ran};
use crate::run::state::{CallState, RoundCall};
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::routine::question;

/// Puts a call in doubt: a late result, a human or time settles it.
pub(in crate::run::transition) fn put_in_doubt(
    builder: &mut TransitionBuilder<'_>,
    slot: CallSlot,
    message: String,
    ran: Ran,
) {
    let attempt = builder.state().call(slot).expect("only an open call is in doubt").attempt;
    question::withdraw(builder, slot);
    builder.emit(Event::CallAttemptFailed {
        slot,
        attempt,
        message,
        ran,
        then: AfterAttempt::InDoubt,
        busy: false,
    });
    question::ask_in_doubt(builder, slot);
}

/// The output of a result, with a warning for the model if the status says that the call did not run or did not end, while
/// the call may have taken effect and must not run twice. `last` tells if the last attempt ran.
pub(in crate::run::transition) fn warned(
    call: &RoundCall,
    status: ToolStatus,
    last: Ran,
    output: String,
) -> String {
    match status {
        ToolStatus::Rejected
        | ToolStatus::Denied
        | ToolStatus::Aborted
        | ToolStatus::TimedOut
        | ToolStatus::Unavailable
            if may_have_taken_effect(call, last) =>
        {
            let separator = if output.is_empty() { "" } else { "; " };
            format!("{output}{separator}it may have taken effect all the same")
        }
        ToolStatus::Rejected
        | ToolStatus::Denied
        | ToolStatus::Aborted
        | ToolStatus::TimedOut
        | ToolStatus::Unavailable
        // Whoever gives these results answers for all attempts of the call.
        | ToolStatus::Succeeded
        | ToolStatus::Failed
        | ToolStatus::Answered
        | ToolStatus::OutcomeUnknown => output,
    }
}

/// True if the call may have taken effect and must not run twice.
fn may_have_taken_effect(call: &RoundCall, last: Ran) -> bool {
    // A call that goes on from a state has done what was before it.
    let by_earlier = call.resume.is_some();
    let by_last = last != Ran::No && (call.in_flight() || matches!(call.state, CallState::InDoubt { .. }));
    (by_earlier || by_last) && !call.effect.repeatable()
}
