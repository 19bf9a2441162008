//! Messages enter the session, or wait to enter it.

use crate::id::Seq;
use crate::message::SharedMessage;
use crate::run::event::{Event, Steer};
use crate::run::transition::builder::TransitionBuilder;

/// Adds messages to the session.
pub(in crate::run::transition) fn add(builder: &mut TransitionBuilder<'_>, messages: Vec<SharedMessage>) {
    for message in messages {
        builder.emit(Event::MessageAdded { entry: builder.state().last_entry().next(), message });
    }
}

/// Keeps messages until they may enter the session.
pub(in crate::run::transition) fn hold(
    builder: &mut TransitionBuilder<'_>,
    messages: Vec<SharedMessage>,
    steer: Option<&Steer>,
) {
    for message in messages {
        builder.emit(Event::MessageHeld { message, steer: steer.cloned() });
    }
}

/// Every waiting message enters the session, in the order of arrival. No tool call may be open: a result that followed
/// would be separated from its call.
pub(in crate::run::transition) fn enter_all(builder: &mut TransitionBuilder<'_>) {
    let waiting: Vec<Seq> = builder.state().waiting_messages().map(|(seq, _)| seq).collect();
    for held in waiting {
        builder.emit(Event::MessageEntered { entry: builder.state().last_entry().next(), held });
    }
}
