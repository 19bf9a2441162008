//! The thread of a replica, with a runtime and a connection of its own. A busy server does not delay its beats. A server that
//! stands still stops them.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::{io, thread};

use agentloop_core::cluster::lease::LeaseTimes;
use agentloop_core::cluster::shard::OwnerNo;
use agentloop_core::time::Millis;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::driver::{Driver, End, Outputs};
use super::lease::LeaseWatch;
use super::link::DatabaseLink;
use super::seen::Seen;
use super::{ReplicaOptions, ReplicaShards, ServerNotice, skew, statements};
use crate::cluster::busy_shards::BusyShards;
use crate::cluster::{ClusterId, Ownership, Ownerships, TakeoverCounts};
use crate::store::postgres::PostgresOptions;
use crate::store::postgres::open;
use crate::store::postgres::open_error::{OpenError, failure};
use crate::store::postgres::scope::Scope;

/// The thread's side of a replica.
pub(in crate::store::postgres) struct ReplicaThread {
    pub(in crate::store::postgres) options: PostgresOptions,
    pub(in crate::store::postgres) me: ReplicaOptions,
    pub(in crate::store::postgres) pulse: Arc<AtomicU64>,
    pub(in crate::store::postgres) shards: watch::Sender<ReplicaShards>,
    pub(in crate::store::postgres) scope: Scope,
    pub(in crate::store::postgres) busy: BusyShards,
    pub(in crate::store::postgres) counts: Arc<TakeoverCounts>,
    pub(in crate::store::postgres) notices: mpsc::UnboundedReceiver<ServerNotice>,
    pub(in crate::store::postgres) seen: watch::Sender<Seen>,
    pub(in crate::store::postgres) signals: Signals,
}

/// The facts that the database gave this replica when it joined.
pub(in crate::store::postgres) struct JoinedReplica {
    pub(in crate::store::postgres) number: OwnerNo,
    pub(in crate::store::postgres) cluster: ClusterId,
    pub(in crate::store::postgres) ownership: Ownerships,
}

/// The inputs and outputs of the thread.
#[derive(Debug, Clone, Default)]
pub(in crate::store::postgres) struct Signals {
    /// To leave in order.
    pub(in crate::store::postgres) leaving: CancellationToken,
    /// To stop where it is, without a word to the database.
    pub(in crate::store::postgres) dropped: CancellationToken,
    /// The thread has ended.
    pub(in crate::store::postgres) ended: CancellationToken,
    /// The replica is fenced, or its thread has panicked.
    pub(in crate::store::postgres) failed: CancellationToken,
}

impl ReplicaThread {
    /// Starts the thread. It sends the number of the replica once that is in the database.
    ///
    /// # Errors
    /// The operating system's.
    #[expect(
        clippy::disallowed_methods,
        reason = "beats go on while the runtime stands still; `ended` tells the thread's end"
    )]
    pub(in crate::store::postgres) fn start(
        self,
        joined: oneshot::Sender<Result<JoinedReplica, OpenError>>,
    ) -> io::Result<()> {
        // Dropped at the end of the thread, also where it does not start.
        let ended = self.signals.ended.clone().drop_guard();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("replica".to_owned()).spawn(move || {
            let signals = self.signals.clone();
            let _ended = ended;
            let failed = signals.failed.drop_guard();
            let run = signals.dropped.run_until_cancelled_owned(self.run(joined));
            match runtime.block_on(run) {
                Some(Some(End::Fenced)) => drop(failed),
                Some(Some(End::Left) | None) | None => drop(failed.disarm()),
            }
        })?;
        Ok(())
    }

    /// `None`: the replica did not join.
    async fn run(self, joined: oneshot::Sender<Result<JoinedReplica, OpenError>>) -> Option<End> {
        let times = LeaseTimes::from_lease(Millis::of(self.me.lease));
        let (number, cluster, link) = match self.join(times).await {
            Ok(joined) => joined,
            Err(error) => {
                // Nobody may be waiting any more.
                let _ = joined.send(Err(error));
                return None;
            }
        };
        let (sender, ownership) = watch::channel(Ownership::unknown(number));
        let lease = Rc::new(LeaseWatch::new(sender));
        let (shards, seen, scope, busy) = (self.shards, self.seen, self.scope, self.busy);
        let out = Outputs { lease: lease.clone(), shards, seen, scope, busy, counts: self.counts };
        let driver = Driver::new(number, times, link, self.pulse, out);
        let _ = joined.send(Ok(JoinedReplica { number, cluster, ownership }));
        tokio::select! { biased;
            end = driver.run(self.signals.leaving, self.notices) => Some(end),
            () = lease.run() => unreachable!("it never ends"),
        }
    }

    async fn join(&self, times: LeaseTimes) -> Result<(OwnerNo, ClusterId, DatabaseLink), OpenError> {
        let connection = Box::pin(open::for_replica(&self.options)).await?;
        let at = connection.at.clone();
        let failed = |error: sqlx::Error| failure(&at, &error);
        // After this time, a response proves no lease.
        let patience = times.trusted.duration();
        let mut link = DatabaseLink::new(connection, patience, times.beat_every.duration() / 2);
        link.begin().await.map_err(failed)?;
        skew::warn(&mut link).await.map_err(failed)?;
        let me = self.me.clone();
        let registered = async move |db: &mut sqlx::PgConnection| statements::register(db, &me).await;
        let number = link.execute(registered).await.map_err(failed)?;
        let cluster = link.execute(statements::cluster).await.map_err(failed)?;
        Ok((number, cluster, link))
    }
}
