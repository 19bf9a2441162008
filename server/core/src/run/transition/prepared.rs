//! Input of the hooks and context sources that are called before the first instruction.

use crate::run::event::Event;
use crate::run::input::Prepared;
use crate::run::refusal::Refusal;
use crate::run::status::{RunError, RunErrorCode};
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::routine::{extension, finish, waiting};

/// Context and messages enter the session, and the run goes on. If a hook refuses, the run fails, and the caller's
/// messages do not enter: later runs of the session must not read them.
pub(super) fn prepared(builder: &mut TransitionBuilder<'_>, prepared: Prepared) -> Result<(), Refusal> {
    if !builder.state().is_unprepared() {
        return Err(Refusal::WrongPhase(builder.state().status()));
    }
    extension::record(builder, None, prepared.applied);
    if let Some(failure) = prepared.failure {
        finish::fail(builder, RunError::new(RunErrorCode::ExtensionFailed, failure));
        return Ok(());
    }
    for context in prepared.context {
        builder.emit(Event::ContextAdded {
            source: context.source,
            entry: builder.state().last_entry().next(),
            message: context.message,
        });
    }
    match prepared.messages {
        // A hook replaces the messages. Without any, the caller's would wait for ever, and the run with them.
        Some(messages) if !messages.is_empty() => waiting::add(builder, messages),
        Some(_) | None => waiting::enter_all(builder),
    }
    Ok(())
}
