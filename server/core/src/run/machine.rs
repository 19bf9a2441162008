//! The machine: decides by [`Machine::handle`], changes by [`State::apply`], asks by effects.

use std::collections::BTreeMap;

use crate::error::Refusal;
use crate::id::{CallSlot, HostId, RequestId, RunId, RuntimeId};
use crate::question::InputAnswer;
use crate::run::effect::{Effect, Offer};
use crate::run::event::{Event, Record};
use crate::run::input::Input;
use crate::run::state::{Call, CallState, Phase, State};
use crate::run::status::RunStatus;
use crate::run::transition;
use crate::time::Timestamp;
use crate::tool::Runtime;

/// What a step decided: facts to make durable, then I/O to perform.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    /// To be appended, then published, before anything else.
    pub records: Vec<Record>,
    /// To be performed after that.
    pub effects: Vec<Effect>,
}

impl Step {
    /// Joins a step that was decided right after this one and is to be made durable with it.
    pub fn merge(&mut self, later: Self) {
        self.records.extend(later.records);
        self.effects.extend(later.effects);
    }

    /// Whether nothing outside rests on these events, so that they may wait a moment for company.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.effects.is_empty() && self.records.iter().all(|record| record.event.may_wait())
    }
}

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    state: State,
    /// What the driver has been asked for and still owes: the last value of [`Machine::wanted`].
    asked: BTreeMap<Key, Effect>,
    /// The latest time that an input came with.
    seen: Timestamp,
    /// When this owner took the run over; `None` if it began here.
    recovered_at: Option<Timestamp>,
    /// The step whose instruction a planner is asked for. It is not in the journal: whoever steps asks again after a
    /// restart.
    stepping: Option<Stepping>,
}

/// What tells one piece of I/O from another. Its order is the order of effects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Prepare,
    Model { number: u32, attempt: u32 },
    Compact { number: u32 },
    Call { slot: CallSlot, attempt: u32 },
    Seek { slot: CallSlot, attempt: u32 },
    Plan { decision: u32 },
}

impl Machine {
    /// A run that does not exist yet.
    #[must_use]
    pub fn new(run: RunId) -> Self {
        Self {
            state: State::new(run),
            asked: BTreeMap::new(),
            seen: Timestamp(0),
            recovered_at: None,
            stepping: None,
        }
    }

    /// A run as its journal says. To be followed by [`Input::Recovered`] before it goes on.
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

    /// What is known of the run.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Decides what an input leads to, and applies it.
    ///
    /// # Errors
    /// A [`Refusal`] when the input does not fit; then nothing has changed.
    pub fn handle(&mut self, input: Input, now: Timestamp) -> Result<Step, Refusal> {
        // A clock that is set back must not undo what was due already.
        let now = self.seen.max(now);
        let recovered = input == Input::Recovered;
        let recovered_at = if recovered { Some(now) } else { self.recovered_at };
        let runtime = self.state.runtime.clone();
        let was_live = self.state.is_live();
        let mut turn = Turn {
            state: &mut self.state,
            now,
            recovered_at,
            stepping: &mut self.stepping,
            records: Vec::new(),
            answers: Vec::new(),
        };
        match input {
            Input::Start(start) => transition::start::start(&mut turn, *start)?,
            Input::Prepared(prepared) => transition::prepare::prepared(&mut turn, *prepared)?,
            Input::ModelFinished(finished) => transition::model::finished(&mut turn, *finished)?,
            Input::ModelFailed { model_call, attempt, failure } => {
                transition::model::failed(&mut turn, model_call, attempt, failure)?;
            }
            Input::ContextTooLarge { model_call, attempt, reason, tokens } => {
                transition::compact::too_large(&mut turn, model_call, attempt, reason, tokens)?;
            }
            Input::Compacted(done) => transition::compact::compacted(&mut turn, *done)?,
            Input::CompactionFailed { number, error } => {
                transition::compact::failed(&mut turn, number, error)?;
            }
            Input::SlotGranted { slot, host } => transition::tool::granted(&mut turn, slot, host)?,
            Input::SlotDenied { slot, message } => transition::tool::denied(&mut turn, slot, message)?,
            Input::CallAccepted { slot, attempt, host } => {
                transition::tool::accepted(&mut turn, slot, attempt, host)?;
            }
            Input::CallCheckpoint { slot, attempt, checkpoint } => {
                transition::tool::checkpoint(&mut turn, slot, attempt, checkpoint)?;
            }
            Input::InputNeeded { slot, attempt, ask, timeout } => {
                transition::need_input::needed(&mut turn, slot, attempt, ask, timeout)?;
            }
            Input::CallFinished { slot, attempt, lease, host, outcome, applied } => {
                let answer = transition::tool::Answered { host, outcome, applied };
                transition::tool::finished(&mut turn, slot, attempt, &lease, answer)?;
            }
            Input::CallLost { slot, attempt, message, ran } => {
                transition::tool::lost(&mut turn, slot, attempt, message, ran)?;
            }
            Input::Decided { request, decision, digest, by, remember } => {
                let said = transition::human::Said { decision, by, remember: remember.as_deref() };
                transition::human::decided(&mut turn, &request, digest.as_ref(), said)?;
            }
            Input::Enter { last_entry, rules } => transition::queue::enter(&mut turn, last_entry, rules)?,
            Input::Steer { steer, messages } => transition::steer::steer(&mut turn, steer, messages)?,
            Input::Abort { cause, reason } => transition::finish::abort(&mut turn, cause, reason)?,
            Input::Resume { request, by } => transition::model::resume(&mut turn, request, by)?,
            Input::Planned { decision, result } => {
                transition::plan::planned(&mut turn, decision, result)?;
            }
            Input::Step { request, approve, by } => {
                transition::plan::step(&mut turn, request, approve.as_ref(), by)?;
            }
            Input::DeadlinePassed => transition::deadline::passed(&mut turn)?,
            Input::Recovered => transition::model::recovered(&mut turn)?,
        }
        let (records, answers) = (turn.records, turn.answers);
        self.seen = now;
        self.recovered_at = recovered_at;
        if recovered {
            self.asked.clear();
        }
        if recovered || self.state.situation().is_none() {
            self.stepping = None;
        }
        let mut effects = self.ask(now);
        if recovered {
            effects = effects.into_iter().map(reclaim).collect();
        }
        effects.extend(answers);
        effects.extend(runtime.filter(|_| was_live).and_then(|runtime| self.closed(runtime)));
        Ok(Step { records, effects })
    }

