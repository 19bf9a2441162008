//! The frames of a link, as JSON texts. Fields and kinds of frames are only added. A reader ignores fields that it does not know,
//! and leaves out a frame that it cannot read, so two versions of the server can talk.

use agentloop_core::cluster::shard::OwnerNo;
use agentloop_core::host::CallUpdate;
use agentloop_core::host::frame::{CallInHand, CallRef, Disposition};
use agentloop_core::id::{Attempt, CallId, HostId, RunId, RuntimeId, TenantId};
use agentloop_core::question::InputAnswer;
use agentloop_core::run::effect::{CancelCause, Offer};
use agentloop_core::time::Millis;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::extension::ExtensionError;
use crate::extension::remote::{KnownExtension, MirroredHost, ResponseBody};
use crate::tool::host::remote::MirroredTool;
use crate::tool::{CallOrigin, ReportedResult, Verdict};

/// The largest frame, in bytes. A frame has a message of a host at most. Its JSON text can be several times as long.
pub const LINK_FRAME_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Number of a request of the hub on its links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct RequestNo(pub(super) u64);

/// Number of a command of an owner. It rises.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct CommandNo(pub(super) u64);

/// Number of a mark on a link. It rises.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct MarkNo(pub(super) u64);

/// A frame from an owner of runs to the hub.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToHub {
    /// The first frame. `to` is the replica that is meant: another one may have its address by now.
    Hello {
        from: OwnerNo,
        to: OwnerNo,
        version: String,
        /// True if the replica replies to [`ToOwner::Mark`].
        #[serde(default)]
        marks: bool,
    },
    /// Seeks a host for this call, or this host (`on`): [`crate::tool::Tools::seek`].
    Seek {
        #[serde(rename = "owner")]
        origin: CallOrigin,
        call: CallId,
        tool: String,
        on: Option<HostId>,
    },
    /// The call needs no host any more: [`crate::tool::Tools::stop_seeking`].
    StopSeeking { tenant: TenantId, call: CallId },
    /// Gives the call to the host that was found for it: [`crate::tool::Tools::offer`].
    Offer {
        #[serde(rename = "owner")]
        origin: CallOrigin,
        call: CallId,
        offer: Box<Offer>,
    },
    /// Waits for the host that may have had the call before a restart: [`crate::tool::Tools::reclaim`].
    Reclaim {
        #[serde(rename = "owner")]
        origin: CallOrigin,
        call: CallId,
        offer: Box<Offer>,
    },
    /// The run's task has ended, and the hub forgets its calls: [`crate::tool::Tools::release`].
    Release { tenant: TenantId, run: RunId },
    /// A command. It is sent again over the next link unless [`ToOwner::Done`] has come for it.
    Command { no: CommandNo, command: Command },
    /// The run knows how this attempt ended.
    Heard { tenant: TenantId, call: CallId, attempt: Attempt },
    /// The reply to a request of the hub.
    Reply { no: RequestNo, reply: EngineReply },
    /// Everything that the hub told before this [`ToOwner::Mark`] is entered.
    Marked { no: MarkNo },
    /// A request to an extension of a host. `encoded` is the message of the contract in base64.
    #[serde(rename = "ask")]
    ExtensionRequest { id: String, connection: u64, time_left: Millis, encoded: String },
}

/// A command about a call that a host has, or about a host. Doing it twice does no harm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Command {
    /// Tells the host to stop the call: [`crate::tool::Tools::cancel`].
    Cancel {
        tenant: TenantId,
        #[serde(flatten)]
        call: CallRef,
        cause: CancelCause,
        reason: String,
    },
    /// Brings the host a person's answer to its question: [`crate::tool::Tools::answer_input`].
    AnswerInput {
        tenant: TenantId,
        #[serde(flatten)]
        call: CallRef,
        input: String,
        answer: InputAnswer,
    },
    /// Tells the host that its state is stored: [`crate::tool::Tools::ack_resume_state`].
    AckResumeState {
        tenant: TenantId,
        #[serde(flatten)]
        call: CallRef,
        resume_no: u64,
    },
    /// Takes the attempt from its host, because the call waits for a person: [`crate::tool::Tools::release_call`].
    ReleaseCall {
        tenant: TenantId,
        #[serde(flatten)]
        call: CallRef,
    },
    /// The host closes what it keeps for a run: [`crate::tool::Tools::close_runtime`].
    CloseRuntime { tenant: TenantId, host: HostId, runtime: RuntimeId },
}

impl Command {
    /// The tenant and the run that it is about.
    pub(super) fn run(&self) -> (&TenantId, &RunId) {
        match self {
            Self::Cancel { tenant, call, .. }
            | Self::AnswerInput { tenant, call, .. }
            | Self::AckResumeState { tenant, call, .. }
            | Self::ReleaseCall { tenant, call } => (tenant, &call.call.run),
            Self::CloseRuntime { tenant, runtime, .. } => (tenant, &runtime.run),
        }
    }
}

