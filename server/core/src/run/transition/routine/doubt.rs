//! Calls of which nobody knows whether they took effect.

use crate::id::CallSlot;
use crate::run::event::{AfterAttempt, Event, Ran};
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
