//! A run's state: the fold of its journal.
//!
//! ```text
//! phase        leaves by                              to
//! New          Start                                  ModelRunning | Queued | Preparing (where hooks or sources are
//!                                                     asked)
//! Queued       Enter                                  ModelRunning | Preparing
//!              Abort                                  Finished(aborted), nothing of it entered the session
//! Preparing    Prepared                               ModelRunning | Finished(failed)
//! ModelRunning ModelFinished, tools wanted            Tools
//!              ModelFinished, nothing wanted          Finished(completed) | ModelRunning, where messages are held
//!              ModelFailed, retryable                 BackingOff
//!              ModelFailed, else or used up           Finished(failed) | Paused
//!              Recovered                              ModelRunning (next try)
//!              ContextTooLarge | ModelFailed, overflow  Compacting
//! BackingOff   DeadlinePassed                         ModelRunning (next try)
//! Compacting   Compacted                              ModelRunning
//!              CompactionFailed                       Compacting (trim) | Finished(failed)
//! Tools        last call settled                      ModelRunning (next call) | Finished(a limit)
//! Preparing, Observed, Tools   Planned | Step          as the instruction says (only of a run that is directed)
//! Paused       Resume                                 ModelRunning (next try)
//! any live     Abort | a limit | deny and stop        Finished(aborted | failed)
//!
//! call              leaves by                          to
//! Proposed          in the same step                   AwaitingApproval | AwaitingInput | Ready
//!                                                      | Held (of a run that is directed)
//! Held              Planned | Step                     AwaitingApproval | Ready | Settled
//! AwaitingApproval  Decided: approve                   Ready | Held (of a run that is stepped)
//!                   Decided: else | expired            Settled
//! AwaitingInput     Decided | expired                  Settled
//! Ready             SlotGranted                        Offered
//!                   SlotDenied                         Settled
//!                   CallFinished, by the last try      Settled
//! Offered           CallAccepted                       Accepted
//! Offered, Accepted InputNeeded, Decided, expired      the same: its deadline stands still in between
//!                   CallFinished                       Settled | Ready (next try)
//!                   CallLost                           Ready (next try) | InDoubt | Settled
//!                   its deadline                       Settled
//! InDoubt           Decided: approve                   Ready (next try) | Held (of a run that is stepped)
//!                   CallFinished: has not run          Ready (next try)
//!                   Decided: else | CallFinished | expired  Settled
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::agent::RunSpec;
use crate::entry::CompactionReason;
use crate::id::{CallId, CallSlot, EntryNo, HostId, RequestId, RunId, RuntimeId, Seq, SessionId};
use crate::message::{FinishReason, SharedMessage, ToolCall, Usage};
use crate::policy::{PolicyCall, PolicyRule, deciding};
use crate::run::event::Outcome;
use crate::run::human::{Answer, Question};
use crate::run::plan::{Instruction, Situation};
use crate::run::status::{RunError, RunStatus};
use crate::time::{Millis, Timestamp};
use crate::tool::{Digest, EffectClass};

