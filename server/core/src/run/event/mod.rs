//! The events of a run's journal. **This is the stored format**: variants and fields are only added, fields with a
//! default. Golden files under `tests/golden` prove that old journals stay readable.

mod detail;
mod format;
mod reading;
mod weight;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::RunSpec;
use crate::entry::{Compaction, CompactionReason};
use crate::extension::ExtensionCall;
use crate::id::{Attempt, CallSlot, EntryNo, HostId, InstanceId, RequestId, Seq, SessionId};
use crate::message::{FinishReason, SharedMessage, Usage};
pub use crate::outcome::Ran;
use crate::policy::PolicyRule;
use crate::run::human::{Answer, Question};
use crate::run::plan::Instruction;
use crate::run::status::{RunError, RunStatus};
use crate::text::hex::{self, maybe as maybe_hex};
use crate::time::{Millis, Timestamp};
use crate::todo::TodoItem;
use crate::tool::{Digest, EffectClass};
use crate::trace::TraceParent;

pub use detail::{AfterAttempt, EntryContent, Observation, Outcome, Steer, Totals};
use format::{first_attempt, is_first_attempt, is_none, is_nothing, is_zero};

/// Version of the event format, stored beside each event.
pub const EVENT_VERSION: u32 = 1;

/// An event with its number, time and status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Number of the event in its run, dense from 1.
    pub seq: Seq,
    /// The time at which the machine decided the event.
    pub at: Timestamp,
    /// Status of the run after the event.
    pub status: RunStatus,
    /// The fact that the record tells.
    pub event: Event,
}

