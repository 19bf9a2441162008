//! The fold: how each event changes the state. Nothing else changes it.

mod calls;
mod compaction;
mod human;
mod lifecycle;
mod messages;
mod model;
mod planning;

use crate::run::event::{Event, Record};
use crate::run::state::{RunState, SettlingResult};
use crate::time::Timestamp;

use calls::{OfferTarget, Proposed};
use lifecycle::StartedFields;
use model::Spent;

impl RunState {
    /// Applies the next event.
    ///
    /// # Panics
    /// When the event is not the next one or does not fit the state. Then no machine wrote the journal, or there is a
    /// bug. The caller treats that as a fault of this run alone.
    pub fn apply(&mut self, record: &Record) {
        assert_eq!(record.seq, self.position.seq.next(), "events are dense");
        self.position.seq = record.seq;
        self.times.updated = record.at;
        if let Some((entry, _)) = record.event.entry() {
            assert_eq!(entry, self.position.entry.next(), "entries are dense");
            self.position.entry = entry;
        }
        self.begin_instruction(&record.event);
        self.apply_event(&record.event);
    }

    /// One call per kind of event.
    fn apply_event(&mut self, event: &Event) {
        match event {
            Event::Started {
                session,
                last_entry,
                spec,
                seed,
                queued,
                traceparent,
                caller_groups,
                hidden_seed,
                ..
            } => self.started(StartedFields {
                session,
                last_entry: *last_entry,
                spec,
                seed: *seed,
                traceparent: *traceparent,
                caller_groups,
                hidden_seed: *hidden_seed,
                queued: *queued,
            }),
            Event::SessionEntered { last_entry, rules, .. } => self.session_entered(*last_entry, rules),
            Event::MessageAdded { .. } => self.message_added(),
            Event::Imported { entry, message } => self.imported(*entry, message),
            Event::ContextAdded { .. } => {}
            Event::ExtensionApplied { applied, .. } => self.extension_applied(applied),
            Event::MessageHeld { message, steer } => self.message_held(message, steer.as_ref()),
            Event::MessageEntered { held, .. } => self.message_entered(*held),
            Event::CompactionStarted { number, strategy, reason, level, .. } => {
                self.compaction_started(*number, strategy, *reason, *level);
            }
            Event::CompactionFailed { error, usage, .. } => self.compaction_failed(error, *usage),
            Event::Compacted { usage, .. } => self.compacted(*usage),
            Event::ModelCallStarted { model_call, attempt, first_counted, .. } => {
                self.model_call_started(*model_call, *attempt, *first_counted);
            }
            Event::ModelCallFailed { error, retry_at, .. } => self.model_call_failed(error, *retry_at),
            Event::AssistantMessage { entry, message, finish, usage, duration, full, .. } => {
                self.assistant_message(
                    *entry,
                    message,
                    finish,
                    Spent { usage: *usage, time: *duration },
                    *full,
                );
            }
            Event::Planned { instruction, step, approved, named, .. } => {
                self.planned(instruction, step.as_deref(), approved.as_ref(), named.as_ref());
            }
            Event::CallProposed {
                slot,
                effect,
                timeout,
                needs_approval,
                asks_human,
                arguments,
                needs_runtime,
                title,
                deadline_is_outcome,
                terms,
                ..
            } => self.call_proposed(
                *slot,
                Proposed {
                    effect: *effect,
                    timeout: *timeout,
                    needs_approval: *needs_approval,
                    asks_human: *asks_human,
                    deadline_is_outcome: *deadline_is_outcome,
                    arguments: arguments.as_ref(),
                    needs_runtime: *needs_runtime,
                    title,
                    terms: terms.as_ref(),
                },
            ),
            Event::CallOffered { slot, attempt, host, instance, effect, output_schema, .. } => {
                self.call_offered(
                    *slot,
                    *attempt,
                    OfferTarget { host, instance: instance.as_ref(), output_schema: output_schema.as_ref() },
                    *effect,
                );
            }
            Event::CallAccepted { slot, .. } => self.call_accepted(*slot),
            Event::CallCheckpoint { slot, checkpoint, resume_no, .. } => {
                self.call_checkpoint(*slot, checkpoint, *resume_no)
            }
            Event::CallAttemptFailed { slot, attempt, ran, message, then, busy, .. } => {
                self.call_attempt_failed(*slot, *attempt, *ran, message, *then, *busy);
            }
            Event::CallSettled { slot, attempt, host, outcome, message, duration, .. } => {
                self.call_settled(
                    *slot,
                    *attempt,
                    SettlingResult::of(host.as_ref(), *attempt, outcome.as_ref()),
                    message,
                    *duration,
                );
            }
            // The session has the list; the run decides nothing by it.
            Event::TodosUpdated { .. } => {}
            Event::HumanRequested { question, resume_state } => {
                self.human_requested(question, resume_state.as_deref())
            }
            Event::HumanApproved { request, by, .. } => self.human_approved(request, by),
            Event::HumanResolved { request, slot, answer } => self.human_resolved(request, *slot, answer),
            Event::Paused { error } => self.paused(error),
            Event::Resumed { request, .. } => self.resumed(request),
            Event::Finished { outcome, error, .. } => self.finished(*outcome, error.as_ref()),
        }
    }

    /// The time of the event that is being applied.
    fn now(&self) -> Timestamp {
        self.times.updated
    }
}
