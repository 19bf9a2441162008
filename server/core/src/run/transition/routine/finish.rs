//! Ends a run. Everything open is closed first, so that the session can take the next run.

use std::sync::Arc;

use crate::message::{FinishReason, Message, Role, ToolStatus};
use crate::run::event::{Event, Observation, Outcome, Totals};
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

/// Name of the source of the note that the model reads after a response that was cut off.
const CUT_OFF_SOURCE: &str = "cut_off";

/// Keeps the response under way, withdraws every question, settles every open call, and lets waiting messages enter, so that
/// none is lost. Messages of a queued run stay out, and so do messages that hooks have not passed.
fn close(builder: &mut TransitionBuilder<'_>, why: &str) {
    keep_response(builder, why);
    question::withdraw_planned(builder);
    let open: Vec<_> = builder.state().open_calls().map(|call| call.slot).collect();
    for slot in open {
        question::withdraw(builder, slot);
        calls::settle_under_way(builder, slot, ToolStatus::Aborted, format!("not completed: {why}"));
    }
    if *builder.state().phase() != Phase::Queued && !builder.state().is_unprepared() {
        waiting::enter_all(builder);
    }
}

/// The text of the model call under way enters the session, with a note for the model that it was cut off.
fn keep_response(builder: &mut TransitionBuilder<'_>, why: &str) {
    let Phase::ModelRunning(call) = *builder.state().phase() else { return };
    let response = builder.response_so_far.take();
    let Some(response) =
        response.filter(|response| (response.model_call, response.attempt) == (call.number, call.attempt))
    else {
        return;
    };
    let Some(kept) = response.message.cut_off() else { return };
    builder.emit(Event::AssistantMessage {
        model_call: response.model_call,
        attempt: response.attempt,
        entry: builder.state().last_entry().next(),
        message: Arc::new(kept),
        finish: FinishReason::CutOff,
        usage: response.usage,
        first_token: response.first_token,
        duration: response.duration,
        tools: response.tools,
        decision: Observation::Stop,
        full: None,
    });
    let note = format!("[The answer above was cut off before its end: {why}]");
    builder.emit(Event::ContextAdded {
        source: CUT_OFF_SOURCE.to_owned(),
        entry: builder.state().last_entry().next(),
        message: Arc::new(Message::text(Role::User, note)),
    });
}
