//! Rules that hold after every step of every run. They are apart from the machine, so that they cannot share its mistakes.

use std::collections::{BTreeMap, BTreeSet};

use agentloop_core::context::build::messages;
use agentloop_core::context::view::view;
use agentloop_core::entry::Entry;
use agentloop_core::id::{Attempt, CallSlot, EntryNo, RunId, RuntimeId, Seq};
use agentloop_core::limits::TOOL_ATTEMPTS_MAX;
use agentloop_core::message::SharedMessage;
use agentloop_core::policy::{PolicyAction, PolicyCall};
use agentloop_core::run::effect::{CancelCause, Effect, Offer};
use agentloop_core::run::event::{EntryContent, Event, Ran, Record};
use agentloop_core::run::human::{Decision, Question, QuestionKind};
use agentloop_core::run::input::Input;
use agentloop_core::run::machine::{Machine, Transition};
use agentloop_core::run::state::{Approval, CallState, Phase, RoundCall, RunState};
use agentloop_core::run::status::RunStatus;
use agentloop_core::run::view::WaitKind;
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::EffectClass;

/// The driver's own books.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    /// The fold of every record so far, made beside the machine.
    shadow: RunState,
    /// The I/O that the driver was asked for, and neither answered nor was told to stop.
    owed: BTreeMap<Owed, Effect>,
    /// The messages that wait to enter it.
    held: BTreeMap<Seq, Entry>,
    /// The entries of the session.
    history: Vec<Entry>,
    /// Runtimes that were closed.
    closed: BTreeSet<RuntimeId>,
    /// Calls that have their result.
    settled: BTreeSet<CallSlot>,
    /// Tries of each call that may have run, and that no human let run again.
    doubts: BTreeMap<CallSlot, BTreeSet<Attempt>>,
    /// Calls that may go on from a state whatever came after it.
    resumable: BTreeSet<CallSlot>,
    /// Human leaves to run a call again, and attempts that are no tries.
    reruns: BTreeMap<CallSlot, u32>,
    /// Calls that a human let run, each by itself.
    named: BTreeSet<CallSlot>,
    /// The key of each call, which never changes.
    keys: BTreeMap<CallSlot, String>,
    /// Every lease given out, which is never given twice.
    leases: BTreeMap<String, (CallSlot, Attempt)>,
    /// The latest time of the run, which does not go back.
    seen: Timestamp,
    /// The distance from the driver's clock.
    ahead: Millis,
}

/// The key by which one piece of owed I/O is told from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owed {
    Prepare,
    Model(u32, Attempt),
    Compact(u32),
    Call(CallSlot, Attempt),
    Seek(CallSlot),
    Plan(u32),
}

impl Watch {
    pub(crate) fn new(run: RunId) -> Self {
        Self {
            shadow: RunState::new(run),
            owed: BTreeMap::new(),
            held: BTreeMap::new(),
            history: Vec::new(),
            closed: BTreeSet::new(),
            settled: BTreeSet::new(),
            doubts: BTreeMap::new(),
            resumable: BTreeSet::new(),
            reruns: BTreeMap::new(),
            named: BTreeSet::new(),
            keys: BTreeMap::new(),
            leases: BTreeMap::new(),
            seen: Timestamp(0),
            ahead: Millis(0),
        }
    }

    /// The I/O that the driver has still to answer, in order.
    pub(crate) fn owed(&self) -> Vec<Owed> {
        self.owed.keys().copied().collect()
    }

    /// The parts that two paths to the same state may differ in.
    pub(crate) fn fingerprint(&self) -> String {
        format!("{:?} {:?} {:?}", self.doubts, self.reruns, self.resumable)
    }

    /// Takes in an accepted step.
    #[track_caller]
    pub(crate) fn accepted(
        &mut self,
        machine: &Machine,
        input: &Input,
        transition: &Transition,
        now: Timestamp,
    ) {
        if *input == Input::Recovered {
            // A new owner knows what the journal says.
            (self.seen, self.ahead) = (self.shadow.updated_at(), Millis(0));
        }
        let own = now.after(self.ahead);
        self.ahead = self.ahead.plus(self.seen.since(own));
        self.seen = self.seen.max(own);
        for record in &transition.records {
            assert_eq!(record.at, self.seen, "time does not go back");
            self.record(record);
        }
        assert_eq!(&self.shadow, machine.state(), "the state is the fold of the journal");
        self.effects(input, transition);
        self.books_agree(machine, now);
        stands_well(machine.state());
        self.goes_on(machine);
        if *input == Input::DeadlinePassed {
            assert!(
                machine.deadline().is_none_or(|due| due > now),
                "a deadline that passed does not come back"
            );
        }
        if let Phase::Finished { .. } = machine.state().phase() {
            self.over(machine);
        }
    }

