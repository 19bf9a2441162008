//! Conversion of a run's events, durable and transient, to the contract's `RunEvent`: one call per kind of event.

mod call;
mod conversation;
mod model;
mod planning;
mod run;
mod transient;

use agentloop_core::id::{CallSlot, EntryNo, RunId, SessionId};
use agentloop_core::model::delta::Delta;
use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::view::{LoopPhase, ProcessState, loop_position};
use agentloop_proto::{EventFrame, v1 as wire};
use prost::Message as _;
use wire::run_event::Event as Wire;

use super::message::call_id;
use super::run::run_status;
use super::timestamp;
use crate::engine::feed::{FeedItem, LiveProgress};
use crate::grpc::convert::people::masked;
use crate::mask::Masks;

pub use call::effect_class;
use conversation::TokenChange;
pub use planning::PlanningEvents;

/// Converts the events of one run to the contract's.
#[derive(Debug, Clone)]
pub struct EventConverter {
    run: RunId,
    session: SessionId,
    masks: Masks,
}

impl EventConverter {
    /// A converter for the events of one run.
    #[must_use]
    pub fn new(run: RunId, session: SessionId) -> Self {
        Self { run, session, masks: Masks::default() }
    }

    /// Takes sensitive arguments out of what it converts.
    #[must_use]
    pub fn masking(self, masks: Masks) -> Self {
        Self { masks, ..self }
    }

    /// The frame to send. Each item is converted and encoded once, for all subscribers of the run.
    #[must_use]
    pub fn frame(&self, item: &FeedItem) -> EventFrame {
        EventFrame { event: item.encoded(|item| self.event(item).encode_to_vec().into()) }
    }

    /// Converts an item of the feed.
    #[must_use]
    pub fn event(&self, item: &FeedItem) -> wire::RunEvent {
        match item {
            FeedItem::Durable(record) => self.durable(record),
            FeedItem::Transient(transient) => self.masked(self.transient(transient)),
        }
    }

    /// Converts a durable event.
    #[must_use]
    pub fn durable(&self, record: &Record) -> wire::RunEvent {
        let (phase, process) = loop_position(&record.event, record.status);
        self.masked(wire::RunEvent {
            seq: record.seq.0,
            run_id: self.run.to_string(),
            session_id: self.session.to_string(),
            turn_id: turn_of(&record.event).map(|turn| self.turn_id(turn)).unwrap_or_default(),
            at: Some(timestamp(record.at)),
            status: run_status(record.status).into(),
            phase: loop_phase(phase).into(),
            process: process_state(process).into(),
            event: Some(self.to_wire(record)),
        })
    }

    fn masked(&self, mut event: wire::RunEvent) -> wire::RunEvent {
        masked::event(&self.masks, &mut event);
        event
    }

    fn turn_id(&self, turn: u32) -> String {
        format!("{}.{turn}", self.run)
    }

    fn call_id(&self, slot: CallSlot) -> String {
        call_id(&self.run, slot)
    }

    /// One call per kind of event.
    fn to_wire(&self, record: &Record) -> Wire {
        match &record.event {
            Event::Started { spec, queued, unknown_tools, withdrawn_tools, .. } => {
                run::started(spec, *queued, unknown_tools, withdrawn_tools)
            }
            Event::SessionEntered { last_entry, withdrawn_tools, .. } => {
                run::session_entered(*last_entry, withdrawn_tools)
            }
            Event::MessageAdded { entry, message } | Event::Imported { entry, message } => {
                self.input_message(*entry, message, None)
            }
            Event::MessageHeld { message, steer } => self.input_message(EntryNo(0), message, steer.as_ref()),
            Event::MessageEntered { entry, held } => conversation::input_entered(*entry, *held),
            Event::ContextAdded { source, entry, message } => self.context_added(source, *entry, message),
            Event::ExtensionApplied { slot, applied } => self.extension_applied(*slot, applied),
            Event::CompactionStarted { strategy, reason, tokens, .. } => {
                conversation::compaction_started(strategy, *reason, *tokens)
            }
            Event::CompactionFailed { strategy, error, .. } => {
                conversation::compaction_failed(strategy, error)
            }
            Event::Compacted { entry, compaction, usage, tokens_before, tokens_after } => {
                conversation::context_compacted(
                    *entry,
                    compaction,
                    *usage,
                    TokenChange { before: *tokens_before, after: *tokens_after },
                )
            }
            Event::ModelCallStarted { model_call, attempt, last_entry, .. } => {
                model::call_started(*model_call, *attempt, *last_entry)
            }
            Event::ModelCallFailed { model_call, attempt, error, retry_at } => {
                model::call_failed(*model_call, *attempt, error, *retry_at)
            }
            Event::AssistantMessage { .. } => self.assistant_message(&record.event),
            Event::Planned { instruction, planner, step, .. } => {
                run::planned(instruction, planner, step.as_deref())
            }
            Event::CallProposed { slot, tool, effect, needs_approval, title, .. } => {
                self.call_proposed(*slot, tool, *effect, *needs_approval, title)
            }
            Event::CallOffered { slot, tool, attempt, host, instance, effect, output_schema: _ } => {
                self.call_offered(*slot, tool, *attempt, host, instance.as_ref(), *effect)
            }
            Event::CallAccepted { slot, attempt, host } => self.call_accepted(*slot, *attempt, host),
            Event::CallCheckpoint { slot, attempt, checkpoint, .. } => {
                self.call_checkpoint(*slot, *attempt, checkpoint)
            }
            Event::CallAttemptFailed { slot, attempt, message, ran, then, .. } => {
                self.call_attempt_failed(*slot, *attempt, message, *ran, *then)
            }
            Event::CallSettled { entry, attempt, host, message, duration, .. } => {
                self.call_settled(*entry, *attempt, host.as_ref(), message, *duration)
            }
            Event::TodosUpdated { items, .. } => conversation::todos_updated(items),
            Event::HumanRequested { question, .. } => self.human_requested(question),
            Event::HumanApproved { .. } => self.human_approved(record),
            Event::HumanResolved { request, slot, answer } => self.human_resolved(request, *slot, answer),
            Event::Paused { error } => run::paused(error),
            Event::Resumed { by, .. } => run::resumed(by),
            Event::Finished { outcome, error, totals } => run::finished(*outcome, error.as_ref(), totals),
        }
    }
}

