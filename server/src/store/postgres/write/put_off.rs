//! Writes that are put off, because another replica or a slice has locked what they need. Such a write is a fork or a deletion
//! beside the deletion of a large session, or one of a commit that had to wait for too long. One of them is tried at a time,
//! apart from all other writes, tenants in turn.

use std::time::Duration;

use tokio::time::Instant;

use crate::fair::FairQueue;
use crate::store::postgres::write::own::WriteRequest;
use crate::store::support::write::Lane;

/// Writes of one tenant that are put off, at most. Its long writes wait in their queue beyond that, and others fail.
pub(super) const PUT_OFF_PER_TENANT_MAX: usize = 256;
/// Time after which a write is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// Time from one try to the next. In a try the writing task waits for a lock for half of this time at most, and so delays the
/// others a little.
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// The writes, and the times of their next tries.
#[derive(Default)]
pub(in crate::store::postgres) struct PutOffWrites {
    /// The writes of each tenant, in the order in which they are due.
    writes: FairQueue<Lane, (Instant, PutOffWrite)>,
    last_try: Option<Instant>,
}

/// A write that is put off.
pub(super) struct PutOffWrite {
    pub(super) request: WriteRequest,
    /// After this time it fails if it finds a lock.
    pub(super) until: Instant,
}

impl PutOffWrite {
    /// The tenant in whose turn it is tried.
    pub(super) fn lane(&self) -> Lane {
        self.request.op.tenant().cloned()
    }
}

impl PutOffWrites {
    /// True if there is room for another write of this tenant.
    pub(super) fn has_room(&self, lane: &Lane) -> bool {
        self.writes.len_of(lane) < PUT_OFF_PER_TENANT_MAX
    }

    pub(super) fn push(&mut self, write: PutOffWrite) {
        self.writes.push(write.lane(), (Instant::now() + TRY_AGAIN, write));
    }

    /// The next write, if it is time to try it.
    pub(super) fn take_due(&mut self) -> Option<PutOffWrite> {
        let now = Instant::now();
        if self.due()? > now {
            return None;
        }
        self.last_try = Some(now);
        self.writes.pop_if(|(due, _)| *due <= now).map(|(_, write)| write)
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
        let due = self.writes.firsts().map(|(due, _)| *due).min()?;
        Some(self.last_try.map_or(due, |last| (last + BETWEEN_TRIES).max(due)))
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::id::{RunId, TenantId};
    use tokio::sync::oneshot;

    use super::*;
    use crate::store::postgres::write::own::WriteOp;

    fn lane(tenant: &str) -> Lane {
        Some(TenantId::parse(tenant).unwrap())
    }

    fn write(tenant: &str) -> PutOffWrite {
        let (tenant, run) = (TenantId::parse(tenant).unwrap(), RunId::parse("r").unwrap());
        let request =
            WriteRequest { op: WriteOp::Claim { tenant, run }, act: None, reply: oneshot::channel().0 };
        PutOffWrite { request, until: Instant::now() }
    }

    #[tokio::test(start_paused = true)]
    async fn many_writes_are_tried_one_after_the_other_with_time_for_others_between() {
        let (mut waiting, begun) = (PutOffWrites::default(), Instant::now());
        for _ in 0..4 {
            waiting.push(write("a"));
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
    async fn tenants_are_tried_in_turn() {
        let mut waiting = PutOffWrites::default();
        for _ in 0..PUT_OFF_PER_TENANT_MAX {
            waiting.push(write("noisy"));
        }
        waiting.push(write("quiet"));
        waiting.push(write("quiet"));
        let mut tried = Vec::new();
        for _ in 0..5 {
            waiting.comes_due().await;
            tried.push(waiting.take_due().expect("it is due").lane());
        }
        assert_eq!(tried, ["noisy", "quiet", "noisy", "quiet", "noisy"].map(lane));
    }

    /// The first in turn is not due yet.
    #[tokio::test(start_paused = true)]
    async fn the_write_of_another_tenant_is_tried_when_it_is_due() {
        let (mut waiting, begun) = (PutOffWrites::default(), Instant::now());
        waiting.push(write("a"));
        tokio::time::advance(Duration::from_millis(50)).await;
        waiting.push(write("b"));
        waiting.push(write("a"));
        waiting.comes_due().await;
        assert_eq!(waiting.take_due().expect("it is due").lane(), lane("a"));
        let again = write("a");
        waiting.comes_due().await;
        assert_eq!(begun.elapsed().as_millis(), 150);
        waiting.push(again);
        let tried = [waiting.take_due(), waiting.take_due()].map(|due| due.map(|write| write.lane()));
        assert_eq!(tried, [Some(lane("b")), None], "there is time between two tries");
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_room_for_so_many() {
        let mut waiting = PutOffWrites::default();
        for _ in 0..PUT_OFF_PER_TENANT_MAX {
            assert!(waiting.has_room(&lane("a")));
            waiting.push(write("a"));
        }
        assert!(!waiting.has_room(&lane("a")));
        assert!(waiting.has_room(&lane("b")) && waiting.has_room(&None), "others have room of their own");
    }
}
