//! The inputs and outputs of a fleet.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::host::frame::{
    CallInHand, CallRef, CallRequest, CallResult, CancelCause, Disposition, HostFrame, InputAnswer,
    QuestionContent, Ran, ServerFrame,
};
use crate::id::{Attempt, CallId, HostId, InstanceId, RunId, TenantId};
use crate::time::Millis;
use crate::tool::{Digest, ToolTerms};

/// One stream of one host. The server numbers streams as it accepts them; a number is never used twice in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

/// Arguments that do not fit a tool's schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfitArguments {
    /// Digest of the terms with that schema.
    pub terms: Digest,
    /// The fault, for the model.
    pub message: String,
}

/// A tool that a host offers, as the fleet needs it to place calls. Its declaration is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedTool {
    /// Name of the tool, unique within its tenant.
    pub name: String,
    /// Its terms. The connected hosts of one tool must have the same.
    pub terms: Arc<ToolTerms>,
    /// Calls of it that may run on one host at the same time. `None` leaves the host's credit as the only bound.
    pub max_concurrency: Option<u32>,
}

/// A host that connects, with the parts of its hello that the fleet needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostJoin {
    /// The stream that it connects by.
    pub connection: ConnectionId,
    /// The host's id. An earlier connection with the same id is replaced.
    pub host: HostId,
    /// The process behind the id. `None` if it gave no name, which proves nothing of calls that it does not have.
    pub instance: Option<InstanceId>,
    /// Number of this connection of the process, rising from 1; 0 if it does not count them.
    pub connection_no: u64,
    /// The library that the host uses, as it names itself.
    pub sdk: String,
    /// Labels that the host gave itself.
    pub labels: BTreeMap<String, String>,
    /// The tools that it offers, valid ones only.
    pub tools: Vec<ServedTool>,
    /// Calls that it accepts at the start.
    pub credit: u64,
    /// The largest frame that it accepts, in bytes.
    pub max_frame_bytes: usize,
    /// Runtimes that it has open, as it names them.
    pub runtimes: Vec<String>,
    /// Calls that it still has, each with the verdict of the call's run.
    pub claims: Vec<(CallInHand, Disposition)>,
}

