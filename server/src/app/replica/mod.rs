//! A server that shares its database with others. Each does the work of its own sessions. It takes RPCs for any session, and
//! sends an RPC for another replica's session to that replica.

mod reachability;
mod shards;
mod start;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::cluster::shard::OwnerNo;

use crate::app::StartError;
use crate::app::builder::ServerBuilder;
use crate::app::running::Running;
use crate::app::store::OwnStore;
use crate::config::Config;
use crate::grpc::edge::forward::RESPONSE_WAIT;
use crate::lifecycle::{Exit, Signals};
use crate::store::postgres::Replica;

/// Time for which an owner that is told to stop waits for its tasks: runs write what they have and hear of open offers, and last
/// responses leave. Its sessions are given away as soon as the runs have stopped, and at the end of this time at the latest. Model
/// calls are cut at once, and made again there.
const HANDOVER_WAIT: Duration = Duration::from_secs(1);
const _: () = assert!(
    RESPONSE_WAIT.as_millis() < HANDOVER_WAIT.as_millis(),
    "callers are told before their connections end"
);
/// Time for which one that owns nothing lets its callers' last responses leave.
const LEAVE_WAIT: Duration = Duration::from_secs(3);
/// Time for the last commit of an owner that stops.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// Time for which a replica whose store has failed waits to learn if others have taken it for dead. It is some beats.
const VERDICT_WAIT: Duration = Duration::from_secs(2);

/// A running server that shares its database with others.
pub struct ReplicaServer {
    address: SocketAddr,
    replica_address: String,
    metrics_address: Option<SocketAddr>,
    replica: Arc<Replica>,
    store: OwnStore,
    running: Running,
}

impl ReplicaServer {
    /// Joins the replicas of the database, and listens. It takes its share of the sessions.
    ///
    /// # Errors
    /// [`StartError`]. Nothing is left running.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        ServerBuilder::new(config).start_replica().await
    }

    /// The address for callers and hosts. If port 0 is configured, this has the port that was chosen.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Host and port at which the other replicas reach this one.
    #[must_use]
    pub fn replica_address(&self) -> &str {
        &self.replica_address
    }

    /// The number of this start. It is never used again.
    #[must_use]
    pub fn number(&self) -> OwnerNo {
        self.replica.number()
    }

    /// The address of the metrics endpoint, if one is configured.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Reads the certificate and the tokens again, as SIGHUP does. A file that cannot be used is logged, and the old one
    /// stays in use.
    pub async fn reload(&self) {
        self.running.reload().await;
    }

    /// Stops: runs come to their next durable point, and go on at other replicas.
    pub async fn shutdown(self) -> Exit {
        self.running.tasks.soft().cancel();
        self.stopped().await
    }

    /// Serves until a signal requests a shutdown, or others have taken this replica for dead. A second signal stops at once.
    pub async fn run_until(self, signals: Signals) -> Exit {
        self.running.until(signals).await;
        self.stopped().await
    }

    async fn stopped(self) -> Exit {
        // A stop after the handover's wait is as good as any: the journal has everything.
        let owns_nothing = self.replica.shards().borrow().owned.is_empty();
        let wait = if owns_nothing { LEAVE_WAIT } else { HANDOVER_WAIT };
        let exit = self.running.tasks.hand_over(self.running.grace.min(wait)).await;
        if self.store.failed().is_cancelled() {
            // It may be the first to find out that others have taken this one for dead. The next beat tells.
            let _unknown = tokio::time::timeout(VERDICT_WAIT, self.replica.failed().cancelled()).await;
        }
        // A fenced one has nothing to write. Another one may have a database that does not respond; whatever it still has to
        // write is refused as soon as this replica has left.
        if !self.replica.failed().is_cancelled() {
            let _cut = tokio::time::timeout(CLOSE_WAIT, self.store.close()).await;
        }
        let is_fenced = self.replica.failed().is_cancelled();
        if !is_fenced {
            // After the last write: the next owners begin where this one ended.
            self.replica.leave().await;
        }
        let exit = if is_fenced { Exit::Fenced } else { exit };
        self.running.end_export(exit).await
    }
}