/// True if callers see the item. Deltas that only the message assembler needs are hidden.
#[must_use]
pub fn is_shown(item: &FeedItem) -> bool {
    match item {
        FeedItem::Durable(_) => true,
        FeedItem::Transient(transient) => !matches!(
            transient.what,
            LiveProgress::Delta {
                delta: Delta::Usage(_)
                    | Delta::Finish { .. }
                    | Delta::ReasoningEnd { .. }
                    | Delta::TextEnd { .. }
                    | Delta::ToolCallState { .. }
                    | Delta::Opaque(_),
                ..
            }
        ),
    }
}

/// True for the run's last event.
#[must_use]
pub fn is_last(item: &FeedItem) -> bool {
    match item {
        FeedItem::Durable(record) => matches!(record.event, Event::Finished { .. }),
        FeedItem::Transient(_) => false,
    }
}

fn turn_of(event: &Event) -> Option<u32> {
    match event {
        Event::ModelCallStarted { model_call, .. }
        | Event::ModelCallFailed { model_call, .. }
        | Event::AssistantMessage { model_call, .. } => Some(*model_call),
        Event::CallProposed { slot, .. }
        | Event::CallOffered { slot, .. }
        | Event::CallAccepted { slot, .. }
        | Event::CallCheckpoint { slot, .. }
        | Event::CallAttemptFailed { slot, .. }
        | Event::CallSettled { slot, .. }
        | Event::TodosUpdated { slot, .. } => Some(slot.model_call),
        Event::ExtensionApplied { slot, .. }
        | Event::HumanApproved { slot, .. }
        | Event::HumanResolved { slot, .. } => slot.map(|slot| slot.model_call),
        Event::HumanRequested { question, .. } => question.slot.map(|slot| slot.model_call),
        Event::Started { .. }
        | Event::MessageAdded { .. }
        | Event::Imported { .. }
        | Event::SessionEntered { .. }
        | Event::MessageHeld { .. }
        | Event::MessageEntered { .. }
        | Event::ContextAdded { .. }
        | Event::CompactionStarted { .. }
        | Event::CompactionFailed { .. }
        | Event::Compacted { .. }
        | Event::Planned { .. }
        | Event::Paused { .. }
        | Event::Resumed { .. }
        | Event::Finished { .. } => None,
    }
}

fn loop_phase(phase: LoopPhase) -> wire::LoopPhase {
    match phase {
        LoopPhase::Init => wire::LoopPhase::Init,
        LoopPhase::Planning => wire::LoopPhase::Planning,
        LoopPhase::Executing => wire::LoopPhase::Executing,
        LoopPhase::Observing => wire::LoopPhase::Observing,
        LoopPhase::Compacting => wire::LoopPhase::Compacting,
        LoopPhase::Completed => wire::LoopPhase::Completed,
        LoopPhase::Failed => wire::LoopPhase::Failed,
    }
}

fn process_state(state: ProcessState) -> wire::ProcessState {
    match state {
        ProcessState::Idle => wire::ProcessState::Idle,
        ProcessState::Calling => wire::ProcessState::Calling,
        ProcessState::Streaming => wire::ProcessState::Streaming,
        ProcessState::ToolExecuting => wire::ProcessState::ToolExecuting,
        ProcessState::Retrying => wire::ProcessState::Retrying,
        ProcessState::Success => wire::ProcessState::Success,
        ProcessState::Error => wire::ProcessState::Error,
    }
}

#[cfg(test)]
mod tests;
