//! Frames of a host's stream as plain data. The wire types stay in the server's `grpc` and are converted there.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::extension::ExtensionDeclaration;
use crate::id::{Attempt, CallId, HostId, InstanceId, SessionId, TenantId};
pub use crate::outcome::{CallOutcome, CancelCause, Ran};
pub use crate::question::{InputAnswer, InputReply, QuestionContent, SelectOption};
use crate::time::{Millis, Timestamp};
use crate::tool::{Digest, Runtime, ToolDeclaration};
use crate::trace::TraceParent;

/// A frame from a host.
#[derive(Debug, Clone, PartialEq)]
pub enum HostFrame {
    /// The first frame, and only the first.
    Hello(Box<Hello>),
    /// The host replaces what it offers.
    UpdateTools {
        /// Everything that it offers from now on.
        capabilities: Vec<Capability>,
    },
    /// The host raises its credit.
    Credit {
        /// Calls that the host would have accepted in all since the stream began.
        total: u64,
    },
    /// The host confirms that it works on the call.
    Accepted(CallRef),
    /// The host does not run the call.
    Rejected {
        /// The attempt that is rejected.
        call: CallRef,
        /// Kind of rejection. It decides if another host may get the call.
        reason: RejectReason,
        /// The reason, for people and for the model.
        message: String,
    },
    /// The host is alive and works on these calls.
    Heartbeat {
        /// All calls that it works on. One that is missing twice in a row counts as lost.
        calls: Vec<CallRef>,
        /// The host's words about itself, for people. May be empty.
        status: String,
    },
    /// Progress of a running call.
    Progress {
        /// The attempt that reports.
        call: CallRef,
        /// The tool's report, for people. May be empty.
        message: String,
        /// Share of the work that is done, from 0 to 1.
        fraction: Option<f64>,
        /// Saved progress for the next attempt, if the tool saved any.
        checkpoint: Option<Vec<u8>>,
        /// A state to go on from, if the tool left one. It waits until the state is recorded.
        resumable: Option<Resumable>,
    },
    /// Output of a running call.
    Output {
        /// The attempt that wrote it.
        call: CallRef,
        /// Number of the piece, from 1 and rising. A gap means lost output.
        chunk_seq: u64,
        /// True for standard error, false for standard output.
        stderr: bool,
        /// The bytes as the tool wrote them; may be cut within a character.
        data: Vec<u8>,
    },
    /// The result of a call, successful or not.
    Result(Box<CallResult>),
    /// The call asks a person.
    NeedInput {
        /// The attempt that asks.
        call: CallRef,
        /// The question, with the host's name for it. Not yet checked.
        question: Box<QuestionContent>,
        /// The question stays open for this long. `None` sets no limit.
        timeout: Option<Millis>,
        /// State to go on from with the answer. With it, the host gives the call up until there is one.
        resume_state: Option<Vec<u8>>,
    },
    /// The host's reply to a cancel.
    CancelAck {
        /// The attempt that was cancelled.
        call: CallRef,
        /// The host's word on what became of it.
        outcome: CancelOutcome,
    },
    /// The host accepts no more calls and finishes those that it has.
    Draining,
    /// The host leaves for good. It has no calls any more.
    Goodbye,
    /// Reply to a ping of the server.
    Pong,
    /// A kind of frame that this server does not know.
    Unknown,
}

/// A state of a call, with the promise that going on from it does not repeat what was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumable {
    /// Its number within the attempt, counted from 1.
    pub no: u64,
    /// Bytes that only the tool understands.
    pub state: Vec<u8>,
}

/// The end of a call that was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelOutcome {
    /// The host does not run it any more, and sends no result. It may have had effects.
    Stopped,
    /// It was finished already. Its result was or will be sent.
    Finished,
    /// It cannot be stopped and still runs.
    RunsOn,
    /// It was not begun and will not be.
    NotBegun,
}

/// Names one attempt of a call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallRef {
    /// The call, with its run.
    pub call: CallId,
    /// The attempt of that call. Frames about an earlier one are late.
    pub attempt: Attempt,
}

/// First frame of a host: its identity, what it offers, and the calls that it still has.
#[derive(Debug, Clone, PartialEq)]
pub struct Hello {
    /// Version of the protocol that the host speaks.
    pub protocol_version: u32,
    /// Id of the host's process, stable across its reconnects.
    pub host: HostId,
    /// The process behind the id. `None` if it gives no name.
    pub instance: Option<InstanceId>,
    /// Number of this connection of the process, rising from 1; 0 if it does not count them.
    pub connection_no: u64,
    /// Language and library, for people.
    pub sdk: String,
    /// Labels that the host gave itself, for people.
    pub labels: BTreeMap<String, String>,
    /// Tools and extensions that it offers. Verdicts come back in the same order.
    pub capabilities: Vec<Capability>,
    /// The largest frame that the host accepts, in bytes.
    pub max_frame_bytes: usize,
    /// Calls whose result was not acknowledged to the host yet.
    pub calls_in_hand: Vec<CallInHand>,
    /// Calls that it accepts at the start.
    pub initial_credit: u64,
    /// Runtimes that it has open, as it names them.
    pub open_runtimes: Vec<String>,
}

/// A tool or extension that a host offers.
#[derive(Debug, Clone, PartialEq)]
pub enum Capability {
    /// A tool whose declaration is not checked yet.
    Tool(Box<ToolDeclaration>),
    /// A planner, a hook or a context source whose declaration is not checked yet.
    Extension {
        /// Name by which agents refer to it.
        name: String,
        /// Its points and timeouts, by kind.
        declaration: ExtensionDeclaration,
    },
    /// An offer that the server cannot read.
    Unreadable {
        /// Its name; empty if it has none.
        name: String,
        /// The reason, as people read it. Programs should not depend on its words.
        reason: String,
    },
}

/// A call that a reconnecting host has, running or with an unacknowledged result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallInHand {
    /// The attempt that the host has.
    pub call: CallRef,
    /// The lease that came with the call.
    pub lease: String,
    /// True if the call is finished and its result follows. False if it still runs.
    pub finished: bool,
}

/// Kinds of rejection of a call by a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectReason {
    /// The host has too much to do. Another host may run the call.
    Busy,
    /// The host accepts no more calls. Another host may run the call.
    Draining,
    /// The host does not have this tool.
    UnknownTool,
    /// The arguments are wrong. The model is told.
    BadArguments,
    /// The call is too large for the host. The model is told.
    TooLarge,
}

/// A host's result of a call, successful or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallResult {
    /// The attempt that the result is of.
    pub call: CallRef,
    /// The lease that came with the call. It proves that the host was given this attempt.
    pub lease: String,
    /// Output, failure or rejection.
    pub outcome: CallOutcome,
}

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