/// A reply of an owner's engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EngineReply {
    /// Says what the host is to do after [`ToOwner::Finished`].
    Verdict(Verdict),
    /// The reply to [`ToOwner::UsesRuntime`]: true if the run still uses the runtime.
    Used(bool),
    /// The reply to [`ToOwner::Dispositions`], with one entry for each call.
    Dispositions(Vec<Disposition>),
    /// The engine cannot say for now.
    Unavailable,
}

/// A frame from the hub to an owner of runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToOwner {
    /// The reply to [`ToHub::Hello`]: the link is open.
    Welcome {
        version: String,
        /// True if the hub says [`Self::Queued`].
        #[serde(default)]
        says_queued: bool,
    },
    /// Something happened to a call: [`crate::tool::CallSink::report_update`].
    #[serde(rename = "news")]
    CallUpdate {
        tenant: TenantId,
        call: CallId,
        #[serde(rename = "news")]
        update: CallUpdate,
    },
    /// No host has room for the call that [`ToHub::Seek`] named: it is in the queue.
    Queued { tenant: TenantId, call: CallId },
    /// The host has done the call: [`crate::tool::CallSink::finished`].
    Finished {
        no: RequestNo,
        tenant: TenantId,
        call: CallId,
        #[serde(rename = "answer")]
        result: ReportedResult,
    },
    /// Checks if a run still uses this runtime: [`crate::tool::CallSink::uses_runtime`].
    UsesRuntime { no: RequestNo, tenant: TenantId, runtime: RuntimeId, host: HostId },
    /// Requests what a host that is back is to do with its calls: [`crate::tool::CallSink::dispositions`].
    Dispositions { no: RequestNo, tenant: TenantId, run: RunId, calls: Vec<CallInHand> },
    /// All commands up to this one are done.
    Done { no: CommandNo },
    /// The response to [`ToHub::ExtensionRequest`].
    #[serde(rename = "answered")]
    ExtensionResponded { id: String, connection: u64, result: Result<ResponseBody, ExtensionError> },
    /// Tools that the hub knows, or has forgotten.
    Tools { rows: Vec<MirroredTool> },
    /// All tools that the hub knows were told since the link was opened.
    ToolsListed {},
    /// A point among the tools and hosts that are told. The replica says [`ToHub::Marked`] when it is there.
    Mark { no: MarkNo },
    /// Extensions that the hub knows.
    Extensions { known: Vec<KnownExtension> },
    /// Connections of hosts with extensions. One without content is closed.
    Hosts { rows: Vec<(u64, Option<MirroredHost>)> },
}

/// A frame of a link.
pub(super) trait LinkFrame: Serialize {
    /// True if nothing is delayed much by it: it may leave at the [pace](crate::pace) of the link.
    fn may_wait(&self) -> bool;
}

impl LinkFrame for ToHub {
    /// The hub does not need them before the next tool call: they acknowledge, or say that something is over. A caller of
    /// `CompleteCall` does wait for a verdict, for one tick more at most.
    fn may_wait(&self) -> bool {
        match self {
            Self::Release { .. }
            | Self::Heard { .. }
            | Self::Reply { reply: EngineReply::Verdict(_), .. } => true,
            Self::Hello { .. }
            | Self::Seek { .. }
            | Self::StopSeeking { .. }
            | Self::Offer { .. }
            | Self::Reclaim { .. }
            | Self::Command { .. }
            | Self::Reply { .. }
            | Self::Marked { .. }
            | Self::ExtensionRequest { .. } => false,
        }
    }
}

impl LinkFrame for ToOwner {
    /// Reports of a call that goes on, and confirmations.
    fn may_wait(&self) -> bool {
        match self {
            Self::CallUpdate { update, .. } => match update {
                CallUpdate::Accepted { .. } | CallUpdate::Progress { .. } | CallUpdate::Output { .. } => true,
                CallUpdate::Granted { .. }
                | CallUpdate::Denied { .. }
                | CallUpdate::Checkpoint { .. }
                | CallUpdate::InputNeeded { .. }
                | CallUpdate::Resumable { .. }
                | CallUpdate::Lost { .. }
                | CallUpdate::Stopped { .. } => false,
            },
            Self::Done { .. } => true,
            Self::Welcome { .. }
            | Self::Queued { .. }
            | Self::Finished { .. }
            | Self::UsesRuntime { .. }
            | Self::Dispositions { .. }
            | Self::ExtensionResponded { .. }
            | Self::Tools { .. }
            | Self::ToolsListed {}
            | Self::Mark { .. }
            | Self::Extensions { .. }
            | Self::Hosts { .. } => false,
        }
    }
}

/// The frame as it is sent.
pub(super) fn encode(frame: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(frame).expect("ids, texts and numbers are JSON")
}

/// Reads a frame. `None` for one that this version does not know.
pub(super) fn decode<F: DeserializeOwned>(bytes: &[u8]) -> Option<F> {
    match serde_json::from_slice(bytes) {
        Ok(frame) => Some(frame),
        Err(fault) => {
            tracing::debug!(%fault, "a frame of another replica is left out: this version cannot read it");
            None
        }
    }
}