/// Everything that is known of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// The run.
    pub run: RunId,
    /// Its session; `None` before it started.
    pub session: Option<SessionId>,
    /// How it is to behave.
    pub spec: Arc<RunSpec>,
    /// Chance, drawn once.
    pub seed: u64,
    /// When it started.
    pub started_at: Timestamp,
    /// When it entered its session: later than [`Self::started_at`] where it was queued.
    pub entered_at: Timestamp,
    /// When it last moved.
    pub updated_at: Timestamp,
    /// Its last event.
    pub seq: Seq,
    /// Its session's last entry.
    pub last_entry: EntryNo,
    /// Model calls begun.
    pub iterations: u32,
    /// Rounds of tool calls begun.
    pub tool_rounds: u32,
    /// Tool calls taken up.
    pub tool_calls: u32,
    /// Tokens of all model calls.
    pub usage: Usage,
    /// Time in model calls, from request to end.
    pub model_time: Millis,
    /// Time in tool calls, from first offer to result; calls side by side count each.
    pub tool_time: Millis,
    /// Tool calls in a row that ended in an error.
    pub failures_in_a_row: u32,
    /// The last tool call's name and arguments, and how often it came in a row.
    pub repetition: Option<(Digest, u32)>,
    /// The model's last message.
    pub last_message: Option<SharedMessage>,
    /// Its entry; 0 before the first.
    pub last_message_entry: EntryNo,
    /// What went wrong last.
    pub last_error: Option<RunError>,
    /// What it is doing.
    pub phase: Phase,
    /// Everything that humans were asked.
    pub questions: BTreeMap<RequestId, Asked>,
    /// Rules that were remembered in it, in order.
    pub remembered: Vec<PolicyRule>,
    /// Calls of earlier rounds, with the try whose answer settled each: [`Call::answered`].
    pub settled: BTreeMap<CallSlot, u32>,
    /// Ids of the calls of `ResumeRun` that were carried out.
    pub resumed: BTreeSet<String>,
    /// Compactions begun.
    pub compactions: u32,
    /// Compactions begun since the model's last message.
    pub squeezes: u32,
    /// Why the context is to be made smaller before the next model call.
    pub compact_due: Option<CompactionReason>,
    /// Messages that wait to enter the session, by the event that holds each.
    pub held: BTreeMap<Seq, SharedMessage>,
    /// Those of them that the run was started with.
    pub brought: BTreeSet<Seq>,
    /// Requests that handed messages to the run while it was under way, with the digest of each.
    pub steered: BTreeMap<RunId, Digest>,
    /// The runtime of its tools, and the host that has it; the last one, if there were several.
    pub runtime: Option<(RuntimeId, HostId)>,
    /// What hooks put after the system prompt.
    pub prompt_additions: PromptAdditions,
    /// Decisions recorded: by a planner, or for a step.
    pub decisions: u32,
    /// What was decided last, until it has begun.
    pub beginning: Option<Instruction>,
    /// What came of what was decided last.
    pub news: Option<News>,
    /// The question that the last step answers.
    pub approving: Option<RequestId>,
    /// Calls of `Step` that were carried out, and where the journal has what each did.
    pub steps: BTreeMap<String, Seq>,
}

/// Texts that follow the system prompt, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PromptAdditions(Vec<String>);

impl PromptAdditions {
    /// One more; an empty text is none.
    pub(crate) fn push(&mut self, text: &str) {
        if !text.is_empty() {
            self.0.push(text.to_owned());
        }
    }
}

/// A question and its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The question.
    pub question: Question,
    /// The answer, once there is one.
    pub answer: Option<Answer>,
}

/// What a run is doing.
#[derive(Debug, Clone, PartialEq)]
pub enum Phase {
    /// Nothing: it does not exist yet.
    New,
    /// Waiting for its session to be free.
    Queued,
    /// The caller's messages are being taken in.
    Preparing,
    /// The model is answering.
    ModelRunning(ModelCall),
    /// A failed model call waits for its next try.
    BackingOff {
        /// The try that failed.
        call: ModelCall,
        /// When the next one is due.
        until: Timestamp,
    },
    /// The context is being made smaller.
    Compacting(CompactionInHand),
    /// The model has spoken and wants nothing run.
    Observed {
        /// Why it stopped.
        finish: FinishReason,
    },
    /// Tool calls of one message.
    Tools(Vec<Call>),
    /// The model stayed unreachable; an operator must say when to go on.
    Paused {
        /// The try that failed last.
        call: ModelCall,
        /// Since when.
        since: Timestamp,
    },
    /// It is over.
    Finished {
        /// How.
        outcome: Outcome,
    },
}

/// One try of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelCall {
    /// Which model call, from 1.
    pub number: u32,
    /// Which try, from 1.
    pub attempt: u32,
    /// The first try that counts against the retries: a restart or an operator gives a fresh set.
    pub first_counted: u32,
    /// Since when.
    pub since: Timestamp,
}

/// The context is being made smaller.
#[derive(Debug, Clone, PartialEq)]
pub struct CompactionInHand {
    /// Which of the run, from 1.
    pub number: u32,
    /// How.
    pub strategy: String,
    /// Why.
    pub reason: CompactionReason,
    /// How hard.
    pub level: u32,
    /// Since when.
    pub since: Timestamp,
    /// What follows.
    pub then: AfterCompaction,
}

