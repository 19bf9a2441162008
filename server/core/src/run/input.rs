//! What happens to a run: everything that the world tells the machine.

use std::sync::Arc;

use crate::agent::RunSpec;
use crate::entry::{Compaction, CompactionReason};
use crate::error::ModelErrorKind;
use crate::extension::ExtensionCall;
use crate::id::{CallSlot, EntryNo, HostId, InstanceId, RequestId, RunId, SessionId};
use crate::message::{FinishReason, SharedMessage, Usage};
pub use crate::outcome::CallOutcome;
use crate::policy::PolicyRule;
use crate::question::QuestionContent;
use crate::run::event::{Ran, Steer};
use crate::run::human::{Decision, Remember};
use crate::run::plan::Instruction;
use crate::run::status::RunError;
use crate::time::Millis;
use crate::tool::{Digest, EffectClass};
use crate::trace::TraceParent;

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A caller wants a run.
    Start(Box<Start>),
    /// Hooks and context sources were asked before the run.
    Prepared(Box<Prepared>),
    /// The model finished its message.
    ModelFinished(Box<ModelFinished>),
    /// The model call failed.
    ModelFailed {
        /// Which model call.
        model_call: u32,
        /// The try, counted from 1.
        attempt: u32,
        /// How the model call failed.
        failure: ModelFailure,
    },
    /// What the model call would send passes the run's bounds on its context; nothing was sent.
    ContextTooLarge {
        /// Which model call.
        model_call: u32,
        /// The try, counted from 1.
        attempt: u32,
        /// Which bound.
        reason: CompactionReason,
        /// Estimated tokens.
        tokens: u64,
    },
    /// The context is smaller.
    Compacted(Box<Compacted>),
    /// The context could not be made smaller that way.
    CompactionFailed {
        /// Which compaction.
        number: u32,
        /// The error, as the journal keeps it.
        error: RunError,
    },
    /// A host has room for a call.
    SlotGranted {
        /// The call.
        slot: CallSlot,
        /// The host.
        host: HostId,
        /// The process behind the host's id, if it gave its name.
        instance: Option<InstanceId>,
    },
    /// No host will have room for a call.
    SlotDenied {
        /// The call.
        slot: CallSlot,
        /// Why; the model reads it.
        message: String,
    },
    /// A host works on a call.
    CallAccepted {
        /// The call.
        slot: CallSlot,
        /// The try, counted from 1.
        attempt: u32,
        /// The host.
        host: HostId,
    },
    /// A host saved how far it is.
    CallCheckpoint {
        /// The call.
        slot: CallSlot,
        /// The try, counted from 1.
        attempt: u32,
        /// Opaque.
        checkpoint: Vec<u8>,
    },
    /// A running call asks a human, for the first time or again.
    InputNeeded {
        /// The call.
        slot: CallSlot,
        /// The try, counted from 1.
        attempt: u32,
        /// What it asks, with the host's name for the question. It was found good.
        ask: QuestionContent,
        /// Given up after this; absent means as long as for every question of the run.
        timeout: Option<Millis>,
    },
    /// A host answers a call.
    CallFinished {
        /// The call.
        slot: CallSlot,
        /// The try, counted from 1.
        attempt: u32,
        /// The lease that the host was given.
        lease: Digest,
        /// The host.
        host: HostId,
        /// Its answer, as hooks leave it.
        outcome: CallOutcome,
        /// Digest of its answer before hooks, if they were asked about it.
        sent: Option<Digest>,
        /// What hooks were asked about it.
        applied: Vec<ExtensionCall>,
    },
    /// A call will not be answered by the host that had it.
    CallLost {
        /// The call.
        slot: CallSlot,
        /// The try, counted from 1.
        attempt: u32,
        /// Why, for people.
        message: String,
        /// What is known of its effects.
        ran: Ran,
        /// True if the host had no room: the attempt does not count as a try.
        busy: bool,
    },
    /// A host stopped a call that was cancelled.
    CallStopped {
        /// The call.
        slot: CallSlot,
        /// The try, counted from 1.
        attempt: u32,
        /// What the host was given with the try.
        lease: Digest,
        /// False if the host is sure that it did not begin the call.
        begun: bool,
    },
    /// A human decided.
    Decided {
        /// The question.
        request: RequestId,
        /// The answer.
        decision: Decision,
        /// What the human was shown, if said.
        digest: Option<Digest>,
        /// Who.
        by: String,
        /// Whether like questions are to be answered alike.
        remember: Option<Box<Remember>>,
    },
    /// The session of a queued run is free.
    Enter {
        /// The session's last entry.
        last_entry: EntryNo,
        /// What is remembered for runs that start now.
        rules: Vec<PolicyRule>,
    },
    /// Someone has more to say while the run is under way.
    Steer {
        /// By which request.
        steer: Steer,
        /// What enters the session before the next model call.
        messages: Vec<SharedMessage>,
    },
    /// Someone wants the run to end.
    Abort {
        /// Who or what aborted the run.
        cause: AbortCause,
        /// The reason, as people read it. Programs should not depend on its words.
        reason: String,
    },
    /// An operator lets a paused run go on.
    Resume {
        /// Makes it idempotent.
        request: String,
        /// Who.
        by: String,
    },
    /// A planner decided what to do next, or failed to.
    Planned {
        /// Which decision, from 1.
        decision: u32,
        /// What it decided.
        result: Result<Instruction, PlanFailure>,
    },
    /// Someone wants a stepped run's next instruction carried out.
    Step {
        /// Makes it idempotent.
        request: String,
        /// A question that waits: it is approved, and running its call is the step.
        approve: Option<RequestId>,
        /// Who.
        by: String,
    },
    /// The time that [`crate::run::machine::Machine::deadline`] named has come.
    DeadlinePassed,
    /// A new owner has replayed the journal, and takes over what was under way.
    Recovered,
}

