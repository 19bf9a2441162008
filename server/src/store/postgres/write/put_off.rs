//! Writes that are put off, because another replica has locked what they need: a fork or a deletion beside the deletion of a large
//! session. One of them is tried at a time, apart from all other writes, which go on.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::store::postgres::write::own::WriteRequest;

/// Time between two tries. In a try the writing task waits for a lock, which delays the other writes a little.
const TRY_EVERY: Duration = Duration::from_millis(100);

/// The writes, and the time of the next try.
#[derive(Default)]
pub(in crate::store::postgres) struct PutOffWrites {
    writes: VecDeque<PutOffWrite>,
    /// `None` if there is no write.
    due: Option<Instant>,
}

/// A write that is put off.
pub(super) struct PutOffWrite {
    pub(super) request: WriteRequest,
    /// After this time it fails if it finds a lock.
    pub(super) until: Instant,
}

impl PutOffWrites {
    pub(super) fn push(&mut self, write: PutOffWrite) {
        self.writes.push_back(write);
        self.due.get_or_insert_with(|| Instant::now() + TRY_EVERY);
    }

    /// The next write, if it is time to try it.
    pub(super) fn take_due(&mut self) -> Option<PutOffWrite> {
        let now = Instant::now();
        self.due.take_if(|due| *due <= now)?;
        let first = self.writes.pop_front();
        self.due = (!self.writes.is_empty()).then_some(now + TRY_EVERY);
        first
    }

    /// Waits until a write is due.
    pub(super) async fn comes_due(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }
}
