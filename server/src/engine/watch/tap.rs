//! The changes of the runs of this engine that wait to be sent to another replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::engine::watch::change::RunChange;

/// Changes that wait for one other replica. If more wait, its tap ends, and that replica opens a new one.
const TAP_MAX: usize = 1_024;
/// Bytes of these changes.
const TAP_BYTES_MAX: usize = 16 * 1024 * 1024;

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
    pub(super) fn push(&self, change: &Arc<RunChange>) -> bool {
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
