//! Changes of runs that engines of other replicas are told, and those that they tell.
//!
//! An engine knows the changes of its own runs. While somebody watches a list of runs here, the transport between replicas brings
//! the changes of the others: [`RunWatch`] says when to follow them, and [`RunTap`] has the changes for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agentloop_core::id::{RunKey, Seq, TenantId};
use agentloop_core::run::status::RunStatus;
use agentloop_core::run::view::WaitingOn;
use agentloop_core::time::Millis;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::watch::hub::RunWatchers;
use crate::store::RunRow;

/// The time for which changes are kept, and other replicas are followed, after the last watcher has left.
pub(super) const KEPT_FOR: Millis = Millis::secs(60);
/// Changes that wait for one other replica. One that reads slower begins again.
const TAP_MAX: usize = 1_024;
/// The longest wait of a snapshot until the other replicas are followed.
const FOLLOWED_WAIT: Duration = Duration::from_secs(1);
/// Runs whose newest row is remembered, half of what is kept at most.
const NEWEST_MAX: usize = 8_192;
/// Bytes of a row beside its texts.
const ROW_BYTES: usize = 512;

/// A run's row after a change, as replicas tell it to each other. A field that is added needs a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunChange {
    pub(super) tenant: TenantId,
    pub(super) row: RunRow,
    pub(super) waiting_on: Option<WaitingOn>,
    #[serde(default)]
    pub(super) from: ChangedFrom,
}

/// What a run was before a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::engine) enum ChangedFrom {
    /// There was no such run.
    Nothing,
    /// A run with this status.
    Status(RunStatus),
    /// Nobody knows: the store lost the response to a write.
    #[default]
    Unknown,
    /// The run was deleted. The row is its last one.
    Deleted,
}

impl RunChange {
    pub(in crate::engine) fn new(
        tenant: &TenantId,
        row: RunRow,
        waiting_on: Option<WaitingOn>,
        from: ChangedFrom,
    ) -> Self {
        Self { tenant: tenant.clone(), row, waiting_on, from }
    }

    fn key(&self) -> RunKey {
        RunKey::new(self.tenant.clone(), self.row.run.clone())
    }

    /// Approximate size in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let labels = self.row.labels.iter().map(|(key, value)| key.len() + value.len() + 64).sum::<usize>();
        let error = self.row.summary.error.as_ref().map_or(0, |error| error.message.len());
        ROW_BYTES + labels + error + self.row.preview.len()
    }
}

/// The changes of this engine's runs, from its beginning on, for one other replica. Changes that came from others are not among them.
pub struct RunTap {
    changes: mpsc::Receiver<Arc<RunChange>>,
    stop: CancellationToken,
}

impl RunTap {
    /// Waits for the next changes, `max` at most. `None` if changes were dropped because too many waited, or the engine stops.
    pub async fn next(&mut self, max: usize) -> Option<Vec<Arc<RunChange>>> {
        let mut changes = Vec::new();
        tokio::select! { biased;
            () = self.stop.cancelled() => None,
            found = self.changes.recv_many(&mut changes, max) => (found > 0).then_some(changes),
        }
    }
}

/// The end of a [`RunTap`] that the hub holds.
pub(super) struct TapSender(mpsc::Sender<Arc<RunChange>>);

impl TapSender {
    pub(super) fn new() -> (Self, mpsc::Receiver<Arc<RunChange>>) {
        let (sender, changes) = mpsc::channel(TAP_MAX);
        (Self(sender), changes)
    }

    /// False if nobody reads any more, or the change has no room. The tap is then to be dropped.
    pub(super) fn tell(&self, change: &Arc<RunChange>) -> bool {
        self.0.try_send(change.clone()).is_ok()
    }

    pub(super) fn is_read(&self) -> bool {
        !self.0.is_closed()
    }
}

/// Tells the transport between replicas when somebody watches, and takes its word on whether the others are followed. Without one,
/// no watcher waits for other replicas.
pub struct RunWatch {
    watchers: Arc<RunWatchers>,
    clock: Arc<dyn Clock>,
}

impl RunWatch {
    /// Waits until somebody watches a list of runs.
    pub async fn begins(&self) {
        let mut watchers = self.peers().watchers.subscribe();
        // The sender lives as long as this.
        let _closed = watchers.wait_for(|watchers| *watchers > 0).await;
    }

    /// Waits until nobody has watched for a minute.
    pub async fn ends(&self) {
        let mut watchers = self.peers().watchers.subscribe();
        loop {
            drop(watchers.wait_for(|watchers| *watchers == 0).await);
            if timeout(KEPT_FOR.duration(), watchers.wait_for(|watchers| *watchers > 0)).await.is_err() {
                return;
            }
        }
    }

    /// True after [`Self::followed`], until [`Self::unfollowed`].
    #[must_use]
    pub fn is_followed(&self) -> bool {
        *self.peers().following.borrow() == Following::Followed
    }

