//! The machine: [`Machine::handle`] decides, [`RunState::apply`] changes the state, effects request I/O.

use std::collections::BTreeMap;

use crate::id::{Attempt, CallSlot, RunId, RuntimeId};
use crate::message::ToolStatus;
use crate::run::effect::{CancelCause, Effect, Offer};
use crate::run::event::{AfterAttempt, Event, Outcome, Record};
use crate::run::input::{Input, ResponseSoFar};
use crate::run::refusal::Refusal;
use crate::run::state::{CallState, Phase, PlacedRuntime, RoundCall, RunState};
use crate::run::transition::builder::{DEADLINE_PASSED, PendingStep, TransitionBuilder};
use crate::run::transition::recovery::Recovery;
use crate::run::transition::{deadline, decide};
use crate::time::{Millis, Timestamp};
use crate::tool::Runtime;

/// The decision on one input: records to make durable, then effects to perform.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transition {
    /// To be appended, then shown to subscribers, before anything else.
    pub records: Vec<Record>,
    /// To be performed after that.
    pub effects: Vec<Effect>,
}

impl Transition {
    /// Appends a transition that was decided right after this one, so that one write makes both durable.
    pub fn merge(&mut self, later: Self) {
        self.records.extend(later.records);
        self.effects.extend(later.effects);
    }

    /// True if nothing outside depends on the records, so that they may wait and be written with later ones.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.effects.is_empty() && self.records.iter().all(|record| record.event.may_wait())
    }
}

/// The state machine of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    state: RunState,
    /// The effects that were requested and that the driver still owes: the last value of [`Machine::wanted`].
    requested: BTreeMap<EffectKey, Effect>,
    /// The latest time that an input came with.
    seen: Timestamp,
    /// Time by which the run's clock is ahead of the driver's: see [`Machine::own_time`].
    ahead: Millis,
    /// The moment at which this owner took the run over; `None` if the run began here.
    recovery: Option<Recovery>,
    /// The call of `Step` that waits for its planner. It is not in the journal: the caller repeats it after a restart.
    pending_step: Option<PendingStep>,
}

/// Identifies one piece of I/O. Effects are returned in the order of their keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum EffectKey {
    Prepare,
    Model { number: u32, attempt: Attempt },
    Compact { number: u32 },
    Call { slot: CallSlot, attempt: Attempt },
    Seek { slot: CallSlot, attempt: Attempt },
    Plan { decision: u32 },
}

impl Machine {
    /// A run that does not exist yet.
    #[must_use]
    pub fn new(run: RunId) -> Self {
        Self {
            state: RunState::new(run),
            requested: BTreeMap::new(),
            seen: Timestamp(0),
            ahead: Millis(0),
            recovery: None,
            pending_step: None,
        }
    }

