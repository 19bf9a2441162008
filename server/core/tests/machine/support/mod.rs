//! A run as a script: what happens to it, one line each, with every promise of the machine checked after each.

mod builders;
mod journal;
mod random;
mod watch;

use agentloop_core::id::{Attempt, CallSlot, RunId, SessionId};
use agentloop_core::message::{FinishReason, ToolStatus};
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::run::effect::{Effect, Offer};
use agentloop_core::run::event::{Event, Ran, Record};
use agentloop_core::run::human::{Decision, Question};
use agentloop_core::run::input::{AbortCause, CallFinished, CallOutcome, Input, ModelFailure};
use agentloop_core::run::machine::{Machine, Transition};
use agentloop_core::run::plan::Instruction;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::{CallState, ModelCall, Phase, RoundCall, RunState};
use agentloop_core::run::status::{RunError, RunStatus};
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::EffectClass;

pub(crate) use builders::*;
pub(crate) use journal::{history, kinds, result, results};
pub(crate) use random::Random;
pub(crate) use watch::{Owed, Watch};

/// The time at which scripts begin.
pub(crate) const T0: Timestamp = Timestamp(1_000_000);
/// The first two calls of the first model call.
pub(crate) const A: CallSlot = CallSlot { model_call: 1, position: 0 };
pub(crate) const B: CallSlot = CallSlot { model_call: 1, position: 1 };
pub(crate) const C: CallSlot = CallSlot { model_call: 1, position: 2 };

/// One run, what it wrote, and what the time is.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) machine: Machine,
    pub(crate) journal: Vec<Record>,
    pub(crate) now: Timestamp,
    pub(crate) watch: Watch,
}

/// A started run.
#[track_caller]
pub(crate) fn given(spec: agentloop_core::agent::RunSpec) -> Script {
    let mut script = unstarted();
    script.does(start(spec));
    script
}

/// A started run whose model has asked for tools.
#[track_caller]
pub(crate) fn given_round<const N: usize>(spec: agentloop_core::agent::RunSpec, tools: [Tool; N]) -> Script {
    let mut script = given(spec);
    script.asks(tools);
    script
}

/// A run with one call of this class, which a host works on.
#[track_caller]
pub(crate) fn given_to_host(class: EffectClass) -> Script {
    let mut script = given_round(spec(), [tool("pay").class(class)]);
    script.grants(A);
    script.accepts(A);
    script
}

/// The offer that a step makes.
#[track_caller]
pub(crate) fn offer(transition: &Transition) -> Offer {
    let mut offers = transition.effects.iter().filter_map(|effect| match effect {
        Effect::OfferCall(offer) => Some(offer.clone()),
        _ => None,
    });
    offers.next_back().expect("an offer")
}

/// A run that does not exist yet.
pub(crate) fn unstarted() -> Script {
    Script { machine: Machine::new(run_id()), journal: Vec::new(), now: T0, watch: Watch::new(run_id()) }
}

pub(crate) fn run_id() -> RunId {
    RunId::parse("run-1").expect("a good id")
}

pub(crate) fn session_id() -> SessionId {
    SessionId::parse("session-1").expect("a good id")
}

/// The effect of an input: the kinds of its events in order, or a refusal that changes nothing.
#[track_caller]
pub(crate) fn check(given: &Script, when: Input, expect: Result<&str, Refusal>) {
    let mut script = given.clone();
    let got = script.step(when.clone());
    let got = got.map(|transition| kinds(&transition.records));
    assert_eq!(got, expect.map(str::to_owned), "{when:?}");
}

impl Script {
    /// Lets something happen, and checks what must hold whatever it was.
    #[track_caller]
    pub(crate) fn step(&mut self, input: Input) -> Result<Transition, Refusal> {
        let before = self.machine.clone();
        match self.machine.handle(input.clone(), self.now) {
            Ok(transition) => {
                self.journal.extend(transition.records.iter().cloned());
                self.watch.accepted(&self.machine, &input, &transition, self.now);
                Ok(transition)
            }
            Err(refusal) => {
                assert_eq!(before, self.machine, "a refusal changes nothing: {refusal}");
                Err(refusal)
            }
        }
    }

