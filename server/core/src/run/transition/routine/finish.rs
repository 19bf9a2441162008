//! Ends a run. Everything open is closed first, so that the session can take the next run.

use crate::message::ToolStatus;
use crate::run::event::{Event, Outcome, Totals};
use crate::run::state::Phase;
use crate::run::status::{RunError, RunErrorCode};
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::routine::{calls, question, waiting};

/// The model's last message is the result of the run. Nothing may be open, and no message may wait.
pub(in crate::run::transition) fn complete(builder: &mut TransitionBuilder<'_>) {
    finish(builder, Outcome::Completed, None);
}

/// The run fails, by an error or by a limit.
pub(in crate::run::transition) fn fail(builder: &mut TransitionBuilder<'_>, error: RunError) {
    close(builder, &error.message);
    finish(builder, Outcome::Failed, Some(error));
}

/// Someone ends the run.
pub(in crate::run::transition) fn stop(
    builder: &mut TransitionBuilder<'_>,
    code: RunErrorCode,
    reason: String,
) {
    close(builder, "the run was aborted");
    finish(builder, Outcome::Aborted, Some(RunError::new(code, reason)));
}

fn finish(builder: &mut TransitionBuilder<'_>, outcome: Outcome, error: Option<RunError>) {
    let state = builder.state();
    let final_entry = state.last_message_entry();
    let totals = Totals {
        usage: state.usage(),
        iterations: state.iterations(),
        tool_calls: state.tool_calls(),
        duration: builder.now.since(state.started_at()),
        last_entry: state.last_entry(),
        model_time: state.model_time(),
        tool_time: state.tool_time(),
        final_entry: (outcome == Outcome::Completed && final_entry != state.last_entry())
            .then_some(final_entry),
    };
    builder.emit(Event::Finished { outcome, error, totals });
}

/// Withdraws every question, settles every open call, and lets waiting messages enter, so that none is lost. Messages
/// of a queued run stay out, and so do messages that hooks have not passed.
fn close(builder: &mut TransitionBuilder<'_>, why: &str) {
    question::withdraw_planned(builder);
    let open: Vec<_> = builder.state().open_calls().map(|call| (call.slot, calls::doubt(call))).collect();
    for (slot, doubt) in open {
        question::withdraw(builder, slot);
        let output = format!("not completed: {why}{doubt}");
        calls::settle(builder, slot, ToolStatus::Aborted, output);
    }
    if *builder.state().phase() != Phase::Queued && !builder.state().is_unprepared() {
        waiting::enter_all(builder);
    }
}
