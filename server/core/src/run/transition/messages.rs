//! Input of a caller who has more messages while the run is live.

use crate::limits::WAITING_MESSAGES_MAX;
use crate::message::SharedMessage;
use crate::run::event::Steer;
use crate::run::refusal::Refusal;
use crate::run::state::Phase;
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::routine::waiting;

/// Keeps the messages until the next model call, before which they enter the session. The same request again is
/// confirmed, even after the run has ended.
pub(super) fn steer(
    builder: &mut TransitionBuilder<'_>,
    steer: Steer,
    messages: Vec<SharedMessage>,
) -> Result<(), Refusal> {
    let state = builder.state();
    if let Some(digest) = state.steered_by(&steer.id) {
        return if *digest == steer.digest { Ok(()) } else { Err(Refusal::IdReused) };
    }
    if !state.is_live() || *state.phase() == Phase::Queued {
        return Err(Refusal::WrongPhase(state.status()));
    }
    if state.waiting_messages().len() + messages.len() > WAITING_MESSAGES_MAX {
        return Err(Refusal::TooManyWaitingMessages);
    }
    waiting::hold(builder, messages, Some(&steer));
    Ok(())
}
