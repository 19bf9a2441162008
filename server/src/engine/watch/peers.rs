//! Changes of runs that replicas send to each other.
//!
//! An engine knows the changes of its own runs. While somebody watches a list of runs here, the transport between replicas brings
//! the changes at other replicas. A [`RunTap`] has the changes that are sent to another replica.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use agentloop_core::id::{RunKey, Seq, TenantId};
use agentloop_core::run::status::{RunError, RunStatus};
use agentloop_core::run::view::WaitingOn;
use agentloop_core::time::Millis;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::store::RunRow;

/// The time for which changes are kept, and other replicas are followed, after the last watcher has left.
pub(super) const KEPT_FOR: Millis = Millis::secs(60);
/// Changes that wait for one other replica. If more wait, its tap ends, and that replica opens a new one.
const TAP_MAX: usize = 1_024;
/// Bytes of these changes.
const TAP_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The longest wait of a snapshot until the other replicas are followed.
const FOLLOWED_WAIT: Duration = Duration::from_secs(1);
/// Runs in each of the two halves of [`NewestRows`].
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

/// The state of a run before a change.
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
        let of_error = |error: &Option<RunError>| error.as_ref().map_or(0, |error| error.message.len());
        let error = of_error(&self.row.summary.error);
        let waiting = self.waiting_on.as_ref().map_or(0, |on| on.what.len() + of_error(&on.last_error));
        ROW_BYTES + labels + error + waiting + self.row.preview.len()
    }
}

/// The changes of this engine's runs since the tap was opened, for one other replica. Changes at other replicas are not among them.
pub struct RunTap {
    pub(super) changes: TapReceiver,
    pub(super) stop: CancellationToken,
}

impl RunTap {
    /// Waits for the next changes, `max` at most. `None` if changes were dropped because too many waited, or the engine stops.
    pub async fn next(&mut self, max: usize) -> Option<Vec<Arc<RunChange>>> {
        tokio::select! { biased;
            () = self.stop.cancelled() => None,
            changes = self.changes.next(max) => changes,
        }
    }
}

/// The end of a [`RunTap`] into which changes are put.
pub(super) struct TapSender {
    changes: mpsc::Sender<Arc<RunChange>>,
    /// Bytes of the changes that wait.
    waiting_bytes: Arc<AtomicUsize>,
}

/// The end of a [`RunTap`] out of which they are taken.
pub(super) struct TapReceiver {
    changes: mpsc::Receiver<Arc<RunChange>>,
    waiting_bytes: Arc<AtomicUsize>,
}

impl TapSender {
    pub(super) fn new() -> (Self, TapReceiver) {
        let (sender, changes) = mpsc::channel(TAP_MAX);
        let waiting_bytes = Arc::<AtomicUsize>::default();
        let receiver = TapReceiver { changes, waiting_bytes: waiting_bytes.clone() };
        (Self { changes: sender, waiting_bytes }, receiver)
    }

    /// Returns false if nobody reads any more, or the queue is full. Drop the tap then.
    pub(super) fn tell(&self, change: &Arc<RunChange>) -> bool {
        let bytes = change.bytes();
        let waiting = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        waiting.saturating_add(bytes) <= TAP_BYTES_MAX && self.changes.try_send(change.clone()).is_ok()
    }

    pub(super) fn is_read(&self) -> bool {
        !self.changes.is_closed()
    }
}

impl TapReceiver {
    /// Waits for the next changes, `max` at most. `None` after the last ones of a tap that was dropped.
    pub(super) async fn next(&mut self, max: usize) -> Option<Vec<Arc<RunChange>>> {
        let mut changes = Vec::new();
        if self.changes.recv_many(&mut changes, max).await == 0 {
            return None;
        }
        let bytes = changes.iter().map(|change| change.bytes()).sum();
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Some(changes)
    }

    #[cfg(test)]
    pub(super) fn is_closed(&self) -> bool {
        self.changes.is_closed()
    }
}

/// The state of following the changes at other replicas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum FollowState {
    /// There is no transport between replicas.
    #[default]
    NoPeers,
    /// Some replicas are not followed yet.
    NotYet,
    /// All replicas are followed that can be.
    Followed,
}

/// State that the watchers share with the transport between replicas.
#[derive(Default)]
pub(super) struct Peers {
    /// Number of watchers of runs. The other replicas are followed while there are any.
    pub(super) watchers: watch::Sender<usize>,
    pub(super) following: watch::Sender<FollowState>,
    /// True if a snapshot began before the other replicas were followed.
    pub(super) began_alone: AtomicBool,
}

impl Peers {
    pub(super) fn there_are(&self) -> bool {
        *self.following.borrow() != FollowState::NoPeers
    }

    pub(super) fn watched_by(&self, watchers: usize) {
        self.watchers.send_replace(watchers);
    }

    /// Waits until the other replicas are followed, if there are any. Gives up after a second: a list without their changes is better
    /// than none.
    pub(super) async fn wait(&self) {
        let mut following = self.following.subscribe();
        let _late = timeout(FOLLOWED_WAIT, following.wait_for(|now| *now != FollowState::NotYet)).await;
    }

    /// Notes that a snapshot begins. If other replicas are not followed yet, it may miss changes there, and begins again once they are.
    pub(super) fn begin(&self) {
        if *self.following.borrow() == FollowState::NotYet {
            self.began_alone.store(true, Ordering::Relaxed);
        }
    }
}

/// The newest rows that were told lately. When a run moves, a change from its old owner may arrive after one from the new owner.
#[derive(Default)]
pub(super) struct NewestRows {
    young: HashMap<RunKey, Newest>,
    /// Older rows. When the young ones are [`NEWEST_MAX`], they take the place of these.
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