    #[track_caller]
    fn record(&mut self, record: &Record) {
        assert_eq!(record.seq, self.shadow.seq().next(), "dense from 1");
        self.shadow.apply(record);
        assert_eq!(Some(record.status), self.shadow.status(), "a record says where the run stands after it");
        let content = record.event.content();
        match record.event.entry() {
            Some((entry, added)) => {
                let entered = match added {
                    EntryContent::Own => content,
                    EntryContent::Held(held) => self.held.remove(&held),
                };
                self.history.push(entered.expect("an entry has a content"));
                assert_eq!(entry, EntryNo(self.history.len() as u64), "entries are dense");
            }
            None => self.held.extend(content.map(|content| (record.seq, content))),
        }
        if let Event::MessageAdded { .. } = record.event {
            // It may stand in the place of what the run brought.
            let shadow = &self.shadow;
            self.held.retain(|seq, _| shadow.waiting_messages().any(|(waiting, _)| waiting == *seq));
        }
        if let Event::ModelCallStarted { .. } = record.event {
            assert!(self.held.is_empty(), "the model reads all that was said");
        }
        self.once_only(&record.event);
        self.by_the_rules(&record.event);
    }

    /// No call begins that the rules deny by then, unless a human let that very call run.
    #[track_caller]
    fn by_the_rules(&mut self, event: &Event) {
        match event {
            Event::HumanResolved { slot: Some(slot), answer, .. } if answer.followed.is_none() => {
                if matches!(answer.decision, Decision::Approve | Decision::ApproveWithEdits { .. }) {
                    self.named.insert(*slot);
                }
            }
            Event::CallOffered { slot, tool, attempt: Attempt(1), .. } if !self.named.contains(slot) => {
                let call = self.shadow.call(*slot).expect("it is of this round");
                let rule = self.shadow.rule_for(&PolicyCall::new(tool, &call.arguments));
                assert!(rule.is_none_or(|rule| rule.action != PolicyAction::Deny), "{slot} is denied");
            }
            _ => {}
        }
    }

    /// One result per call; a call that must not run twice is offered again only with leave.
    #[track_caller]
    fn once_only(&mut self, event: &Event) {
        match event {
            Event::CallOffered { slot, attempt, effect, .. } => {
                let doubts = self.doubts.entry(*slot).or_default();
                if *effect == Some(EffectClass::Unsafe) {
                    assert_eq!(*doubts, BTreeSet::new(), "{slot} may have run, and is offered again");
                }
                doubts.insert(*attempt);
                let bound = TOOL_ATTEMPTS_MAX + self.reruns.get(slot).copied().unwrap_or(0);
                assert!(*attempt <= Attempt(bound), "{slot} is tried {attempt} times");
            }
            Event::CallAttemptFailed { slot, attempt, ran: Ran::No, busy, .. } => {
                *self.reruns.entry(*slot).or_default() += u32::from(*busy);
                self.doubts.entry(*slot).or_default().remove(attempt);
            }
            Event::CallCheckpoint { slot, resume_no: 1.., .. } => {
                self.resumable.insert(*slot);
            }
            Event::CallAttemptFailed { slot, attempt, .. } if self.resumable.contains(slot) => {
                self.doubts.entry(*slot).or_default().remove(attempt);
            }
            Event::HumanRequested { question: Question { slot: Some(slot), .. }, resume_state: Some(_) } => {
                let attempt = self.shadow.call(*slot).expect("it is of this round").attempt;
                self.doubts.entry(*slot).or_default().remove(&attempt);
                self.resumable.remove(slot);
            }
            Event::HumanResolved { request, slot: Some(slot), answer }
                if answer.decision.is_input()
                    && self.shadow.questions()[request].question.input().is_some() =>
            {
                *self.reruns.entry(*slot).or_default() += 1;
            }
            Event::HumanResolved { request, slot, answer } => {
                let kind = self.shadow.questions()[request].question.kind;
                let may = matches!(answer.decision, Decision::Approve | Decision::ApproveWithEdits { .. });
                if let Some(slot) = slot.filter(|_| may && kind == QuestionKind::InDoubt) {
                    self.doubts.remove(&slot);
                    *self.reruns.entry(slot).or_default() += 1;
                }
            }
            Event::CallSettled { slot, .. } => {
                assert!(self.settled.insert(*slot), "{slot} has a second result");
            }
            _ => {}
        }
    }