    /// From here on the changes of other replicas are told, as far as they can be. Watchers that wait for it begin, and those that did
    /// not wait so long begin again. Streams that are made later bring changes after a gap: [`Engine::peers_missed`].
    pub fn followed(&self) {
        if self.peers().began_alone.swap(false, Ordering::Relaxed) {
            self.watchers.missed(self.clock.now());
        }
        self.peers().following.send_replace(Following::Followed);
    }

    /// From here on the changes of other replicas are not told.
    pub fn unfollowed(&self) {
        self.peers().following.send_replace(Following::NotYet);
        self.watchers.missed(self.clock.now());
    }

    fn peers(&self) -> &Peers {
        &self.watchers.peers
    }
}

impl Drop for RunWatch {
    fn drop(&mut self) {
        self.peers().following.send_replace(Following::NoPeers);
    }
}

/// Whether the changes of other replicas are told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Following {
    /// There is no transport between replicas.
    #[default]
    NoPeers,
    NotYet,
    Followed,
}

/// What the hub and the transport between replicas know of each other.
#[derive(Default)]
pub(super) struct Peers {
    /// Number of watchers.
    watchers: watch::Sender<usize>,
    following: watch::Sender<Following>,
    /// True if a snapshot began before the other replicas were followed.
    began_alone: AtomicBool,
}

impl Peers {
    pub(super) fn there_are(&self) -> bool {
        *self.following.borrow() != Following::NoPeers
    }

    pub(super) fn watched_by(&self, watchers: usize) {
        self.watchers.send_replace(watchers);
    }

    /// Waits until the other replicas are followed, if there are any, or for so long that a list is better without them.
    pub(super) async fn wait(&self) {
        let mut following = self.following.subscribe();
        let _late = timeout(FOLLOWED_WAIT, following.wait_for(|now| *now != Following::NotYet)).await;
    }

    /// Notes that a snapshot begins. If the others are followed after this, it has their changes all the same.
    pub(super) fn begin(&self) {
        if *self.following.borrow() == Following::NotYet {
            self.began_alone.store(true, Ordering::Relaxed);
        }
    }
}

/// The newest row of each run that was told lately. When a run moves, its old owner may be heard after the new one.
#[derive(Default)]
pub(super) struct NewestRows {
    young: HashMap<RunKey, Newest>,
    /// Those before: they are forgotten when the young ones are as many as may be kept.
    old: HashMap<RunKey, Newest>,
}

struct Newest {
    seq: Seq,
    is_deleted: bool,
}

impl NewestRows {
    pub(super) fn note(&mut self, change: &RunChange) {
        if self.young.len() >= NEWEST_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        let is_deleted = change.from == ChangedFrom::Deleted;
        self.young.insert(change.key(), Newest { seq: change.row.last_seq, is_deleted });
    }

    /// True if a newer row of the run was told before.
    pub(super) fn has_newer(&self, change: &RunChange) -> bool {
        let (key, seq) = (change.key(), change.row.last_seq);
        match self.young.get(&key).or_else(|| self.old.get(&key)) {
            // A run of the same id may have been started since.
            Some(newest) if newest.is_deleted => change.from != ChangedFrom::Nothing && seq <= newest.seq,
            Some(newest) => seq < newest.seq,
            None => false,
        }
    }
}

impl Engine {
    /// The changes of the runs of this engine from now on, for another replica.
    ///
    /// # Errors
    /// [`EngineError::ShuttingDown`]
    pub fn tap_run_changes(&self) -> Result<RunTap, EngineError> {
        self.check_running()?;
        let changes = self.deps().run_watchers.tap();
        Ok(RunTap { changes, stop: self.deps().tasks.soft().clone() })
    }

    /// Tells those who watch here of a change at another replica.
    pub fn peer_changed(&self, change: RunChange) {
        let deps = self.deps();
        let (now, stall) = (deps.clock.now(), deps.options.subscriber_stall);
        deps.count_slow(deps.run_watchers.peer_changed(change, now, stall));
    }

    /// Changes at another replica may be unknown: all who watch begin again, and no token of before continues.
    pub fn peers_missed(&self) {
        let deps = self.deps();
        deps.run_watchers.missed(deps.clock.now());
    }

    /// For the transport between replicas, which is to hold this as long as it works. Each engine has one at most.
    #[must_use]
    pub fn run_watch(&self) -> RunWatch {
        let deps = self.deps();
        deps.run_watchers.run_watch(&deps.clock)
    }
}

impl RunWatchers {
    pub(super) fn run_watch(self: &Arc<Self>, clock: &Arc<dyn Clock>) -> RunWatch {
        let watch = RunWatch { watchers: self.clone(), clock: clock.clone() };
        watch.unfollowed();
        watch
    }
}
