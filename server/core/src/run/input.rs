//! The inputs of the machine: everything that can happen to a run.

use std::sync::Arc;

use crate::agent::RunSpec;
use crate::entry::{Compaction, CompactionReason};
use crate::extension::ExtensionCall;
use crate::id::{Attempt, CallSlot, EntryNo, HostId, InstanceId, RequestId, RunId, SessionId};
use crate::message::{FinishReason, SharedMessage, Usage};
use crate::model::error::ModelErrorKind;
pub use crate::outcome::CallOutcome;
use crate::policy::PolicyRule;
use crate::question::QuestionContent;
use crate::run::event::{Ran, Steer};
use crate::run::human::{Decision, Person, Remember};
use crate::run::plan::Instruction;
use crate::run::status::RunError;
use crate::time::Millis;
use crate::tool::{Digest, EffectClass, ToolTerms};
use crate::trace::TraceParent;

/// Something that happened to a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A caller starts the run.
    Start(Box<Start>),
    /// A caller adds a conversation that was held elsewhere. The run ends at once.
    Import(Box<Start>),
    /// Hooks and context sources were called before the first instruction.
    Prepared(Box<Prepared>),
    /// The response of the model is complete.
    ModelFinished(Box<ModelFinished>),
    /// The model call failed, or was cut off.
    ModelFailed {
        /// Number of the model call in its run, counted from 1.
        model_call: u32,
        /// The attempt that failed.
        attempt: Attempt,
        /// Kind and reason of the failure.
        failure: ModelFailure,
    },
    /// The request of the model call would pass the run's limits on its context. Nothing was sent.
    ContextTooLarge {
        /// Number of the model call in its run, counted from 1.
        model_call: u32,
        /// The attempt that was not sent.
        attempt: Attempt,
        /// The limit that is passed.
        reason: CompactionReason,
        /// Estimated tokens of the request.
        tokens: u64,
    },
    /// The compaction is done.
    Compacted(Box<Compacted>),
    /// The strategy of the compaction failed.
    CompactionFailed {
        /// Number of the compaction in its run, counted from 1.
        number: u32,
        /// The reason of the failure.
        error: RunError,
    },
    /// A host has room for a call.
    HostGranted {
        /// Slot of the call.
        slot: CallSlot,
        /// The host that reserved the room.
        host: HostId,
        /// The process behind the host's id, if it gave its name.
        instance: Option<InstanceId>,
        /// The terms that it takes the call under. `None`: those that the call was proposed under.
        terms: Option<Arc<ToolTerms>>,
    },
    /// No host will have room for a call.
    HostDenied {
        /// Slot of the call.
        slot: CallSlot,
        /// The reason, for the model.
        message: String,
    },
    /// A host runs a call.
    CallAccepted {
        /// Slot of the call.
        slot: CallSlot,
        /// The attempt that the host confirmed.
        attempt: Attempt,
        /// The host that runs it.
        host: HostId,
    },
    /// A call saved a checkpoint.
    CallCheckpoint {
        /// Slot of the call.
        slot: CallSlot,
        /// The attempt that saved it.
        attempt: Attempt,
        /// Opaque bytes of the tool.
        checkpoint: Vec<u8>,
    },
    /// A call saved a state, and promises that going on from it does not repeat what was done. It waits until the state
    /// is recorded.
    CallResumable {
        /// Slot of the call.
        slot: CallSlot,
        /// The attempt that left it.
        attempt: Attempt,
        /// Number of the state within the attempt, counted from 1.
        resume_no: u64,
        /// Opaque bytes of the tool.
        state: Vec<u8>,
    },
    /// A running call puts a question to people, for the first time or again.
    InputNeeded {
        /// Slot of the call.
        slot: CallSlot,
        /// The attempt that asks.
        attempt: Attempt,
        /// The question, with the host's name for it. Its bounds are checked already.
        question: QuestionContent,
        /// Time allowed for the answer; `None` means the run's `approval_timeout`.
        timeout: Option<Millis>,
        /// State to go on from with the answer. With it, the host gives the call up until there is one.
        resume_state: Option<Vec<u8>>,
    },
    /// A host reports the result of a call.
    CallFinished(Box<CallFinished>),
    /// The host that had a call will report no result.
    CallLost {
        /// Slot of the call.
        slot: CallSlot,
        /// The attempt that is lost.
        attempt: Attempt,
        /// The reason, for people.
        message: String,
        /// Knowledge of whether the attempt ran.
        ran: Ran,
        /// True if the host had no room: the attempt does not count as a try.
        busy: bool,
    },
    /// A host stopped a call that was cancelled.
    CallStopped {
        /// Slot of the call.
        slot: CallSlot,
        /// The attempt that was stopped.
        attempt: Attempt,
        /// The lease of the attempt, as proof.
        lease: Digest,
        /// False if the host is sure that it did not begin the call.
        begun: bool,
    },
    /// A person answered a question.
    Decided {
        /// Id of the question.
        request: RequestId,
        /// The answer: an approval, a denial, or a text.
        decision: Decision,
        /// Digest of the content that the person was shown; `None` skips the check.
        digest: Option<Digest>,
        /// The person who answered, and their groups.
        by: Person,
        /// Rule to remember the answer as, if requested.
        remember: Option<Box<Remember>>,
    },
    /// The session of a queued run is free.
    Enter {
        /// The last entry of the session.
        last_entry: EntryNo,
        /// The rules that are remembered by now.
        rules: Vec<PolicyRule>,
        /// Tools that the model is not offered because a rule denies every call of them.
        withdrawn_tools: Vec<String>,
    },
    /// A caller has more messages for the live run.
    Steer {
        /// The request that brings the messages.
        steer: Steer,
        /// The messages. They enter the session before the next model call.
        messages: Vec<SharedMessage>,
    },
    /// The run must end now.
    Abort {
        /// Kind of the reason.
        cause: AbortCause,
        /// The reason, as people read it. Programs should not depend on its words.
        reason: String,
    },
    /// An operator resumes a paused run.
    Resume {
        /// Id of the request, which makes it idempotent.
        request: String,
        /// Name of the operator.
        by: String,
    },
    /// A planner decided on the next instruction, or failed to.
    Planned {
        /// Number of the decision, counted from 1.
        decision: u32,
        /// The instruction, or why there is none.
        result: Result<Instruction, PlanFailure>,
    },
    /// A caller moves a stepped run by one instruction.
    Step {
        /// Id of the request, which makes it idempotent.
        request: String,
        /// An open question to approve: running its tool call is the step.
        approve: Option<RequestId>,
        /// The caller that requests the step, and approves the question of `approve`.
        by: Person,
    },
    /// The time that [`crate::run::machine::Machine::deadline`] named has come.
    DeadlinePassed,
    /// A new owner has replayed the journal, and takes over what was under way.
    Recovered,
}