    /// Nothing is asked twice while it is owed; nothing is stopped that is not; a granted room is not given up.
    #[track_caller]
    fn effects(&mut self, input: &Input, Transition { records, effects }: &Transition) {
        if *input == Input::Recovered {
            self.owed.clear();
        }
        let answered = answered(input);
        if let Some(key) = answered {
            self.owed.remove(&key);
        }
        for effect in effects {
            let stops = |key: Owed, owed: &mut BTreeMap<Owed, Effect>| {
                assert!(
                    owed.remove(&key).is_some() || answered == Some(key),
                    "stops what is not owed: {effect:?}"
                );
            };
            match effect {
                Effect::StopModel { model_call, attempt } => {
                    stops(Owed::Model(*model_call, *attempt), &mut self.owed);
                }
                Effect::StopCompacting { number } => stops(Owed::Compact(*number), &mut self.owed),
                Effect::Compact { number, .. } => self.owe(Owed::Compact(*number), effect),
                // The call is owed until its host had time to say whether it began.
                Effect::CancelCall { slot, attempt, cause: CancelCause::Deadline, .. }
                    if self.shadow.call(*slot).is_some_and(|call| call.in_flight()) =>
                {
                    assert!(self.owed.contains_key(&Owed::Call(*slot, *attempt)), "nobody hears {effect:?}");
                }
                Effect::CancelCall { slot, attempt, .. } => {
                    stops(Owed::Call(*slot, *attempt), &mut self.owed)
                }
                Effect::ReleaseCall { slot, attempt } => {
                    let suspended = matches!(
                        self.shadow.call(*slot).map(|call| &call.state),
                        Some(CallState::Suspended { .. })
                    );
                    assert!(suspended, "only a call that waits for a person is released: {effect:?}");
                    stops(Owed::Call(*slot, *attempt), &mut self.owed);
                }
                Effect::AckResumeState { slot, attempt, .. } => {
                    assert!(self.owed.contains_key(&Owed::Call(*slot, *attempt)), "nobody hears {effect:?}");
                }
                Effect::StopSeeking { slot } => {
                    let granted = matches!(input, Input::HostGranted { slot: of, .. } if of == slot);
                    let asks = records.iter().any(|record| record.event.kind() == "human_requested");
                    assert!(!granted || asks, "the room of {slot} is needed");
                    stops(Owed::Seek(*slot), &mut self.owed);
                }
                Effect::CallModel { model_call, attempt, .. } => {
                    self.owe(Owed::Model(*model_call, *attempt), effect);
                }
                Effect::StopPreparing => stops(Owed::Prepare, &mut self.owed),
                Effect::Prepare => self.owe(Owed::Prepare, effect),
                Effect::StopPlanning { decision } => stops(Owed::Plan(*decision), &mut self.owed),
                Effect::Plan { decision, .. } => self.owe(Owed::Plan(*decision), effect),
                Effect::SeekHost { slot, .. } => self.owe(Owed::Seek(*slot), effect),
                Effect::AnswerInput { slot, attempt, .. } => {
                    let doubted = |call: &RoundCall| call.attempt == *attempt && call.is_in_doubt();
                    let is_in_doubt = self.shadow.call(*slot).is_some_and(doubted);
                    let is_owed = self.owed.contains_key(&Owed::Call(*slot, *attempt));
                    assert!(is_owed || is_in_doubt, "nobody hears {effect:?}");
                }
                Effect::CloseRuntime { host, runtime } => {
                    assert!(!self.shadow.uses_runtime(runtime, host), "{runtime} is in use");
                    assert!(self.closed.insert(runtime.clone()), "{runtime} is closed once");
                }
                Effect::OfferCall(offer) => {
                    assert_ne!(*input, Input::Recovered, "a restart offers nothing: {effect:?}");
                    assert_eq!(self.leases.get(offer.lease.as_str()), None, "a lease is given once");
                    self.offered(offer, effect);
                }
                Effect::ReclaimCall(offer) => {
                    assert_eq!(*input, Input::Recovered, "only a restart reclaims: {effect:?}");
                    assert!(
                        self.leases.contains_key(offer.lease.as_str()),
                        "only what was offered is reclaimed"
                    );
                    self.offered(offer, effect);
                }
            }
        }
    }

    #[track_caller]
    fn offered(&mut self, offer: &Offer, effect: &Effect) {
        let key = self.keys.entry(offer.slot).or_insert_with(|| offer.idempotency_key.clone());
        assert_eq!(*key, offer.idempotency_key, "the idempotency key never changes");
        let same = (offer.slot, offer.attempt);
        let first = *self.leases.entry(offer.lease.as_str().to_owned()).or_insert(same);
        assert_eq!(first, same, "a lease names one try");
        self.owe(Owed::Call(offer.slot, offer.attempt), effect);
    }

