//! One host: its stream if it has one, the room it gives, and the calls it has.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::host::frame::{CallRef, CallRequest};
use crate::host::io::{ConnectionId, Joining};
use crate::id::CallId;
use crate::limits::CALLS_PER_HOST_MAX;
use crate::time::Timestamp;
use crate::tool::Digest;

/// The least loaded first; of equals the one with the most credit.
pub(super) type Rank = (usize, Reverse<u64>);

/// A host. It exists as long as it is connected or calls wait for it to come back.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) connection: Option<Connection>,
    pub(super) sdk: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) connected_at: Timestamp,
    pub(super) last_heard: Timestamp,
    /// Calls that it has or may have, answered ones excepted.
    pub(super) calls: BTreeSet<CallId>,
    pub(super) ignored_frames: u64,
}

impl Host {
    /// A host that is known only because calls wait for it.
    pub(super) fn away(now: Timestamp) -> Self {
        Self {
            connection: None,
            sdk: String::new(),
            labels: BTreeMap::new(),
            connected_at: now,
            last_heard: now,
            calls: BTreeSet::new(),
            ignored_frames: 0,
        }
    }

    /// Calls it has, has room kept for, or was told to stop.
    pub(super) fn load(&self) -> usize {
        let connection = self.connection.as_ref().map_or(0, |c| c.stopping.len() + c.credit.kept());
        self.calls.len() + connection
    }

    /// How it stands among others, where it has a stream.
    pub(super) fn rank(&self) -> Option<Rank> {
        let connection = self.connection.as_ref()?;
        Some((self.load(), Reverse(connection.credit.free())))
    }

    /// Whether it would take a call of this tool now.
    pub(super) fn has_room(&self, tool: &str, now: Timestamp) -> bool {
        self.load() < CALLS_PER_HOST_MAX && self.connection.as_ref().is_some_and(|c| c.has_room(tool, now))
    }

    /// Whether it would take this call, where it has room.
    pub(super) fn may_have(&self, call: &CallId) -> bool {
        self.connection.as_ref().is_none_or(|c| !c.is_stopping(call))
    }

    /// Whether it would take this call of this tool now.
    pub(super) fn has_room_for(&self, call: &CallId, tool: &str, now: Timestamp) -> bool {
        self.has_room(tool, now) && self.may_have(call)
    }
}

/// A host's stream.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) credit: Credit,
    /// What it serves.
    pub(super) tools: BTreeMap<String, Slot>,
    pub(super) draining: bool,
    /// It said that it has too much to do, and is left alone until then.
    pub(super) busy_until: Option<Timestamp>,
    pub(super) max_frame_bytes: usize,
    /// Calls that it was told to stop and that still take up room.
    pub(super) stopping: BTreeMap<CallRef, Option<String>>,
    /// Those of them that it answered, until that is acknowledged: it knows the answer as long.
    pub(super) ending: BTreeSet<CallRef>,
    /// Runtimes that it has open.
    pub(super) runtimes: BTreeSet<String>,
    /// The tool whose queue it served last.
    pub(super) last_tool: String,
    /// Calls per tool that take up room.
    running: BTreeMap<String, u32>,
}

/// A tool on a connection.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) digest: Digest,
    pub(super) max_concurrency: Option<u32>,
}

impl Connection {
    /// Without tools yet.
    pub(super) fn new(joining: &Joining) -> Self {
        Self {
            id: joining.connection,
            credit: Credit { total: joining.credit, ..Credit::default() },
            tools: BTreeMap::new(),
            draining: false,
            busy_until: None,
            max_frame_bytes: joining.max_frame_bytes,
            stopping: BTreeMap::new(),
            ending: BTreeSet::new(),
            runtimes: joining.runtimes.iter().cloned().collect(),
            last_tool: String::new(),
            running: BTreeMap::new(),
        }
    }

    /// Whether it takes calls of this tool at all.
    pub(super) fn serves(&self, tool: &str) -> bool {
        !self.draining && self.tools.contains_key(tool)
    }

    fn has_room(&self, tool: &str, now: Timestamp) -> bool {
        let below_bound = |slot: &Slot| slot.max_concurrency.is_none_or(|max| self.running(tool) < max);
        !self.draining
            && self.busy_until.is_none_or(|until| until <= now)
            && self.credit.free() > 0
            && self.tools.get(tool).is_some_and(below_bound)
    }

