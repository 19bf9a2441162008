//! The ownership that a replica tells others. It ends with the lease, whatever else goes on in the replica's thread.

use std::cell::Cell;
use std::time::Duration;

use agentloop_core::time::Timestamp;
use tokio::sync::{Notify, watch};

use crate::clock::{Clock as _, SystemClock};
use crate::cluster::Ownership;

/// Longest sleep of an owner before it looks at the clock. Timers stand still while the machine is suspended, the clock does
/// not.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Tells who owns what, and takes it back when the lease is over.
#[derive(Debug)]
pub(in crate::store::postgres) struct LeaseWatch {
    ownership: watch::Sender<Ownership>,
    /// End of the lease.
    until: Cell<Timestamp>,
    begun: Notify,
}

impl LeaseWatch {
    pub(in crate::store::postgres) fn new(ownership: watch::Sender<Ownership>) -> Self {
        Self { ownership, until: Cell::new(Timestamp(0)), begun: Notify::new() }
    }

    /// Tells who owns what. If the lease is valid, it is until this time, or until it is told again.
    pub(in crate::store::postgres) fn tell(&self, new: Ownership, until: Timestamp) {
        self.until.set(until);
        let is_valid = new.is_valid();
        self.ownership.send_if_modified(|ownership| {
            let is_new = *ownership != new;
            *ownership = new;
            is_new
        });
        if is_valid {
            self.begun.notify_one();
        }
    }

    /// This replica owns nothing any more.
    pub(in crate::store::postgres) fn give_up(&self) {
        let lapsed = self.ownership.borrow().lapsed();
        self.tell(lapsed, Timestamp(0));
    }

    /// Takes the ownership back whenever the lease is over. Never ends.
    pub(in crate::store::postgres) async fn run(&self) {
        loop {
            self.begun.notified().await;
            while self.ownership.borrow().is_valid() {
                let left = self.until.get().since(SystemClock.now());
                if left.is_zero() {
                    tracing::warn!(
                        "the lease of this replica is over: the database does not respond, or the server stands still"
                    );
                    self.give_up();
                } else {
                    tokio::time::sleep(left.duration().min(LOOK_EVERY)).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agentloop_core::cluster::shard::{OwnerNo, ShardNo};
    use agentloop_core::time::Millis;

    use super::*;

    fn owner() -> Ownership {
        Ownership::new(OwnerNo(7), true, vec![Some(OwnerNo(7)), Some(OwnerNo(8))].into(), Arc::default())
    }

    #[tokio::test]
    async fn a_lease_ends_while_nothing_else_happens() {
        let (sender, mut ownership) = watch::channel(Ownership::unknown(OwnerNo(7)));
        let lease = LeaseWatch::new(sender);
        lease.tell(owner(), SystemClock.now().after(Millis(30)));
        assert!(ownership.borrow_and_update().is_mine(ShardNo(0)));
        tokio::select! {
            () = lease.run() => unreachable!("it never ends"),
            changed = ownership.changed() => changed.unwrap(),
        }
        assert!(!ownership.borrow_and_update().is_mine(ShardNo(0)));
        lease.tell(owner(), SystemClock.now().after(Millis(60_000)));
        assert!(ownership.borrow().is_mine(ShardNo(0)), "it comes back with the next beat");
    }
}
