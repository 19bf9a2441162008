//! A server that shares its database with others. Each does the work of its own sessions. It takes calls for any session, and
//! sends a call for another replica's session to that replica.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::cluster::shard::{OwnerNo, ShardNo};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::app::builder::{CheckedParts, ServerBuilder};
use crate::app::health::Readiness;
use crate::app::security::{self, Reloader};
use crate::app::store::{OwnStore, postgres_options};
use crate::app::work::{ClusterParts, Stop, spawn_until_stopped};
use crate::app::{OpenError, StartError, listen, metrics, serve};
use crate::cluster::Peer;
use crate::cluster::locate::Locate;
use crate::config::{ClusterOptions, Config, StoreLocation};
use crate::engine::Engine;
use crate::grpc::edge::forward::ANSWER_WAIT;
use crate::grpc::edge::forward::layer::ForwardLayer;
use crate::grpc::edge::forward::reach::Reach;
use crate::grpc::edge::forward::route::local::LocalServices;
use crate::grpc::edge::forward::wire::links::Links;
use crate::grpc::edge::identity::IdentityLayer;
use crate::grpc::edge::peer::PeerPort;
use crate::grpc::edge::run_changes::follow_run_changes;
use crate::grpc::edge::tls::Acceptor;
use crate::grpc::edge::tool_link::ToolLinkService;
use crate::lifecycle::{Exit, Signals, Tasks};
use crate::store::postgres::{PostgresOptions, PostgresStore, Replica, ReplicaOptions};
use crate::telemetry::otlp::Otlp;

/// Time for which an owner that is told to stop waits for its runs to come to a durable point. They stand still until other replicas
/// own their sessions, so a longer model call is cut, and made again there.
const HANDOVER_WAIT: Duration = Duration::from_secs(1);
const _: () = assert!(
    ANSWER_WAIT.as_millis() < HANDOVER_WAIT.as_millis(),
    "callers are told before their connections end"
);
/// Time for which one that owns nothing lets its callers' last answers leave.
const LEAVE_WAIT: Duration = Duration::from_secs(3);
/// Time in which the ends of the streams of a fenced replica leave.
const FENCED_WAIT: Duration = Duration::from_millis(200);
/// Time for the last commit of an owner that stops.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// The wait before the database is opened again after a failure, and the number of tries.
const OPEN_AGAIN: Duration = Duration::from_millis(500);
const OPEN_TRIES: u32 = 20;
/// Time for which a replica whose store has failed waits to learn if others have taken it for dead. It is some beats.
const VERDICT_WAIT: Duration = Duration::from_secs(2);

/// A running server that shares its database with others.
pub struct ReplicaServer {
    address: SocketAddr,
    replica_address: String,
    metrics_address: Option<SocketAddr>,
    replica: Arc<Replica>,
    tasks: Tasks,
    store: OwnStore,
    otlp: Option<Otlp>,
    grace: Duration,
    reloader: Option<Arc<Reloader>>,
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
        if let Some(reloader) = &self.reloader {
            security::reload(reloader.clone()).await;
        }
    }

    /// Stops: runs come to their next durable point, and go on at other replicas.
    pub async fn shutdown(self) -> Exit {
        self.tasks.soft().cancel();
        self.stopped().await
    }

    /// Serves until a signal asks for a shutdown, or others have taken this replica for dead. A second signal stops at once.
    pub async fn run_until(self, signals: Signals) -> Exit {
        drop(signals.obey(&self.tasks));
        self.tasks.soft().cancelled().await;
        self.stopped().await
    }

    async fn stopped(self) -> Exit {
        let was_cut = self.tasks.hard().is_cancelled();
        // A stop after the handover's wait is as good as any: the journal has everything.
        let owns_nothing = self.replica.holdings().borrow().held.is_empty();
        let wait = if owns_nothing { LEAVE_WAIT } else { HANDOVER_WAIT };
        let exit = match self.tasks.shut_down(self.grace.min(wait)).await {
            Exit::Forced if !was_cut => Exit::Clean,
            exit => exit,
        };
        if self.store.failed().is_cancelled() {
            // It may be the first to find out that others have taken this one for dead. The next beat tells.
            let _unknown = tokio::time::timeout(VERDICT_WAIT, self.replica.failed().cancelled()).await;
        }
        // A fenced one has nothing to write. Another one may have a database that does not answer; whatever it still has to write
        // is refused as soon as this replica has left.
        if !self.replica.failed().is_cancelled() {
            let _cut = tokio::time::timeout(CLOSE_WAIT, self.store.close()).await;
        }
        let is_fenced = self.replica.failed().is_cancelled();
        if !is_fenced {
            // After the last write: the next owners begin where this one ended.
            self.replica.leave().await;
        }
        if let Some(otlp) = self.otlp {
            // It blocks, and logs its own failures.
            let _told = tokio::task::spawn_blocking(move || otlp.shut_down()).await;
        }
        let exit = if is_fenced { Exit::Fenced } else { exit };
        tracing::info!(?exit, "stopped");
        exit
    }
}