/// What follows a compaction.
#[derive(Debug, Clone, PartialEq)]
pub enum AfterCompaction {
    /// This try of a model call.
    Call {
        /// Which model call.
        number: u32,
        /// Which try.
        attempt: u32,
        /// The first try that counts against the retries.
        first_counted: u32,
    },
    /// The planner, where the run stood before.
    Plan(Box<Phase>),
}

/// A tool call of the current round.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Which.
    pub slot: CallSlot,
    /// As the model asked.
    pub wanted: ToolCall,
    /// What to run it with: the model's arguments, a hook's, or a human's.
    pub arguments: String,
    /// Whether a hook changed them last.
    pub changed_by_hook: bool,
    /// What running it twice means.
    pub effect: EffectClass,
    /// From offer to result.
    pub timeout: Millis,
    /// Whether a human's answer is its result.
    pub asks_human: bool,
    /// Whether it needs a runtime.
    pub needs_runtime: bool,
    /// The runtime of the last try.
    pub runtime: Option<RuntimeId>,
    /// The last try; 0 before the first.
    pub attempt: u32,
    /// The try whose answer settled it; 0 while it is open, and where something else settled it.
    pub answered: u32,
    /// The host of the last try.
    pub host: Option<HostId>,
    /// When it was first offered.
    pub first_offered: Option<Timestamp>,
    /// What the last try saved.
    pub checkpoint: Option<Vec<u8>>,
    /// Questions of the last try that wait for a human.
    pub asking: u32,
    /// Where it stands.
    pub state: CallState,
}

/// Where a tool call stands.
#[derive(Debug, Clone, PartialEq)]
pub enum CallState {
    /// The model asked for it; nothing is known of it yet.
    Proposed,
    /// Waits for a human's leave.
    AwaitingApproval {
        /// The question; `None` until it is asked, in the same step.
        request: Option<RequestId>,
    },
    /// Waits until it is decided what to do with it.
    Held {
        /// Whether a human has to say so too.
        leave: Leave,
    },
    /// Waits for its turn, and for a host with room.
    Ready {
        /// Since when.
        since: Timestamp,
        /// Not before this.
        not_before: Option<Timestamp>,
    },
    /// Given to a host.
    Offered {
        /// When; or when the last question that it asked was settled.
        at: Timestamp,
    },
    /// The host works on it.
    Accepted {
        /// When it was offered, or when the last question that it asked was settled.
        at: Timestamp,
    },
    /// It may or may not have run.
    InDoubt {
        /// The question; `None` until it is asked, in the same step.
        request: Option<RequestId>,
        /// Since when.
        since: Timestamp,
    },
    /// A human's answer is its result.
    AwaitingInput {
        /// The question; `None` until it is asked, in the same step.
        request: Option<RequestId>,
    },
    /// It has its one result.
    Settled,
}

/// What came of an instruction that leaves the run where it stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// A human answered the planner's question, or did not in time.
    HumanAnswered,
    /// The context is smaller.
    Compacted,
}

/// Whether a human lets a call run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// Nobody has to be asked.
    NotNeeded,
    /// Somebody has to be.
    Needed,
    /// Somebody said yes.
    Given,
}

impl Call {
    /// Whether a host has it.
    #[must_use]
    pub fn in_flight(&self) -> bool {
        matches!(self.state, CallState::Offered { .. } | CallState::Accepted { .. })
    }

