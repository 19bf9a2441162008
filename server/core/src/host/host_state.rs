//! One host: its identity, its stream while it has one, and the calls assigned to it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::host::connection::HostConnection;
use crate::host::io::HostJoin;
use crate::id::{CallId, InstanceId};
use crate::limits::CALLS_PER_HOST_MAX;
use crate::time::Timestamp;

/// Order in which hosts get calls: the smaller load first, among equals the larger free credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    load: usize,
    free_credit: Reverse<u64>,
}

/// A host. It is kept while it is connected, or while calls wait for it to reconnect.
#[derive(Debug, Clone)]
pub(super) struct HostState {
    /// The current stream. `None` while the host is disconnected.
    pub(super) connection: Option<HostConnection>,
    /// The process of its last stream, and the number that the process gave to that stream.
    pub(super) newest: Option<(InstanceId, u64)>,
    pub(super) sdk: String,
    pub(super) labels: BTreeMap<String, String>,
    /// The host's last words about itself.
    pub(super) status: String,
    pub(super) connected_at: Timestamp,
    pub(super) last_heard: Timestamp,
    /// Calls assigned to it. A call whose result is being recorded is no longer among them.
    pub(super) calls: BTreeSet<CallId>,
    /// Frames that did not fit the state and were ignored.
    pub(super) ignored_frames: u64,
}

impl HostState {
    /// A host that is disconnected and known only because a call may be with it.
    pub(super) fn disconnected(now: Timestamp) -> Self {
        Self {
            connection: None,
            newest: None,
            sdk: String::new(),
            labels: BTreeMap::new(),
            status: String::new(),
            connected_at: now,
            last_heard: now,
            calls: BTreeSet::new(),
            ignored_frames: 0,
        }
    }

    /// True if the same process has connected with a greater number. A hello that comes late says what was true before: it
    /// would make calls seem lost, or not begun, that the process has.
    pub(super) fn has_newer(&self, join: &HostJoin) -> bool {
        let newest = self.newest.as_ref().filter(|(instance, _)| Some(instance) == join.instance.as_ref());
        join.connection_no > 0 && newest.is_some_and(|(_, number)| *number > join.connection_no)
    }

    /// Calls that take up room: assigned, granted, or cancelled and not yet stopped.
    pub(super) fn load(&self) -> usize {
        let on_stream = self.connection.as_ref().map_or(0, |c| c.stopping.len() + c.credit.reserved());
        self.calls.len() + on_stream
    }

    /// Its rank among connected hosts. `None` while it is disconnected.
    pub(super) fn rank(&self) -> Option<Rank> {
        let connection = self.connection.as_ref()?;
        Some(Rank { load: self.load(), free_credit: Reverse(connection.credit.free()) })
    }

    /// True if the host accepts another call of this tool now.
    pub(super) fn has_room(&self, tool: &str, now: Timestamp) -> bool {
        self.load() < CALLS_PER_HOST_MAX && self.connection.as_ref().is_some_and(|c| c.has_room(tool, now))
    }

    /// True unless the host still stops a call of the same id.
    pub(super) fn may_get(&self, call: &CallId) -> bool {
        self.connection.as_ref().is_none_or(|c| !c.is_stopping(call))
    }

    /// True if the host accepts this call of this tool now.
    pub(super) fn has_room_for(&self, call: &CallId, tool: &str, now: Timestamp) -> bool {
        self.has_room(tool, now) && self.may_get(call)
    }
}