    /// True if the run's own clock is ahead of the driver's, which was set back. A run that is loaded anew measures its waits
    /// anew, so a driver must keep such a run until its deadline has passed.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        !self.ahead.is_zero()
    }

    /// The driver's time on the run's own clock, and how far that is ahead then.
    ///
    /// The run's clock never goes back: if the driver's was set back, before a restart or since, the run's goes on from
    /// its last event. So the times of a journal never fall, and no wait is longer than it was when it began.
    fn own_time(&self, now: Timestamp) -> (Timestamp, Millis) {
        let (own, last) = (now.after(self.ahead), self.seen.max(self.state.updated_at()));
        (own.max(last), self.ahead.plus(last.since(own)))
    }

    /// A run folded from its journal. [`Input::Recovered`] must be its first input.
    ///
    /// # Panics
    /// When the records are not a journal that a machine wrote.
    #[must_use]
    pub fn replay<'a>(run: RunId, records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut machine = Self::new(run);
        for record in records {
            machine.state.apply(record);
        }
        machine
    }

    /// The state after all inputs so far.
    #[must_use]
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Decides what an input leads to, and applies it.
    ///
    /// # Errors
    /// A [`Refusal`] when the input does not fit the state; then nothing has changed.
    pub fn handle(&mut self, input: Input, now: Timestamp) -> Result<Transition, Refusal> {
        self.handle_during_response(input, now, None)
    }

    /// [`Machine::handle`] with the response of the model call under way, as far as it has come. If the input ends the run, the
    /// text of the response is kept. The driver need not give it: then the text is lost.
    ///
    /// # Errors
    /// As [`Machine::handle`].
    pub fn handle_during_response(
        &mut self,
        input: Input,
        now: Timestamp,
        response: Option<ResponseSoFar>,
    ) -> Result<Transition, Refusal> {
        let (now, ahead) = self.own_time(now);
        let recovered = input == Input::Recovered;
        let recovery =
            if recovered { Some(Recovery::new(now, self.state.seq())) } else { self.recovery.clone() };
        let runtime_before = self.state.runtime().filter(|_| self.state.is_live()).cloned();
        let mut builder =
            TransitionBuilder::new(&mut self.state, &mut self.pending_step, now, recovery, response);
        decide(&mut builder, input, self.seen)?;
        self.recovery = builder.recovery.take();
        let (records, host_messages) = builder.finish();
        (self.seen, self.ahead) = (now, ahead);
        let mut effects =
            if recovered { self.request_again(now, &records) } else { self.request_changes(now, &records) };
        effects.extend(host_messages);
        effects.extend(runtime_before.and_then(|runtime| self.close_unused(runtime)));
        Ok(Transition { records, effects })
    }

    /// The effect that closes a runtime which no tool of the run uses any more.
    fn close_unused(&self, PlacedRuntime { id, host }: PlacedRuntime) -> Option<Effect> {
        let used = self.state.uses_runtime(&id, &host);
        (!used).then_some(Effect::CloseRuntime { host, runtime: id })
    }

    /// True while a call of `Step` waits for its planner.
    #[must_use]
    pub fn has_pending_step(&self) -> bool {
        self.pending_step.is_some()
    }

    /// The time at which [`Input::DeadlinePassed`] is due, if no other input comes first.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        let due = deadline::next(&self.state, self.seen, self.recovery.as_ref())?;
        Some(due.before(self.ahead))
    }

    /// All effects that a driver owes at this time, as after a restart.
    #[must_use]
    pub fn outstanding(&self, now: Timestamp) -> Vec<Effect> {
        self.wanted(self.own_time(now).0).into_values().map(reclaim).collect()
    }

    /// A new owner owes every effect anew.
    fn request_again(&mut self, now: Timestamp, records: &[Record]) -> Vec<Effect> {
        self.requested.clear();
        self.pending_step = None;
        self.request_changes(now, records).into_iter().map(reclaim).collect()
    }

    /// Compares the effects that are wanted with those requested so far: stops the obsolete ones, then requests the new
    /// ones.
    fn request_changes(&mut self, now: Timestamp, records: &[Record]) -> Vec<Effect> {
        if self.state.situation().is_none() {
            self.pending_step = None;
        }
        let wanted = self.wanted(now);
        let obsolete = self.requested.keys().filter(|key| !wanted.contains_key(key));
        let stops = obsolete.filter(|key| !has_found_host(key, &wanted)).map(|key| stop(key, records));
        let new = wanted.iter().filter(|(key, _)| !self.requested.contains_key(key));
        let effects = stops.chain(new.map(|(_, effect)| effect.clone())).collect();
        self.requested = wanted;
        effects
    }

    /// The I/O that the state calls for at this time. It depends on nothing else, so a replay requests the same.
    fn wanted(&self, now: Timestamp) -> BTreeMap<EffectKey, Effect> {
        if let Some((key, effect)) = self.wanted_of_planner() {
            return BTreeMap::from([(key, effect)]);
        }
        match self.state.phase() {
            Phase::Preparing if self.state.is_unprepared() => {
                BTreeMap::from([(EffectKey::Prepare, Effect::Prepare)])
            }
            Phase::ModelRunning(call) => {
                let key = EffectKey::Model { number: call.number, attempt: call.attempt };
                let effect = Effect::CallModel {
                    model_call: call.number,
                    attempt: call.attempt,
                    last_entry: self.state.last_entry(),
                    checked: self.state.compactions_since_message() == 0,
                };
                BTreeMap::from([(key, effect)])
            }
            Phase::Compacting(compaction) => {
                let effect = Effect::Compact {
                    number: compaction.number,
                    strategy: compaction.strategy.clone(),
                    reason: compaction.reason,
                    level: compaction.level,
                    last_entry: self.state.last_entry(),
                };
                BTreeMap::from([(EffectKey::Compact { number: compaction.number }, effect)])
            }
            Phase::Tools(calls) => self.wanted_of_round(calls, now),
            Phase::New
            | Phase::Queued
            | Phase::Preparing
            | Phase::BackingOff { .. }
            | Phase::Observed { .. }
            | Phase::Paused { .. }
            | Phase::Finished { .. } => BTreeMap::new(),
        }
    }

    /// A planner is called when an instruction is due; in a stepped run, only after a call of `Step`.
    fn wanted_of_planner(&self) -> Option<(EffectKey, Effect)> {
        let spec = self.state.spec();
        if spec.planner.is_none() || (spec.stepped && self.pending_step.is_none()) {
            return None;
        }
        let situation = self.state.situation()?;
        let decision = self.state.decisions() + 1;
        Some((EffectKey::Plan { decision }, Effect::Plan { decision, situation }))
    }

    fn wanted_of_round(&self, calls: &[RoundCall], now: Timestamp) -> BTreeMap<EffectKey, Effect> {
        let in_flight = calls.iter().filter(|call| call.in_flight());
        let ready = calls.iter().filter(|call| {
            matches!(call.state, CallState::Ready { not_before, .. } if not_before.is_none_or(|at| at <= now))
        });
        // One such call at a time: if each found a host of its own, the run would have several runtimes.
        let mut first = true;
        let ready = ready.filter(|call| !call.terms.needs_runtime || std::mem::take(&mut first));
        let seeks = ready.take(self.state.free_parallel_calls()).map(|call| {
            let key = EffectKey::Seek { slot: call.slot, attempt: call.attempt.next() };
            let runtime = self.state.runtime().filter(|_| call.terms.needs_runtime);
            let on = runtime.map(|placed| placed.host.clone());
            (key, Effect::SeekHost { slot: call.slot, tool: call.requested.name.clone(), on })
        });
        in_flight
            .map(|call| {
                let key = EffectKey::Call { slot: call.slot, attempt: call.attempt };
                (key, Effect::OfferCall(self.offer(call, now)))
            })
            .chain(seeks)
            .collect()
    }

    fn offer(&self, call: &RoundCall, now: Timestamp) -> Offer {
        let deadline = call.timeout_at().expect("a call in flight has a deadline");
        Offer {
            slot: call.slot,
            attempt: call.attempt,
            host: call.last.host.clone().expect("a call in flight has a host"),
            instance: call.unbegun_at().cloned(),
            lease: self.state.lease(call.slot, call.attempt),
            idempotency_key: self.state.idempotency_key(call.slot),
            tool: call.requested.name.clone(),
            arguments: call.arguments.clone(),
            deadline: deadline.before(self.ahead),
            time_left: deadline.since(now),
            checkpoint: call.last.checkpoint.clone(),
            resume_state: call.resume.as_ref().map(|resume| resume.state.clone()),
            answers: self.state.answers_of_earlier_attempts(call),
            runtime: call.last.runtime.clone().map(|id| self.runtime(id)),
        }
    }

    fn runtime(&self, id: RuntimeId) -> Runtime {
        let given = |json: &Option<String>| json.clone().unwrap_or_default();
        let spec = self.state.spec();
        Runtime { id, init_data: given(&spec.runtime_init_data), hints: given(&spec.runtime_hints) }
    }
}

