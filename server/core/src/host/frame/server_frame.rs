//! Frames to hosts, and their size.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::CallRef;
use crate::id::{CallId, HostId, InstanceId, SessionId, TenantId};
use crate::outcome::CancelCause;
use crate::question::{InputAnswer, InputReply};
use crate::time::{Millis, Timestamp};
use crate::tool::{Digest, Runtime};
use crate::trace::TraceParent;

/// A frame to a host.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerFrame {
    /// Reply to a hello.
    Welcome(Box<Welcome>),
    /// Reply to a changed offer: one verdict per capability, in the order of the offer.
    ToolsUpdated(Vec<CapabilityVerdict>),
    /// Run one attempt of a call.
    CallRequest(Box<CallRequest>),
    /// Open a runtime. Sent before the first call that needs it.
    OpenRuntime {
        /// Id and initial data of the runtime.
        runtime: Box<Runtime>,
        /// Session of the run that needs it.
        session: SessionId,
    },
    /// Close a runtime that its run no longer uses.
    CloseRuntime {
        /// Id of the runtime. Text, since a host may name one that no server gave out.
        runtime: String,
    },
    /// Stop an attempt that its run gave up.
    Cancel {
        /// The attempt to stop.
        call: CallRef,
        /// The reason, for programs.
        cause: CancelCause,
        /// The reason, as people read it. Programs should not depend on its words.
        reason: String,
        /// Time that the tool has to clean up.
        grace: Millis,
    },
    /// A result is dealt with: the host need not keep it any longer.
    ResultAck {
        /// The attempt that the result is of.
        call: CallRef,
        /// Recorded, duplicate or stale.
        verdict: ResultVerdict,
    },
    /// The host's lease for the call has ended: it is to stop the call and forget it.
    LeaseLost(CallRef),
    /// Reply to a question of a running call.
    InputResponse {
        /// The attempt that asked.
        call: CallRef,
        /// The host's name for the question.
        input: String,
        /// The answer, or why there is none.
        answer: InputAnswer,
    },
    /// A state of a running call is recorded.
    ResumeStateAck {
        /// The attempt that left it.
        call: CallRef,
        /// The greatest number that is recorded.
        resume_no: u64,
    },
    /// The server is alive. The host replies, and leaves a server that it hears nothing from.
    Ping {
        /// Number that the reply repeats.
        nonce: u64,
    },
    /// The server shuts down or cannot serve the host now: the host is to reconnect and let this stream end.
    GoAway {
        /// Least time to wait before reconnecting.
        reconnect_after: Millis,
        /// The reason, as people read it. Programs should not depend on its words.
        reason: String,
    },
    /// The host broke the protocol.
    ProtocolError {
        /// The fault and what was expected, for the host's author.
        message: String,
        /// The call that the frame was about, if any.
        call: Option<CallId>,
    },
}

/// The server accepted the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// Name of this connection, for logs.
    pub connection: String,
    /// One verdict per capability, in the order of the offer.
    pub capabilities: Vec<CapabilityVerdict>,
    /// Interval at which the host is to send heartbeats.
    pub heartbeat_interval: Millis,
    /// A host that sends nothing for this long counts as disconnected.
    pub lease_timeout: Millis,
    /// Time that a disconnected host has to reconnect before its calls are lost.
    pub grace_period: Millis,
    /// The largest frame that the server accepts, in bytes.
    pub max_frame_bytes: usize,
    /// One verdict per call in hand, in the order of the hello.
    pub calls: Vec<(CallRef, Disposition)>,
}

/// The server's verdict on one capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapabilityVerdict {
    /// Name of the capability.
    pub name: String,
    /// The reason if it is refused. `None` if it is accepted.
    pub refused: Option<CapabilityRefusal>,
}

/// The refusal of a capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapabilityRefusal {
    /// The reason for programs.
    pub kind: RefusalKind,
    /// The reason for people.
    pub reason: String,
}

/// The reason for which a capability is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// It breaks a rule of the contract, such as a bound or a schema that does not parse.
    Invalid,
    /// A connected host serves a tool of this name under other terms.
    Different,
    /// It is weaker than the known terms of the name.
    Weaker,
    /// The host may not offer it.
    NotAllowed,
    /// None of the others: there is no room, or the name is taken.
    Other,
}

impl RefusalKind {
    /// This refusal for a reason.
    pub fn because(self, reason: impl Into<String>) -> CapabilityRefusal {
        CapabilityRefusal { kind: self, reason: reason.into() }
    }
}

/// Verdict on what a reconnecting host is to do with a call that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// Go on with it, or send its result if it is finished.
    Continue,
    /// Stop the call and forget it.
    Stop,
    /// Its result is already recorded: forget the call.
    AlreadyRecorded,
}

