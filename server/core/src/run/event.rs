//! The journal: durable facts about a run. **This is the stored format**: variants and fields are only ever added,
//! the latter with a default; golden files under `tests/golden` keep what was written readable.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::RunSpec;
use crate::entry::{Compaction, CompactionReason, Entry};
use crate::extension::Applied;
use crate::id::{CallSlot, EntryNo, HostId, RequestId, RunId, Seq, SessionId};
use crate::message::{FinishReason, SharedMessage, Usage};
pub use crate::outcome::Ran;
use crate::run::human::{Answer, Question};
use crate::run::plan::Instruction;
use crate::run::status::{RunError, RunStatus};
use crate::time::{Millis, Timestamp};
use crate::tool::{Digest, EffectClass};

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
    },
    /// The session is free, and the run is the one that it was waiting for: from here on it may add entries.
    SessionEntered {
        /// The session's last entry before it.
        last_entry: EntryNo,
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
        applied: Applied,
    },
    /// The context is about to be made smaller.
    CompactionStarted {
        /// Which of the run, from 1.
        number: u32,
        /// How.
        strategy: String,
        /// Why.
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
        /// Which.
        number: u32,
        /// How it was tried.
        strategy: String,
        /// Why it failed.
        error: RunError,
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
        /// Which try.
        attempt: u32,
        /// Why.
        error: RunError,
        /// When it is tried again, if it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
    },
    /// The model's finished message.
    AssistantMessage {
        /// Which model call.
        model_call: u32,
        /// Which try.
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
        /// What.
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
    },
    /// A tool call was taken up.
    CallProposed {
        /// Which.
        slot: CallSlot,
        /// The tool.
        tool: String,
        /// What running it twice means.
        effect: EffectClass,
        /// From offer to result.
        timeout: Millis,
        /// Whether a human is asked first.
        needs_approval: bool,
        /// What it runs with, where a hook changed the model's arguments.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<String>,
        /// Whether it needs a runtime: all such calls of a run go to one host, as long as it is there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        needs_runtime: bool,
        /// Whether a human's answer is its result: see [`crate::run::ask_human`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        asks_human: bool,
    },
    /// A tool call is given to a host.
    CallOffered {
        /// Which.
        slot: CallSlot,
        /// The tool.
        tool: String,
        /// Which try, from 1.
        attempt: u32,
        /// To whom.
        host: HostId,
    },
    /// The host works on it. Written with the next event that cannot wait: nobody was told of it.
    CallAccepted {
        /// Which.
        slot: CallSlot,
        /// Which try.
        attempt: u32,
        /// Who.
        host: HostId,
    },
    /// The host saved how far it is. Written like [`Event::CallAccepted`].
    CallCheckpoint {
        /// Which.
        slot: CallSlot,
        /// Which try.
        attempt: u32,
        /// Opaque.
        #[serde(with = "hex")]
        checkpoint: Vec<u8>,
    },
    /// A try ended without a result.
    CallAttemptFailed {
        /// Which.
        slot: CallSlot,
        /// Which try.
        attempt: u32,
        /// Why, for people.
        message: String,
        /// What is known of its effects.
        ran: Ran,
        /// What follows.
        then: AfterAttempt,
    },
    /// A tool call has its one result.
    CallSettled {
        /// Which.
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
    },
    /// A human is asked.
    HumanRequested {
        /// What.
        question: Question,
    },
    /// A question is settled.
    HumanResolved {
        /// Which.
        request: RequestId,
        /// The call that it was about, or that asked; absent where the planner asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slot: Option<CallSlot>,
        /// How.
        answer: Answer,
    },
    /// The run waits for an operator.
    Paused {
        /// Why.
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

/// The request that handed messages to a run that was under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steer {
    /// Its id, which makes it idempotent: the id that its run would have had on an idle session.
    pub id: RunId,
    /// Of everything that it asked for: the same digest is the same request.
    pub digest: Digest,
}

/// Where the content of a session's new entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// In the event that adds it.
    Own,
    /// In the event of this run that held it.
    Held(Seq),
}

/// What a run took in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Tokens.
    pub usage: Usage,
    /// Model calls.
    pub iterations: u32,
    /// Tool calls.
    pub tool_calls: u32,
    /// From start to end.
    pub duration: Millis,
    /// The session's last entry.
    pub last_entry: EntryNo,
    /// In model calls, from request to end.
    #[serde(default, skip_serializing_if = "Millis::is_zero")]
    pub model_time: Millis,
    /// In tool calls, from first offer to result; calls side by side count each.
    #[serde(default, skip_serializing_if = "Millis::is_zero")]
    pub tool_time: Millis,
    /// The entry of the model's last message, where that is not the session's last; 0 where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_entry: Option<EntryNo>,
}

/// What the loop does after it has looked at the model's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observation {
    /// Run tools, then ask the model again.
    Continue,
    /// Make the context smaller, then go on.
    Compact,
    /// The run is over.
    Stop,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With the model's final message.
    Completed,
    /// It went wrong.
    Failed,
    /// Someone ended it.
    Aborted,
}

