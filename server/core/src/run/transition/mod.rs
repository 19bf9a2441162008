//! Decides what each input leads to: one file per kind of input, on top of the routines that several inputs share.

pub(super) mod builder;
mod compaction;
mod control;
pub(super) mod deadline;
mod decided;
mod directed;
mod host;
mod messages;
mod model;
mod need_input;
mod prepared;
pub(super) mod recovery;
mod routine;
mod start;

use crate::run::input::Input;
use crate::run::refusal::Refusal;
use crate::time::Timestamp;

use builder::TransitionBuilder;
use decided::Submission;

/// Decides on the events that an input leads to. A refused input has added none.
///
/// `seen` is the latest time that the machine was told before.
pub(super) fn decide(
    builder: &mut TransitionBuilder<'_>,
    input: Input,
    seen: Timestamp,
) -> Result<(), Refusal> {
    dispatch(builder, input)?;
    routine::plan::plan(builder);
    deadline::cancel_overdue(builder, seen);
    Ok(())
}

/// One call per kind of input.
fn dispatch(builder: &mut TransitionBuilder<'_>, input: Input) -> Result<(), Refusal> {
    match input {
        Input::Start(start) => start::start(builder, *start),
        Input::Import(start) => start::import(builder, *start),
        Input::Enter { last_entry, rules, withdrawn_tools } => {
            start::enter(builder, last_entry, rules, withdrawn_tools)
        }
        Input::Prepared(prepared) => prepared::prepared(builder, *prepared),
        Input::ModelFinished(finished) => model::finished(builder, *finished),
        Input::ModelFailed { model_call, attempt, failure } => {
            model::failed(builder, model_call, attempt, failure)
        }
        Input::ContextTooLarge { model_call, attempt, reason, tokens } => {
            compaction::too_large(builder, model_call, attempt, reason, tokens)
        }
        Input::Compacted(done) => compaction::compacted(builder, *done),
        Input::CompactionFailed { number, error } => compaction::failed(builder, number, error),
        Input::HostGranted { slot, host, instance, terms } => {
            host::granted(builder, slot, host, instance, terms.as_deref())
        }
        Input::HostDenied { slot, message } => host::denied(builder, slot, message),
        Input::CallAccepted { slot, attempt, host } => host::accepted(builder, slot, attempt, host),
        Input::CallCheckpoint { slot, attempt, checkpoint } => {
            host::checkpoint(builder, slot, attempt, checkpoint)
        }
        Input::CallResumable { slot, attempt, resume_no, state } => {
            host::resumable(builder, slot, attempt, resume_no, state)
        }
        Input::InputNeeded { slot, attempt, question, timeout, resume_state } => {
            need_input::needed(builder, slot, attempt, question, timeout, resume_state)
        }
        Input::CallFinished(finished) => host::finished(builder, *finished),
        Input::CallLost { slot, attempt, message, ran, busy } => {
            host::lost(builder, slot, attempt, host::Loss { message, ran, busy })
        }
        Input::CallStopped { slot, attempt, lease, begun } => {
            host::stopped(builder, slot, attempt, &lease, begun)
        }
        Input::Decided { request, decision, digest, by, remember } => decided::decided(
            builder,
            &request,
            Submission { decision, digest: digest.as_ref(), by, remember: remember.as_deref() },
        ),
        Input::Steer { steer, messages } => messages::steer(builder, steer, messages),
        Input::Abort { cause, reason } => control::abort(builder, cause, reason),
        Input::Resume { request, by } => control::resume(builder, request, by),
        Input::Planned { decision, result } => directed::planned(builder, decision, result),
        Input::Step { request, approve, by } => directed::step(builder, request, approve.as_ref(), by),
        Input::DeadlinePassed => deadline::passed(builder),
        Input::Recovered => model::recovered(builder),
    }
}
