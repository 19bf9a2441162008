//! What goes into a fleet and what comes out.

use std::collections::BTreeMap;
use std::fmt;

use crate::host::frame::{
    Answer, Ask, CallInHand, CallRef, CallRequest, Disposition, HostFrame, InputAnswer, Ran, ServerFrame,
};
use crate::id::{CallId, HostId, RunId, TenantId};
use crate::time::{Millis, Timestamp};
use crate::tool::Digest;

/// One stream of one host, numbered by whoever accepts it. Never used twice in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

/// A tool that a host offers, as far as placing calls goes. Its declaration was found good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedTool {
    /// Its name.
    pub name: String,
    /// Of its declaration: hosts of one tool agree on it.
    pub digest: Digest,
    /// Its calls in flight on one host; `None` means as many as the host's credit.
    pub max_concurrency: Option<u32>,
}

/// A host that wants in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joining {
    /// Its stream.
    pub connection: ConnectionId,
    /// Its name. A connection of the same name is replaced.
    pub host: HostId,
    /// The library that the host uses, as it names itself.
    pub sdk: String,
    /// Labels that the host gave itself.
    pub labels: BTreeMap<String, String>,
    /// What it offers and is good.
    pub tools: Vec<ServedTool>,
    /// Calls that it takes at the start.
    pub credit: u64,
    /// The largest frame it takes, in bytes.
    pub max_frame_bytes: usize,
    /// Runtimes that it has open.
    pub runtimes: Vec<String>,
    /// What it has in hand, and what the owners of those calls say about it.
    pub claims: Vec<(CallInHand, Disposition)>,
}

/// Something that happened, to the hosts of one tenant or to its runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// These tools exist, though nobody serves them at the moment.
    Remember {
        /// Their names.
        tools: Vec<String>,
    },
    /// This tool exists no longer, unless somebody serves it or waits for it.
    Forget {
        /// Its name.
        tool: String,
    },
    /// A call needs a host. Answered by [`News::Granted`] or [`News::Denied`], at once or later.
    Seek {
        /// The call.
        call: CallId,
        /// Its tool.
        tool: String,
        /// No other host than this, as long as it is there or may come back.
        on: Option<HostId>,
    },
    /// It does not any more.
    StopSeeking {
        /// The call.
        call: CallId,
    },
    /// A call is to be sent to the host that has room for it.
    Offer(Box<CallRequest>),
    /// A call may be with this host since before a restart.
    Reclaim(Box<CallRequest>),
    /// This try of a call is settled otherwise, or given up. A later try that seeks a host is not touched by it.
    Cancel {
        /// The call, and which try of it.
        call: CallRef,
        /// The reason, as people read it. Programs should not depend on its words.
        reason: String,
    },
    /// A call's question is settled.
    AnswerInput {
        /// Which call.
        call: CallRef,
        /// The host's name for the question.
        input: String,
        /// What the call hears.
        answer: InputAnswer,
    },
    /// A runtime is used no longer.
    CloseRuntime {
        /// The host that has it, if it is connected.
        host: HostId,
        /// The id of the runtime, as the host knows it.
        runtime: String,
    },
    /// Nobody looks after the calls of this run any more.
    Release {
        /// The run.
        run: RunId,
    },
    /// The answer to a call is dealt with.
    Settled {
        /// The call, and which try of it.
        call: CallRef,
    },
    /// The answer to a call could not be recorded; its host keeps it.
    Unsettled {
        /// The call, and which try of it.
        call: CallRef,
    },
    /// A call is answered without a stream.
    AnsweredOutside {
        /// The call, and which try of it.
        call: CallRef,
        /// The lease that came with the answer.
        lease: String,
    },
    /// A host said hello.
    Join(Box<Joining>),
    /// The tools of a host changed.
    ReplaceTools {
        /// Its stream.
        connection: ConnectionId,
        /// All of them that are good.
        tools: Vec<ServedTool>,
    },
    /// A host sent a frame, other than the two above.
    Frame {
        /// Its stream.
        connection: ConnectionId,
        /// The frame.
        frame: HostFrame,
    },
    /// A host is alive, though nothing of what it sent was read.
    Touch {
        /// Its stream.
        connection: ConnectionId,
    },
    /// A host's stream broke the protocol in a way that was seen before the fleet.
    Violation {
        /// Its stream.
        connection: ConnectionId,
        /// What was wrong, and what was expected.
        message: String,
        /// The call that it was about.
        call: Option<CallId>,
    },
    /// A host's stream is to end, for a reason that lies with us.
    Drop {
        /// The stream.
        connection: ConnectionId,
        /// Why the stream is ended.
        reason: CloseReason,
    },
    /// A host's stream ended.
    Leave {
        /// The stream.
        connection: ConnectionId,
    },
}