    /// Whether a host has it and waits for a human's word.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.in_flight() && self.asking > 0
    }

    /// Whether a human is to move it.
    #[must_use]
    pub fn awaits_human(&self) -> bool {
        matches!(
            self.state,
            CallState::AwaitingApproval { .. } | CallState::AwaitingInput { .. } | CallState::InDoubt { .. }
        ) || self.asks()
    }

    /// Whether it goes on by itself, or is about to.
    #[must_use]
    pub fn moves(&self) -> bool {
        match &self.state {
            CallState::Proposed
            | CallState::Ready { .. }
            | CallState::Offered { .. }
            | CallState::Accepted { .. } => true,
            CallState::AwaitingApproval { request }
            | CallState::AwaitingInput { request }
            | CallState::InDoubt { request, .. } => request.is_none(),
            CallState::Held { .. } | CallState::Settled => false,
        }
    }

    /// Whether it has its result.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.state == CallState::Settled
    }

    /// When the current try is given up. Not while it waits for a human.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        if self.asks() { None } else { self.time_is_up() }
    }

    /// When the current try would be given up if it did not wait for anybody.
    #[must_use]
    pub fn time_is_up(&self) -> Option<Timestamp> {
        match self.state {
            CallState::Offered { at } | CallState::Accepted { at } => Some(at.after(self.timeout)),
            CallState::Proposed
            | CallState::AwaitingApproval { .. }
            | CallState::Held { .. }
            | CallState::Ready { .. }
            | CallState::InDoubt { .. }
            | CallState::AwaitingInput { .. }
            | CallState::Settled => None,
        }
    }

    /// Of what a human approves.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&[self.wanted.name.as_bytes(), self.arguments.as_bytes()])
    }
}

impl State {
    /// A run that does not exist yet.
    #[must_use]
    pub fn new(run: RunId) -> Self {
        Self {
            run,
            session: None,
            spec: Arc::default(),
            seed: 0,
            started_at: Timestamp(0),
            entered_at: Timestamp(0),
            updated_at: Timestamp(0),
            seq: Seq(0),
            last_entry: EntryNo(0),
            iterations: 0,
            tool_rounds: 0,
            tool_calls: 0,
            usage: Usage::default(),
            model_time: Millis(0),
            tool_time: Millis(0),
            failures_in_a_row: 0,
            repetition: None,
            last_message: None,
            last_message_entry: EntryNo(0),
            last_error: None,
            phase: Phase::New,
            questions: BTreeMap::new(),
            remembered: Vec::new(),
            settled: BTreeMap::new(),
            resumed: BTreeSet::new(),
            compactions: 0,
            squeezes: 0,
            compact_due: None,
            held: BTreeMap::new(),
            brought: BTreeSet::new(),
            steered: BTreeMap::new(),
            runtime: None,
            prompt_additions: PromptAdditions::default(),
            decisions: 0,
            beginning: None,
            news: None,
            approving: None,
            steps: BTreeMap::new(),
        }
    }

    /// How many more calls may be given to hosts.
    #[must_use]
    pub fn room(&self) -> usize {
        let in_flight = self.round().iter().filter(|call| call.in_flight()).count();
        (self.spec.tool_policy.max_parallel.max(1) as usize).saturating_sub(in_flight)
    }

    /// Where the run stands; `None` before it started.
    #[must_use]
    pub fn status(&self) -> Option<RunStatus> {
        match &self.phase {
            _ if self.awaits_step() => Some(RunStatus::Paused),
            _ if self.planned_question().is_some() => Some(RunStatus::AwaitingHuman),
            Phase::New => None,
            Phase::Queued => Some(RunStatus::Queued),
            Phase::Preparing => Some(RunStatus::Preparing),
            Phase::ModelRunning(_) | Phase::Observed { .. } => Some(RunStatus::ModelRunning),
            Phase::BackingOff { .. } => Some(RunStatus::BackingOff),
            Phase::Compacting(_) => Some(RunStatus::Compacting),
            Phase::Tools(calls) => Some(round_status(calls, self.room())),
            Phase::Paused { .. } => Some(RunStatus::Paused),
            Phase::Finished { outcome: Outcome::Completed } => Some(RunStatus::Completed),
            Phase::Finished { outcome: Outcome::Failed } => Some(RunStatus::Failed),
            Phase::Finished { outcome: Outcome::Aborted } => Some(RunStatus::Aborted),
        }
    }

    /// Why the run stands still, if it is to be decided what comes next.
    #[must_use]
    pub fn situation(&self) -> Option<Situation> {
        if self.beginning.is_some() || self.planned_question().is_some() {
            return None;
        }
        let by_phase = self.situation_of_phase()?;
        Some(match self.news {
            None => by_phase,
            Some(News::HumanAnswered) => Situation::HumanAnswered,
            Some(News::Compacted) => Situation::Compacted,
        })
    }

