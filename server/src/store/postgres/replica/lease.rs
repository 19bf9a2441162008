//! The standing of a replica as it tells others, which ends with the lease whatever else goes on in its thread.

use std::cell::Cell;
use std::time::Duration;

use agentloop_core::time::Timestamp;
use tokio::sync::{Notify, watch};

use crate::clock::{Clock as _, SystemClock};
use crate::cluster::{Peer, Standing};

/// Longest sleep of an owner before it looks at the clock. Timers stand still while the machine is suspended, the clock does
/// not.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Tells the standing, and takes it back when the lease is over.
#[derive(Debug)]
pub(in crate::store::postgres) struct LeaseWatch {
    standing: watch::Sender<Standing>,
    /// End of the lease.
    until: Cell<Timestamp>,
    begun: Notify,
}

impl LeaseWatch {
    pub(in crate::store::postgres) fn new(standing: watch::Sender<Standing>) -> Self {
        Self { standing, until: Cell::new(Timestamp(0)), begun: Notify::new() }
    }

    /// The replica owns the database until this time, or until it is told again.
    pub(in crate::store::postgres) fn own(&self, until: Timestamp) {
        self.until.set(until);
        self.tell(Standing::Owner);
        self.begun.notify_one();
    }

    /// The replica stands by.
    pub(in crate::store::postgres) fn stand_by(&self, owner: Option<Peer>) {
        self.tell(Standing::Standby { owner });
    }

    /// Takes the ownership back whenever the lease is over. Never ends.
    pub(in crate::store::postgres) async fn run(&self) {
        loop {
            self.begun.notified().await;
            while matches!(*self.standing.borrow(), Standing::Owner) {
                let left = self.until.get().since(SystemClock.now());
                if left.is_zero() {
                    tracing::warn!(
                        "the lease of this replica is over: the database does not answer, or the server stands still"
                    );
                    self.stand_by(None);
                } else {
                    tokio::time::sleep(left.duration().min(LOOK_EVERY)).await;
                }
            }
        }
    }

    fn tell(&self, new: Standing) {
        self.standing.send_if_modified(|standing| {
            let is_new = *standing != new;
            *standing = new;
            is_new
        });
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::time::Millis;

    use super::*;

    #[tokio::test]
    async fn a_lease_ends_while_nothing_else_happens() {
        let (sender, mut standing) = watch::channel(Standing::Standby { owner: None });
        let lease = LeaseWatch::new(sender);
        lease.own(SystemClock.now().after(Millis(30)));
        assert_eq!(*standing.borrow_and_update(), Standing::Owner);
        tokio::select! {
            () = lease.run() => unreachable!("it never ends"),
            changed = standing.changed() => changed.unwrap(),
        }
        assert_eq!(*standing.borrow_and_update(), Standing::Standby { owner: None });
        lease.own(SystemClock.now().after(Millis(60_000)));
        assert_eq!(*standing.borrow(), Standing::Owner, "it comes back with the next beat");
    }
}