    /// Something happens that must be taken.
    #[track_caller]
    pub(crate) fn does(&mut self, input: Input) -> Transition {
        let shown = format!("{input:?}");
        match self.step(input) {
            Ok(transition) => transition,
            Err(refusal) => panic!("refused: {refusal}: {shown}"),
        }
    }

    /// Something happens that must be refused.
    #[track_caller]
    pub(crate) fn refuses(&mut self, input: Input) -> Refusal {
        let shown = format!("{input:?}");
        match self.step(input) {
            Ok(transition) => panic!("accepted as {}: {shown}", kinds(&transition.records)),
            Err(refusal) => refusal,
        }
    }

    // ---- what is to be seen

    pub(crate) fn state(&self) -> &RunState {
        self.machine.state()
    }

    pub(crate) fn status(&self) -> RunStatus {
        self.state().status().expect("started")
    }

    #[track_caller]
    pub(crate) fn call(&self, slot: CallSlot) -> &RoundCall {
        self.state().call(slot).expect("a call of this round")
    }

    #[track_caller]
    pub(crate) fn call_state(&self, slot: CallSlot) -> &CallState {
        &self.call(slot).state
    }

    /// The model call under way, or the last one.
    pub(crate) fn model_call(&self) -> (u32, u32) {
        self.journal
            .iter()
            .rev()
            .find_map(|record| match record.event {
                Event::ModelCallStarted { model_call, attempt, .. } => Some((model_call, attempt.0)),
                _ => None,
            })
            .unwrap_or((1, 1))
    }

    #[track_caller]
    pub(crate) fn running(&self) -> ModelCall {
        let Phase::ModelRunning(call) = *self.state().phase() else { panic!("{:?}", self.state().phase()) };
        call
    }

    /// The question that waits about a call.
    pub(crate) fn question(&self, slot: CallSlot) -> Option<Question> {
        self.state().open_questions().find(|question| question.slot == Some(slot)).cloned()
    }

    /// The reason why a run ended.
    #[track_caller]
    pub(crate) fn end(&self) -> Option<RunError> {
        let Some(Event::Finished { error, .. }) = self.journal.last().map(|record| &record.event) else {
            panic!("it is not over: {:?}", self.state().phase())
        };
        error.clone()
    }

    /// The end of a call, and the text for the model.
    #[track_caller]
    pub(crate) fn result(&self, slot: CallSlot) -> (ToolStatus, String) {
        result(&self.journal, slot).expect("it has a result")
    }

    // ---- the model

    #[track_caller]
    pub(crate) fn says(&mut self, text: &str) -> Transition {
        let (number, attempt) = self.model_call();
        self.does(model_says(number, attempt, text))
    }

    #[track_caller]
    pub(crate) fn asks<const N: usize>(&mut self, tools: [Tool; N]) -> Transition {
        let (number, attempt) = self.model_call();
        self.does(model_asks(number, attempt, &tools, FinishReason::ToolCalls))
    }

    #[track_caller]
    pub(crate) fn model_fails(&mut self, kind: ModelErrorKind) -> Transition {
        self.model_fails_with(failure(kind))
    }

    #[track_caller]
    pub(crate) fn model_fails_with(&mut self, failure: ModelFailure) -> Transition {
        let (model_call, attempt) = self.model_call();
        self.does(Input::ModelFailed { model_call, attempt: Attempt(attempt), failure })
    }

    // ---- hosts

    #[track_caller]
    pub(crate) fn grants(&mut self, slot: CallSlot) -> Transition {
        self.does(granted(slot))
    }

    #[track_caller]
    pub(crate) fn accepts(&mut self, slot: CallSlot) -> Transition {
        let attempt = self.call(slot).attempt;
        self.does(accepted(slot, attempt.0))
    }

    #[track_caller]
    pub(crate) fn saves(&mut self, slot: CallSlot, checkpoint: &[u8]) -> Transition {
        let attempt = self.call(slot).attempt;
        self.does(Input::CallCheckpoint { slot, attempt, checkpoint: checkpoint.to_vec() })
    }

