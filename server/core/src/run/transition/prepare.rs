//! Hooks and context sources are asked before a run's first step.

use crate::error::Refusal;
use crate::extension::ExtensionCall;
use crate::id::CallSlot;
use crate::run::event::Event;
use crate::run::input::Prepared;
use crate::run::machine::Turn;
use crate::run::status::{RunError, RunErrorCode};
use crate::run::transition::finish;
use crate::run::transition::plan::plan;
use crate::run::transition::queue::let_in;

/// Everybody was asked: context and messages enter the session, and the run goes on. Where a hook is against it, the
/// run fails, and what the caller brought does not enter: nobody who goes on with the session is to read it.
pub(crate) fn prepared(turn: &mut Turn<'_>, prepared: Prepared) -> Result<(), Refusal> {
    if !turn.state.is_unprepared() {
        return Err(Refusal::WrongPhase(turn.state.status()));
    }
    record(turn, None, prepared.applied);
    if let Some(failure) = prepared.failure {
        finish::fail(turn, RunError::new(RunErrorCode::ExtensionFailed, failure));
        return Ok(());
    }
    for (source, message) in prepared.context {
        turn.emit(Event::ContextAdded { source, entry: turn.state.last_entry.next(), message });
    }
    match prepared.messages {
        Some(messages) => {
            for message in messages {
                turn.emit(Event::InputAdded { entry: turn.state.last_entry.next(), message });
            }
        }
        None => let_in(turn),
    }
    plan(turn);
    Ok(())
}

/// Tells what extensions were asked.
pub(crate) fn record(turn: &mut Turn<'_>, slot: Option<CallSlot>, applied: Vec<ExtensionCall>) {
    for applied in applied {
        turn.emit(Event::ExtensionApplied { slot, applied });
    }
}