/// A run that starts: the content of [`Input::Start`].
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// The run, by the id that its caller or the server chose.
    pub run: RunId,
    /// The session that it enters. It exists, or is created with the run.
    pub session: SessionId,
    /// The last entry of the session; 0 if the run is queued.
    pub last_entry: EntryNo,
    /// The settings of the run.
    pub spec: Arc<RunSpec>,
    /// The run's only random number.
    pub seed: u64,
    /// The caller's messages, in the order in which they enter the session. In an import, of any role.
    pub messages: Vec<SharedMessage>,
    /// True if the run must wait until its session is free.
    pub queued: bool,
    /// The span of the caller.
    pub traceparent: Option<TraceParent>,
    /// Groups of the caller, which the hosts of the run's calls are told.
    pub caller_groups: Vec<String>,
    /// Tools that the model is not offered, though the request or the configuration names them.
    pub not_offered: NotOffered,
}

/// Tools that a run's model is not offered, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotOffered {
    /// Names in `allowed_tools` and `tool_order` that no known tool has, in that order.
    pub unknown: Vec<String>,
    /// Known tools within the run's lists that a rule denies whatever their arguments, by name.
    pub withdrawn: Vec<String>,
}

/// Outcome of the hooks and context sources that are called before the first instruction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prepared {
    /// The calls of extensions, in order.
    pub applied: Vec<ExtensionCall>,
    /// Reason not to go on, for people; `None` if the run may.
    pub failure: Option<String>,
    /// Messages of a hook, in place of the caller's.
    pub messages: Option<Vec<SharedMessage>>,
    /// Messages of context sources, which enter the session before the caller's.
    pub context: Vec<SourcedMessage>,
}

/// A message of a context source.
#[derive(Debug, Clone, PartialEq)]
pub struct SourcedMessage {
    /// The context source that added it.
    pub source: String,
    /// The message that enters the session.
    pub message: SharedMessage,
}

