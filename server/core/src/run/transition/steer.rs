//! Someone has more to say while the run is under way.

use crate::error::Refusal;
use crate::limits::WAITING_MESSAGES_MAX;
use crate::message::SharedMessage;
use crate::run::event::Steer;
use crate::run::machine::Turn;
use crate::run::state::Phase;
use crate::run::transition::queue;

/// Keeps the messages until the next model call, before which they enter. The same request again is confirmed, also
/// when the run is over.
pub(crate) fn steer(turn: &mut Turn<'_>, steer: Steer, messages: Vec<SharedMessage>) -> Result<(), Refusal> {
    if let Some(digest) = turn.state.steered.get(&steer.id) {
        return if *digest == steer.digest { Ok(()) } else { Err(Refusal::IdReused) };
    }
    if !turn.state.is_live() || turn.state.phase == Phase::Queued {
        return Err(Refusal::WrongPhase(turn.state.status()));
    }
    if turn.state.held.len() + messages.len() > WAITING_MESSAGES_MAX {
        return Err(Refusal::TooManyWaitingMessages);
    }
    queue::hold(turn, messages, Some(&steer));
    Ok(())
}