    /// The end of a runtime that nothing will use any more.
    fn closed(&self, (runtime, host): (RuntimeId, HostId)) -> Option<Effect> {
        let used = self.state.uses_runtime(&runtime, &host);
        (!used).then_some(Effect::CloseRuntime { host, runtime })
    }

    /// Whether a step waits for its instruction.
    #[must_use]
    pub fn is_stepping(&self) -> bool {
        self.stepping.is_some()
    }

    /// When [`Input::DeadlinePassed`] is due, if nothing else happens first.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        transition::deadline::next(&self.state, self.seen, self.recovered_at)
    }

    /// Everything that is owed: what a fresh driver has to see to.
    #[must_use]
    pub fn outstanding(&self, now: Timestamp) -> Vec<Effect> {
        self.wanted(now).into_values().map(reclaim).collect()
    }

    /// What changed in what is wanted: new wishes, and an end to old ones.
    fn ask(&mut self, now: Timestamp) -> Vec<Effect> {
        let wanted = self.wanted(now);
        let over =
            self.asked.keys().filter(|key| !wanted.contains_key(key) && !led_on(key, &wanted)).map(withdraw);
        let fresh = wanted.iter().filter(|(key, _)| !self.asked.contains_key(key));
        let effects = over.chain(fresh.map(|(_, effect)| effect.clone())).collect();
        self.asked = wanted;
        effects
    }

    /// The I/O that the state calls for at this time: a function of the state, so that a replay asks for the same.
    fn wanted(&self, now: Timestamp) -> BTreeMap<Key, Effect> {
        if let Some((key, effect)) = self.wanted_of_planner() {
            return BTreeMap::from([(key, effect)]);
        }
        match &self.state.phase {
            Phase::Preparing if self.state.is_unprepared() => {
                BTreeMap::from([(Key::Prepare, Effect::Prepare)])
            }
            Phase::ModelRunning(call) => {
                let key = Key::Model { number: call.number, attempt: call.attempt };
                let effect = Effect::CallModel {
                    model_call: call.number,
                    attempt: call.attempt,
                    last_entry: self.state.last_entry,
                    checked: self.state.squeezes == 0,
                };
                BTreeMap::from([(key, effect)])
            }
            Phase::Compacting(compaction) => {
                let effect = Effect::Compact {
                    number: compaction.number,
                    strategy: compaction.strategy.clone(),
                    reason: compaction.reason,
                    level: compaction.level,
                    last_entry: self.state.last_entry,
                };
                BTreeMap::from([(Key::Compact { number: compaction.number }, effect)])
            }
            Phase::Tools(calls) => self.wanted_by_round(calls, now),
            Phase::New
            | Phase::Queued
            | Phase::Preparing
            | Phase::BackingOff { .. }
            | Phase::Observed { .. }
            | Phase::Paused { .. }
            | Phase::Finished { .. } => BTreeMap::new(),
        }
    }

    /// A planner is asked where the run stands still; in a stepped one, when a step was called for.
    fn wanted_of_planner(&self) -> Option<(Key, Effect)> {
        let spec = &self.state.spec;
        if spec.planner.is_none() || (spec.stepped && self.stepping.is_none()) {
            return None;
        }
        let situation = self.state.situation()?;
        let decision = self.state.decisions + 1;
        Some((Key::Plan { decision }, Effect::Plan { decision, situation }))
    }

    fn wanted_by_round(&self, calls: &[Call], now: Timestamp) -> BTreeMap<Key, Effect> {
        let in_flight = calls.iter().filter(|call| call.in_flight());
        let ready = calls.iter().filter(|call| {
            matches!(call.state, CallState::Ready { not_before, .. } if not_before.is_none_or(|at| at <= now))
        });
        // Where each of several calls found a host of its own, the run would have several runtimes.
        let mut first = true;
        let ready = ready.filter(|call| !call.needs_runtime || std::mem::take(&mut first));
        let seeks = ready.take(self.state.room()).map(|call| {
            let key = Key::Seek { slot: call.slot, attempt: call.attempt + 1 };
            let runtime = self.state.runtime.as_ref().filter(|_| call.needs_runtime);
            let on = runtime.map(|(_, host)| host.clone());
            (key, Effect::SeekHost { slot: call.slot, tool: call.wanted.name.clone(), on })
        });
        in_flight
            .map(|call| {
                let key = Key::Call { slot: call.slot, attempt: call.attempt };
                (key, Effect::OfferCall(self.offer(call)))
            })
            .chain(seeks)
            .collect()
    }

    /// What calls that need a runtime run in.
    fn runtime(&self, id: RuntimeId) -> Runtime {
        let given = |json: &Option<String>| json.clone().unwrap_or_default();
        let spec = &self.state.spec;
        Runtime { id, init_data: given(&spec.runtime_init_data), hints: given(&spec.runtime_hints) }
    }

    fn offer(&self, call: &Call) -> Offer {
        Offer {
            slot: call.slot,
            attempt: call.attempt,
            host: call.host.clone().expect("a call in flight has a host"),
            lease: self.state.lease(call.slot, call.attempt),
            idempotency_key: self.state.idempotency_key(call.slot),
            tool: call.wanted.name.clone(),
            arguments: call.arguments.clone(),
            deadline: call.time_is_up().expect("a call in flight has a deadline"),
            checkpoint: call.checkpoint.clone(),
            runtime: call.runtime.clone().map(|id| self.runtime(id)),
        }
    }
}

