//! One watcher of a list of runs, and the changes that it has not read yet.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use agentloop_core::id::{RunId, TenantId};
use agentloop_core::time::{Millis, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::engine::watch::change::{ChangedFrom, RunChange};
use crate::store::RunFilter;

/// Runs with a change that a watcher has not read. Beyond it, the watcher gets a new snapshot.
const WAITING_MAX: usize = 4_096;
/// Bytes of these changes.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of a removal that waits.
const REMOVAL_BYTES: usize = 128;
/// The reason why a watcher has to begin again that does not read fast enough.
const TOO_MANY: &str = "more changed than this reader has read";

/// A change, with its number among all changes, from 1.
#[derive(Clone)]
pub(super) struct NumberedChange {
    pub(super) no: u64,
    pub(super) change: Arc<RunChange>,
}

pub(super) struct Watcher {
    tenant: TenantId,
    filter: RunFilter,
    pub(super) waiting: Mutex<Waiting>,
    pub(super) arrived: Notify,
}

/// The changes that a watcher has not read.
#[derive(Default)]
pub(super) struct Waiting {
    /// The runs, in the order of their first change that was not read.
    order: VecDeque<RunId>,
    changes: HashMap<RunId, UnreadChange>,
    bytes: usize,
    /// The reason why changes were dropped, if they were.
    pub(super) lost: Option<&'static str>,
    pub(super) is_stalled: bool,
    pub(super) read_at: Timestamp,
}

struct UnreadChange {
    /// Number of the run's first change that was not read.
    first: u64,
    /// The change is of a new run. One with the same id was deleted before, which is to be told first.
    after_deletion: bool,
    what: ListChange,
}

/// A change of a list.
#[derive(Debug, Clone)]
pub(super) enum ListChange {
    Row(Arc<RunChange>),
    Removed { deleted: bool },
}

impl Watcher {
    pub(super) fn new(tenant: &TenantId, filter: &RunFilter, now: Timestamp) -> Self {
        Self {
            tenant: tenant.clone(),
            filter: filter.clone(),
            waiting: Mutex::new(Waiting { read_at: now, ..Waiting::default() }),
            arrived: Notify::new(),
        }
    }

    /// Takes a change, if it is one of this list. True if the watcher has stalled now.
    pub(super) fn take(&self, numbered: &NumberedChange, now: Timestamp, stall: Millis) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.is_stalled {
            return false;
        }
        let is_behind = waiting.is_behind();
        if is_behind && now.since(waiting.read_at) > stall {
            *waiting = Waiting { is_stalled: true, ..Waiting::default() };
            self.arrived.notify_one();
            return true;
        }
        let Some(what) = self.change_of_list(&numbered.change) else { return false };
        if !is_behind {
            waiting.read_at = waiting.read_at.max(now);
        }
        if waiting.lost.is_none() {
            waiting.push(numbered, what);
        }
        drop(waiting);
        self.arrived.notify_one();
        false
    }

    /// Drops what waits: the watcher has to begin again, for this reason.
    pub(super) fn lose(&self, why: &'static str, now: Timestamp) {
        let mut waiting = self.waiting.lock();
        if waiting.is_stalled {
            return;
        }
        if !waiting.is_behind() {
            waiting.read_at = waiting.read_at.max(now);
        }
        waiting.lose(why);
        drop(waiting);
        self.arrived.notify_one();
    }

    /// The change of this list that follows; `None` if there is none.
    fn change_of_list(&self, change: &Arc<RunChange>) -> Option<ListChange> {
        let row = &change.row;
        if self.tenant != change.tenant || !self.filter.matches_for_good(row) {
            return None;
        }
        let matches = self.filter.has_status(row.summary.status);
        match change.from {
            ChangedFrom::Deleted => matches.then_some(ListChange::Removed { deleted: true }),
            _ if matches => Some(ListChange::Row(change.clone())),
            ChangedFrom::Status(before) if self.filter.has_status(before) => {
                Some(ListChange::Removed { deleted: false })
            }
            ChangedFrom::Unknown => Some(ListChange::Removed { deleted: false }),
            ChangedFrom::Nothing | ChangedFrom::Status(_) => None,
        }
    }
}

impl Waiting {
    fn is_behind(&self) -> bool {
        self.lost.is_some() || !self.order.is_empty()
    }

    fn lose(&mut self, why: &'static str) {
        *self = Self { lost: Some(why), read_at: self.read_at, ..Self::default() };
    }

    /// Drops everything that waits. A watcher that has stalled stays so.
    pub(super) fn begin_again(&mut self, now: Timestamp) {
        *self = Self { is_stalled: self.is_stalled, read_at: now, ..Self::default() };
    }

    fn push(&mut self, numbered: &NumberedChange, what: ListChange) {
        let run = &numbered.change.row.run;
        self.bytes += what.bytes();
        match self.changes.get_mut(run) {
            Some(unread) => {
                self.bytes -= unread.what.bytes();
                unread.after_deletion |= matches!(unread.what, ListChange::Removed { deleted: true });
                unread.what = what;
            }
            None => {
                self.order.push_back(run.clone());
                self.changes
                    .insert(run.clone(), UnreadChange { first: numbered.no, after_deletion: false, what });
            }
        }
        if self.order.len() > WAITING_MAX || self.bytes > WAITING_BYTES_MAX {
            self.lose(TOO_MANY);
        }
    }

    pub(super) fn pop(&mut self) -> Option<(RunId, ListChange)> {
        let run = self.order.front()?;
        if let Some(unread) = self.changes.get_mut(run).filter(|unread| unread.after_deletion) {
            unread.after_deletion = false;
            return Some((run.clone(), ListChange::Removed { deleted: true }));
        }
        let run = self.order.pop_front()?;
        let unread = self.changes.remove(&run)?;
        self.bytes -= unread.what.bytes();
        Some((run, unread.what))
    }

    /// Number of the first change that was not read.
    pub(super) fn first(&self) -> Option<u64> {
        self.order.front().and_then(|run| self.changes.get(run)).map(|unread| unread.first)
    }
}

impl ListChange {
    fn bytes(&self) -> usize {
        match self {
            Self::Row(change) => change.bytes(),
            Self::Removed { .. } => REMOVAL_BYTES,
        }
    }
}