/// Something that happened to the hosts of one tenant, or a request of one of its runs.
#[derive(Debug, Clone, PartialEq)]
pub enum FleetInput {
    /// Records tools that exist though no host serves them now. Calls of them wait for a host.
    Remember {
        /// Names of the tools.
        tools: Vec<String>,
    },
    /// Forgets a tool, unless a host serves it or a call waits for it.
    Forget {
        /// The tool to forget, by its name in the tenant.
        tool: String,
    },
    /// A call needs a host. Leads to [`CallUpdate::Granted`] or [`CallUpdate::Denied`], at once or later.
    Seek {
        /// The call to place.
        call: CallId,
        /// The tool that the host has to serve.
        tool: String,
        /// The only host to place it on, while that host is connected or within its grace period.
        on: Option<HostId>,
    },
    /// A call needs no host any more. An assigned call is left alone.
    StopSeeking {
        /// The call that needs no host.
        call: CallId,
    },
    /// A granted call is to be sent to its host.
    Offer {
        /// The call, with all that its host needs to run it.
        request: Box<CallRequest>,
        /// The fault, if the arguments do not fit the schema that the tool has by now. A host that declares other terms gets the
        /// call.
        unfit: Option<UnfitArguments>,
    },
    /// A recovered run says that a host may have had this call since before a restart.
    Reclaim(Box<CallRequest>),
    /// The run gives up this attempt of a call. A later attempt that seeks a host is left alone.
    Cancel {
        /// The attempt to stop.
        call: CallRef,
        /// The reason, for programs.
        cause: CancelCause,
        /// The reason, as people read it. Programs should not depend on its words.
        reason: String,
    },
    /// A question that a running call asked has its answer, or will have none.
    AnswerInput {
        /// The attempt that asked.
        call: CallRef,
        /// The host's name for the question.
        input: String,
        /// The reply to send to the call.
        answer: InputAnswer,
    },
    /// A state of a running call is recorded: tell its host.
    AckResumeState {
        /// The attempt that left the state.
        call: CallRef,
        /// The greatest number that is recorded.
        resume_no: u64,
    },
    /// A call waits for a person, and goes on with its next attempt: its host does not have it any more.
    ReleaseCall {
        /// The attempt that ends.
        call: CallRef,
    },
    /// A runtime is no longer used: its host is to close it.
    CloseRuntime {
        /// The host that has it. A disconnected host is not told.
        host: HostId,
        /// The id of the runtime, as the host knows it.
        runtime: String,
    },
    /// The task of this run ended: its calls stop seeking hosts. Assigned calls stay with their hosts.
    Release {
        /// The run whose task ended.
        run: RunId,
    },
    /// The run dealt with the result of a call: recorded it, or found it a duplicate or stale.
    ResultHandled {
        /// The attempt that the result is of.
        call: CallRef,
    },
    /// The result of a call could not be recorded. Its host keeps it and sends it again when it reconnects.
    ResultNotRecorded {
        /// The attempt that the result is of.
        call: CallRef,
    },
    /// The result of a call arrives by `CompleteCall`, without a stream.
    ResultWithoutStream {
        /// The attempt that the result is of.
        call: CallRef,
        /// The lease that came with the result.
        lease: String,
    },
    /// A host connects: its hello was received and checked.
    Join(Box<HostJoin>),
    /// A host replaces its set of tools.
    ReplaceTools {
        /// The host's stream, by its number in this process.
        connection: ConnectionId,
        /// The new set, valid ones only.
        tools: Vec<ServedTool>,
    },
    /// A host sent a frame, other than a hello or a new set of tools.
    Frame {
        /// The host's stream, by its number in this process.
        connection: ConnectionId,
        /// The frame as received.
        frame: HostFrame,
    },
    /// A host counts as heard from: it sent a frame that the fleet does not need, or the server does not read its stream
    /// for the moment.
    Touch {
        /// The host's stream, by its number in this process.
        connection: ConnectionId,
    },
    /// A host broke the protocol in a way that the server found before the fleet saw the frame.
    Violation {
        /// The host's stream, by its number in this process.
        connection: ConnectionId,
        /// The fault and what was expected, for the host's author.
        message: String,
        /// The call that the frame was about, if any.
        call: Option<CallId>,
    },
    /// The server wants to close a host's stream, for a reason on the server's side.
    CloseStream {
        /// The host's stream, by its number in this process.
        connection: ConnectionId,
        /// The reason, which decides the status that the host sees.
        reason: CloseReason,
    },
    /// A host's stream ended.
    Disconnected {
        /// The stream that ended. An unknown one is ignored.
        connection: ConnectionId,
    },
    /// A host's stream had ended because the replica broke off through which it came, and the host may not know it yet: it has its
    /// lease more to come back. Ignored if it is back.
    LinkLost {
        /// The host whose stream it was. An unknown one is ignored.
        host: HostId,
    },
}

/// Something for the server to do. Outputs are carried out in order.
#[derive(Debug, Clone, PartialEq)]
pub enum FleetOutput {
    /// A host is accepted: send its welcome. This comes before any frame to the host.
    Joined {
        /// The host's stream, by its number in this process.
        connection: ConnectionId,
        /// Per offered tool, in order: why it is refused, or `None`.
        tools: Vec<Option<String>>,
        /// Per call that the host still has, in order: what it is to do with the call.
        calls: Vec<(CallRef, Disposition)>,
    },
    /// A host's new set of tools is in place: tell the host.
    ToolsReplaced {
        /// The host's stream, by its number in this process.
        connection: ConnectionId,
        /// Per offered tool, in order: why it is refused, or `None`.
        tools: Vec<Option<String>>,
    },
    /// Send a frame to a host.
    Send {
        /// The host's stream, by its number in this process.
        connection: ConnectionId,
        /// The frame to send.
        frame: ServerFrame,
    },
    /// Close a stream after the frames that were sent before.
    Close {
        /// The host's stream, by its number in this process.
        connection: ConnectionId,
        /// The reason, which decides the status that the host sees.
        reason: CloseReason,
    },
    /// Tell the run that owns the call.
    Update {
        /// Tenant of the call.
        tenant: TenantId,
        /// The call that changed.
        call: CallId,
        /// The change to report.
        update: CallUpdate,
    },
    /// Have a result recorded by the call's run. Then report [`FleetInput::ResultHandled`] or [`FleetInput::ResultNotRecorded`].
    Result {
        /// Tenant of the call.
        tenant: TenantId,
        /// The stream that waits for the acknowledgement. `None` if the fleet itself rejected the call.
        connection: Option<ConnectionId>,
        /// The host that the result is from.
        host: HostId,
        /// The result to record.
        result: Box<CallResult>,
    },
    /// A tool has its first connected host.
    Served {
        /// Tenant of the tool.
        tenant: TenantId,
        /// The tool, by its name in the tenant.
        tool: String,
    },
    /// A tool has no connected host any more.
    Unserved {
        /// Tenant of the tool.
        tenant: TenantId,
        /// The tool, by its name in the tenant.
        tool: String,
    },
}

