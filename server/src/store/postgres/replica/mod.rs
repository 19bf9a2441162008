//! One replica of several over one database: it takes its share of the shards, gives away what is above it, and knows when
//! they are its own no longer.
//!
//! - `statements`: what it says to the database, one statement each.
//! - `link`: its connection.
//! - `seen`: the rows of all replicas, over time.
//! - `skew`: its clock, beside the database's.
//! - `driver`: the protocol of `agentloop_core::cluster`, carried out.
//! - `lease`: what it tells others of who owns what.
//! - `thread`: the thread that all of this is in.
//!
//! **Invariant:** the database decides who owns it. A replica's own view only makes it stop in time.

mod driver;
mod lease;
mod link;
mod seen;
pub(in crate::store::postgres) mod skew;
pub(in crate::store::postgres) mod statements;
mod thread;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agentloop_core::cluster::shard::{OwnerNo, ShardNo, Term};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::seen::Seen;
use self::thread::{JoinedReplica, ReplicaThread, Signals};
use super::PostgresOptions;
use super::open;
use super::open_error::OpenError;
use super::scope::Scope;
use crate::clock::{Clock as _, SystemClock};
use crate::cluster::busy_shards::BusyShards;
use crate::cluster::{ClusterId, Ownerships, ReplicaRow, Replicas, TakeoverCounts};
use crate::lifecycle::Tasks;

/// Pulses of the server's runtime in the time of a lease. A pulse counts for two fifths of that time.
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

/// The shards of a replica.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplicaShards {
    /// Shards that it owns, each with the term of its claim.
    pub owned: BTreeMap<ShardNo, Term>,
    /// Shards that it is to give away: end what is done for them, then tell [`Replica::given_away`], or else [`Replica::keep`].
    pub shedding: BTreeSet<ShardNo>,
}

/// A notice of the server to its replica.
#[derive(Debug)]
pub(in crate::store::postgres) enum ServerNotice {
    /// The server can do the work of shards.
    Ready,
    /// The server stops, and its shards are to be freed once runs have come to a durable point.
    Stopping,
    /// Nothing is done for these shards any more, and nothing is written.
    GivenAway(Vec<ShardNo>),
    /// These shards cannot be given away for now.
    Keep {
        shards: Vec<ShardNo>,
        /// Told once they are no more among those to give away.
        noted: oneshot::Sender<()>,
    },
}

/// This server as one of several over a database.
///
/// Dropping it stops it like a crash would: others take over after its lease. Call [`Self::leave`] at the end.
#[derive(Debug)]
pub struct Replica {
    number: OwnerNo,
    cluster: ClusterId,
    ownership: Ownerships,
    shards: watch::Receiver<ReplicaShards>,
    pub(in crate::store::postgres) seen: watch::Receiver<Seen>,
    scope: Scope,
    busy: BusyShards,
    counts: Arc<TakeoverCounts>,
    notices: mpsc::UnboundedSender<ServerNotice>,
    signals: Signals,
    /// Has the task that shows that the server's runtime moves.
    #[cfg(test)]
    tasks: Tasks,
    _dropped: DropGuard,
}

impl Replica {
    /// Becomes one of the replicas of a database, and makes its tables if there are none. It claims nothing before it is
    /// [ready](Self::ready).
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
        let (shards_sender, shards) = watch::channel(ReplicaShards::default());
        let (notices, notices_receiver) = mpsc::unbounded_channel();
        let (scope, busy) = (Scope::none(), BusyShards::default());
        let counts = Arc::<TakeoverCounts>::default();
        let (seen_sender, seen) = watch::channel(Seen::default());
        let (joined, outcome) = oneshot::channel();
        let thread = ReplicaThread {
            options: options.clone(),
            me,
            pulse,
            shards: shards_sender,
            scope: scope.clone(),
            busy: busy.clone(),
            counts: counts.clone(),
            notices: notices_receiver,
            seen: seen_sender,
            signals: signals.clone(),
        };
        thread.start(joined).map_err(|error| failed(format!("no thread for the replica: {error}")))?;
        let JoinedReplica { number, cluster, ownership } = outcome
            .await
            .unwrap_or_else(|_| Err(failed("the thread of the replica has ended".to_owned())))?;
        Ok(Self {
            number,
            cluster,
            ownership,
            shards,
            seen,
            scope,
            busy,
            counts,
            notices,
            signals,
            #[cfg(test)]
            tasks,
            _dropped: dropped,
        })
    }

    /// The takeovers of this replica, counted since its start.
    #[must_use]
    pub fn takeovers(&self) -> &Arc<TakeoverCounts> {
        &self.counts
    }

    /// The name of the database that this replica shares with others.
    #[must_use]
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// The number of this start of a server. It is never used again.
    #[must_use]
    pub fn number(&self) -> OwnerNo {
        self.number
    }

    /// The owners of all shards, as the newest beat shows them.
    #[must_use]
    pub fn ownerships(&self) -> Ownerships {
        self.ownership.clone()
    }

    /// The shards that the store may write to. Open it with [`super::PostgresStore::open_replica`].
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The shards with work that would be lost with them. They are given away last.
    #[must_use]
    pub fn busy_shards(&self) -> &BusyShards {
        &self.busy
    }

    /// The shards of this replica. There are none any more once it has left, or is fenced.
    #[must_use]
    pub fn shards(&self) -> watch::Receiver<ReplicaShards> {
        self.shards.clone()
    }

    /// Takes shards from now on: the server can do their work.
    pub fn ready(&self) {
        // A thread that has ended takes nothing.
        let _ended = self.notices.send(ServerNotice::Ready);
    }

    /// Takes no shards from now on, and counts for no share: the server stops. It keeps those that it has until they are
    /// [given away](Self::given_away), or it [leaves](Self::leave).
    pub fn stopping(&self) {
        let _ended = self.notices.send(ServerNotice::Stopping);
    }

    /// Frees shards that were [to be given away](ReplicaShards::shedding), or those of a server that [stops](Self::stopping).
    /// Nothing is done for them any more, and the store has [forgotten](super::PostgresStore::forget_shards) them.
    pub fn given_away(&self, shards: Vec<ShardNo>) {
        let _ended = self.notices.send(ServerNotice::GivenAway(shards));
    }

    /// Keeps shards that were [to be given away](ReplicaShards::shedding), because their sessions cannot be for now. The next
    /// beat shows that they are this replica's, and it gains them again. Returns once they are no more among those to give away:
    /// if they are later, they were chosen anew.
    pub async fn keep(&self, shards: Vec<ShardNo>) {
        let (noted, is_noted) = oneshot::channel();
        let _ended = self.notices.send(ServerNotice::Keep { shards, noted });
        let _ended = is_noted.await;
    }

    /// Cancelled when others have fenced this replica, or its thread has panicked. The process should end.
    #[must_use]
    pub fn failed(&self) -> &CancellationToken {
        &self.signals.failed
    }

    /// Leaves in order, after the store was closed: others take its shards with their next beats.
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