/// What is to be done or told.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// A host is in. Comes before anything else that is sent to it.
    Joined {
        /// Its stream.
        connection: ConnectionId,
        /// Per tool offered, in order: why it is refused, if it is.
        tools: Vec<Option<String>>,
        /// Per call in hand, in order.
        calls: Vec<(CallRef, Disposition)>,
    },
    /// The verdicts on a host's new set of tools, in order: why each is refused, if it is.
    ToolsReplaced {
        /// Its stream.
        connection: ConnectionId,
        /// The verdicts.
        tools: Vec<Option<String>>,
    },
    /// Send this.
    Send {
        /// To whom.
        connection: ConnectionId,
        /// The frame that is sent.
        frame: ServerFrame,
    },
    /// Let the stream end, after what was sent.
    Close {
        /// The stream of the host.
        connection: ConnectionId,
        /// Why the stream is ended.
        reason: CloseReason,
    },
    /// Tell whoever owns the call.
    News {
        /// The tenant that it belongs to.
        tenant: TenantId,
        /// The call.
        call: CallId,
        /// What happened to it.
        news: News,
    },
    /// Have an answer recorded, then report [`Input::Settled`] or [`Input::Unsettled`].
    Answer {
        /// The tenant that it belongs to.
        tenant: TenantId,
        /// The stream that waits for the acknowledgement, if one does.
        connection: Option<ConnectionId>,
        /// Who answers.
        host: HostId,
        /// The answer.
        answer: Box<Answer>,
    },
    /// A tool has its first host.
    Served {
        /// The tenant that it belongs to.
        tenant: TenantId,
        /// Its name.
        tool: String,
    },
    /// A tool has no host any more.
    Unserved {
        /// The tenant that it belongs to.
        tenant: TenantId,
        /// Its name.
        tool: String,
    },
}

/// What happens to a call.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// A host has room for it and keeps it.
    Granted {
        /// The host.
        host: HostId,
    },
    /// No host will have room.
    Denied {
        /// The model reads it.
        message: String,
    },
    /// A host works on it.
    Accepted {
        /// The try, counted from 1.
        attempt: u32,
        /// The host.
        host: HostId,
    },
    /// A host saved how far it is.
    Checkpoint {
        /// The try, counted from 1.
        attempt: u32,
        /// Opaque.
        checkpoint: Vec<u8>,
    },
    /// It asks a human.
    InputNeeded {
        /// The try, counted from 1.
        attempt: u32,
        /// What, with the host's name for the question.
        ask: Box<Ask>,
        /// Given up after this.
        timeout: Option<Millis>,
    },
    /// The host that had it will not answer.
    Lost {
        /// The try, counted from 1.
        attempt: u32,
        /// The reason, as people read it. Programs should not depend on its words.
        message: String,
        /// What is known of its effects.
        ran: Ran,
    },
    /// How far it is.
    Progress {
        /// The try, counted from 1.
        attempt: u32,
        /// What the tool reports, as people read it.
        message: String,
        /// 0 to 1.
        fraction: Option<f64>,
    },
    /// Output while it runs.
    Output {
        /// The try, counted from 1.
        attempt: u32,
        /// From 1, rising; a gap is output that was lost.
        chunk_seq: u64,
        /// Whether it is standard error.
        stderr: bool,
        /// The bytes.
        data: Vec<u8>,
    },
}

/// Why a stream ends from our side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The host broke the protocol.
    Violation,
    /// The host speaks a version that we do not.
    Version,
    /// Another connection took its place.
    Replaced,
    /// It was silent for too long.
    Silent,
    /// It does not read what it is sent.
    NotReading,
    /// It said goodbye.
    Goodbye,
    /// Answers cannot be recorded at the moment.
    Unavailable,
    /// The server is going down.
    ShuttingDown,
}

/// How a host is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostHealth {
    /// Connected and heard from in time.
    Connected,
    /// Connected, takes no new calls.
    Draining,
    /// Gone; its calls wait for it to come back.
    Lost,
}

/// How much goes on at the hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FleetCounts {
    /// Hosts with a connection.
    pub connected: usize,
    /// Calls that a host has or has room for.
    pub calls: usize,
    /// Calls that wait for room.
    pub queued: usize,
}

impl std::ops::Add for FleetCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            connected: self.connected + other.connected,
            calls: self.calls + other.calls,
            queued: self.queued + other.queued,
        }
    }
}

/// A host, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostView {
    /// Its name.
    pub host: HostId,
    /// How it is doing.
    pub health: HostHealth,
    /// Its language and library.
    pub sdk: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What it serves.
    pub tools: Vec<String>,
    /// Calls it has.
    pub calls: usize,
    /// Calls it would take now.
    pub free_credit: u64,
    /// When it connected.
    pub connected_at: Timestamp,
    /// When it was last heard from.
    pub last_heard: Timestamp,
    /// Frames that made no sense for the state of things and were ignored.
    pub ignored_frames: u64,
}

/// A tool, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolView {
    /// Its name.
    pub name: String,
    /// Who serves it.
    pub hosts: Vec<HostId>,
    /// Calls that a host has or has room for.
    pub calls: usize,
    /// Calls that wait.
    pub queued: usize,
}