impl ServerBuilder {
    /// Joins the replicas of the configured database, and listens. The store cannot be the embedder's.
    ///
    /// # Errors
    /// [`StartError`]. Nothing is left running.
    pub async fn start_replica(mut self) -> Result<ReplicaServer, StartError> {
        let (cluster, options) = self.replica_options()?;
        let (clock, ids) = (self.engine.clock.clone(), self.engine.ids.clone());
        let tasks = self.engine.tasks.clone();
        let CheckedParts { redactor, security, models, own_tools } = self.check()?;
        let peer_tls = security.links.clone();
        let (ports, otlp) = self.listen(security, redactor).await?;
        let JoinedReplica { listener, replica_address, replica } = self.join(cluster, &options).await?;
        let (grace, max) =
            (self.config.server.shutdown_grace.duration(), self.config.server.max_message_bytes);
        let mut parts = self.into_parts(models, own_tools, ports.asks);
        let quotas = parts.quotas.clone();
        let (ownerships, local) = (replica.ownerships(), LocalServices::none());
        let store = open(&options, &replica).await?;
        let own = OwnStore::Postgres(store.clone());
        let locate: Arc<dyn Locate> = store.clone();
        let links = peer_tls.as_ref().map_or_else(|| Links::new(None), |tls| tls.links());
        parts.cluster = Some(ClusterParts {
            replicas: replica.clone(),
            ownerships: ownerships.clone(),
            locate: locate.clone(),
            links: links.clone(),
        });
        let (address, metrics_address) = (ports.address, ports.metrics_address);
        let reloader = ports.reloader.clone();
        if let Some(metrics) = &ports.metrics {
            metrics::read_replicas_at_scrape(metrics, ownerships.clone(), replica.clone());
        }
        let calls_ended = CancellationToken::new();
        let calls = Arc::new(calls_ended.clone().drop_guard());
        let work = parts.start(own.shared(), Some(&own), calls_ended).await?;
        work.show(ports.metrics.as_ref(), Some(&own), reloader.as_ref());
        let stop = work.stop.clone();
        let following =
            follow_run_changes(work.engine.clone(), ownerships.clone(), links.clone(), tasks.soft().clone());
        drop(tasks.spawn("run changes", following));
        let changes = work.engine.clone();
        local.open(work.routes, work.audit);
        spawn_shard_tasks(&replica, store, &own, work.engine, &stop, &tasks);
        let reach = Reach::new(ownerships.clone(), links.clone());
        let front = ForwardLayer::new(
            ownerships.clone(),
            links,
            local.clone(),
            locate,
            ids,
            max,
            tasks.soft().clone(),
        );
        let tool_link = ToolLinkService::new(tasks.clone());
        let mut tools_known = watch::Sender::new(true).subscribe();
        if let Some(cluster) = work.cluster {
            tools_known = cluster.tools_known();
            tool_link.open(cluster);
        }
        let peers =
            PeerPort::new(front.clone(), ports.asks).with_tool_link(tool_link).with_run_changes(changes);
        let acceptor = peer_tls.as_ref().map(|tls| tls.acceptor());
        let certificates = acceptor.clone();
        let serving = peers.serve(listener, acceptor, work_stopped(tasks.clone(), stop.clone()));
        spawn_peer_port(serving, calls.clone(), &tasks);
        let readiness = Readiness::of_replica(own.shared(), ownerships, tools_known);
        let identity = |gate| IdentityLayer::of_replica(gate, local);
        let port = ports.open(quotas, clock, identity, &tasks);
        let stopped = work_stopped(tasks.clone(), stop);
        let routes = serve::Routes::default();
        let serving = serve::serve(port, routes, Some(front), readiness, stopped, tasks.clone());
        tasks.spawn("grpc", async move {
            serving.await;
            drop(calls);
        });
        // Now it can do the work of the shards that it takes.
        replica.ready();
        let me = Peer { number: replica.number(), address: replica_address.clone() };
        spawn_until_stopped(&tasks, "own address", dial_itself(reach, me, certificates));
        tracing::info!(%address, replica = replica.number().0, at = replica_address, "listening");
        Ok(ReplicaServer {
            address,
            replica_address,
            metrics_address,
            replica,
            tasks,
            store: own,
            otlp,
            grace,
            reloader,
        })
    }
}