    /// Calls of a tool that take up room.
    pub(super) fn running(&self, tool: &str) -> u32 {
        self.running.get(tool).copied().unwrap_or_default()
    }

    /// Whether no frame that it takes opens the runtime that a call needs and that it does not have.
    pub(super) fn is_too_small_for_runtime(&self, request: &CallRequest) -> bool {
        let Some(runtime) = &request.runtime else { return false };
        request.opening_size() > self.max_frame_bytes && !self.runtimes.contains(&runtime.id.to_string())
    }

    /// A call takes up room.
    pub(super) fn occupy(&mut self, tool: Option<&str>) {
        if let Some(tool) = tool {
            *self.running.entry(tool.to_owned()).or_default() += 1;
        }
    }

    /// A call takes up room no longer.
    pub(super) fn vacate(&mut self, tool: Option<&str>) {
        let Some(tool) = tool else { return };
        let running = self.running.get_mut(tool).expect("what leaves was counted when it came");
        *running -= 1;
        if *running == 0 {
            self.running.remove(tool);
        }
    }

    /// Whether it was told to stop a call of this id and still knows it. A deleted run's id can be another's by then:
    /// what the host knows of the one must not become the other's answer.
    fn is_stopping(&self, call: &CallId) -> bool {
        if self.stopping.is_empty() && self.ending.is_empty() {
            return false;
        }
        let first = CallRef { call: call.clone(), attempt: 0 };
        let stopping = self.stopping.range(&first..).next().map(|(stopping, _)| stopping);
        let ending = self.ending.range(&first..).next();
        stopping.into_iter().chain(ending).any(|known| known.call == *call)
    }

    /// A call that was told to stop has stopped, or will not be heard of again. Whether there was one.
    pub(super) fn stopped(&mut self, call: &CallRef) -> bool {
        let Some(tool) = self.stopping.remove(call) else { return false };
        self.vacate(tool.as_deref());
        true
    }
}

/// Flow control of one stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Credit {
    /// What the host gave in all.
    pub(super) total: u64,
    /// What was sent.
    used: u64,
    /// What is kept for calls that are about to be sent.
    kept: u64,
}

impl Credit {
    /// Calls that may still be sent.
    pub(super) fn free(self) -> u64 {
        self.total.saturating_sub(self.used + self.kept)
    }

    /// Whether the host was never sent more than it gave.
    #[cfg(test)]
    pub(super) fn is_sound(self) -> bool {
        self.used + self.kept <= self.total
    }

    /// How many are kept.
    pub(super) fn kept(self) -> usize {
        usize::try_from(self.kept).unwrap_or(usize::MAX)
    }

    /// Whether a host may give this much: it is bounded by what a host may ever have.
    pub(super) fn may_grow_to(self, total: u64) -> bool {
        total.saturating_sub(self.used) <= CALLS_PER_HOST_MAX as u64
    }

    /// The host gives more. Less than before changes nothing.
    pub(super) fn grow_to(&mut self, total: u64) {
        self.total = self.total.max(total);
    }

    /// Keeps one.
    pub(super) fn keep(&mut self) {
        assert!(self.free() > 0, "only free credit is kept");
        self.kept += 1;
    }

    /// Gives one that was kept back.
    pub(super) fn give_back(&mut self) {
        self.kept = self.kept.checked_sub(1).expect("what is given back was kept");
    }

    /// Uses one that was kept.
    pub(super) fn spend(&mut self) {
        self.give_back();
        self.used += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_cumulative() {
        let mut credit = Credit { total: 2, ..Credit::default() };
        credit.keep();
        credit.spend();
        credit.keep();
        assert_eq!((credit.free(), credit.kept()), (0, 1));
        credit.give_back();
        assert_eq!(credit.free(), 1);
        credit.grow_to(1);
        assert_eq!(credit.free(), 1, "a smaller total takes nothing back");
        credit.grow_to(5);
        credit.grow_to(5);
        assert_eq!(credit.free(), 4);
    }

    #[test]
    fn credit_is_bounded_by_what_is_outstanding() {
        let max = CALLS_PER_HOST_MAX as u64;
        let mut credit = Credit::default();
        assert!(credit.may_grow_to(max));
        assert!(!credit.may_grow_to(max + 1));
        assert!(!credit.may_grow_to(u64::MAX));
        credit.grow_to(1);
        credit.keep();
        credit.spend();
        assert!(credit.may_grow_to(max + 1), "what was used does not count");
    }
}
