//! Messages that wait to enter the session: those of a queued run, and those that came in the middle of one.

use crate::error::Refusal;
use crate::id::{EntryNo, Seq};
use crate::message::SharedMessage;
use crate::policy::PolicyRule;
use crate::run::event::{Event, Steer};
use crate::run::machine::Turn;
use crate::run::state::Phase;
use crate::run::transition::plan::plan;

/// The session is free: what the queued run brought enters it, and the planner is asked what to do first.
pub(crate) fn enter(turn: &mut Turn<'_>, last_entry: EntryNo, rules: Vec<PolicyRule>) -> Result<(), Refusal> {
    if turn.state.phase != Phase::Queued {
        return Err(Refusal::WrongPhase(turn.state.status()));
    }
    turn.emit(Event::SessionEntered { last_entry, rules });
    if !turn.state.is_unprepared() {
        let_in(turn);
        plan(turn);
    }
    Ok(())
}

/// Keeps messages until they may enter.
pub(crate) fn hold(turn: &mut Turn<'_>, messages: Vec<SharedMessage>, steer: Option<&Steer>) {
    for message in messages {
        turn.emit(Event::InputHeld { message, steer: steer.cloned() });
    }
}

/// Everything that is held enters, in the order in which it came. No tool call may be open: a result that followed
/// would be parted from its call.
pub(crate) fn let_in(turn: &mut Turn<'_>) {
    let held: Vec<Seq> = turn.state.held.keys().copied().collect();
    for held in held {
        turn.emit(Event::InputEntered { entry: turn.state.last_entry.next(), held });
    }
}