    #[track_caller]
    fn owe(&mut self, key: Owed, effect: &Effect) {
        assert!(self.owed.insert(key, effect.clone()).is_none(), "asked twice: {effect:?}");
    }

    /// A machine without a past would ask for the same I/O that this one is owed.
    #[track_caller]
    fn books_agree(&self, machine: &Machine, now: Timestamp) {
        let outstanding = machine.outstanding(now);
        let fresh: Vec<Owed> = outstanding.iter().map(key_of).collect();
        assert_eq!(fresh, self.owed(), "outstanding is what is owed");
        for effect in &outstanding {
            let (Effect::ReclaimCall(fresh), Some(Effect::OfferCall(owed) | Effect::ReclaimCall(owed))) =
                (effect, self.owed.get(&key_of(effect)))
            else {
                assert!(!matches!(effect, Effect::OfferCall(_)), "after a restart nothing is offered anew");
                assert_eq!(Some(effect), self.owed.get(&key_of(effect)));
                continue;
            };
            // A checkpoint or a state may have come since, its time started anew, and the host begun; everything else
            // stands.
            let (checkpoint, resume_state) = (owed.checkpoint.clone(), owed.resume_state.clone());
            let (deadline, time_left) = (owed.deadline, owed.time_left);
            let instance = owed.instance.clone();
            assert!(
                fresh.instance.is_none() || fresh.instance == instance,
                "an offer stays with its process"
            );
            let set_back = self.ahead > Millis(0);
            assert!(set_back || fresh.deadline >= deadline, "a deadline does not go back");
            let then = Offer { checkpoint, resume_state, deadline, time_left, instance, ..fresh.clone() };
            assert_eq!(then, *owed);
        }
    }

    /// A live run waits for something that can come.
    #[track_caller]
    fn goes_on(&self, machine: &Machine) {
        let state = machine.state();
        if !state.is_live() {
            return;
        }
        let waits = !self.owed.is_empty()
            || state.awaits_step()
            || machine.deadline().is_some()
            || state.open_questions().next().is_some()
            || matches!(state.phase(), Phase::Paused { .. } | Phase::Queued);
        assert!(waits, "nothing will ever move it: {:?}", state.phase());
    }

    /// A run that is over leaves nothing open, and a history that its session can go on with.
    #[track_caller]
    fn over(&self, machine: &Machine) {
        assert!(self.owed.is_empty(), "nothing is owed at the end: {:?}", self.owed);
        assert_eq!(machine.deadline(), None);
        assert_eq!(machine.state().open_questions().next(), None);
        assert_eq!(machine.state().waiting_on(), None);
        assert!(self.held.is_empty() || self.history.is_empty(), "nothing that was said is lost");
        let said: Vec<SharedMessage> = self.history.iter().filter_map(Entry::message).cloned().collect();
        assert_eq!(messages(&said), said, "each call has its result right after it");
        let shown = view(&self.history);
        assert_eq!(messages(&shown), shown, "and is shown with it");
    }
}

/// The rules of a state between two steps.
#[track_caller]
fn stands_well(state: &RunState) {
    let in_flight = state.round().iter().filter(|call| call.in_flight()).count();
    assert!(in_flight <= state.spec().tool_policy.max_parallel.max(1) as usize, "too many at once");
    let kind = state.waiting_on().map(|waiting| waiting.kind);
    assert_eq!(state.pending_instruction(), None, "what is decided is begun in the same step");
    if state.situation().is_some() {
        assert!(state.spec().is_directed(), "the built-in loop does not stand still: {:?}", state.phase());
        let wanted = if state.spec().stepped { WaitKind::Step } else { WaitKind::Extension };
        assert_eq!(kind, Some(wanted));
        assert_eq!(state.status() == Some(RunStatus::Paused), state.spec().stepped);
        assert!(state.is_at_rest());
    } else {
        waits_well(state, kind);
    }
    for call in state.round() {
        let open = state.open_questions().filter(|question| question.slot == Some(call.slot)).count();
        match &call.state {
            CallState::Proposed => panic!("every call is taken up in the step that brings it"),
            CallState::AwaitingApproval { request }
            | CallState::AwaitingInput { request }
            | CallState::InDoubt { request, .. } => {
                assert!(request.is_some() && open == 1, "{} waits for one answer", call.slot);
            }
            CallState::AwaitingInstruction { approval } => {
                assert!(state.spec().is_directed() && open == 0, "{} waits for a decision", call.slot);
                assert!(*approval != Approval::Given || state.spec().stepped, "with leave it runs");
            }
            CallState::Offered { .. } | CallState::Accepted { .. } => {
                assert_eq!(open, call.last.open_inputs as usize, "{} waits for what it asked", call.slot);
                assert_eq!(call.deadline().is_none(), open > 0, "its time stands still meanwhile");
            }
            CallState::Suspended { .. } => {
                assert_eq!(open, call.last.open_inputs as usize, "{} waits for what it asked", call.slot);
                assert!(open > 0, "{} waits for nobody and has no host", call.slot);
            }
            CallState::Ready { .. } | CallState::Settled => {
                assert_eq!(open, 0, "{} waits for nobody", call.slot)
            }
        }
    }
}

