//! The journal: durable facts about a run. **This is the stored format**: variants and fields are only ever added,
//! the latter with a default; golden files under `tests/golden` keep what was written readable.

mod detail;
mod format;
mod reading;
mod weight;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::RunSpec;
use crate::entry::{Compaction, CompactionReason};
use crate::extension::ExtensionCall;
use crate::id::{CallSlot, EntryNo, HostId, InstanceId, RequestId, Seq, SessionId};
use crate::message::{FinishReason, SharedMessage, Usage};
pub use crate::outcome::Ran;
use crate::policy::PolicyRule;
use crate::run::human::{Answer, Question};
use crate::run::plan::Instruction;
use crate::run::status::{RunError, RunStatus};
use crate::time::{Millis, Timestamp};
use crate::tool::{Digest, EffectClass};
use crate::trace::TraceParent;

pub use detail::{Added, AfterAttempt, Observation, Outcome, Steer, Totals};
use format::{hex, is_none, is_nothing, is_one, one};

/// Version of the event format, stored beside each event.
pub const EVENT_VERSION: u32 = 1;

/// An event in its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Dense from 1.
    pub seq: Seq,
    /// When it was decided.
    pub at: Timestamp,
    /// Where the run stands after it.
    pub status: RunStatus,
    /// What happened.
    pub event: Event,
}

