//! One call, as far as hosts are concerned.

use crate::host::frame::CallRef;
use crate::host::io::ConnectionId;
use crate::id::{CallId, HostId};
use crate::time::Timestamp;

/// A call and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// Its tool. Unknown for a call that a host brought along, until its run reclaims it.
    pub(super) tool: Option<String>,
    pub(super) state: State,
}

/// Where a call stands.
///
/// ```text
/// (none) ──seek──▶ Waiting ──room──▶ Reserved ──offer──▶ Held ──answer──▶ Answering ──settled──▶ (none)
///            └───────────room─────────▲                    ▲                  └──unsettled──▶ Held, adrift
///                                      (none) ──claimed by a host, or reclaimed by its run──┘
/// ```
/// Pinned is like Waiting, for one host; it becomes Waiting where that host does not take the call any more. Promised
/// is reached from either, or from Held by a seek: a host says that it has the answer of the try before, and whatever
/// comes of that comes first. It becomes Waiting, Pinned or Reserved where the answer does not settle the call.
/// Every state goes to none when the call is lost, denied, or given up by its run.
#[derive(Debug, Clone)]
pub(super) enum State {
    /// In the queue of its tool.
    Waiting,
    /// Waits for room on one host, which has what the call needs; or for that host to come back.
    Pinned {
        /// The host.
        host: HostId,
    },
    /// This connection keeps room for it. The connection may be gone by now.
    Reserved {
        /// The host.
        host: HostId,
        /// Its stream.
        connection: ConnectionId,
    },
    /// A host has the answer of the try before, by its word; the next try waits for that, as long as a host may take
    /// to confirm a call.
    Promised {
        /// The try before.
        attempt: u32,
        /// The host that the next one is to have, if it is not any.
        on: Option<HostId>,
    },
    /// A host has it, or may have it.
    Held(Held),
    /// A host answered; the answer is being recorded.
    Answering(Held),
}

/// A call in a host's hands.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) host: HostId,
    pub(super) attempt: u32,
    pub(super) lease: String,
    /// The stream on which it is. `None` while the host is away.
    pub(super) connection: Option<ConnectionId>,
    /// Whether the host said that it works on it.
    pub(super) accepted: bool,
    /// Whether the host said that it is finished: heartbeats do not name it then.
    pub(super) finished: bool,
    /// Heartbeats in a row that did not name it.
    pub(super) missed: u8,
    /// The last chunk of output.
    pub(super) last_chunk: u64,
    /// Questions that it sent on this stream.
    pub(super) asked: u32,
    /// What it saved last, where its run was not told yet.
    pub(super) checkpoint: Option<Vec<u8>>,
    /// When its run was told of one.
    pub(super) checkpoint_told: Option<Timestamp>,
}

impl Held {
    /// A call that a host is about to get, or may have.
    pub(super) fn new(host: HostId, attempt: u32, lease: String, connection: Option<ConnectionId>) -> Self {
        Self {
            host,
            attempt,
            lease,
            connection,
            accepted: false,
            finished: false,
            missed: 0,
            last_chunk: 0,
            asked: 0,
            checkpoint: None,
            checkpoint_told: None,
        }
    }

    /// Whether this is the try that `call` names.
    pub(super) fn is(&self, call: &CallRef) -> bool {
        self.attempt == call.attempt
    }

    /// The call with its try.
    pub(super) fn call_ref(&self, call: &CallId) -> CallRef {
        CallRef { call: call.clone(), attempt: self.attempt }
    }
}