    fn situation_of_phase(&self) -> Option<Situation> {
        match &self.phase {
            Phase::Preparing if self.is_unprepared() => None,
            Phase::Preparing => Some(Situation::Prompted),
            Phase::Observed { finish } => Some(Situation::Answered { finish: finish.clone() }),
            Phase::Tools(calls) if calls.iter().any(Call::moves) => None,
            Phase::Tools(calls) if calls.iter().all(Call::is_settled) => Some(Situation::ToolsSettled),
            Phase::Tools(calls) => calls
                .iter()
                .any(|call| matches!(call.state, CallState::Held { .. }))
                .then_some(Situation::CallsWaiting),
            Phase::New
            | Phase::Queued
            | Phase::ModelRunning(_)
            | Phase::BackingOff { .. }
            | Phase::Compacting(_)
            | Phase::Paused { .. }
            | Phase::Finished { .. } => None,
        }
    }

    /// Whether hooks and context sources are to be asked before anything else is done.
    #[must_use]
    pub fn is_unprepared(&self) -> bool {
        self.phase == Phase::Preparing && self.spec.prepares() && !self.brought.is_empty()
    }

    /// What the run was started with, as long as it waits to enter the session.
    pub fn brought(&self) -> impl DoubleEndedIterator<Item = &SharedMessage> {
        self.brought.iter().filter_map(|seq| self.held.get(seq))
    }

    /// What the model reads before everything else.
    #[must_use]
    pub fn system_prompt(&self) -> String {
        let own = Some(self.spec.system_prompt.as_str()).filter(|own| !own.is_empty());
        let texts: Vec<&str> =
            own.into_iter().chain(self.prompt_additions.0.iter().map(String::as_str)).collect();
        texts.join("\n\n")
    }

    /// What the planner asked a human, while that waits.
    #[must_use]
    pub fn planned_question(&self) -> Option<&Question> {
        self.open_questions().find(|question| question.slot.is_none())
    }

    /// Whether tool calls wait for a decision.
    #[must_use]
    pub fn holds_calls(&self) -> bool {
        self.round().iter().any(|call| matches!(call.state, CallState::Held { .. }))
    }

    /// Whether it does nothing more before someone calls `Step`.
    #[must_use]
    pub fn awaits_step(&self) -> bool {
        self.spec.stepped && self.situation().is_some()
    }

    /// Whether a step that was begun has come to its end: the run awaits the next, or someone else, or is over.
    #[must_use]
    pub fn rests(&self) -> bool {
        if self.beginning.is_some() {
            return false;
        }
        match &self.phase {
            Phase::Paused { .. } | Phase::Finished { .. } => true,
            _ if self.planned_question().is_some() => true,
            Phase::Tools(calls) => {
                let room = self.room();
                !calls.iter().any(|call| call.moves() && !waits_for_answer(call, calls, room))
            }
            Phase::New
            | Phase::Queued
            | Phase::Preparing
            | Phase::ModelRunning(_)
            | Phase::BackingOff { .. }
            | Phase::Compacting(_)
            | Phase::Observed { .. } => self.situation().is_some(),
        }
    }

    /// Whether a human has let a held call run.
    #[must_use]
    pub fn has_leave(&self) -> bool {
        self.round().iter().any(|call| call.state == CallState::Held { leave: Leave::Given })
    }

