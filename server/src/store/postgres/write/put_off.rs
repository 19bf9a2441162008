//! Writes that are put off, because another replica has locked what they need. Such a write is a fork or a deletion beside the
//! deletion of a large session, or one of a commit that had to wait for too long. One of them is tried at a time, apart from all other
//! writes.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::store::postgres::write::own::WriteRequest;

/// Writes that are put off, at most. Long writes wait in their queue beyond that, and others fail.
pub(super) const PUT_OFF_MAX: usize = 1_024;
/// Time after which a write is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// Time from one try to the next. In a try the writing task waits for a lock for half of this time at most, and so delays the
/// others a little.
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// The writes, and the times of their next tries.
#[derive(Default)]
pub(in crate::store::postgres) struct PutOffWrites {
    /// In the order in which they are due.
    writes: VecDeque<(Instant, PutOffWrite)>,
    last_try: Option<Instant>,
}

/// A write that is put off.
pub(super) struct PutOffWrite {
    pub(super) request: WriteRequest,
    /// After this time it fails if it finds a lock.
    pub(super) until: Instant,
}

impl PutOffWrites {
    /// True if there is room for another write.
    pub(super) fn has_room(&self) -> bool {
        self.writes.len() < PUT_OFF_MAX
    }

    pub(super) fn push(&mut self, write: PutOffWrite) {
        self.writes.push_back((Instant::now() + TRY_AGAIN, write));
    }

    /// The next write, if it is time to try it.
    pub(super) fn take_due(&mut self) -> Option<PutOffWrite> {
        let now = Instant::now();
        if self.due()? > now {
            return None;
        }
        self.last_try = Some(now);
        self.writes.pop_front().map(|(_, write)| write)
    }

    /// Waits until a write is due.
    pub(super) async fn comes_due(&self) {
        match self.due() {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// The time of the next try. `None` if there is no write.
    fn due(&self) -> Option<Instant> {
        let (due, _) = self.writes.front()?;
        Some(self.last_try.map_or(*due, |last| (last + BETWEEN_TRIES).max(*due)))
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::store::postgres::write::own::WriteOp;

    fn write() -> PutOffWrite {
        let request = WriteRequest { op: WriteOp::Check, act: None, reply: oneshot::channel().0 };
        PutOffWrite { request, until: Instant::now() }
    }

    #[tokio::test(start_paused = true)]
    async fn many_writes_are_tried_one_after_the_other_with_time_for_others_between() {
        let (mut waiting, begun) = (PutOffWrites::default(), Instant::now());
        for _ in 0..4 {
            waiting.push(write());
        }
        assert!(waiting.take_due().is_none(), "it has just been tried");
        let mut tried = Vec::new();
        for _ in 0..6 {
            waiting.comes_due().await;
            tried.push(begun.elapsed().as_millis());
            let due = waiting.take_due().expect("it is due");
            waiting.push(due);
        }
        assert_eq!(tried, [100, 120, 140, 160, 200, 220]);
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_room_for_so_many() {
        let mut waiting = PutOffWrites::default();
        for _ in 0..PUT_OFF_MAX {
            assert!(waiting.has_room());
            waiting.push(write());
        }
        assert!(!waiting.has_room());
    }
}