/// A change of a call at its host, reported to the call's run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallUpdate {
    /// A host reserves room for the call. The run may offer it the call.
    Granted {
        /// The host with the room.
        host: HostId,
        /// The process behind the host's id, if it gave its name.
        instance: Option<InstanceId>,
        /// The terms that it declared. `None`: those that the run knows.
        terms: Option<Arc<ToolTerms>>,
    },
    /// No host gets the call: the tool is unknown, its queue is full, or no host connected in time.
    Denied {
        /// The reason, as the model reads it.
        message: String,
    },
    /// The host confirmed that it works on the call.
    Accepted {
        /// The attempt that the host confirmed.
        attempt: Attempt,
        /// The host that works on it.
        host: HostId,
    },
    /// The call saved its progress.
    Checkpoint {
        /// The attempt that saved it.
        attempt: Attempt,
        /// Bytes for the next attempt, which only the tool understands.
        #[serde(with = "crate::text::hex")]
        checkpoint: Vec<u8>,
    },
    /// The call left a state to go on from, and waits until it is recorded.
    Resumable {
        /// The attempt that left it.
        attempt: Attempt,
        /// Number of the state within the attempt, counted from 1.
        resume_no: u64,
        /// Bytes that only the tool understands.
        #[serde(with = "crate::text::hex")]
        state: Vec<u8>,
    },
    /// The call asks a person.
    InputNeeded {
        /// The attempt that asks.
        attempt: Attempt,
        /// The question, with the host's name for it.
        question: Box<QuestionContent>,
        /// The question stays open for this long. `None` sets no limit.
        timeout: Option<Millis>,
        /// State to go on from with the answer.
        #[serde(default, with = "crate::text::hex::maybe")]
        resume_state: Option<Vec<u8>>,
    },
    /// The host will not send a result of this attempt.
    Lost {
        /// The attempt that is lost.
        attempt: Attempt,
        /// The reason, as people read it. Programs should not depend on its words.
        message: String,
        /// Knowledge of whether the attempt ran.
        ran: Ran,
        /// True if the host rejected the attempt because it had no room. Such an attempt is no try of the call.
        busy: bool,
    },
    /// The host stopped an attempt that was cancelled. Reported where the attempt was not begun, or its deadline was the
    /// reason of the cancel.
    Stopped {
        /// The attempt that was stopped.
        attempt: Attempt,
        /// The lease of the attempt. Another run may have the call's id by now.
        lease: String,
        /// False if the host is sure that it did not begin the attempt.
        begun: bool,
    },
    /// Progress that the tool reports.
    Progress {
        /// The attempt that reports it.
        attempt: Attempt,
        /// The tool's report, for people. May be empty.
        message: String,
        /// Share of the work that is done, from 0 to 1.
        fraction: Option<f64>,
    },
    /// A piece of output of the running tool.
    Output {
        /// The attempt that wrote it.
        attempt: Attempt,
        /// Number of the piece, from 1 and rising. A gap means lost output.
        chunk_seq: u64,
        /// True for standard error, false for standard output.
        stderr: bool,
        /// The bytes as the tool wrote them; may be cut within a character.
        #[serde(with = "crate::text::hex")]
        data: Vec<u8>,
    },
}

/// The server's reasons to close a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The host broke the protocol.
    Violation,
    /// The host speaks a protocol version that the server does not.
    Version,
    /// Another connection with the same host id replaced it.
    Replaced,
    /// The host sent nothing for longer than the lease timeout.
    Silent,
    /// The host does not read its stream, and too much waits to be sent.
    NotReading,
    /// The host said goodbye.
    Goodbye,
    /// Results cannot be recorded at the moment, for example because the store is down.
    Unavailable,
    /// The server shuts down.
    ShuttingDown,
    /// The host is to connect again, because a declaration that was refused is accepted by now.
    Reconnect,
}