    #[track_caller]
    pub(crate) fn finishes(&mut self, slot: CallSlot, output: &str) -> Transition {
        self.answers(slot, ok(output))
    }

    #[track_caller]
    pub(crate) fn answers(&mut self, slot: CallSlot, outcome: CallOutcome) -> Transition {
        let attempt = self.call(slot).attempt;
        self.does(self.finished(slot, attempt.0, outcome))
    }

    #[track_caller]
    pub(crate) fn loses(&mut self, slot: CallSlot, ran: Ran) -> Transition {
        let attempt = self.call(slot).attempt;
        self.does(lost(slot, attempt.0, ran))
    }

    /// A host with room takes the call and answers.
    #[track_caller]
    pub(crate) fn runs(&mut self, slot: CallSlot, output: &str) -> Transition {
        self.grants(slot);
        self.accepts(slot);
        self.finishes(slot, output)
    }

    /// An answer with the lease that this try was given.
    pub(crate) fn finished(&self, slot: CallSlot, attempt: u32, outcome: CallOutcome) -> Input {
        let lease = self.state().lease(slot, Attempt(attempt));
        Input::CallFinished(Box::new(CallFinished {
            slot,
            attempt: Attempt(attempt),
            lease,
            host: host(),
            outcome,
            sent: None,
            applied: Vec::new(),
        }))
    }

    /// A host's word, with the lease that this try was given, that it stopped a cancelled call.
    pub(crate) fn stopped(&self, slot: CallSlot, attempt: u32, begun: bool) -> Input {
        Input::CallStopped {
            slot,
            attempt: Attempt(attempt),
            lease: self.state().lease(slot, Attempt(attempt)),
            begun,
        }
    }

    // ---- people

    #[track_caller]
    pub(crate) fn decides(&mut self, slot: CallSlot, decision: Decision) -> Transition {
        let input = self.decision(slot, decision);
        self.does(input)
    }

    /// A decision on what waits about a call, or on the first question about it.
    pub(crate) fn decision(&self, slot: CallSlot, decision: Decision) -> Input {
        let asked = self.question(slot).map(|question| question.request);
        let request = asked.unwrap_or_else(|| self.state().call_id(slot).request(Attempt(0)));
        Input::Decided { request, decision, digest: None, by: "ann".to_owned().into(), remember: None }
    }

    #[track_caller]
    pub(crate) fn aborts(&mut self) -> Transition {
        self.does(abort(AbortCause::Caller))
    }

    #[track_caller]
    pub(crate) fn resumes(&mut self, request: &str) -> Transition {
        self.does(resume(request))
    }

    // ---- what comes next

    /// The kinds of events that one more step leads to at once.
    #[track_caller]
    pub(crate) fn steps(&mut self, request: &str) -> String {
        kinds(&self.does(step_on(request)).records)
    }

    /// The planner decides.
    #[track_caller]
    pub(crate) fn plans(&mut self, instruction: Instruction) -> String {
        let decision = self.state().decisions() + 1;
        kinds(&self.does(planned(decision, instruction)).records)
    }

    // ---- time and restarts

    /// The clock moves, and nobody looks at it.
    pub(crate) fn later(&mut self, wait: Millis) -> &mut Self {
        self.now = self.now.after(wait);
        self
    }

    /// The clock moves, and the machine is told.
    #[track_caller]
    pub(crate) fn passes(&mut self, wait: Millis) -> Transition {
        self.later(wait);
        self.does(Input::DeadlinePassed)
    }

    /// The next due thing happens.
    #[track_caller]
    pub(crate) fn wakes(&mut self) -> Transition {
        let due = self.machine.deadline().expect("something is due");
        self.now = self.now.max(due);
        self.does(Input::DeadlinePassed)
    }

    /// The server is killed, and another takes over.
    #[track_caller]
    pub(crate) fn restarts(&mut self) -> Transition {
        let replayed = Machine::replay(run_id(), &self.journal);
        assert_eq!(replayed.state(), self.machine.state(), "the journal tells all");
        self.machine = replayed;
        self.does(Input::Recovered)
    }
}