/// What follows a try without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "then", rename_all = "snake_case")]
pub enum AfterAttempt {
    /// Another try.
    Retry {
        /// Not before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
    },
    /// A human, a late result or a timeout settles it.
    InDoubt,
    /// It is settled by the event that follows.
    Settle,
}

impl Event {
    /// The place that this event gives to something in its session, if it does.
    #[must_use]
    pub fn entry(&self) -> Option<(EntryNo, Added)> {
        match self {
            Self::InputAdded { entry, .. }
            | Self::ContextAdded { entry, .. }
            | Self::AssistantMessage { entry, .. }
            | Self::CallSettled { entry, .. }
            | Self::Compacted { entry, .. } => Some((*entry, Added::Own)),
            Self::InputEntered { entry, held } => Some((*entry, Added::Held(*held))),
            Self::Started { .. }
            | Self::SessionEntered { .. }
            | Self::InputHeld { .. }
            | Self::CompactionStarted { .. }
            | Self::CompactionFailed { .. }
            | Self::ModelCallStarted { .. }
            | Self::ModelCallFailed { .. }
            | Self::ExtensionApplied { .. }
            | Self::Planned { .. }
            | Self::CallProposed { .. }
            | Self::CallOffered { .. }
            | Self::CallAccepted { .. }
            | Self::CallCheckpoint { .. }
            | Self::CallAttemptFailed { .. }
            | Self::HumanRequested { .. }
            | Self::HumanResolved { .. }
            | Self::Paused { .. }
            | Self::Resumed { .. }
            | Self::Finished { .. } => None,
        }
    }

    /// What this event holds for a session: it enters with the event itself, or is held until a later one.
    #[must_use]
    pub fn content(&self) -> Option<Entry> {
        match self {
            Self::InputAdded { message, .. }
            | Self::InputHeld { message, .. }
            | Self::ContextAdded { message, .. }
            | Self::AssistantMessage { message, .. }
            | Self::CallSettled { message, .. } => Some(Entry::Message(message.clone())),
            Self::Compacted { compaction, .. } => Some(Entry::Compaction(compaction.clone())),
            Self::Started { .. }
            | Self::SessionEntered { .. }
            | Self::InputEntered { .. }
            | Self::CompactionStarted { .. }
            | Self::CompactionFailed { .. }
            | Self::ModelCallStarted { .. }
            | Self::ModelCallFailed { .. }
            | Self::ExtensionApplied { .. }
            | Self::Planned { .. }
            | Self::CallProposed { .. }
            | Self::CallOffered { .. }
            | Self::CallAccepted { .. }
            | Self::CallCheckpoint { .. }
            | Self::CallAttemptFailed { .. }
            | Self::HumanRequested { .. }
            | Self::HumanResolved { .. }
            | Self::Paused { .. }
            | Self::Resumed { .. }
            | Self::Finished { .. } => None,
        }
    }

    /// Whether it may wait a moment for company before it is made durable: nothing outside rests on it.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        matches!(self, Self::CallAccepted { .. } | Self::CallCheckpoint { .. })
    }

    /// Its name, as stored in the column `kind`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::SessionEntered { .. } => "session_entered",
            Self::InputAdded { .. } => "input_added",
            Self::InputHeld { .. } => "input_held",
            Self::InputEntered { .. } => "input_entered",
            Self::ContextAdded { .. } => "context_added",
            Self::ExtensionApplied { .. } => "extension_applied",
            Self::CompactionStarted { .. } => "compaction_started",
            Self::CompactionFailed { .. } => "compaction_failed",
            Self::Compacted { .. } => "compacted",
            Self::ModelCallStarted { .. } => "model_call_started",
            Self::ModelCallFailed { .. } => "model_call_failed",
            Self::AssistantMessage { .. } => "assistant_message",
            Self::Planned { .. } => "planned",
            Self::CallProposed { .. } => "call_proposed",
            Self::CallOffered { .. } => "call_offered",
            Self::CallAccepted { .. } => "call_accepted",
            Self::CallCheckpoint { .. } => "call_checkpoint",
            Self::CallAttemptFailed { .. } => "call_attempt_failed",
            Self::CallSettled { .. } => "call_settled",
            Self::HumanRequested { .. } => "human_requested",
            Self::HumanResolved { .. } => "human_resolved",
            Self::Paused { .. } => "paused",
            Self::Resumed { .. } => "resumed",
            Self::Finished { .. } => "finished",
        }
    }
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_none(number: &u32) -> bool {
    *number == 0
}

/// Bytes as lower-case hex, so that a journal stays readable with any SQL shell.
mod hex {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        (0..text.len())
            .step_by(2)
            .map(|at| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()))
            .collect::<Option<Vec<u8>>>()
            .ok_or_else(|| D::Error::custom("not hex"))
    }
}