/// A replica that has joined, and its port for the others.
struct JoinedReplica {
    listener: TcpListener,
    /// Host and port at which the others reach it.
    replica_address: String,
    replica: Arc<Replica>,
}

impl ServerBuilder {
    /// The settings of the replica and of its database.
    fn replica_options(&self) -> Result<(ClusterOptions, PostgresOptions), StartError> {
        let (Some(cluster), StoreLocation::Postgres(postgres)) =
            (self.config.cluster.clone(), &self.config.store.location)
        else {
            return Err(StartError::Cluster("a replica needs [cluster] and store.url in its configuration"));
        };
        if self.tools.is_some() {
            return Err(StartError::Cluster(
                "the tools of a replica are those of all replicas: they cannot be wrapped",
            ));
        }
        Ok((cluster, postgres_options(postgres, &self.config.store, &self.config.blobs)))
    }

    /// Listens for the other replicas, and joins them.
    async fn join(
        &self,
        cluster: ClusterOptions,
        options: &PostgresOptions,
    ) -> Result<JoinedReplica, StartError> {
        let (listener, found) = listen(cluster.listen).await?;
        let me = ReplicaOptions {
            address: cluster.advertise.unwrap_or_else(|| found.to_string()),
            lease: cluster.lease.duration(),
            configuration_digest: self.config.shared_digest(),
        };
        let replica_address = me.address.clone();
        let replica = Arc::new(Box::pin(Replica::join(options, me)).await.map_err(OpenError::from)?);
        Ok(JoinedReplica { listener, replica_address, replica })
    }
}

/// Starts the port for the other replicas. `calls` is dropped when its last call has ended.
fn spawn_peer_port<E: std::fmt::Display>(
    serving: impl Future<Output = Result<(), E>> + Send + 'static,
    calls: Arc<DropGuard>,
    tasks: &Tasks,
) {
    let stopping = tasks.soft().clone();
    tasks.spawn("replicas", async move {
        if let Err(error) = serving.await {
            tracing::error!(%error, "the port for replicas failed; shutting down");
            stopping.cancel();
        }
        drop(calls);
    });
}

/// Starts the tasks that follow the shards of this replica, and those that end it when it has lost them.
fn spawn_shard_tasks(
    replica: &Arc<Replica>,
    store: Arc<PostgresStore>,
    own: &OwnStore,
    engine: Engine,
    stop: &Stop,
    tasks: &Tasks,
) {
    let gains = take_gains(replica.clone(), store.clone(), engine.clone(), tasks.clone());
    drop(tasks.spawn("gained shards", gains));
    let shedding = give_away(replica.clone(), store, engine, tasks.clone());
    drop(tasks.spawn("shards to give away", shedding));
    drop(tasks.spawn("fence", end_when_fenced(replica.clone(), tasks.clone(), stop.clone())));
    let ending = end_when_the_store_fails(own.failed().clone(), replica.clone(), tasks.clone());
    drop(tasks.spawn("store", ending));
}