/// What a run is started with.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// The run.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
    /// The session's last entry; 0 where it waits for the session first.
    pub last_entry: EntryNo,
    /// How it is to behave.
    pub spec: Arc<RunSpec>,
    /// Chance, drawn once.
    pub seed: u64,
    /// What enters the session.
    pub messages: Vec<SharedMessage>,
    /// Whether it waits for its session to be free first.
    pub queued: bool,
    /// The caller's span.
    pub traceparent: Option<TraceParent>,
}

/// What hooks and context sources made of a run before it began.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prepared {
    /// What was asked, in order.
    pub applied: Vec<ExtensionCall>,
    /// Why the run must not go on.
    pub failure: Option<String>,
    /// Put in place of the caller's messages.
    pub messages: Option<Vec<SharedMessage>>,
    /// What enters the session before them, with the name of its source.
    pub context: Vec<SourcedMessage>,
}

/// A message of a context source.
#[derive(Debug, Clone, PartialEq)]
pub struct SourcedMessage {
    /// Name of the source.
    pub source: String,
    /// The message that enters the session.
    pub message: SharedMessage,
}

/// A model's finished message and what is known about it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFinished {
    /// Which model call.
    pub model_call: u32,
    /// The try, counted from 1.
    pub attempt: u32,
    /// The message.
    pub message: SharedMessage,
    /// Why the model stopped.
    pub finish: FinishReason,
    /// Tokens of this call.
    pub usage: Usage,
    /// From request to first delta.
    pub first_token: Millis,
    /// From request to end.
    pub duration: Millis,
    /// The tools that it was offered.
    pub tools: Digest,
    /// What is known about each tool call in the message, in its order: with the arguments as hooks leave them.
    pub facts: Vec<CallFacts>,
    /// What hooks made of each tool call, in their order; empty where no hook was asked about any.
    pub hooked: Vec<Hooked>,
    /// The bound on the context that has been passed, if one has.
    pub full: Option<CompactionReason>,
}

/// What hooks made of a tool call before it runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hooked {
    /// What was asked, in order.
    pub applied: Vec<ExtensionCall>,
    /// Put in place of the model's arguments.
    pub arguments: Option<String>,
}

/// A smaller context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compacted {
    /// Which compaction.
    pub number: u32,
    /// How the context is shown from here on.
    pub compaction: Arc<Compaction>,
    /// Tokens of the model call that wrote the summary.
    pub usage: Usage,
    /// Estimated tokens before.
    pub tokens_before: u64,
    /// Estimated tokens after.
    pub tokens_after: u64,
}

/// What is known about a tool call before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallFacts {
    /// It can run.
    Ready {
        /// What running it twice means.
        effect: EffectClass,
        /// Whether its tool asks for approval.
        requires_approval: bool,
        /// From offer to result.
        timeout: Millis,
        /// Whether it needs a runtime that was opened for the run.
        requires_runtime: bool,
        /// What it is called where people read of it; empty where its tool says nothing.
        title: String,
        /// Whether a passed deadline is its outcome, though it must not run twice.
        deadline_is_outcome: bool,
    },
    /// A human answers it: see [`crate::run::ask_human`].
    AsksHuman,
    /// It cannot: unknown tool, bad arguments. The model reads why.
    Rejected {
        /// What the model reads.
        message: String,
    },
}

/// Why a model call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFailure {
    /// The kind, which decides whether it is tried again.
    pub kind: ModelErrorKind,
    /// The reason, as people read it. Programs should not depend on its words.
    pub message: String,
    /// HTTP status, where there was one.
    pub status: Option<u16>,
    /// How long the provider asks us to wait.
    pub retry_after: Option<Millis>,
}

/// Why there is no instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanFailure {
    /// The reason, as people read it. Programs should not depend on its words.
    pub message: String,
}

/// Why a run is aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortCause {
    /// Someone asked for it.
    Caller,
    /// Its client went away.
    Disconnect,
    /// A fault of ours: the run ends as failed.
    Fault,
    /// The run alone needs more memory than all live runs may have: it ends as failed.
    Memory,
}
