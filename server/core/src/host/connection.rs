//! One stream of a host: its credit, the tools that it serves, and the calls that take up room on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::host::credit::Credit;
use crate::host::frame::{CallRef, CallRequest, Ran};
use crate::host::io::{ConnectionId, HostJoin};
use crate::id::{Attempt, CallId, InstanceId};
use crate::limits::CALLS_PER_HOST_MAX;
use crate::time::Timestamp;
use crate::tool::ToolTerms;

/// The current stream of a connected host.
#[derive(Debug, Clone)]
pub(super) struct HostConnection {
    pub(super) id: ConnectionId,
    /// The process behind the host's id.
    pub(super) instance: Option<InstanceId>,
    /// Calls that the host named in its hello, or lost on this stream: it may have begun them, though it is not known to
    /// have them.
    touched: BTreeSet<CallRef>,
    pub(super) credit: Credit,
    /// Tools that it serves, by name.
    pub(super) tools: BTreeMap<String, OfferedTool>,
    /// True once the host said that it accepts no more calls.
    pub(super) draining: bool,
    /// The host gets no new call before this time: it was busy, or did not confirm a call.
    pub(super) busy_until: Option<Timestamp>,
    pub(super) max_frame_bytes: usize,
    /// Cancelled calls that the host still runs. They take up room.
    pub(super) stopping: BTreeMap<CallRef, StoppingCall>,
    /// Cancelled calls that the host does not run any more, and whose end it has not explained. Its word may still come: a
    /// heartbeat can overtake it.
    unexplained: BTreeMap<CallRef, StoppingCall>,
    /// Results of cancelled calls that are not yet acknowledged to the host. Until then it still knows those calls.
    pub(super) unacknowledged: BTreeSet<CallRef>,
    /// Runtimes that the host has open, as it names them.
    pub(super) runtimes: BTreeSet<String>,
    /// The tool that was last served from its queue. The next one after it by name is served next.
    pub(super) last_tool: String,
    /// Calls per tool that take up room.
    running: BTreeMap<String, u32>,
}

/// A cancelled call that its host still runs.
#[derive(Debug, Clone)]
pub(super) struct StoppingCall {
    /// Its tool. `None` if its run never said.
    pub(super) tool: Option<String>,
    /// The lease of the attempt.
    pub(super) lease: String,
    /// True if its deadline was the reason: then its run waits for the host's word.
    pub(super) overdue: bool,
    /// True if the host said that it works on the call. A rejection proves nothing then.
    pub(super) accepted: bool,
    /// The time at which it was cancelled.
    pub(super) since: Timestamp,
}

/// A tool that a connection serves.
#[derive(Debug, Clone)]
pub(super) struct OfferedTool {
    pub(super) terms: Arc<ToolTerms>,
    /// Calls of it that may run on this host at the same time. `None` leaves the credit as the only bound.
    pub(super) max_concurrency: Option<u32>,
}

impl HostConnection {
    /// A connection whose tools are still to be checked.
    pub(super) fn new(join: &HostJoin) -> Self {
        Self {
            id: join.connection,
            instance: join.instance.clone(),
            touched: join.claims.iter().map(|(claim, _)| claim.call.clone()).collect(),
            credit: Credit::new(join.credit),
            tools: BTreeMap::new(),
            draining: false,
            busy_until: None,
            max_frame_bytes: join.max_frame_bytes,
            stopping: BTreeMap::new(),
            unexplained: BTreeMap::new(),
            unacknowledged: BTreeSet::new(),
            runtimes: join.runtimes.iter().cloned().collect(),
            last_tool: String::new(),
            running: BTreeMap::new(),
        }
    }

    /// Remembers a call that was taken from the host: it may have begun it. Beyond the bound, no call that is missing
    /// counts as not begun any more.
    pub(super) fn touch(&mut self, call: CallRef) {
        if self.touched.len() < 2 * CALLS_PER_HOST_MAX {
            self.touched.insert(call);
        } else {
            self.instance = None;
        }
    }