/// After a restart nobody knows whether an offer reached its host.
fn reclaim(effect: Effect) -> Effect {
    match effect {
        Effect::OfferCall(offer) => Effect::ReclaimCall(offer),
        other => other,
    }
}

/// Whether a search ended with a host: its room goes to the offer, and is not to be given up.
fn led_on(key: &Key, wanted: &BTreeMap<Key, Effect>) -> bool {
    matches!(*key, Key::Seek { slot, attempt } if wanted.contains_key(&Key::Call { slot, attempt }))
}

fn withdraw(key: &Key) -> Effect {
    match *key {
        Key::Prepare => Effect::StopPreparing,
        Key::Model { number, attempt } => Effect::StopModel { model_call: number, attempt },
        Key::Compact { number } => Effect::StopCompacting { number },
        Key::Call { slot, attempt } => {
            Effect::CancelCall { slot, attempt, reason: "the call is settled or given up" }
        }
        Key::Seek { slot, .. } => Effect::StopSeeking { slot },
        Key::Plan { decision } => Effect::StopPlanning { decision },
    }
}

/// A call of `Step` whose instruction is being decided on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stepping {
    pub(crate) request: String,
    pub(crate) approve: Option<RequestId>,
}

/// One step in the making: the state as it is by now, and the events so far.
pub(crate) struct Turn<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) now: Timestamp,
    pub(crate) recovered_at: Option<Timestamp>,
    pub(crate) stepping: &'a mut Option<Stepping>,
    records: Vec<Record>,
    /// What running calls are to hear of their questions.
    answers: Vec<Effect>,
}

impl Turn<'_> {
    /// Has a host told what became of its call's question.
    pub(crate) fn answer(&mut self, slot: CallSlot, attempt: u32, input: String, answer: InputAnswer) {
        self.answers.push(Effect::AnswerInput { slot, attempt, input, answer });
    }

    /// Decides on an event: it is applied at once, so that what follows sees it.
    pub(crate) fn emit(&mut self, event: Event) {
        let mut record =
            Record { seq: self.state.seq.next(), at: self.now, status: RunStatus::Preparing, event };
        self.state.apply(&record);
        record.status = self.state.status().expect("a run with an event has a status");
        self.records.push(record);
    }
}
