//! Who watches lists of runs, and the changes that they have not read yet.
//!
//! A change costs one look at each watcher, whatever the number of runs. Of each run at most one change waits for a
//! watcher, so a slow one gets the newest row once. Nobody waits for a watcher.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentloop_core::id::{RunId, TenantId};
use agentloop_core::run::status::RunStatus;
use agentloop_core::run::view::WaitingOn;
use agentloop_core::time::{Millis, Timestamp};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::store::{RunFilter, RunRow};

/// Changes that are kept for watchers that come back.
const RECENT_MAX: usize = 4_096;
/// Bytes of these changes.
const RECENT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Runs with a change that a watcher has not read. Beyond it, the watcher gets a new snapshot.
const WAITING_MAX: usize = 4_096;
/// Bytes of these changes.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The time for which changes are kept after the last watcher has left.
const KEPT_FOR: Millis = Millis::secs(60);
/// Bytes of a row beside its texts.
const ROW_BYTES: usize = 512;

/// A run's row after a change.
#[derive(Debug)]
pub(in crate::engine) struct RunChange {
    /// Number of the change, from 1.
    no: u64,
    tenant: TenantId,
    pub(super) row: RunRow,
    pub(super) waiting_on: Option<WaitingOn>,
    from: ChangedFrom,
}

/// What a run was before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum ChangedFrom {
    /// There was no such run.
    Nothing,
    /// A run with this status.
    Status(RunStatus),
    /// Nobody knows: the store lost the response to a write.
    Unknown,
    /// The run was deleted. The row is its last one.
    Deleted,
}

/// The watchers of all lists of runs.
#[derive(Default)]
pub(in crate::engine) struct RunWatchers {
    /// False while nobody has watched for some time. Changes are then not even numbered.
    is_active: AtomicBool,
    /// Number of the last change that every watcher has been told.
    told: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Tells tokens of this process from those of others; 0 until somebody watches.
    process: u64,
    last: u64,
    recent: VecDeque<Arc<RunChange>>,
    recent_bytes: usize,
    watchers: BTreeMap<u64, Arc<Watcher>>,
    last_id: u64,
    keep_until: Timestamp,
}

struct Watcher {
    tenant: TenantId,
    filter: RunFilter,
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

/// The changes that a watcher has not read.
#[derive(Default)]
struct Waiting {
    /// The runs, in the order of their first change that was not read.
    order: VecDeque<RunId>,
    changes: HashMap<RunId, Unread>,
    bytes: usize,
    /// True if changes were dropped because there were too many.
    is_lost: bool,
    is_stalled: bool,
    read_at: Timestamp,
}

struct Unread {
    /// Number of the run's first change that was not read.
    first: u64,
    what: ListChange,
}

/// A change of a list.
#[derive(Debug, Clone)]
pub(super) enum ListChange {
    Row(Arc<RunChange>),
    Removed { deleted: bool },
}

/// One watcher's end. Dropping it ends the watch.
pub(super) struct WatchHandle {
    watchers: Arc<RunWatchers>,
    id: u64,
    watcher: Arc<Watcher>,
    clock: Arc<dyn Clock>,
}

/// What a watcher reads.
pub(super) enum Read {
    /// The newest change of a run. All changes up to the number were read.
    Change(RunId, ListChange, u64),
    /// Everything up to this number was read.
    Nothing(u64),
    /// Changes were dropped: only a snapshot helps.
    Lost,
    /// The watcher did not read for too long.
    Stalled,
}

/// A place in the changes of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) process: u64,
    pub(super) no: u64,
}

impl RunWatchers {
    /// True if changes are to be told by [`Self::changed`].
    pub(in crate::engine) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Tells a durable change to all watchers. `stall` is the longest time for which a watcher may read nothing. Returns the
    /// number of watchers that passed it.
    pub(in crate::engine) fn changed(
        &self,
        tenant: &TenantId,
        row: RunRow,
        waiting_on: Option<WaitingOn>,
        from: ChangedFrom,
        now: Timestamp,
        stall: Millis,
    ) -> u64 {
        let mut state = self.state();
        if state.watchers.is_empty() && now > state.keep_until {
            state.forget();
            self.told.store(state.last, Ordering::Release);
            self.is_active.store(false, Ordering::Relaxed);
            return 0;
        }
        state.last += 1;
        let change = Arc::new(RunChange { no: state.last, tenant: tenant.clone(), row, waiting_on, from });
        state.keep(&change);
        let stalled = state.watchers.values().filter(|watcher| watcher.take(&change, now, stall)).count();
        self.told.store(state.last, Ordering::Release);
        stalled as u64
    }

    /// Begins a watch. With a place whose later changes are all known, they wait to be read; the result then has their last
    /// number. `process` names this process in tokens, unless it has a name.
    pub(super) fn watch(
        self: &Arc<Self>,
        tenant: &TenantId,
        filter: &RunFilter,
        after: Option<Place>,
        process: impl FnOnce() -> u64,
        clock: &Arc<dyn Clock>,
    ) -> (WatchHandle, Option<u64>) {
        let now = clock.now();
        let watcher = Arc::new(Watcher {
            tenant: tenant.clone(),
            filter: filter.clone(),
            waiting: Mutex::new(Waiting { read_at: now, ..Waiting::default() }),
            arrived: Notify::new(),
        });
        let mut state = self.state();
        if state.process == 0 {
            state.process = process().max(1);
        }
        state.last_id += 1;
        let id = state.last_id;
        let continued = after.and_then(|place| state.after(place));
        let goes_on = continued.is_some().then_some(state.last);
        for change in continued.into_iter().flatten() {
            watcher.take(change, now, Millis(u64::MAX));
        }
        state.watchers.insert(id, watcher.clone());
        self.is_active.store(true, Ordering::Relaxed);
        drop(state);
        (WatchHandle { watchers: self.clone(), id, watcher, clock: clock.clone() }, goes_on)
    }