/// A durable fact about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// The run exists. Always the first.
    Started {
        /// Its session.
        session: SessionId,
        /// The session's last entry before it.
        last_entry: EntryNo,
        /// How it is to behave.
        spec: Arc<RunSpec>,
        /// Chance, drawn once: for jitter, leases and idempotency keys.
        seed: u64,
        /// Whether it waits for its session to be free first; then `last_entry` is 0 until it enters.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        queued: bool,
        /// The caller's span.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        traceparent: Option<TraceParent>,
    },
    /// The session is free, and the run is the one that it was waiting for: from here on it may add entries.
    SessionEntered {
        /// The session's last entry before it.
        last_entry: EntryNo,
        /// The rules that were remembered by then: they hold for the run, whatever becomes of them. Those of a run that
        /// did not wait are in its spec.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rules: Vec<PolicyRule>,
    },
    /// A message from the caller entered the session.
    InputAdded {
        /// Its place.
        entry: EntryNo,
        /// The message.
        message: SharedMessage,
    },
    /// A message from the caller came before it could enter the session: the run waits for its session, gathers
    /// context first, or is in the middle of something.
    InputHeld {
        /// The message.
        message: SharedMessage,
        /// Where it was handed to a run that was under way: by which request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steer: Option<Steer>,
    },
    /// A held message entered the session.
    InputEntered {
        /// Its place.
        entry: EntryNo,
        /// The [`Event::InputHeld`] that has it.
        held: Seq,
    },
    /// A context source's text entered the session.
    ContextAdded {
        /// The source.
        source: String,
        /// Its place.
        entry: EntryNo,
        /// The message.
        message: SharedMessage,
    },
    /// A hook or a context source was asked.
    ExtensionApplied {
        /// The tool call that it was asked about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slot: Option<CallSlot>,
        /// What became of it.
        applied: ExtensionCall,
    },
    /// The context is about to be made smaller.
    CompactionStarted {
        /// Which of the run, from 1.
        number: u32,
        /// How.
        strategy: String,
        /// Why the context is made smaller.
        reason: CompactionReason,
        /// How hard: 0 as the policy says, then harder each time that it did not help.
        #[serde(default, skip_serializing_if = "is_none")]
        level: u32,
        /// Tokens before, as far as they are known; 0 where they are not.
        #[serde(default)]
        tokens: u64,
    },
    /// Making it smaller failed. What is done in its place follows.
    CompactionFailed {
        /// The number of the compaction in its run, counted from 1.
        number: u32,
        /// How it was tried.
        strategy: String,
        /// Why it failed.
        error: RunError,
        /// Tokens of the model call that wrote a summary, where there was one.
        #[serde(default, skip_serializing_if = "is_nothing")]
        usage: Usage,
    },
    /// The context was made smaller.
    Compacted {
        /// Its place.
        entry: EntryNo,
        /// How.
        compaction: Arc<Compaction>,
        /// Tokens of the model call that wrote the summary.
        #[serde(default)]
        usage: Usage,
        /// Estimated tokens before.
        tokens_before: u64,
        /// Estimated tokens after.
        tokens_after: u64,
    },
    /// The model is about to be called with the session up to `last_entry`.
    ModelCallStarted {
        /// Which model call, from 1.
        model_call: u32,
        /// Which try, from 1.
        attempt: u32,
        /// The first try that counts against the retries: a restart or an operator gives a fresh set.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        first_counted: u32,
        /// What it reads.
        last_entry: EntryNo,
    },
    /// A try of the model call failed; its deltas are void.
    ModelCallFailed {
        /// Which model call.
        model_call: u32,
        /// The try, counted from 1.
        attempt: u32,
        /// The error, as the journal keeps it.
        error: RunError,
        /// When it is tried again, if it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
    },
    /// The model's finished message.
    AssistantMessage {
        /// Which model call.
        model_call: u32,
        /// The try, counted from 1.
        attempt: u32,
        /// Its place in the session.
        entry: EntryNo,
        /// The message.
        message: SharedMessage,
        /// Why the model stopped.
        finish: FinishReason,
        /// Tokens of this call.
        usage: Usage,
        /// From request to first delta.
        first_token: Millis,
        /// From request to end.
        duration: Millis,
        /// The tools that it was offered.
        tools: Digest,
        /// What the loop does next.
        decision: Observation,
        /// Why the context is made smaller before the next model call, if it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        full: Option<CompactionReason>,
    },
    /// It was decided what to do next: by a planner, or for a step. The built-in loop decides by itself and leaves no
    /// trace.
    Planned {
        /// The instruction that is carried out.
        instruction: Instruction,
        /// Who decided; empty for the built-in loop.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        planner: String,
        /// The call of `Step` that it is carried out for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<String>,
        /// The question that the step answers: its call runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approved: Option<RequestId>,
        /// A question that the call of `Step` names and that had been answered before: its call had leave to run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        named: Option<RequestId>,
    },
    /// A tool call was taken up.
    CallProposed {
        /// The call's place in its run.
        slot: CallSlot,
        /// The tool.
        tool: String,
        /// What running it twice means.
        effect: EffectClass,
        /// From offer to result.
        timeout: Millis,
        /// Whether a human is asked first.
        needs_approval: bool,
        /// Whether a human's answer is its result: see [`crate::run::ask_human`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        asks_human: bool,
        /// What it runs with, where a hook changed the model's arguments.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<String>,
        /// Whether it needs a runtime: all such calls of a run go to one host, as long as it is there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        needs_runtime: bool,
        /// What it is called where people read of it; empty where its tool says nothing.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        title: String,
        /// Whether a passed deadline is its outcome, though it must not run twice.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        deadline_is_outcome: bool,
    },
    /// A tool call is given to a host.
    CallOffered {
        /// The call's place in its run.
        slot: CallSlot,
        /// The tool.
        tool: String,
        /// Which try, from 1.
        attempt: u32,
        /// To whom.
        host: HostId,
        /// The process behind the host's id, if it gave its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<InstanceId>,
    },
    /// The host works on it. Written with the next event that cannot wait: nobody was told of it.
    CallAccepted {
        /// The call's place in its run.
        slot: CallSlot,
        /// The try, counted from 1.
        attempt: u32,
        /// Who.
        host: HostId,
    },
    /// The host saved how far it is. Written like [`Event::CallAccepted`].
    CallCheckpoint {
        /// The call's place in its run.
        slot: CallSlot,
        /// The try, counted from 1.
        attempt: u32,
        /// Opaque.
        #[serde(with = "hex")]
        checkpoint: Vec<u8>,
    },
    /// A try ended without a result.
    CallAttemptFailed {
        /// The call's place in its run.
        slot: CallSlot,
        /// The try, counted from 1.
        attempt: u32,
        /// Why, for people.
        message: String,
        /// What is known of its effects.
        ran: Ran,
        /// What follows.
        then: AfterAttempt,
        /// Whether the host rejected it because it had no room: then it was no try of the call.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        busy: bool,
    },
    /// A tool call has its one result.
    CallSettled {
        /// The call's place in its run.
        slot: CallSlot,
        /// Which try gave it; 0 where no host was given the call.
        attempt: u32,
        /// Who gave it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<HostId>,
        /// Its place in the session.
        entry: EntryNo,
        /// A tool message of one result.
        message: SharedMessage,
        /// From the first offer.
        duration: Millis,
        /// Digest of the host's outcome, before hooks: another one of the same try is not this result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Digest>,
    },
    /// A human is asked.
    HumanRequested {
        /// The question that is asked.
        question: Question,
    },
    /// A question is settled.
    HumanResolved {
        /// The question's id.
        request: RequestId,
        /// The call that it was about, or that asked; absent where the planner asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slot: Option<CallSlot>,
        /// How.
        answer: Answer,
    },
    /// The run waits for an operator.
    Paused {
        /// The error, as the journal keeps it.
        error: RunError,
    },
    /// An operator let it go on.
    Resumed {
        /// Who.
        by: String,
        /// The id that makes resuming idempotent.
        request: String,
    },
    /// The run is over. Always the last.
    Finished {
        /// How.
        outcome: Outcome,
        /// Why, unless completed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<RunError>,
        /// What it took.
        totals: Totals,
    },
}
