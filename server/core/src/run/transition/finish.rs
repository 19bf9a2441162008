//! A run ends. Whatever is open is closed first, so that its session takes the next message.

use crate::error::Refusal;
use crate::message::ToolStatus;
use crate::run::event::{Event, Outcome, Totals};
use crate::run::input::AbortCause;
use crate::run::machine::Turn;
use crate::run::state::Phase;
use crate::run::status::{RunError, RunErrorCode};
use crate::run::transition::{human, model, queue, tool};

/// The model's last message is the answer, unless something was said since: then it is asked again.
pub(crate) fn complete(turn: &mut Turn<'_>) {
    if turn.state.held.is_empty() {
        finished(turn, Outcome::Completed, None);
    } else {
        model::next_call(turn);
    }
}

/// It went wrong, or reached a limit.
pub(crate) fn fail(turn: &mut Turn<'_>, error: RunError) {
    close(turn, &error.message);
    finished(turn, Outcome::Failed, Some(error));
}

/// Someone ended it.
pub(crate) fn abort(turn: &mut Turn<'_>, cause: AbortCause, reason: String) -> Result<(), Refusal> {
    if !turn.state.is_live() {
        return Err(Refusal::WrongPhase(turn.state.status()));
    }
    match cause {
        AbortCause::Caller => stop(turn, RunErrorCode::AbortedByCaller, reason),
        AbortCause::Disconnect => stop(turn, RunErrorCode::AbortedByDisconnect, reason),
        AbortCause::Fault => fail(turn, RunError::new(RunErrorCode::Internal, reason)),
    }
    Ok(())
}

/// Ends it as aborted, for this reason.
pub(crate) fn stop(turn: &mut Turn<'_>, code: RunErrorCode, reason: String) {
    close(turn, "the run was aborted");
    finished(turn, Outcome::Aborted, Some(RunError::new(code, reason)));
}

fn finished(turn: &mut Turn<'_>, outcome: Outcome, error: Option<RunError>) {
    let state = &*turn.state;
    let totals = Totals {
        usage: state.usage,
        iterations: state.iterations,
        tool_calls: state.tool_calls,
        duration: turn.now.since(state.started_at),
        last_entry: state.last_entry,
        model_time: state.model_time,
        tool_time: state.tool_time,
        final_entry: (outcome == Outcome::Completed && state.last_message_entry != state.last_entry)
            .then_some(state.last_message_entry),
    };
    turn.emit(Event::Finished { outcome, error, totals });
}

/// Withdraws every question, gives every open call its result, and lets in what is held, so that nothing said is lost.
/// What a queued run brought stays out: it has no part in the session.
fn close(turn: &mut Turn<'_>, why: &str) {
    human::withdraw_planned(turn);
    let open: Vec<_> = turn
        .state
        .round()
        .iter()
        .filter(|call| !call.is_settled())
        .map(|call| (call.slot, tool::doubt(call)))
        .collect();
    for (slot, doubt) in open {
        human::withdraw(turn, slot);
        let output = format!("not completed: {why}{doubt}");
        tool::settle(turn, slot, None, ToolStatus::Aborted, output, Vec::new());
    }
    if turn.state.phase != Phase::Queued && !turn.state.is_unprepared() {
        // What hooks have not let pass does not enter.
        queue::let_in(turn);
    }
}
