//! Frames from hosts, with the values in them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::CallRef;
use crate::extension::ExtensionDeclaration;
use crate::id::{HostId, InstanceId};
use crate::outcome::CallOutcome;
use crate::question::QuestionContent;
use crate::time::Millis;
use crate::tool::ToolDeclaration;

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
