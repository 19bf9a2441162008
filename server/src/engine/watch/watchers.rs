//! The watchers of all lists of runs. The last changes are kept for watchers that come back.
//!
//! A change costs one look at each watcher, whatever the number of runs. Of each run at most one change waits for a
//! watcher, so a slow one gets the newest row once. Nobody waits for a watcher.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use agentloop_core::id::{RunId, TenantId};
use agentloop_core::time::{Millis, Timestamp};
use parking_lot::{Mutex, MutexGuard};

use crate::clock::Clock;
use crate::engine::watch::change::RunChange;
use crate::engine::watch::newest_rows::NewestRows;
use crate::engine::watch::peers::{KEPT_FOR, Peers};
use crate::engine::watch::tap::{TapReceiver, TapSender};
use crate::engine::watch::watcher::{ListChange, NumberedChange, Watcher};
use crate::store::RunFilter;

/// Changes that are kept for watchers that come back.
const RECENT_MAX: usize = 4_096;
/// Bytes of these changes.
const RECENT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The reason why all watchers have to begin again.
const MISSED: &str = "changes of runs of another replica may be unknown";

/// The watchers of all lists of runs.
#[derive(Default)]
pub(in crate::engine) struct RunWatchers {
    /// False while nobody has watched for some time. Changes are then not even numbered.
    is_active: AtomicBool,
    /// Number of the last change that every watcher has, or did not want.
    delivered_upto: AtomicU64,
    state: Mutex<WatchersState>,
    pub(super) peers: Peers,
}

#[derive(Default)]
struct WatchersState {
    /// Tells tokens of this process from those of others; 0 until somebody watches.
    process: u64,
    last: u64,
    recent: VecDeque<NumberedChange>,
    recent_bytes: usize,
    watchers: BTreeMap<u64, Arc<Watcher>>,
    last_id: u64,
    keep_until: Timestamp,
    /// The taps of other replicas. One that nobody reads any more stays until the next change.
    taps: Vec<TapSender>,
    newest: NewestRows,
}

/// One watcher's end. Dropping it ends the watch.
pub(super) struct WatchHandle {
    watchers: Arc<RunWatchers>,
    id: u64,
    watcher: Arc<Watcher>,
    clock: Arc<dyn Clock>,
}

/// The next thing for a watcher to read.
pub(super) enum NextChange {
    /// The newest change of a run.
    Change {
        run: RunId,
        change: ListChange,
        /// All changes up to this number were read.
        upto: u64,
    },
    /// Everything up to this number was read.
    Nothing(u64),
    /// Changes were dropped, for this reason: only a snapshot helps.
    Lost(&'static str),
    /// The watcher did not read for too long.
    Stalled,
}

/// A position in the changes of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ListPosition {
    pub(super) process: u64,
    pub(super) no: u64,
}

impl RunWatchers {
    /// True if changes are to be told by [`Self::changed`].
    pub(in crate::engine) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Tells a durable change to all watchers, and to other replicas. `stall` is the longest time for which a watcher may read
    /// nothing. Returns the number of watchers that passed it.
    pub(in crate::engine) fn changed(&self, change: RunChange, now: Timestamp, stall: Millis) -> u64 {
        let change = Arc::new(change);
        let mut state = self.state.lock();
        state.taps.retain(|tap| tap.push(&change));
        self.notify(state, change, now, stall)
    }

    /// Tells a change at another replica to all watchers, unless they were told a newer one.
    pub(super) fn peer_changed(&self, change: RunChange, now: Timestamp, stall: Millis) -> u64 {
        let state = self.state.lock();
        if state.newest.has_newer(&change) {
            return 0;
        }
        self.notify(state, Arc::new(change), now, stall)
    }

    fn notify(
        &self,
        mut state: MutexGuard<'_, WatchersState>,
        change: Arc<RunChange>,
        now: Timestamp,
        stall: Millis,
    ) -> u64 {
        if state.watchers.is_empty() && now > state.keep_until {
            state.forget();
            state.newest = NewestRows::default();
            self.delivered_upto.store(state.last, Ordering::Release);
            self.is_active.store(!state.taps.is_empty(), Ordering::Relaxed);
            return 0;
        }
        if self.peers.has_peers() {
            state.newest.note(&change);
        }
        state.last += 1;
        let numbered = NumberedChange { no: state.last, change };
        state.keep(&numbered);
        let stalled = state.watchers.values().filter(|watcher| watcher.take(&numbered, now, stall)).count();
        self.delivered_upto.store(state.last, Ordering::Release);
        stalled as u64
    }

    /// Changes may have been missed: all watchers begin again, and tokens from before are not continued.
    pub(super) fn reset_watchers(&self, now: Timestamp) {
        let mut state = self.state.lock();
        state.forget();
        state.watchers.values().for_each(|watcher| watcher.lose(MISSED, now));
        self.delivered_upto.store(state.last, Ordering::Release);
    }

