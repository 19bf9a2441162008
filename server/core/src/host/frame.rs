//! What travels on a host's stream, as plain data. The wire's own types live at the edge and are converted there.

use std::collections::BTreeMap;

pub use crate::ask::{Ask, InputAnswer, SelectOption};
use crate::extension::Terms;
use crate::id::{CallId, HostId, SessionId};
pub use crate::outcome::{CallOutcome as Outcome, Ran};
use crate::time::{Millis, Timestamp};
use crate::tool::{Digest, Runtime, ToolDeclaration};
use crate::trace::TraceParent;

/// A frame from a host.
#[derive(Debug, Clone, PartialEq)]
pub enum HostFrame {
    /// The first frame, and only the first.
    Hello(Box<Hello>),
    /// The set of tools changed.
    UpdateTools {
        /// All of them.
        capabilities: Vec<Capability>,
    },
    /// Calls that it would have taken in all since the stream began.
    Credit {
        /// In all.
        total: u64,
    },
    /// The call is being worked on.
    Accepted(CallRef),
    /// The call is not taken.
    Rejected {
        /// The call, and which try of it.
        call: CallRef,
        /// Why the host does not run the call.
        reason: RejectReason,
        /// For people, and for the model where it is told.
        message: String,
    },
    /// The host is alive, and these calls are.
    Heartbeat {
        /// What it works on.
        calls: Vec<CallRef>,
    },
    /// How far a call is.
    Progress {
        /// The call, and which try of it.
        call: CallRef,
        /// What the tool reports, as people read it.
        message: String,
        /// 0 to 1.
        fraction: Option<f64>,
        /// For the next try, if there is one.
        checkpoint: Option<Vec<u8>>,
    },
    /// Output of a running call.
    Output {
        /// The call, and which try of it.
        call: CallRef,
        /// From 1, rising.
        chunk_seq: u64,
        /// Whether it is standard error.
        stderr: bool,
        /// The bytes.
        data: Vec<u8>,
    },
    /// The call's result, or its failure.
    Answer(Box<Answer>),
    /// The call asks a human.
    NeedInput {
        /// The call, and which try of it.
        call: CallRef,
        /// What it asks, with the host's name for the question; not yet checked.
        ask: Box<Ask>,
        /// Given up after this.
        timeout: Option<Millis>,
    },
    /// What became of a cancel.
    CancelAck {
        /// The call, and which try of it.
        call: CallRef,
        /// Whether it still runs: it cannot be stopped.
        runs_on: bool,
    },
    /// The host takes no more calls.
    Draining,
    /// The host leaves for good, without calls.
    Goodbye,
    /// Answer to a ping.
    Pong,
    /// A kind of frame that this server does not know.
    Unknown,
}

/// A call and a try of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallRef {
    /// The call.
    pub call: CallId,
    /// Which try, from 1.
    pub attempt: u32,
}

/// Who a host is and what it can do.
#[derive(Debug, Clone, PartialEq)]
pub struct Hello {
    /// Version of the protocol that it speaks.
    pub protocol_version: u32,
    /// This process.
    pub host: HostId,
    /// Language and library, for people.
    pub sdk: String,
    /// Labels, for people.
    pub labels: BTreeMap<String, String>,
    /// What it offers, in its order.
    pub capabilities: Vec<Capability>,
    /// The largest frame it takes, in bytes.
    pub max_frame_bytes: usize,
    /// Calls that it has not seen acknowledged.
    pub calls_in_hand: Vec<CallInHand>,
    /// Calls that it takes at the start.
    pub initial_credit: u64,
    /// Runtimes that it has open.
    pub open_runtimes: Vec<String>,
}

/// Something that a host offers.
#[derive(Debug, Clone, PartialEq)]
pub enum Capability {
    /// A tool, not yet checked.
    Tool(Box<ToolDeclaration>),
    /// A planner, a hook or a context source, not yet checked.
    Extension {
        /// Its name.
        name: String,
        /// What it declares.
        terms: Terms,
    },
    /// Something that cannot be taken, and why.
    Unreadable {
        /// Its name, as far as it has one.
        name: String,
        /// The reason, as people read it. Programs should not depend on its words.
        reason: String,
    },
}

/// A call that a reconnecting host has not seen acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallInHand {
    /// The call, and which try of it.
    pub call: CallRef,
    /// As given with the call.
    pub lease: String,
    /// Whether its answer follows; otherwise it still runs.
    pub finished: bool,
}

/// Why a host does not take a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectReason {
    /// Too much to do.
    Busy,
    /// It takes no more calls.
    Draining,
    /// It does not have this tool.
    UnknownTool,
    /// The arguments are wrong.
    BadArguments,
    /// The call is too large.
    TooLarge,
}

/// A host's answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The call, and which try of it.
    pub call: CallRef,
    /// As given with the call.
    pub lease: String,
    /// What it says.
    pub outcome: Outcome,
}

