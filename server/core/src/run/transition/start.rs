//! Inputs that begin a run: its start, and the end of its wait for the session.

use crate::id::EntryNo;
use crate::message::SharedMessage;
use crate::policy::PolicyRule;
use crate::run::event::Event;
use crate::run::input::Start;
use crate::run::refusal::Refusal;
use crate::run::state::Phase;
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::routine::{finish, waiting};

/// Starts the run. Its messages enter the session at once, unless the run is queued or extensions are called first.
pub(super) fn start(builder: &mut TransitionBuilder<'_>, start: Start) -> Result<(), Refusal> {
    let queued = start.queued;
    let messages = begin(builder, start)?;
    if queued || builder.state().spec().prepares() {
        waiting::hold(builder, messages, None);
    } else {
        waiting::add(builder, messages);
    }
    Ok(())
}

/// Adds a conversation that was held elsewhere, and ends the run: nobody is called.
pub(super) fn import(builder: &mut TransitionBuilder<'_>, start: Start) -> Result<(), Refusal> {
    for message in begin(builder, start)? {
        builder.emit(Event::Imported { entry: builder.state().last_entry().next(), message });
    }
    finish::complete(builder);
    Ok(())
}

/// The run exists. Returns its messages.
fn begin(builder: &mut TransitionBuilder<'_>, start: Start) -> Result<Vec<SharedMessage>, Refusal> {
    if *builder.state().phase() != Phase::New || *builder.state().run() != start.run {
        return Err(Refusal::WrongPhase(builder.state().status()));
    }
    builder.emit(Event::Started {
        session: start.session,
        last_entry: start.last_entry,
        spec: start.spec,
        seed: start.seed,
        queued: start.queued,
        traceparent: start.traceparent,
        unknown_tools: start.not_offered.unknown,
        withdrawn_tools: start.not_offered.withdrawn,
        caller_groups: start.caller_groups,
        hidden_seed: true,
    });
    Ok(start.messages)
}

/// The session is free: a queued run enters it, with its messages unless extensions are called first.
pub(super) fn enter(
    builder: &mut TransitionBuilder<'_>,
    last_entry: EntryNo,
    rules: Vec<PolicyRule>,
    withdrawn_tools: Vec<String>,
) -> Result<(), Refusal> {
    if *builder.state().phase() != Phase::Queued {
        return Err(Refusal::WrongPhase(builder.state().status()));
    }
    builder.emit(Event::SessionEntered { last_entry, rules, withdrawn_tools });
    if !builder.state().is_unprepared() {
        waiting::enter_all(builder);
    }
    Ok(())
}