    /// The changes of this engine's runs from now on.
    pub(super) fn tap(&self) -> TapReceiver {
        let (sender, changes) = TapSender::new();
        let mut state = self.state.lock();
        state.taps.retain(TapSender::is_read);
        state.taps.push(sender);
        self.is_active.store(true, Ordering::Relaxed);
        changes
    }

    /// Begins a watch. With a position whose later changes are all known, they wait to be read; the result then has their last
    /// number. `process` names this process in tokens, unless it has a name.
    pub(super) fn watch(
        self: &Arc<Self>,
        tenant: &TenantId,
        filter: &RunFilter,
        after: Option<ListPosition>,
        process: impl FnOnce() -> u64,
        clock: &Arc<dyn Clock>,
    ) -> (WatchHandle, Option<u64>) {
        let now = clock.now();
        let watcher = Arc::new(Watcher::new(tenant, filter, now));
        let mut state = self.state.lock();
        if state.process == 0 {
            state.process = process().max(1);
        }
        state.last_id += 1;
        let id = state.last_id;
        let continued = after.and_then(|position| state.after(position));
        let goes_on = continued.is_some().then_some(state.last);
        for change in continued.into_iter().flatten() {
            watcher.take(change, now, Millis(u64::MAX));
        }
        state.watchers.insert(id, watcher.clone());
        self.peers.watched_by(state.watchers.len());
        self.is_active.store(true, Ordering::Relaxed);
        drop(state);
        (WatchHandle { watchers: self.clone(), id, watcher, clock: clock.clone() }, goes_on)
    }

    fn leave(&self, id: u64, now: Timestamp) {
        let mut state = self.state.lock();
        state.watchers.remove(&id);
        self.peers.watched_by(state.watchers.len());
        state.keep_until = now.after(KEPT_FOR);
    }
}

impl WatchersState {
    fn keep(&mut self, numbered: &NumberedChange) {
        self.recent_bytes += numbered.change.bytes();
        self.recent.push_back(numbered.clone());
        while self.recent.len() > RECENT_MAX || self.recent_bytes > RECENT_BYTES_MAX {
            let Some(oldest) = self.recent.pop_front() else { return };
            self.recent_bytes -= oldest.change.bytes();
        }
    }

    /// Forgets the kept changes. Tokens of before cannot be continued, since changes are missed from here on.
    fn forget(&mut self) {
        self.recent = VecDeque::new();
        self.recent_bytes = 0;
        self.last += 1;
    }

    /// The changes after a position. `None` if some are not known any more.
    fn after(&self, position: ListPosition) -> Option<impl Iterator<Item = &NumberedChange>> {
        let next = position.no.checked_add(1)?;
        let known = self.recent.front().map_or(self.last, |first| first.no.saturating_sub(1));
        let is_known = position.process == self.process && (known..=self.last).contains(&position.no);
        is_known.then(|| self.recent.iter().filter(move |change| change.no >= next))
    }
}

impl WatchHandle {
    /// Reads the next change, if there is one.
    pub(super) fn read(&self) -> NextChange {
        // Before the look at what waits: everything up to here waits, or was read.
        let delivered = self.watchers.delivered_upto.load(Ordering::Acquire);
        let mut waiting = self.watcher.waiting.lock();
        if waiting.is_stalled {
            return NextChange::Stalled;
        }
        if let Some(why) = waiting.lost {
            return NextChange::Lost(why);
        }
        waiting.read_at = waiting.read_at.max(self.clock.now());
        match waiting.pop() {
            None => NextChange::Nothing(delivered),
            Some((run, change)) => {
                let upto = waiting.first().map_or(delivered, |first| delivered.min(first - 1));
                NextChange::Change { run, change, upto }
            }
        }
    }

    /// Waits until there may be something to read.
    pub(super) async fn arrived(&self) {
        self.watcher.arrived.notified().await;
    }

    /// Waits until other replicas are followed, for a moment.
    pub(super) async fn peers_followed(&self) {
        self.watchers.peers.wait().await;
    }

    /// Drops everything that waits. Returns the number of the last change that a snapshot from here on shows.
    pub(super) fn begin_again(&self) -> u64 {
        self.watchers.peers.note_snapshot();
        let delivered = self.watchers.delivered_upto.load(Ordering::Acquire);
        self.watcher.waiting.lock().begin_again(self.clock.now());
        delivered
    }

    /// Notes that the watcher has taken a row of a snapshot.
    pub(super) fn mark_read(&self) {
        let now = self.clock.now();
        let mut waiting = self.watcher.waiting.lock();
        waiting.read_at = waiting.read_at.max(now);
    }

    pub(super) fn process(&self) -> u64 {
        self.watchers.state.lock().process
    }
}

impl Drop for WatchHandle {
    fn drop(&mut self) {
        self.watchers.leave(self.id, self.clock.now());
    }
}