/// After a restart nobody knows whether an offer reached its host: the call is first reclaimed from the host.
fn reclaim(effect: Effect) -> Effect {
    match effect {
        Effect::OfferCall(offer) => Effect::ReclaimCall(offer),
        other => other,
    }
}

/// True for a search whose host is being offered the call: the host's room must not be given up.
fn has_found_host(key: &EffectKey, wanted: &BTreeMap<EffectKey, Effect>) -> bool {
    matches!(*key, EffectKey::Seek { slot, attempt } if wanted.contains_key(&EffectKey::Call { slot, attempt }))
}

/// The effect that stops an effect which was requested before.
fn stop(key: &EffectKey, records: &[Record]) -> Effect {
    match *key {
        EffectKey::Prepare => Effect::StopPreparing,
        EffectKey::Model { number, attempt } => Effect::StopModel { model_call: number, attempt },
        EffectKey::Compact { number } => Effect::StopCompacting { number },
        EffectKey::Call { slot, attempt } => {
            if is_suspended(slot, records) {
                return Effect::ReleaseCall { slot, attempt };
            }
            let (cause, reason) = cancel_cause(slot, records);
            Effect::CancelCall { slot, attempt, cause, reason }
        }
        EffectKey::Seek { slot, .. } => Effect::StopSeeking { slot },
        EffectKey::Plan { decision } => Effect::StopPlanning { decision },
    }
}

/// True if the call has asked in this transition, and left a state to go on from.
fn is_suspended(slot: CallSlot, records: &[Record]) -> bool {
    records.iter().any(|record| match &record.event {
        Event::HumanRequested { question, resume_state: Some(_) } => question.slot == Some(slot),
        _ => false,
    })
}

/// The reason why a host is not to go on with a call, from the events of the transition. A host whose call is in doubt
/// can only be there to hear it if the deadline was the reason.
fn cancel_cause(slot: CallSlot, records: &[Record]) -> (CancelCause, String) {
    let end = records.iter().find_map(|record| match &record.event {
        Event::Finished { outcome, error, .. } => Some((*outcome, error)),
        _ => None,
    });
    if let Some((outcome, error)) = end {
        let given = error.as_ref().map(|error| error.message.clone()).filter(|message| !message.is_empty());
        return match outcome {
            Outcome::Aborted => {
                (CancelCause::Aborted, given.unwrap_or_else(|| "the run was aborted".to_owned()))
            }
            Outcome::Completed | Outcome::Failed => {
                (CancelCause::RunEnded, given.unwrap_or_else(|| "the run ended".to_owned()))
            }
        };
    }
    let deadline = records.iter().any(|record| match &record.event {
        Event::CallSettled { message, .. } => message
            .tool_result()
            .is_some_and(|result| result.slot == slot && result.status == ToolStatus::TimedOut),
        Event::CallAttemptFailed { slot: of, then: AfterAttempt::InDoubt, .. } => *of == slot,
        _ => false,
    });
    if deadline {
        (CancelCause::Deadline, DEADLINE_PASSED.to_owned())
    } else {
        (CancelCause::Settled, "the call is settled or given up".to_owned())
    }
}
