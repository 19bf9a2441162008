//! A run begins.

use crate::error::Refusal;
use crate::run::event::Event;
use crate::run::input::Start;
use crate::run::machine::Turn;
use crate::run::state::Phase;
use crate::run::transition::plan::plan;
use crate::run::transition::queue;

/// Takes in what the caller brought, and asks the planner what to do first; a queued run keeps it until its turn comes.
pub(crate) fn start(turn: &mut Turn<'_>, start: Start) -> Result<(), Refusal> {
    if turn.state.phase != Phase::New || turn.state.run != start.run {
        return Err(Refusal::WrongPhase(turn.state.status()));
    }
    turn.emit(Event::Started {
        session: start.session,
        last_entry: start.last_entry,
        spec: start.spec,
        seed: start.seed,
        queued: start.queued,
        traceparent: start.traceparent,
    });
    if start.queued {
        queue::hold(turn, start.messages, None);
        return Ok(());
    }
    let prepares = turn.state.spec.prepares();
    for message in start.messages {
        if prepares {
            turn.emit(Event::InputHeld { message, steer: None });
            continue;
        }
        turn.emit(Event::InputAdded { entry: turn.state.last_entry.next(), message });
    }
    plan(turn);
    Ok(())
}
