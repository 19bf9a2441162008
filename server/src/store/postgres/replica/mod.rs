//! One replica of several over one database: it stands by, becomes the owner when there is none, and knows when it is one no
//! longer.
//!
//! - `statements`: what it says to the database, one statement each.
//! - `link`: its connection.
//! - `seen`: the rows of all replicas, over time.
//! - `skew`: its clock, beside the database's.
//! - `driver`: the protocol of `agentloop_core::cluster`, carried out. The whole database is one shard.
//! - `lease`: the standing that it tells others.
//! - `thread`: the thread that all of this is in.
//!
//! **Invariant:** the database decides who owns it. What a replica knows of itself only makes it fall silent in time.

mod driver;
mod lease;
mod link;
mod seen;
mod skew;
pub(in crate::store::postgres) mod statements;
mod thread;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::seen::Seen;
use self::thread::{ReplicaThread, Signals};
use super::PostgresOptions;
use super::open::{self, OpenError};
use super::owner::Claim;
use crate::clock::{Clock as _, SystemClock};
use crate::cluster::{ReplicaRow, Replicas, Standing, Standings};
use crate::lifecycle::Tasks;

/// Pulses of the server's runtime in the time of a lease. A pulse is good for a fifth of that time twice.
const PULSES_OF_LEASE: u32 = 10;

/// A replica, as it tells others of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaOptions {
    /// Host and port at which other replicas reach it.
    pub address: String,
    /// Time without a beat after which others take over. It trusts its own lease for 0.8 of that.
    pub lease: Duration,
    /// Digest of the part of its configuration that all replicas should have in common.
    pub configuration_digest: String,
}

/// This server as one of several over a database.
///
/// Dropping it stops it like a crash would: others take over after its lease. Call [`Self::leave`] at the end.
#[derive(Debug)]
pub struct Replica {
    number: i64,
    standing: Standings,
    claim: watch::Receiver<Option<Claim>>,
    seen: watch::Receiver<Seen>,
    signals: Signals,
    /// Has the task that shows that the server's runtime moves.
    #[cfg(test)]
    tasks: Tasks,
    _dropped: DropGuard,
}

impl Replica {
    /// Becomes one of the replicas of a database, and makes its tables if there are none. It stands by at first.
    ///
    /// # Errors
    /// [`OpenError`], of which [`OpenError::InUseAlone`] says that a server without `[cluster]` uses the database.
    pub async fn join(options: &PostgresOptions, me: ReplicaOptions) -> Result<Self, OpenError> {
        let at = open::place(&open::connect_options(options)?);
        let failed = |what: String| OpenError::Failed { at: at.clone(), what };
        let (signals, tasks) = (Signals::default(), Tasks::new());
        let dropped = signals.dropped.clone().drop_guard();
        let pulse = Arc::new(AtomicU64::new(SystemClock.now().0));
        let pulses = show_pulse(pulse.clone(), me.lease / PULSES_OF_LEASE, signals.ended.clone());
        drop(tasks.spawn("pulse", pulses));
        let (standing_sender, standing) = watch::channel(Standing::Standby { owner: None });
        let (claim_sender, claim) = watch::channel(None);
        let (seen_sender, seen) = watch::channel(Seen::default());
        let (joined, answer) = oneshot::channel();
        let thread = ReplicaThread {
            options: options.clone(),
            me,
            pulse,
            standing: standing_sender,
            claim: claim_sender,
            seen: seen_sender,
            signals: signals.clone(),
        };
        thread.start(joined).map_err(|error| failed(format!("no thread for the replica: {error}")))?;
        let number =
            answer.await.unwrap_or_else(|_| Err(failed("the thread of the replica has ended".to_owned())))?;
        Ok(Self {
            number,
            standing,
            claim,
            seen,
            signals,
            #[cfg(test)]
            tasks,
            _dropped: dropped,
        })
    }

    /// The number of this start of a server. It is never used again.
    #[must_use]
    pub fn number(&self) -> i64 {
        self.number
    }

    /// The newest standing: the owner with a valid lease, or one that stands by.
    #[must_use]
    pub fn standings(&self) -> Standings {
        self.standing.clone()
    }

    /// Waits until this replica owns the database. Open the store with [`super::PostgresStore::open_owned`] then. `None`: it
    /// has left, or is fenced, and will own nothing.
    pub async fn owned(&self) -> Option<Claim> {
        let mut claim = self.claim.clone();
        tokio::select! { biased;
            () = self.signals.ended.cancelled() => None,
            owned = claim.wait_for(Option::is_some) => owned.ok().and_then(|claim| *claim),
        }
    }

    /// Cancelled when others have fenced this replica, or its thread has panicked. The process should end.
    #[must_use]
    pub fn failed(&self) -> &CancellationToken {
        &self.signals.failed
    }

    /// Leaves in order, after the store was closed: if this replica owns the database, another takes it with its next beat.
    /// Waits for the database for as long as the lease. Leaving again waits for the same end.
    pub async fn leave(&self) {
        self.signals.leaving.cancel();
        self.signals.ended.cancelled().await;
    }

    /// Makes the server's runtime look as if it stood still.
    #[cfg(test)]
    pub(in crate::store::postgres) fn stop_pulse(&self) {
        self.tasks.hard().cancel();
    }
}

/// Notes the time again and again, for as long as the runtime moves.
async fn show_pulse(pulse: Arc<AtomicU64>, every: Duration, stopped: CancellationToken) {
    while stopped.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
        pulse.store(SystemClock.now().0, Ordering::Relaxed);
    }
}

impl Replicas for Replica {
    fn rows(&self) -> Vec<ReplicaRow> {
        self.seen.borrow().rows(self.number, SystemClock.now())
    }
}