/// A durable fact about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// The run exists. Always the first event.
    Started {
        /// The session that the run belongs to.
        session: SessionId,
        /// The session's last entry before the run; 0 for a queued run, until it enters.
        last_entry: EntryNo,
        /// The settings of the run.
        spec: Arc<RunSpec>,
        /// The run's only random number: jitter, leases and idempotency keys follow from it.
        seed: u64,
        /// True if the run waits until its session is free.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        queued: bool,
        /// The span of the caller.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        traceparent: Option<TraceParent>,
        /// Names in the spec that no known tool had when the run started.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unknown_tools: Vec<String>,
        /// Tools that were known, and that the model is not offered because a rule of the spec denies every call of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        withdrawn_tools: Vec<String>,
        /// Groups of the caller that started the run, as its credential proved them at that time. Hosts are told of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        caller_groups: Vec<String>,
        /// True if nobody can tell the seed from an idempotency key. Runs of earlier versions keep the keys that they have.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        hidden_seed: bool,
    },
    /// The session is free, and this queued run is the next: from here on it may add entries.
    SessionEntered {
        /// The session's last entry before the run.
        last_entry: EntryNo,
        /// Rules that were remembered by then. They hold for the whole run, even if they are deleted meanwhile. A run
        /// that was not queued has them in its spec.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rules: Vec<PolicyRule>,
        /// Tools that the model is not offered because a rule denies every call of them, the rules above included.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        withdrawn_tools: Vec<String>,
    },
    /// A message from the caller entered the session.
    #[serde(rename = "input_added")]
    MessageAdded {
        /// Entry of the message.
        entry: EntryNo,
        /// The caller's message, as it enters the session.
        message: SharedMessage,
    },
    /// A message arrived that cannot enter the session yet: the run is queued, is being prepared, or is at work.
    #[serde(rename = "input_held")]
    MessageHeld {
        /// The message that waits.
        message: SharedMessage,
        /// The request that gave the message to the live run; absent for a message that the run was started with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steer: Option<Steer>,
    },
    /// A waiting message entered the session.
    #[serde(rename = "input_entered")]
    MessageEntered {
        /// Entry of the message.
        entry: EntryNo,
        /// Number of the [`Event::MessageHeld`] that has the message.
        held: Seq,
    },
    /// A message of a conversation that was held elsewhere entered the session. Its author may be anyone.
    Imported {
        /// Entry of the message.
        entry: EntryNo,
        /// The message. Slots of its tool calls are of this run.
        message: SharedMessage,
    },
    /// A text that no user wrote entered the session: of a context source, or the note after a response that was cut off.
    ContextAdded {
        /// Name of the context source; `cut_off` for the note.
        source: String,
        /// Entry of the message.
        entry: EntryNo,
        /// The text of the source, as a message.
        message: SharedMessage,
    },
    /// A hook or a context source was called.
    ExtensionApplied {
        /// The tool call that the hook was called for; absent before the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slot: Option<CallSlot>,
        /// The call and its outcome.
        applied: ExtensionCall,
    },
    /// A compaction is about to begin.
    CompactionStarted {
        /// Number of the compaction in its run, counted from 1.
        number: u32,
        /// The strategy that the spec names.
        strategy: String,
        /// Reason for the compaction.
        reason: CompactionReason,
        /// Strength: 0 as the policy says, then one more each time that the last compaction did not help.
        #[serde(default, skip_serializing_if = "is_none")]
        level: u32,
        /// Tokens of the context before; 0 if they are not known.
        #[serde(default)]
        tokens: u64,
    },
    /// The compaction failed. The next event says what is done instead.
    CompactionFailed {
        /// Number of the compaction in its run, counted from 1.
        number: u32,
        /// Name of the strategy that failed.
        strategy: String,
        /// The reason of the failure.
        error: RunError,
        /// Usage of the model call that wrote a summary, if there was one.
        #[serde(default, skip_serializing_if = "is_nothing")]
        usage: Usage,
    },
    /// A compaction succeeded: the context is smaller from here on.
    Compacted {
        /// Entry of the compaction.
        entry: EntryNo,
        /// The hidden part of the context, and the summary in its place.
        compaction: Arc<Compaction>,
        /// Usage of the model call that wrote the summary.
        #[serde(default)]
        usage: Usage,
        /// Estimated tokens of the context before.
        tokens_before: u64,
        /// Estimated tokens of the context after.
        tokens_after: u64,
    },
    /// The model is about to be called with the session up to `last_entry`.
    ModelCallStarted {
        /// Number of the model call in its run, counted from 1.
        model_call: u32,
        /// The attempt that begins.
        attempt: Attempt,
        /// The first attempt that counts against the retries. A restart or an operator gives a new set of retries.
        #[serde(default = "first_attempt", skip_serializing_if = "is_first_attempt")]
        first_counted: Attempt,
        /// The last entry that the model reads.
        last_entry: EntryNo,
    },
    /// An attempt of the model call failed; its deltas are void.
    ModelCallFailed {
        /// Number of the model call in its run, counted from 1.
        model_call: u32,
        /// The attempt that failed.
        attempt: Attempt,
        /// The reason of the failure.
        error: RunError,
        /// The time of the next attempt; absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
    },
    /// The response of a model is complete.
    AssistantMessage {
        /// Number of the model call in its run, counted from 1.
        model_call: u32,
        /// The attempt that has the response.
        attempt: Attempt,
        /// Entry of the message.
        entry: EntryNo,
        /// The response, with its tool calls.
        message: SharedMessage,
        /// Finish reason, as the provider gave it.
        finish: FinishReason,
        /// Tokens and cost of this call.
        usage: Usage,
        /// Time from the request to the first delta.
        first_token: Millis,
        /// Time from the request to the end of the response.
        duration: Millis,
        /// Digest of the tools that the model was offered.
        tools: Digest,
        /// The next activity of the loop.
        decision: Observation,
        /// Reason for a compaction before the next model call; absent if none is needed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        full: Option<CompactionReason>,
    },
    /// An instruction was decided by a planner, or for a step. Other instructions of the built-in loop are not recorded.
    Planned {
        /// The instruction that is carried out.
        instruction: Instruction,
        /// Name of the planner; empty for the built-in loop.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        planner: String,
        /// Id of the `Step` request that the instruction is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<String>,
        /// The open question that the step approves: its tool call runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approved: Option<RequestId>,
        /// The question that the call of `Step` names, if it was approved before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        named: Option<RequestId>,
    },
    /// A tool call may run, at once or after an approval.
    CallProposed {
        /// Slot of the call in its run.
        slot: CallSlot,
        /// The tool to run, as the model named it.
        tool: String,
        /// The effect of running the call twice.
        effect: EffectClass,
        /// Time allowed for one attempt, from offer to result.
        timeout: Millis,
        /// True if a person must approve the call first.
        needs_approval: bool,
        /// True if a person's answer is the result: see [`crate::run::ask_human`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        asks_human: bool,
        /// Arguments of a hook, in place of the model's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<String>,
        /// True if the call needs a runtime. All such calls of a run go to one host, as long as it is there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        needs_runtime: bool,
        /// Title of the tool, for people; empty if the tool declares none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        title: String,
        /// True if a passed deadline is its outcome, though it must not run twice.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        deadline_is_outcome: bool,
        /// The digest of its tool's terms, where a human may be asked about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terms: Option<Digest>,
    },
    /// A tool call is about to be offered to a host.
    CallOffered {
        /// Slot of the call in its run.
        slot: CallSlot,
        /// The tool to run, as in the proposal.
        tool: String,
        /// The attempt that begins with this offer.
        attempt: Attempt,
        /// The host that has room for it.
        host: HostId,
        /// The process behind the host's id, if it gave its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<InstanceId>,
        /// Its effect class from here on: the strictest of the class at the proposal and of the terms that it
        /// was offered under. Absent in older journals, where the proposal's counts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effect: Option<EffectClass>,
        /// Digest of the schema of the typed output in the host's declaration, as in its
        /// [`ToolTerms`](crate::tool::ToolTerms): its result is checked against that schema. Absent in older journals.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output_schema: Option<Digest>,
    },
    /// A host runs the call. Written with the next event that cannot wait, because nothing depends on it.
    CallAccepted {
        /// Slot of the call in its run.
        slot: CallSlot,
        /// The attempt that the host confirmed.
        attempt: Attempt,
        /// The host that runs the call.
        host: HostId,
    },
    /// The host saved a checkpoint. Written like [`Event::CallAccepted`], unless it has a `resume_no`.
    CallCheckpoint {
        /// Slot of the call in its run.
        slot: CallSlot,
        /// The attempt that saved it.
        attempt: Attempt,
        /// Opaque bytes of the tool.
        #[serde(with = "hex")]
        checkpoint: Vec<u8>,
        /// Number of the state within the attempt, if the host promises that going on from it does not repeat what was
        /// done. The host waits for the acknowledgement of such a state. 0 for a checkpoint, which is advice.
        #[serde(default, skip_serializing_if = "is_zero")]
        resume_no: u64,
    },
    /// An attempt ended without a result.
    CallAttemptFailed {
        /// Slot of the call in its run.
        slot: CallSlot,
        /// The attempt that failed.
        attempt: Attempt,
        /// The reason, for people.
        message: String,
        /// Knowledge of whether the attempt ran.
        ran: Ran,
        /// The next state of the call.
        then: AfterAttempt,
        /// True if the host rejected it because it had no room: then it was no try of the call.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        busy: bool,
    },
    /// A tool call has its one result.
    CallSettled {
        /// Slot of the call in its run.
        slot: CallSlot,
        /// The last attempt; 0 if no host was offered the call.
        attempt: Attempt,
        /// The host that the result is from; absent if something else settled the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<HostId>,
        /// Entry of the result.
        entry: EntryNo,
        /// A tool message with one result.
        message: SharedMessage,
        /// Time from the first offer to the result.
        duration: Millis,
        /// Digest of the host's outcome, before hooks: another one of the same try is not this result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Digest>,
    },
    /// The model wrote the session's to-do list. The result of its call follows.
    TodosUpdated {
        /// Slot of the call in its run.
        slot: CallSlot,
        /// Entry of the call's result: a fork that shares it has the list.
        result: EntryNo,
        /// The whole list, in the model's order.
        items: Arc<Vec<TodoItem>>,
    },
    /// A question is put to people.
    HumanRequested {
        /// The question, with its deadline.
        question: Question,
        /// State that the call which asks goes on from: no host has the call until the answer, which comes with its next
        /// attempt.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "maybe_hex")]
        resume_state: Option<Vec<u8>>,
    },
    /// One person approved a call that several must approve. The question stays open.
    HumanApproved {
        /// Id of the question.
        request: RequestId,
        /// The call that the question is about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slot: Option<CallSlot>,
        /// Name of the person.
        by: String,
        /// Approvals so far, with this one.
        approvals: u32,
        /// Approvals that the question needs.
        quorum: u32,
    },
    /// A question is answered, expired or withdrawn.
    HumanResolved {
        /// Id of the question.
        request: RequestId,
        /// The call that the question is about, or that asks; absent if the planner asks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slot: Option<CallSlot>,
        /// The decision, with its author and time.
        answer: Answer,
    },
    /// The run waits for an operator: the model stayed unreachable.
    Paused {
        /// The last failure of the model call.
        error: RunError,
    },
    /// An operator resumed the run.
    Resumed {
        /// Name of the operator.
        by: String,
        /// Id of the request, which makes it idempotent.
        request: String,
    },
    /// The run has ended. Always the last event.
    Finished {
        /// Outcome of the run.
        outcome: Outcome,
        /// Error that ended the run; absent if it completed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<RunError>,
        /// Counters and times of the whole run.
        totals: Totals,
    },
}