/// A frame to a host.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerFrame {
    /// Answer to hello.
    Welcome(Box<Welcome>),
    /// Answer to changed tools: a verdict on each, in the order given.
    ToolsUpdated(Vec<CapabilityVerdict>),
    /// Run this.
    CallRequest(Box<CallRequest>),
    /// Open a runtime, before the calls that need it.
    OpenRuntime {
        /// The runtime.
        runtime: Box<Runtime>,
        /// The session of its run.
        session: SessionId,
    },
    /// Close a runtime. As text, since a host may name one that no server gave out.
    CloseRuntime {
        /// The id of the runtime, as the host knows it.
        runtime: String,
    },
    /// Stop this.
    Cancel {
        /// The call, and which try of it.
        call: CallRef,
        /// The reason, as people read it. Programs should not depend on its words.
        reason: String,
        /// How long the tool may take to clean up.
        grace: Millis,
    },
    /// The answer needs to be kept no longer.
    ResultAck {
        /// The call, and which try of it.
        call: CallRef,
        /// What became of it.
        verdict: ResultVerdict,
    },
    /// The call is not this host's any more.
    LeaseLost(CallRef),
    /// What became of a call's question.
    InputResponse {
        /// The call, and which try of it.
        call: CallRef,
        /// The host's name for the question.
        input: String,
        /// What the call hears.
        answer: InputAnswer,
    },
    /// Connect again, then let this stream end.
    GoAway {
        /// Not before this.
        reconnect_after: Millis,
        /// The reason, as people read it. Programs should not depend on its words.
        reason: String,
    },
    /// The host broke the protocol.
    ProtocolError {
        /// What was wrong, and what was expected.
        message: String,
        /// The call that it was about.
        call: Option<CallId>,
    },
}

/// The server took the host in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// Names this connection, for logs.
    pub connection: String,
    /// A verdict on each capability, in the order given.
    pub capabilities: Vec<CapabilityVerdict>,
    /// Heartbeats are expected this often.
    pub heartbeat_interval: Millis,
    /// A host that was silent for this long counts as lost.
    pub lease_timeout: Millis,
    /// How long it may then take to come back.
    pub grace_period: Millis,
    /// The largest frame that the server takes, in bytes.
    pub max_frame_bytes: usize,
    /// A verdict on each call in hand, in the order given.
    pub calls: Vec<(CallRef, Disposition)>,
}

/// Whether a capability is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapabilityVerdict {
    /// Its name.
    pub name: String,
    /// Why not, if not.
    pub refused: Option<String>,
}

/// What a host is to do with a call in its hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Go on; or, if it is finished, send its answer.
    Continue,
    /// Stop and forget it.
    Stop,
    /// Its answer is recorded: forget it.
    AlreadyRecorded,
}

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultVerdict {
    /// It is the call's recorded result.
    Recorded,
    /// It was recorded before.
    Duplicate,
    /// The call was settled otherwise.
    Stale,
}

/// A call on its way to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRequest {
    /// The call, and which try of it.
    pub call: CallRef,
    /// The host that has room for it.
    pub host: HostId,
    /// To be sent back with the answer.
    pub lease: Digest,
    /// For the tool to dedupe by.
    pub idempotency_key: String,
    /// The tool.
    pub tool: String,
    /// JSON text.
    pub arguments: String,
    /// Given up after this.
    pub deadline: Timestamp,
    /// What the last try saved.
    pub checkpoint: Option<Vec<u8>>,
    /// The session that asks.
    pub session: SessionId,
    /// What it is to run in, where it needs that.
    pub runtime: Option<Runtime>,
    /// The span that is above what the host does.
    pub traceparent: Option<TraceParent>,
}

/// Room for a frame's small fields beside its texts: ids, keys, times and the encoding itself.
const FRAME_OVERHEAD_BYTES: usize = 1_024;

impl CallRequest {
    /// At most this many bytes on the wire.
    #[must_use]
    pub fn size(&self) -> usize {
        let checkpoint = self.checkpoint.as_ref().map_or(0, Vec::len);
        FRAME_OVERHEAD_BYTES + self.arguments.len() + self.idempotency_key.len() + checkpoint
    }

    /// At most this many bytes on the wire has the frame that opens its runtime; 0 where it needs none.
    #[must_use]
    pub fn opening_size(&self) -> usize {
        self.runtime.as_ref().map_or(0, |runtime| FRAME_OVERHEAD_BYTES + runtime.size())
    }
}

impl ServerFrame {
    /// Roughly its bytes on the wire: what it costs to hold it back for a host that does not read.
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
            | Self::GoAway { .. }
            | Self::ProtocolError { .. } => FRAME_OVERHEAD_BYTES,
        }
    }
}

impl CapabilityVerdict {
    fn size(&self) -> usize {
        self.name.len() + self.refused.as_ref().map_or(0, String::len) + 16
    }
}
