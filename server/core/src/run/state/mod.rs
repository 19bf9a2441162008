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
//!              ContextTooLarge | overflow             Compacting (ModelFailed, or finished with nothing said for want
//!                                                     of room)
//! BackingOff   DeadlinePassed                         ModelRunning (next try)
//! Compacting   Compacted                              ModelRunning (next call) | Finished(failed), where an overflow
//!                                                     is not helped
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
//!                   Decided: a deny is remembered      Settled
//! AwaitingApproval  Decided: approve                   Ready | Held (of a run that is stepped)
//!                   Decided: else | expired            Settled
//! AwaitingInput     Decided | expired                  Settled
//! Ready             SlotGranted                        Offered
//!                   SlotDenied                         Settled
//!                   Decided: a deny is remembered      Settled (before its first try)
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

mod call;
mod phase;
mod round;
mod standing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::agent::RunSpec;
use crate::entry::CompactionReason;
use crate::id::{CallSlot, EntryNo, HostId, RequestId, RunId, RuntimeId, Seq, SessionId};
use crate::message::{SharedMessage, Usage};
use crate::policy::{PolicyCall, PolicyRule, deciding_rule};
use crate::run::human::{Answer, Question};
use crate::run::plan::Instruction;
use crate::run::status::RunError;
use crate::time::{Millis, Timestamp};
use crate::tool::Digest;
use crate::trace::{RunTrace, TraceParent};

pub use call::{Call, CallState, Leave};
pub use phase::{AfterCompaction, CompactionInHand, ModelCall, Phase};

/// Everything that is known of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// The run.
    pub run: RunId,
    /// Its session; `None` before it started.
    pub session: Option<SessionId>,
    /// How it is to behave: as was asked for, with the rules that were remembered when it entered its session.
    pub spec: Arc<RunSpec>,
    /// Chance, drawn once.
    pub seed: u64,
    /// The caller's span.
    pub traceparent: Option<TraceParent>,
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
    /// Model calls, retries not counted, nor calls that were too large to be sent.
    pub iterations: u32,
    /// The number of the last model call.
    pub model_calls: u32,
    /// Whether the last model call was too large to be sent: it counts with the one after it.
    pub unsent: bool,
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
    /// Calls of `Step` that were carried out, by what each called itself.
    pub steps: BTreeMap<String, StepCall>,
}

/// A call of `Step`, but for its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepCall {
    /// Where the journal has what it did.
    pub seq: Seq,
    /// The question that it was to approve.
    pub approve: Option<RequestId>,
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

/// What came of an instruction that leaves the run where it stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// A human answered the planner's question, or did not in time.
    HumanAnswered,
    /// The context is smaller.
    Compacted,
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
            traceparent: None,
            started_at: Timestamp(0),
            entered_at: Timestamp(0),
            updated_at: Timestamp(0),
            seq: Seq(0),
            last_entry: EntryNo(0),
            iterations: 0,
            model_calls: 0,
            unsent: false,
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

    /// What the run was started with, as long as it waits to enter the session.
    pub fn brought(&self) -> impl DoubleEndedIterator<Item = &SharedMessage> {
        self.brought.iter().filter_map(|seq| self.held.get(seq))
    }

    /// The trace that it is shown as.
    #[must_use]
    pub fn trace(&self) -> RunTrace {
        RunTrace::new(self.run.clone(), self.started_at, self.traceparent)
    }

    /// What the model reads before everything else.
    #[must_use]
    pub fn system_prompt(&self) -> String {
        let own = Some(self.spec.system_prompt.as_str()).filter(|own| !own.is_empty());
        let texts: Vec<&str> =
            own.into_iter().chain(self.prompt_additions.0.iter().map(String::as_str)).collect();
        texts.join("\n\n")
    }

    /// The rules about its tool calls, in order: those that it started with, and those remembered since.
    pub fn rules(&self) -> impl Iterator<Item = &PolicyRule> {
        self.spec.tool_policy.rules.iter().chain(&self.remembered)
    }

    /// The rule that decides about a call; `None` where none is about it.
    #[must_use]
    pub fn rule_for(&self, tool: &str, arguments: &str) -> Option<&PolicyRule> {
        deciding_rule(self.rules(), &PolicyCall::new(tool, arguments))
    }

    /// The questions that wait, in a stable order.
    pub fn open_questions(&self) -> impl Iterator<Item = &Question> {
        self.questions.values().filter(|asked| asked.answer.is_none()).map(|asked| &asked.question)
    }

    /// What the planner asked a human, while that waits.
    #[must_use]
    pub fn planned_question(&self) -> Option<&Question> {
        self.open_questions().find(|question| question.slot.is_none())
    }
}