    fn leave(&self, id: u64, now: Timestamp) {
        let mut state = self.state();
        state.watchers.remove(&id);
        state.keep_until = now.after(KEPT_FOR);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn keep(&mut self, change: &Arc<RunChange>) {
        self.recent_bytes += change.bytes();
        self.recent.push_back(change.clone());
        while self.recent.len() > RECENT_MAX || self.recent_bytes > RECENT_BYTES_MAX {
            let Some(oldest) = self.recent.pop_front() else { return };
            self.recent_bytes -= oldest.bytes();
        }
    }

    /// Forgets the kept changes. Tokens of before cannot be continued, since changes are missed from here on.
    fn forget(&mut self) {
        self.recent = VecDeque::new();
        self.recent_bytes = 0;
        self.last += 1;
    }

    /// The changes after a place. `None` if some are not known any more.
    fn after(&self, place: Place) -> Option<impl Iterator<Item = &Arc<RunChange>>> {
        let next = place.no.checked_add(1)?;
        let known = self.recent.front().map_or(self.last, |first| first.no.saturating_sub(1));
        let is_known = place.process == self.process && (known..=self.last).contains(&place.no);
        is_known.then(|| self.recent.iter().filter(move |change| change.no >= next))
    }
}

impl RunChange {
    /// Approximate size in memory, in bytes.
    fn bytes(&self) -> usize {
        let labels = self.row.labels.iter().map(|(key, value)| key.len() + value.len() + 64).sum::<usize>();
        let error = self.row.summary.error.as_ref().map_or(0, |error| error.message.len());
        ROW_BYTES + labels + error + self.row.preview.len()
    }
}

impl Watcher {
    /// Takes a change, if it is one of this list. True if the watcher has stalled now.
    fn take(&self, change: &Arc<RunChange>, now: Timestamp, stall: Millis) -> bool {
        let mut waiting = self.waiting();
        if waiting.is_stalled {
            return false;
        }
        let is_behind = waiting.is_lost || !waiting.order.is_empty();
        if is_behind && now.since(waiting.read_at) > stall {
            *waiting = Waiting { is_stalled: true, ..Waiting::default() };
            self.arrived.notify_one();
            return true;
        }
        let Some(what) = self.change_of_list(change) else { return false };
        if !is_behind {
            waiting.read_at = waiting.read_at.max(now);
        }
        if !waiting.is_lost {
            waiting.push(change, what);
        }
        drop(waiting);
        self.arrived.notify_one();
        false
    }

    /// What the change means for this list; `None` if nothing.
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

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn push(&mut self, change: &Arc<RunChange>, what: ListChange) {
        self.bytes += what.bytes();
        match self.changes.get_mut(&change.row.run) {
            Some(unread) => {
                self.bytes -= unread.what.bytes();
                unread.what = what;
            }
            None => {
                self.order.push_back(change.row.run.clone());
                self.changes.insert(change.row.run.clone(), Unread { first: change.no, what });
            }
        }
        if self.order.len() > WAITING_MAX || self.bytes > WAITING_BYTES_MAX {
            *self = Self { is_lost: true, read_at: self.read_at, ..Self::default() };
        }
    }

    fn pop(&mut self) -> Option<(RunId, ListChange)> {
        let run = self.order.pop_front()?;
        let unread = self.changes.remove(&run)?;
        self.bytes -= unread.what.bytes();
        Some((run, unread.what))
    }

    /// Number of the first change that was not read.
    fn first(&self) -> Option<u64> {
        self.order.front().and_then(|run| self.changes.get(run)).map(|unread| unread.first)
    }
}

impl ListChange {
    fn bytes(&self) -> usize {
        match self {
            Self::Row(change) => change.bytes(),
            Self::Removed { .. } => ROW_BYTES / 4,
        }
    }
}

impl WatchHandle {
    /// Reads the next change, if there is one.
    pub(super) fn read(&self) -> Read {
        // Before the look at what waits: everything up to here waits, or was read.
        let told = self.watchers.told.load(Ordering::Acquire);
        let mut waiting = self.watcher.waiting();
        if waiting.is_stalled {
            return Read::Stalled;
        }
        if waiting.is_lost {
            return Read::Lost;
        }
        waiting.read_at = waiting.read_at.max(self.clock.now());
        match waiting.pop() {
            None => Read::Nothing(told),
            Some((run, what)) => {
                let upto = waiting.first().map_or(told, |first| told.min(first - 1));
                Read::Change(run, what, upto)
            }
        }
    }

    /// Waits until there may be something to read.
    pub(super) async fn arrived(&self) {
        self.watcher.arrived.notified().await;
    }

    /// Drops everything that waits. Returns the number of the last change that a snapshot from here on shows.
    pub(super) fn begin_again(&self) -> u64 {
        let told = self.watchers.told.load(Ordering::Acquire);
        let mut waiting = self.watcher.waiting();
        let is_stalled = waiting.is_stalled;
        *waiting = Waiting { is_stalled, read_at: self.clock.now(), ..Waiting::default() };
        told
    }

    /// Notes that the watcher has taken a row of a snapshot.
    pub(super) fn mark_read(&self) {
        let now = self.clock.now();
        let mut waiting = self.watcher.waiting();
        waiting.read_at = waiting.read_at.max(now);
    }

    pub(super) fn process(&self) -> u64 {
        self.watchers.state().process
    }
}

impl Drop for WatchHandle {
    fn drop(&mut self) {
        self.watchers.leave(self.id, self.clock.now());
    }
}