/// Opens the database for this replica. It may be away for a moment.
async fn open(options: &PostgresOptions, replica: &Replica) -> Result<Arc<PostgresStore>, OpenError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let opening = PostgresStore::open_replica(options, replica.number(), replica.scope().clone());
        match Box::pin(opening).await {
            Ok(store) => return Ok(Arc::new(store)),
            Err(error) if tries < OPEN_TRIES && !replica.failed().is_cancelled() => {
                tracing::warn!(%error, "the database cannot be opened; trying again");
                tokio::time::sleep(OPEN_AGAIN).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Goes on with the work of shards that this replica gains, until it stops.
async fn take_gains(replica: Arc<Replica>, store: Arc<PostgresStore>, engine: Engine, tasks: Tasks) {
    let (mut holdings, mut known) = (replica.holdings(), BTreeMap::new());
    let following = async {
        loop {
            let held = holdings.borrow_and_update().held.clone();
            let is_gained = held.iter().any(|(shard, term)| known.get(shard) != Some(term));
            known = held;
            if is_gained {
                if let Err(error) = store.wake_runs_of_the_future().await {
                    tracing::warn!(%error, "waits of runs were not measured anew; those from a clock that was ahead may be longer");
                }
                // In a task of its own: runs come up only while there is memory, and the next gain does not wait for that.
                let gained = engine.clone();
                drop(tasks.spawn("gained runs", async move { gained.gained().await }));
            }
            if holdings.changed().await.is_err() {
                return;
            }
        }
    };
    let _stopped = tasks.soft().run_until_cancelled(Box::pin(following)).await;
    replica.stopping();
}

/// Ends the work of shards that this replica gives away, until it stops.
async fn give_away(replica: Arc<Replica>, store: Arc<PostgresStore>, engine: Engine, tasks: Tasks) {
    let (mut holdings, mut given) = (replica.holdings(), BTreeSet::new());
    let following = async {
        loop {
            let shedding = holdings.borrow_and_update().shedding.clone();
            given.retain(|shard| shedding.contains(shard));
            let leaving: BTreeSet<ShardNo> = shedding.difference(&given).copied().collect();
            if !leaving.is_empty() {
                let shards: Vec<ShardNo> = leaving.iter().copied().collect();
                store.leave_shards(&shards);
                engine.leave_shards(leaving.clone()).await;
                while let Err(error) = store.forget_shards(&shards).await {
                    tracing::warn!(%error, "sessions cannot be given away yet; trying again");
                    tokio::time::sleep(OPEN_AGAIN).await;
                }
                // A run that was starting at first has come up by now.
                engine.leave_shards(leaving.clone()).await;
                given.extend(leaving);
                replica.given_away(shards);
            }
            if holdings.changed().await.is_err() {
                return;
            }
        }
    };
    let _stopped = tasks.soft().run_until_cancelled(Box::pin(following)).await;
}

/// Ends the process when another replica has taken this one for dead. There is nothing to save, because no write of this one
/// counts any more. But streams are ended first, so that their callers connect to another replica.
async fn end_when_fenced(replica: Arc<Replica>, tasks: Tasks, stop: Stop) {
    if tasks.soft().run_until_cancelled(replica.failed().cancelled()).await.is_some() {
        tracing::error!(
            runs = stop.runs(),
            "another replica has taken this one for dead, and takes its place: the runs at work here go on there; ending"
        );
        tasks.soft().cancel();
        tokio::time::sleep(FENCED_WAIT).await;
        tasks.hard().cancel();
    }
}

/// Warns if this replica is not at the address that it gives the others, or not with its certificate: at first, and whenever its
/// certificate has changed. It takes its part all the same, since others may reach an address that it cannot dial itself.
async fn dial_itself(reach: Reach, me: Peer, mut certificates: Option<watch::Receiver<Acceptor>>) {
    loop {
        if let Some(why) = reach.problem(&me).await {
            tracing::warn!(
                at = me.address,
                why,
                "this replica does not reach itself at the address that it gives the others; if they do not either, calls for its \
                 sessions fail there: correct cluster.advertise, or the certificates"
            );
        }
        let Some(changes) = &mut certificates else { return };
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Shuts down when the store has failed, which may be the first to find out that another replica has this one's place. The next
/// beat tells, and ends the process.
async fn end_when_the_store_fails(failed: CancellationToken, replica: Arc<Replica>, tasks: Tasks) {
    if tasks.soft().run_until_cancelled(failed.cancelled()).await.is_some()
        && tokio::time::timeout(VERDICT_WAIT, replica.failed().cancelled()).await.is_err()
    {
        tasks.fail("store");
    }
}

/// Resolves when a shutdown has begun and the hosts have been sent away, if there are any.
async fn work_stopped(tasks: Tasks, stop: Stop) {
    tasks.soft().cancelled().await;
    stop.send_hosts_away().await;
}