/// The wait of a run that does not stand still.
#[track_caller]
fn waits_well(state: &RunState, kind: Option<WaitKind>) {
    match state.status() {
        Some(RunStatus::ModelRunning | RunStatus::Compacting) => assert_eq!(kind, Some(WaitKind::Model)),
        Some(RunStatus::BackingOff) => assert_eq!(kind, Some(WaitKind::Backoff)),
        Some(RunStatus::Paused) => assert_eq!(kind, Some(WaitKind::Operator)),
        Some(RunStatus::AwaitingHuman) => assert_eq!(kind, Some(WaitKind::Human)),
        Some(RunStatus::ToolRunning) => {
            assert!(matches!(kind, Some(WaitKind::Tool | WaitKind::ToolHost)), "{kind:?}");
        }
        Some(RunStatus::Completed | RunStatus::Failed | RunStatus::Aborted) | None => assert_eq!(kind, None),
        Some(RunStatus::Queued) => assert_eq!(kind, Some(WaitKind::Session)),
        Some(RunStatus::Preparing) => assert_eq!(kind, Some(WaitKind::Extension)),
    }
}

/// The I/O that an input answers.
fn answered(input: &Input) -> Option<Owed> {
    match input {
        Input::ModelFinished(done) => Some(Owed::Model(done.model_call, done.attempt)),
        Input::Compacted(done) => Some(Owed::Compact(done.number)),
        Input::CompactionFailed { number, .. } => Some(Owed::Compact(*number)),
        Input::ModelFailed { model_call, attempt, .. }
        | Input::ContextTooLarge { model_call, attempt, .. } => Some(Owed::Model(*model_call, *attempt)),
        Input::HostGranted { slot, .. } | Input::HostDenied { slot, .. } => Some(Owed::Seek(*slot)),
        Input::CallFinished(finished) => Some(Owed::Call(finished.slot, finished.attempt)),
        Input::CallLost { slot, attempt, .. } | Input::CallStopped { slot, attempt, .. } => {
            Some(Owed::Call(*slot, *attempt))
        }
        Input::Planned { decision, .. } => Some(Owed::Plan(*decision)),
        Input::Prepared(_) => Some(Owed::Prepare),
        Input::Start(_)
        | Input::Import(_)
        | Input::Step { .. }
        | Input::CallAccepted { .. }
        | Input::CallCheckpoint { .. }
        | Input::CallResumable { .. }
        | Input::InputNeeded { .. }
        | Input::Decided { .. }
        | Input::Enter { .. }
        | Input::Steer { .. }
        | Input::Abort { .. }
        | Input::Resume { .. }
        | Input::DeadlinePassed
        | Input::Recovered => None,
    }
}

#[track_caller]
fn key_of(effect: &Effect) -> Owed {
    match effect {
        Effect::Prepare => Owed::Prepare,
        Effect::CallModel { model_call, attempt, .. } => Owed::Model(*model_call, *attempt),
        Effect::OfferCall(offer) | Effect::ReclaimCall(offer) => Owed::Call(offer.slot, offer.attempt),
        Effect::SeekHost { slot, .. } => Owed::Seek(*slot),
        Effect::Plan { decision, .. } => Owed::Plan(*decision),
        Effect::Compact { number, .. } => Owed::Compact(*number),
        Effect::StopModel { .. }
        | Effect::StopCompacting { .. }
        | Effect::StopSeeking { .. }
        | Effect::StopPlanning { .. }
        | Effect::StopPreparing
        | Effect::CloseRuntime { .. }
        | Effect::AnswerInput { .. }
        | Effect::AckResumeState { .. }
        | Effect::ReleaseCall { .. }
        | Effect::CancelCall { .. } => {
            panic!("nothing is owed by {effect:?}")
        }
    }
}
