//! Calls of which nobody knows whether they took effect.

use crate::id::CallSlot;
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

/// A warning for the model if the call may have taken effect and must not run twice; else empty.
pub(in crate::run::transition) fn warning(call: &RoundCall) -> &'static str {
    let is_in_doubt = matches!(call.state, CallState::InDoubt { .. });
    // A call that goes on from a state has done what was before it.
    let has_begun = call.in_flight() || call.resume.is_some();
    if is_in_doubt || (has_begun && !call.effect.repeatable()) {
        "; it may have taken effect all the same"
    } else {
        ""
    }
}