    /// Whether it has started and is not over.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !matches!(self.phase, Phase::New | Phase::Finished { .. })
    }

    /// The calls of the current round.
    #[must_use]
    pub fn round(&self) -> &[Call] {
        match self.standing() {
            Phase::Tools(calls) => calls,
            Phase::New
            | Phase::Queued
            | Phase::Preparing
            | Phase::ModelRunning(_)
            | Phase::BackingOff { .. }
            | Phase::Compacting(_)
            | Phase::Observed { .. }
            | Phase::Paused { .. }
            | Phase::Finished { .. } => &[],
        }
    }

    /// The rules about its tool calls, in order: those that it started with, and those remembered since.
    pub fn rules(&self) -> impl Iterator<Item = &PolicyRule> {
        self.spec.tool_policy.rules.iter().chain(&self.remembered)
    }

    /// The rule that decides about a call; `None` where none is about it.
    #[must_use]
    pub fn rule_for(&self, tool: &str, arguments: &str) -> Option<&PolicyRule> {
        deciding(self.rules(), &PolicyCall::new(tool, arguments))
    }

    /// The calls of the current round, to be changed.
    pub(crate) fn round_mut(&mut self) -> Option<&mut Vec<Call>> {
        let phase = match &mut self.phase {
            Phase::Compacting(CompactionInHand { then: AfterCompaction::Plan(before), .. }) => before,
            phase => phase,
        };
        if let Phase::Tools(calls) = phase { Some(calls) } else { None }
    }

    /// Where it stands, or goes back to once the context that its planner wants smaller is.
    fn standing(&self) -> &Phase {
        match &self.phase {
            Phase::Compacting(CompactionInHand { then: AfterCompaction::Plan(before), .. }) => before,
            phase => phase,
        }
    }

    /// A call of the current round.
    #[must_use]
    pub fn call(&self, slot: CallSlot) -> Option<&Call> {
        self.round().iter().find(|call| call.slot == slot)
    }

    /// The questions that wait, in a stable order.
    pub fn open_questions(&self) -> impl Iterator<Item = &Question> {
        self.questions.values().filter(|asked| asked.answer.is_none()).map(|asked| &asked.question)
    }

    /// What a running call asks, the first question that still waits.
    #[must_use]
    pub fn question_of(&self, call: &Call) -> Option<&Question> {
        let mut open = self.open_questions().filter(|_| call.asks());
        open.find(|question| question.slot == Some(call.slot) && question.input().is_some())
    }

    /// Whether a host has one of its calls, or may have.
    #[must_use]
    pub fn is_at_hosts(&self) -> bool {
        self.round().iter().any(Call::in_flight)
    }

    /// Whether this is the runtime that the run's tools use.
    #[must_use]
    pub fn uses_runtime(&self, runtime: &RuntimeId, host: &HostId) -> bool {
        self.is_live() && self.runtime.as_ref().is_some_and(|(id, on)| (id, on) == (runtime, host))
    }

    /// The full id of a call.
    #[must_use]
    pub fn call_id(&self, slot: CallSlot) -> CallId {
        CallId { run: self.run.clone(), slot }
    }

    /// What a host proves with that it was given this try: derived, so that a restart does not forget it.
    #[must_use]
    pub fn lease(&self, slot: CallSlot, attempt: u32) -> Digest {
        Digest::of(&[
            b"lease",
            &self.seed.to_le_bytes(),
            &slot.0.to_le_bytes(),
            &slot.1.to_le_bytes(),
            &attempt.to_le_bytes(),
        ])
    }

    /// What a tool dedupes by: the same for every try.
    #[must_use]
    pub fn idempotency_key(&self, slot: CallSlot) -> String {
        format!("{:016x}-{slot}", self.seed)
    }
}

/// Whether it waits for what a human answers to a running call: it asks, or has no room beside those that do.
fn waits_for_answer(call: &Call, calls: &[Call], room: usize) -> bool {
    let no_room = matches!(call.state, CallState::Ready { .. }) && room == 0;
    call.asks() || (no_room && calls.iter().all(|call| call.asks() || !call.in_flight()))
}

/// A round waits for a human only when nothing in it can go on without one.
fn round_status(calls: &[Call], room: usize) -> RunStatus {
    let asks = calls.iter().any(Call::asks);
    let waits = |call: &Call| match call.state {
        CallState::Held { .. } => asks,
        _ => call.awaits_human() || waits_for_answer(call, calls, room),
    };
    let mut open = calls.iter().filter(|call| !call.is_settled()).peekable();
    if open.peek().is_some() && open.all(waits) { RunStatus::AwaitingHuman } else { RunStatus::ToolRunning }
}
