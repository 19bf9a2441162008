//! What the machine asks of the world. Each effect leads to one later input, or is fire-and-forget where it says so.

use crate::entry::CompactionReason;
use crate::id::{CallSlot, EntryNo, HostId, InstanceId, RuntimeId};
pub use crate::outcome::CancelCause;
use crate::question::InputAnswer;
use crate::run::plan::Situation;
use crate::time::{Millis, Timestamp};
use crate::tool::{Digest, Runtime};

/// I/O that the core asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Call the model with the session up to `last_entry`.
    /// Leads to [`super::input::Input::ModelFinished`] or [`super::input::Input::ModelFailed`].
    CallModel {
        /// Which model call.
        model_call: u32,
        /// The try, counted from 1.
        attempt: u32,
        /// What it reads.
        last_entry: EntryNo,
        /// Whether it is held against the run's bounds on its context first, which leads to
        /// [`super::input::Input::ContextTooLarge`] where it passes them. Once is enough: what a compaction cannot
        /// make small enough is sent as it is.
        checked: bool,
    },
    /// Make the context smaller.
    /// Leads to [`super::input::Input::Compacted`] or [`super::input::Input::CompactionFailed`].
    Compact {
        /// Which of the run, from 1.
        number: u32,
        /// How.
        strategy: String,
        /// Why the context is made smaller.
        reason: CompactionReason,
        /// How hard.
        level: u32,
        /// Entries up to this one are the context.
        last_entry: EntryNo,
    },
    /// The smaller context is not wanted any more. Leads to nothing.
    StopCompacting {
        /// The number of the compaction in its run, counted from 1.
        number: u32,
    },
    /// Hang up on the model. Leads to nothing.
    StopModel {
        /// Which model call.
        model_call: u32,
        /// The try, counted from 1.
        attempt: u32,
    },
    /// Ask the run's hooks, then its context sources, before the messages that are held enter the session.
    /// Leads to [`super::input::Input::Prepared`].
    Prepare,
    /// Nobody waits for that any more. Leads to nothing.
    StopPreparing,
    /// Ask the run's planner what to do next. Leads to [`super::input::Input::Planned`].
    Plan {
        /// Which decision, from 1.
        decision: u32,
        /// Why the run stands still.
        situation: Situation,
    },
    /// The planner need not answer any more. Leads to nothing.
    StopPlanning {
        /// Which decision.
        decision: u32,
    },
    /// Find a host with room. May be carried out before the step is durable, since nothing leaves the process.
    /// Leads to [`super::input::Input::SlotGranted`] or [`super::input::Input::SlotDenied`].
    SeekHost {
        /// The call.
        slot: CallSlot,
        /// The tool.
        tool: String,
        /// The host that has the runtime which it needs: no other, as long as that one is there.
        on: Option<HostId>,
    },
    /// Seek no longer. Leads to nothing.
    StopSeeking {
        /// The call.
        slot: CallSlot,
    },
    /// Send the call to the host that has room for it.
    /// Leads to [`super::input::Input::CallFinished`] or [`super::input::Input::CallLost`].
    OfferCall(Offer),
    /// After a restart: the host may have the call; wait for it to come back and say so. Leads to the same.
    ReclaimCall(Offer),
    /// The run is over, or its runtime is elsewhere by now. Leads to nothing; a host that is away is told when it comes
    /// back with the runtime.
    CloseRuntime {
        /// The host that has it.
        host: HostId,
        /// The runtime that is closed.
        runtime: RuntimeId,
    },
    /// Tell the host what a human answered to its call's question. Leads to nothing; a host that is away asks again.
    AnswerInput {
        /// The call.
        slot: CallSlot,
        /// The try, counted from 1.
        attempt: u32,
        /// The host's name for the question.
        input: String,
        /// What it hears.
        answer: InputAnswer,
    },
    /// Tell the host to stop. Leads to [`super::input::Input::CallStopped`] if the host says that it did; a run that does
    /// not wait for the call any more refuses that.
    CancelCall {
        /// The call.
        slot: CallSlot,
        /// The try, counted from 1.
        attempt: u32,
        /// The reason, for programs.
        cause: CancelCause,
        /// The reason, as people read it. Programs should not depend on its words.
        reason: String,
    },
}

/// A call on its way to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The call.
    pub slot: CallSlot,
    /// The try, counted from 1.
    pub attempt: u32,
    /// The host that has room.
    pub host: HostId,
    /// The process behind the host's id, if it gave its name and the call is not known to have begun there.
    pub instance: Option<InstanceId>,
    /// To be sent back with the result.
    pub lease: Digest,
    /// For the tool to dedupe by.
    pub idempotency_key: String,
    /// The tool.
    pub tool: String,
    /// JSON text.
    pub arguments: String,
    /// Given up after this.
    pub deadline: Timestamp,
    /// Time until then, for a host whose clock differs.
    pub time_left: Millis,
    /// What the last try saved.
    pub checkpoint: Option<Vec<u8>>,
    /// What it is to run in, where it needs that.
    pub runtime: Option<Runtime>,
}
