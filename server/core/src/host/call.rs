//! The state of one tool call in the fleet: looking for a host, with a host, or with its result being recorded.

use std::sync::Arc;

use crate::host::frame::{CallRef, Ran};
use crate::host::io::ConnectionId;
use crate::id::{Attempt, CallId, HostId, InstanceId};
use crate::time::Timestamp;
use crate::tool::ToolTerms;

/// A tool call that the fleet tracks.
#[derive(Debug, Clone)]
pub(super) struct TrackedCall {
    /// Its tool. `None` for a call that a reconnecting host named, until its run reclaims it.
    pub(super) tool: Option<String>,
    pub(super) state: FleetCallState,
}

/// State of a call in the fleet.
///
/// ```text
/// (none) ──seek──▶ Queued ──grant──▶ Reserved ──offer──▶ Assigned ──result──▶ Recording ──handled──▶ (none)
///            └───────────grant─────────▲                    ▲                     └──not recorded──▶ Assigned, host away
///                                      (none) ──claimed by a host, or reclaimed by its run──┘
/// ```
/// `Pinned` is like `Queued`, for one host. It becomes `Queued` if that host no longer serves the tool.
///
/// `AwaitingResult` follows `Queued` and `Pinned`, or a seek while `Assigned`: a host says that it has the result of the
/// last attempt. The next attempt waits for that result. If the result does not end the call, the call is placed again.
///
/// Every state ends when the call is lost, denied, or given up by its run.
#[derive(Debug, Clone)]
pub(super) enum FleetCallState {
    /// In the queue of its tool, until a host has room.
    Queued,
    /// Waits for one host, which has the runtime that the call needs: for room, or for the host to reconnect.
    Pinned {
        /// The only host that may get the call.
        host: HostId,
    },
    /// Granted: a connection reserves room for it. The connection may have closed since.
    Reserved {
        host: HostId,
        /// The stream that reserves the room.
        connection: ConnectionId,
        /// The terms that the run was told. The call is not sent under others.
        terms: Arc<ToolTerms>,
    },
    /// A host says that it has the result of the last attempt. The next attempt waits for it, at most
    /// [`accept_timeout`](crate::host::FleetOptions::accept_timeout).
    AwaitingResult {
        /// The attempt whose result is awaited.
        attempt: Attempt,
        /// The only host that may get the next attempt. `None` allows any.
        on: Option<HostId>,
    },
    /// Sent to a host, or possibly with it since before a restart.
    Assigned(Assignment),
    /// The host sent its result, which is being recorded.
    Recording(Assignment),
}

/// An attempt of a call that is assigned to a host.
#[derive(Debug, Clone)]
pub(super) struct Assignment {
    pub(super) host: HostId,
    pub(super) attempt: Attempt,
    pub(super) lease: String,
    /// The stream that it runs on. `None` while the host is disconnected.
    pub(super) connection: Option<ConnectionId>,
    /// The process that the call was sent to, until it is known to have begun. The same process proves by coming back
    /// without the call that it did not begin it. `None` proves nothing.
    pub(super) unbegun_at: Option<InstanceId>,
    /// True once the host confirmed that it works on the call.
    pub(super) accepted: bool,
    /// True if a reconnecting host said that the call is finished. Heartbeats do not name it then.
    pub(super) finished: bool,
    /// Consecutive heartbeats that did not name the call.
    pub(super) missed: u8,
    /// Number of the last chunk of output; 0 before the first.
    pub(super) last_chunk: u64,
    /// Questions to people that it sent on this stream, repeated ones included.
    pub(super) asked: u32,
    /// States to go on from that it left on this stream, repeated ones included.
    pub(super) resume_states: u32,
    /// The newest checkpoint, until it is reported to the run.
    pub(super) checkpoint: Option<Vec<u8>>,
    /// Time of the last checkpoint that was reported to the run.
    pub(super) checkpoint_reported_at: Option<Timestamp>,
}

impl Assignment {
    /// An attempt that a host is about to get, or may have.
    pub(super) fn new(
        host: HostId,
        attempt: Attempt,
        lease: String,
        connection: Option<ConnectionId>,
    ) -> Self {
        Self {
            host,
            attempt,
            lease,
            connection,
            unbegun_at: None,
            accepted: false,
            finished: false,
            missed: 0,
            last_chunk: 0,
            asked: 0,
            resume_states: 0,
            checkpoint: None,
            checkpoint_reported_at: None,
        }
    }

    /// True if `call` names this attempt.
    pub(super) fn is(&self, call: &CallRef) -> bool {
        self.attempt == call.attempt
    }

    /// True while a connected host has not said yet if it begins the call.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.connection.is_some() && !self.accepted
    }

    /// Says if the attempt ran, when its host comes back without it: the same process did not begin it.
    pub(super) fn ran_if_not_at(&self, instance: Option<&InstanceId>) -> Ran {
        if self.unbegun_at.is_some() && self.unbegun_at.as_ref() == instance { Ran::No } else { Ran::Maybe }
    }

    /// The name of this attempt. `call` must be the call that this assignment belongs to.
    pub(super) fn call_ref(&self, call: &CallId) -> CallRef {
        CallRef { call: call.clone(), attempt: self.attempt }
    }
}