    /// Says if a call ran that this process does not have. The journal says which process it was offered to.
    pub(super) fn ran_if_missing(&self, call: &CallRef, offered_to: Option<&InstanceId>) -> Ran {
        let same = offered_to.is_some() && offered_to == self.instance.as_ref();
        if same && !self.touched.contains(call) { Ran::No } else { Ran::Maybe }
    }

    /// True if it accepts calls of this tool at all, now or later.
    pub(super) fn serves(&self, tool: &str) -> bool {
        !self.draining && self.tools.contains_key(tool)
    }

    /// True if it accepts another call of this tool now.
    pub(super) fn has_room(&self, tool: &str, now: Timestamp) -> bool {
        let below_bound =
            |offered: &OfferedTool| offered.max_concurrency.is_none_or(|max| self.running(tool) < max);
        !self.draining
            && self.busy_until.is_none_or(|until| until <= now)
            && self.credit.free() > 0
            && self.tools.get(tool).is_some_and(below_bound)
    }

    /// Calls of a tool that take up room.
    pub(super) fn running(&self, tool: &str) -> u32 {
        self.running.get(tool).copied().unwrap_or_default()
    }

    /// True if the call needs a runtime that is not open yet, and the frame that opens it is too large for the host.
    pub(super) fn is_too_small_for_runtime(&self, request: &CallRequest) -> bool {
        let Some(runtime) = &request.runtime else { return false };
        request.opening_size() > self.max_frame_bytes && !self.runtimes.contains(&runtime.id.to_string())
    }

    /// Counts a call that takes up room. A call whose tool is unknown is not counted.
    pub(super) fn occupy(&mut self, tool: Option<&str>) {
        if let Some(tool) = tool {
            *self.running.entry(tool.to_owned()).or_default() += 1;
        }
    }

    /// Undoes one [`Self::occupy`] of the same tool.
    pub(super) fn vacate(&mut self, tool: Option<&str>) {
        let Some(tool) = tool else { return };
        let running = self.running.get_mut(tool).expect("a call that leaves was counted when it came");
        *running -= 1;
        if *running == 0 {
            self.running.remove(tool);
        }
    }

    /// True while the host knows a cancelled call of this id, at any attempt.
    ///
    /// The id may belong to another run by then, since ids of deleted runs are free again. A result of the cancelled
    /// call must not become the result of the new one.
    pub(super) fn is_stopping(&self, call: &CallId) -> bool {
        if self.stopping.is_empty() && self.unacknowledged.is_empty() {
            return false;
        }
        let first = CallRef { call: call.clone(), attempt: Attempt::NONE };
        let stopping = self.stopping.range(&first..).next().map(|(stopping, _)| stopping);
        let unacknowledged = self.unacknowledged.range(&first..).next();
        stopping.into_iter().chain(unacknowledged).any(|known| known.call == *call)
    }

    /// Frees the room of a cancelled call that the host does not name any more, and waits for the reason.
    pub(super) fn stopped_without_a_word(&mut self, call: &CallRef) {
        let Some(stopped) = self.stopped(call) else { return };
        if self.unexplained.len() < CALLS_PER_HOST_MAX {
            self.unexplained.insert(call.clone(), stopped);
        }
    }

    /// Takes a cancelled call of which the host says that it does not run. Returns `None` if there was no such call, or
    /// the host has explained it before.
    pub(super) fn explained(&mut self, call: &CallRef) -> Option<StoppingCall> {
        self.stopped(call).or_else(|| self.unexplained.remove(call))
    }

    /// Notes that the host began a cancelled call after all.
    pub(super) fn began_cancelled(&mut self, call: &CallRef) {
        if let Some(known) = self.stopping.get_mut(call).or_else(|| self.unexplained.get_mut(call)) {
            known.accepted = true;
        }
    }

    /// Frees the room of a cancelled call that stopped. Returns `None` if there was no such call.
    pub(super) fn stopped(&mut self, call: &CallRef) -> Option<StoppingCall> {
        let stopped = self.stopping.remove(call)?;
        self.vacate(stopped.tool.as_deref());
        Some(stopped)
    }
}