/// Content of [`Input::ModelFinished`]: a complete response, and facts about its tool calls.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFinished {
    /// Number of the model call in its run, counted from 1.
    pub model_call: u32,
    /// The attempt that has the response.
    pub attempt: Attempt,
    /// The whole response, reasoning and tool calls included.
    pub message: SharedMessage,
    /// Finish reason, as the provider gave it.
    pub finish: FinishReason,
    /// Tokens and cost of this call.
    pub usage: Usage,
    /// Time from the request to the first delta.
    pub first_token: Millis,
    /// Time from the request to the end of the response.
    pub duration: Millis,
    /// Digest of the tools that the model was offered.
    pub tools: Digest,
    /// Facts about each tool call of the message, in order, checked with the arguments that hooks leave.
    pub facts: Vec<CallFacts>,
    /// Changes of hooks to each tool call, in order; empty if no hook was called for any.
    pub hooked: Vec<HookedCall>,
    /// Reason for a compaction before the next model call; `None` if none is needed.
    pub full: Option<CompactionReason>,
}

/// Content of [`Input::CallFinished`]: the result of a call, and the calls of hooks about it.
#[derive(Debug, Clone, PartialEq)]
pub struct CallFinished {
    /// Slot of the call.
    pub slot: CallSlot,
    /// The attempt that has the result. The call may be at a later one.
    pub attempt: Attempt,
    /// The lease of the attempt, as proof.
    pub lease: Digest,
    /// The host that reports.
    pub host: HostId,
    /// The result, as hooks leave it.
    pub outcome: CallOutcome,
    /// Digest of the result before hooks, if they were called about it.
    pub sent: Option<Digest>,
    /// The calls of hooks about the result.
    pub applied: Vec<ExtensionCall>,
}

/// The response of a model call that is under way, as far as it has come.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponseSoFar {
    /// Number of the model call in its run, counted from 1.
    pub model_call: u32,
    /// The attempt that receives it.
    pub attempt: Attempt,
    /// Everything that has come. Tool calls and reasoning may be incomplete.
    pub message: SharedMessage,
    /// Tokens and cost, as far as the provider has said them.
    pub usage: Usage,
    /// Time from the request to the first delta.
    pub first_token: Millis,
    /// Time from the request until now.
    pub duration: Millis,
    /// Digest of the tools that the model was offered.
    pub tools: Digest,
}

/// Changes of hooks to a tool call before it runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HookedCall {
    /// The calls of hooks, in order.
    pub applied: Vec<ExtensionCall>,
    /// Arguments in place of the model's.
    pub arguments: Option<String>,
}

/// A compaction that is done: the content of [`Input::Compacted`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compacted {
    /// Number of the compaction in its run, counted from 1.
    pub number: u32,
    /// The hidden part of the context, and the summary in its place.
    pub compaction: Arc<Compaction>,
    /// Usage of the model call that wrote the summary.
    pub usage: Usage,
    /// Estimated tokens of the context before.
    pub tokens_before: u64,
    /// Estimated tokens of the context after.
    pub tokens_after: u64,
}

/// Facts about a tool call before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallFacts {
    /// The tool is known, and the arguments follow its schema.
    Ready(ReadyCall),
    /// A person's answer is the result: see [`crate::run::ask_human`].
    AsksHuman,
    /// The call writes the session's to-do list: see [`crate::run::update_todos`].
    UpdatesTodos,
    /// The call cannot run: the tool is unknown, or the arguments are wrong.
    Rejected {
        /// The reason, for the model.
        message: String,
    },
}

/// Facts about a tool call that can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyCall {
    /// The effect of running the call twice.
    pub effect: EffectClass,
    /// True if the tool's declaration requires an approval.
    pub requires_approval: bool,
    /// Time allowed for one attempt, from offer to result.
    pub timeout: Millis,
    /// True if the call needs a runtime of the run.
    pub requires_runtime: bool,
    /// Title of the tool, for people; empty if the tool declares none.
    pub title: String,
    /// True if a passed deadline is its outcome, though it must not run twice.
    pub deadline_is_outcome: bool,
    /// The digest of its tool's terms, if they are known.
    pub terms: Option<Digest>,
}

/// Failure of a model call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFailure {
    /// The kind, which decides if the call is tried again.
    pub kind: ModelErrorKind,
    /// The reason, as people read it. Programs should not depend on its words.
    pub message: String,
    /// HTTP status of the provider, if there was one.
    pub status: Option<u16>,
    /// Wait that the provider requests.
    pub retry_after: Option<Millis>,
}

/// Failure of a planner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanFailure {
    /// The reason, as people read it. Programs should not depend on its words.
    pub message: String,
}

/// Kinds of reasons to abort a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortCause {
    /// A caller called `Abort`.
    Caller,
    /// The client disconnected, and the run was told to end then.
    Disconnect,
    /// A fault of the server: the run fails.
    Fault,
    /// The run alone needs more memory than all live runs may have: it ends as failed.
    Memory,
}
