//! The effects of the machine: I/O that its driver must perform. Each says to which later inputs it leads, if to any.

use serde::{Deserialize, Serialize};

use crate::entry::CompactionReason;
use crate::id::{Attempt, CallSlot, EntryNo, HostId, InstanceId, RuntimeId};
pub use crate::outcome::CancelCause;
use crate::question::{InputAnswer, InputReply};
use crate::run::plan::Situation;
use crate::time::{Millis, Timestamp};
use crate::tool::{Digest, Runtime};

/// I/O that the machine requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Call the model with the session up to `last_entry`.
    /// Leads to [`super::input::Input::ModelFinished`] or [`super::input::Input::ModelFailed`].
    CallModel {
        /// Number of the model call in its run, counted from 1.
        model_call: u32,
        /// The attempt to make.
        attempt: Attempt,
        /// The last entry that the model reads.
        last_entry: EntryNo,
        /// True if the request must be compared with the run's limits on its context first. If it passes them, the
        /// effect leads to [`super::input::Input::ContextTooLarge`]. After a compaction it is false: a context that
        /// stays too large is sent as it is.
        checked: bool,
    },
    /// Replace the older part of the context by a shorter one.
    /// Leads to [`super::input::Input::Compacted`] or [`super::input::Input::CompactionFailed`].
    Compact {
        /// Number of the compaction in its run, counted from 1.
        number: u32,
        /// The strategy that the spec names.
        strategy: String,
        /// Reason for the compaction.
        reason: CompactionReason,
        /// Strength: see [`crate::run::event::Event::CompactionStarted`].
        level: u32,
        /// The last entry of the context.
        last_entry: EntryNo,
    },
    /// Stop the compaction. Leads to nothing.
    StopCompacting {
        /// Number of the compaction in its run, counted from 1.
        number: u32,
    },
    /// Cancel the model call. Leads to nothing.
    StopModel {
        /// Number of the model call in its run, counted from 1.
        model_call: u32,
        /// The attempt to cancel.
        attempt: Attempt,
    },
    /// Call the run's hooks, then its context sources, before the waiting messages enter the session.
    /// Leads to [`super::input::Input::Prepared`].
    Prepare,
    /// Cancel the hooks and context sources. Leads to nothing.
    StopPreparing,
    /// Call the run's planner for the next instruction. Leads to [`super::input::Input::Planned`].
    Plan {
        /// Number of the decision, counted from 1.
        decision: u32,
        /// Reason why an instruction is needed.
        situation: Situation,
    },
    /// Cancel the call of the planner. Leads to nothing.
    StopPlanning {
        /// Number of the decision, counted from 1.
        decision: u32,
    },
    /// Find a host with room. May be performed before the records are durable, because nothing leaves the process.
    /// Leads to [`super::input::Input::HostGranted`] or [`super::input::Input::HostDenied`].
    SeekHost {
        /// Slot of the call.
        slot: CallSlot,
        /// The tool that the host has to serve.
        tool: String,
        /// The host with the runtime that the call needs. No other host may be granted while that one is there.
        on: Option<HostId>,
    },
    /// Stop the search. Leads to nothing.
    StopSeeking {
        /// Slot of the call.
        slot: CallSlot,
    },
    /// Send the call to the host that was granted.
    /// Leads to [`super::input::Input::CallFinished`] or [`super::input::Input::CallLost`].
    OfferCall(Offer),
    /// After a restart: the host may have the call. Wait until it connects and claims it. Leads to the same inputs.
    ReclaimCall(Offer),
    /// Close a runtime: the run has ended, or uses another runtime by now. Leads to nothing. A host that is away is told
    /// when it comes back with the runtime.
    CloseRuntime {
        /// The host with the runtime.
        host: HostId,
        /// The runtime to close, as the host knows it.
        runtime: RuntimeId,
    },
    /// Tell the host the answer to a question of its call. Leads to nothing. A host that is away repeats its question.
    AnswerInput {
        /// Slot of the call.
        slot: CallSlot,
        /// The attempt that asked.
        attempt: Attempt,
        /// The host's name for the question.
        input: String,
        /// The answer, or why there is none.
        answer: InputAnswer,
    },
    /// Tell the host that a state of its call is recorded. Leads to nothing. A host that is away sends the state again.
    AckResumeState {
        /// Slot of the call.
        slot: CallSlot,
        /// The attempt that left the state.
        attempt: Attempt,
        /// The greatest number that is recorded.
        resume_no: u64,
    },
    /// Tell the host that it does not have the call any more: the call waits for a person, and goes on with its next
    /// attempt. Leads to nothing.
    ReleaseCall {
        /// Slot of the call.
        slot: CallSlot,
        /// The attempt that ends.
        attempt: Attempt,
    },
    /// Tell the host to stop the call. Leads to [`super::input::Input::CallStopped`] if the host says that it did; a run
    /// that does not wait for the call any more refuses that.
    CancelCall {
        /// Slot of the call.
        slot: CallSlot,
        /// The attempt to cancel.
        attempt: Attempt,
        /// The reason, for programs.
        cause: CancelCause,
        /// The reason, as people read it. Programs should not depend on its words.
        reason: String,
    },
}

/// A call as it is offered to a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Slot of the call.
    pub slot: CallSlot,
    /// The attempt that the offer begins.
    pub attempt: Attempt,
    /// The host that was granted.
    pub host: HostId,
    /// The process behind the host's id, if it gave its name and the call is not known to have begun there.
    pub instance: Option<InstanceId>,
    /// Secret of the attempt, which the host returns with the result.
    pub lease: Digest,
    /// Key by which the tool recognises a repeated call.
    pub idempotency_key: String,
    /// The tool to run, as the call was proposed.
    pub tool: String,
    /// Arguments as JSON text.
    pub arguments: String,
    /// The time at which the attempt is given up.
    pub deadline: Timestamp,
    /// Time until the deadline, for a host whose clock differs.
    pub time_left: Millis,
    /// Checkpoint of the last attempt that saved one.
    #[serde(default, with = "crate::text::hex::maybe")]
    pub checkpoint: Option<Vec<u8>>,
    /// The state to go on from, if an attempt left one.
    #[serde(default, with = "crate::text::hex::maybe")]
    pub resume_state: Option<Vec<u8>>,
    /// Answers to the questions of earlier attempts, in the order of the questions.
    pub answers: Vec<InputReply>,
    /// The runtime to run in, if the call needs one.
    pub runtime: Option<Runtime>,
}