/// The run's verdict on a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultVerdict {
    /// It is now the recorded result of the call.
    Recorded,
    /// The same result was recorded before.
    Duplicate,
    /// The call had already ended otherwise. The result is dropped.
    Stale,
}

/// A call as it is sent to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRequest {
    /// The attempt to run.
    pub call: CallRef,
    /// The host that was granted.
    pub host: HostId,
    /// The process that the call was offered to, as the journal names it. `None` if the process has the call as far as the
    /// journal knows, or gave no name. Not sent to the host.
    pub instance: Option<InstanceId>,
    /// Secret of this attempt. The host returns it with the result.
    pub lease: Digest,
    /// Same for all attempts of the call, so that the tool can recognise a repeated one.
    pub idempotency_key: String,
    /// The tool to run, by the name that the host declared.
    pub tool: String,
    /// The arguments, as JSON text.
    pub arguments: String,
    /// The run gives this attempt up at this time.
    pub deadline: Timestamp,
    /// Time until then, for a host whose clock differs.
    pub time_left: Millis,
    /// Progress that the last attempt saved.
    pub checkpoint: Option<Vec<u8>>,
    /// State to go on from, if an attempt left one.
    pub resume_state: Option<Vec<u8>>,
    /// Answers to the questions of earlier attempts, in the order of the questions.
    pub answers: Vec<InputReply>,
    /// Session of the run.
    pub session: SessionId,
    /// The runtime that the tool needs, if it needs one.
    pub runtime: Option<Runtime>,
    /// Parent span for what the host traces.
    pub traceparent: Option<TraceParent>,
    /// On whose behalf the call is made.
    pub caller: CallCaller,
}

/// The caller that started a call's run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallCaller {
    /// Its name; `None` without authentication.
    pub name: Option<String>,
    /// Tenant of the caller; `local` without authentication.
    pub tenant: TenantId,
    /// Its groups, as they were when it started the run.
    pub groups: Arc<[String]>,
}

impl CallCaller {
    /// Upper bound of its size on the wire, in bytes. Each name has a tag and a length before it.
    fn size(&self) -> usize {
        let groups: usize = self.groups.iter().map(|group| GROUP_OVERHEAD_BYTES + group.len()).sum();
        self.name.as_ref().map_or(0, String::len) + self.tenant.as_str().len() + groups
    }
}

/// Room for a frame's small fields beside its texts: ids, keys, times and the encoding itself.
const FRAME_OVERHEAD_BYTES: usize = 1_024;
/// Room beside a group's name.
const GROUP_OVERHEAD_BYTES: usize = 4;

impl CallRequest {
    /// Upper bound of its size on the wire, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let checkpoint = self.checkpoint.as_ref().map_or(0, Vec::len);
        let caller = self.caller.size();
        let resume_state = self.resume_state.as_ref().map_or(0, Vec::len);
        let answers: usize = self.answers.iter().map(InputReply::size).sum();
        let bytes = self.arguments.len() + self.idempotency_key.len() + checkpoint + resume_state + answers;
        FRAME_OVERHEAD_BYTES + caller + bytes
    }

    /// Upper bound of the size of the frame that opens its runtime, in bytes; 0 if it needs no runtime.
    #[must_use]
    pub fn opening_size(&self) -> usize {
        self.runtime.as_ref().map_or(0, |runtime| FRAME_OVERHEAD_BYTES + runtime.size())
    }
}

impl ServerFrame {
    /// Approximate size on the wire in bytes: the memory that it takes while it waits for a host that does not read.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::CallRequest(request) => request.size(),
            Self::OpenRuntime { runtime, .. } => FRAME_OVERHEAD_BYTES + runtime.size(),
            Self::Welcome(welcome) => {
                let verdicts: usize = welcome.capabilities.iter().map(CapabilityVerdict::size).sum();
                FRAME_OVERHEAD_BYTES + verdicts + welcome.calls.len() * 2 * crate::limits::ID_BYTES_MAX
            }
            Self::ToolsUpdated(verdicts) => verdicts.iter().map(CapabilityVerdict::size).sum(),
            Self::InputResponse { answer, .. } => FRAME_OVERHEAD_BYTES + answer.size(),
            Self::CloseRuntime { .. }
            | Self::Cancel { .. }
            | Self::ResultAck { .. }
            | Self::LeaseLost(_)
            | Self::ResumeStateAck { .. }
            | Self::Ping { .. }
            | Self::GoAway { .. }
            | Self::ProtocolError { .. } => FRAME_OVERHEAD_BYTES,
        }
    }
}

impl CapabilityVerdict {
    fn size(&self) -> usize {
        self.name.len() + self.refused.as_ref().map_or(0, |refused| refused.reason.len()) + 16
    }
}
