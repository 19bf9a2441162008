//! The start of a replica: it joins the others, opens the database, starts its services, and serves at its two addresses.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::app::builder::{CheckedParts, ServerBuilder};
use crate::app::replica::ReplicaServer;
use crate::app::replica::reachability::{dial_itself, dial_others};
use crate::app::replica::shards::Shards;
use crate::app::running::Running;
use crate::app::services::{ClusterParts, HostShutdown, ServiceParts, StartedServices, spawn_until_stopped};
use crate::app::serving::health::Readiness;
use crate::app::serving::listeners::Listeners;
use crate::app::serving::{Routes, metrics, serve};
use crate::app::store::{OwnStore, postgres_options};
use crate::app::{OpenError, StartError, listen};
use crate::auth::{Authentication, Quotas};
use crate::clock::Clock;
use crate::cluster::{Ownerships, Peer};
use crate::config::{ClusterOptions, StoreLocation};
use crate::engine::Engine;
use crate::grpc::edge::forward::layer::{ForwardLayer, ForwardParts};
use crate::grpc::edge::forward::reach::Reach;
use crate::grpc::edge::forward::route::local::LocalServices;
use crate::grpc::edge::forward::wire::links::Links;
use crate::grpc::edge::identity::IdentityLayer;
use crate::grpc::edge::peer::PeerListener;
use crate::grpc::edge::run_changes::follow_run_changes;
use crate::grpc::edge::tls::Acceptor;
use crate::grpc::edge::tool_link::ToolLinkService;
use crate::lifecycle::Tasks;
use crate::store::Store;
use crate::store::postgres::{PostgresOptions, PostgresStore, Replica, ReplicaOptions};
use crate::tool::ClusterTools;

/// The wait before the database is opened again after a failure, and the number of tries.
const OPEN_AGAIN: Duration = Duration::from_millis(500);
const OPEN_TRIES: u32 = 20;

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
        let (listeners, otlp) = self.listen(security, redactor).await?;
        let ListeningReplica { listener, replica_address, replica } = self.join(cluster, &options).await?;
        let (grace, message_bytes_max) =
            (self.config.server.shutdown_grace.duration(), self.config.server.max_message_bytes);
        let parts = self.into_parts(models, own_tools, listeners.authentication);
        let quotas = parts.quotas.clone();
        let store = open(&options, &replica).await?;
        let server = ReplicaServer {
            address: listeners.address,
            replica_address,
            metrics_address: listeners.metrics_address,
            replica: replica.clone(),
            store: OwnStore::Postgres(store.clone()),
            running: Running { tasks, otlp, reloader: listeners.reloader.clone(), grace },
        };
        let links = peer_tls.as_ref().map_or_else(|| Links::new(None), |tls| tls.links());
        links.name_cluster(replica.cluster());
        let shared = ClusterParts {
            ownerships: replica.ownerships(),
            busy_shards: replica.busy_shards().clone(),
            replicas: replica,
            locate: store.clone(),
            links,
        };
        let (services, rpcs) = Box::pin(server.start_services(parts, shared.clone(), &listeners)).await?;
        server.follow(&services, store, &shared);
        let (local, runs_stopped) = (LocalServices::none(), CancellationToken::new());
        let forward = ForwardLayer::new(ForwardParts {
            ownerships: shared.ownerships.clone(),
            links: shared.links.clone(),
            local: local.clone(),
            locate: shared.locate.clone(),
            ids,
            message_bytes_max,
            stop: server.running.tasks.soft().clone(),
            tasks: server.running.tasks.clone(),
            runs_stopped: runs_stopped.clone(),
        });
        let both =
            ReplicaListeners::new(&server, services, local, forward, ShutdownMarks { rpcs, runs_stopped });
        let certificates = peer_tls.as_ref().map(|tls| tls.acceptor());
        both.serve_replicas(listener, certificates.clone(), listeners.authentication);
        both.serve_callers(listeners, quotas, clock);
        // Now it can do the work of the shards that it takes.
        server.replica.ready();
        let reach = Reach::new(shared.ownerships.clone(), shared.links);
        let me = Peer { number: server.number(), address: server.replica_address.clone() };
        let others = dial_others(reach.clone(), shared.ownerships, certificates.clone());
        spawn_until_stopped(&server.running.tasks, "other replicas", others);
        spawn_until_stopped(&server.running.tasks, "own address", dial_itself(reach, me, certificates));
        let (address, at) = (server.address, &server.replica_address);
        tracing::info!(%address, replica = server.number().0, at, "listening");
        Ok(server)
    }
}

impl ReplicaServer {
    /// Starts the services. With it comes what every RPC of both listeners holds: the audit log ends when the last one has gone.
    async fn start_services(
        &self,
        parts: ServiceParts,
        shared: ClusterParts,
        listeners: &Listeners,
    ) -> Result<(StartedServices, Arc<DropGuard>), StartError> {
        if let Some(metrics) = &listeners.metrics {
            let (ownerships, reloader) = (shared.ownerships.clone(), self.running.reloader.clone());
            let counts = (self.replica.takeovers().clone(), shared.links.clone());
            metrics::read_replicas_at_scrape(metrics, ownerships, shared.replicas.clone(), counts, reloader);
        }
        let rpcs_ended = CancellationToken::new();
        let rpcs = Arc::new(rpcs_ended.clone().drop_guard());
        let parts = ServiceParts { cluster: Some(shared), ..parts };
        let services = parts.start(self.store.shared(), Some(&self.store), rpcs_ended).await?;
        services.show(listeners.metrics.as_ref(), Some(&self.store), self.running.reloader.as_ref());
        Ok((services, rpcs))
    }

    /// Follows the changes of runs at the other replicas, and which shards this one has.
    fn follow(&self, services: &StartedServices, store: Arc<PostgresStore>, shared: &ClusterParts) {
        let (engine, stopping) = (services.engine.clone(), self.running.tasks.soft().clone());
        let changes =
            follow_run_changes(engine.clone(), shared.ownerships.clone(), shared.links.clone(), stopping);
        drop(self.running.tasks.spawn("run changes", changes));
        let (replica, host_shutdown) = (self.replica.clone(), services.host_shutdown.clone());
        let tasks = self.running.tasks.clone();
        Shards { replica, store, engine, host_shutdown, tasks }.spawn();
    }
}

/// The two listeners of a replica: one for callers and hosts, one for the other replicas. Both lead to the same services.
struct ReplicaListeners {
    forward: ForwardLayer,
    local: LocalServices,
    engine: Engine,
    cluster: Option<Arc<ClusterTools>>,
    ownerships: Ownerships,
    store: Arc<dyn Store>,
    host_shutdown: HostShutdown,
    marks: ShutdownMarks,
    tasks: Tasks,
}

/// Marks of how far a shutdown has come.
struct ShutdownMarks {
    /// Kept by each listener until its last RPC has ended.
    rpcs: Arc<DropGuard>,
    /// Cancelled when the hosts have been sent away, which waits for the runs.
    runs_stopped: CancellationToken,
}

impl ReplicaListeners {
    fn new(
        server: &ReplicaServer,
        services: StartedServices,
        local: LocalServices,
        forward: ForwardLayer,
        marks: ShutdownMarks,
    ) -> Self {
        let StartedServices { engine, routes, audit, host_shutdown, cluster, .. } = services;
        local.open(routes, audit);
        let (ownerships, tasks) = (server.replica.ownerships(), server.running.tasks.clone());
        Self {
            forward,
            local,
            engine,
            cluster,
            ownerships,
            store: server.store.shared(),
            host_shutdown,
            marks,
            tasks,
        }
    }

    /// Serves the other replicas.
    fn serve_replicas(
        &self,
        listener: TcpListener,
        acceptor: Option<watch::Receiver<Acceptor>>,
        authentication: Authentication,
    ) {
        let mut peer_listener =
            PeerListener::new(self.forward.clone(), authentication).with_run_changes(self.engine.clone());
        if let Some(cluster) = self.cluster.clone() {
            peer_listener = peer_listener.with_tool_link(ToolLinkService::new(cluster, self.tasks.clone()));
        }
        let serving = peer_listener.serve(listener, acceptor, self.hosts_sent_away());
        let (rpcs, stopping) = (self.marks.rpcs.clone(), self.tasks.soft().clone());
        self.tasks.spawn("replicas", async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the port for replicas failed; shutting down");
                stopping.cancel();
            }
            drop(rpcs);
        });
    }

    /// Serves callers and hosts.
    fn serve_callers(self, listeners: Listeners, quotas: Option<Quotas>, clock: Arc<dyn Clock>) {
        let stopped = self.hosts_sent_away();
        let Self { forward, local, engine, cluster, ownerships, store, marks, tasks, .. } = self;
        let tools_known =
            cluster.map_or_else(|| watch::Sender::new(true).subscribe(), |cluster| cluster.tools_known());
        let readiness = Readiness::of_replica(store, ownerships, tools_known).telling(engine);
        let caller_listener =
            listeners.start(quotas, clock, |gate| IdentityLayer::of_replica(gate, local), &tasks);
        let serving =
            serve(caller_listener, Routes::default(), Some(forward), readiness, stopped, tasks.clone());
        tasks.spawn("grpc", async move {
            serving.await;
            drop(marks.rpcs);
        });
    }

    /// Resolves when a shutdown has begun and the hosts have been sent away, if there are any.
    fn hosts_sent_away(&self) -> impl Future<Output = ()> + Send + use<> {
        let (host_shutdown, stopping) = (self.host_shutdown.clone(), self.tasks.soft().clone());
        let runs_stopped = self.marks.runs_stopped.clone();
        async move {
            stopping.cancelled().await;
            host_shutdown.send_hosts_away().await;
            runs_stopped.cancel();
        }
    }
}

/// A replica that has joined, and its listener for the others.
struct ListeningReplica {
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
    ) -> Result<ListeningReplica, StartError> {
        let (listener, found) = listen(cluster.listen).await?;
        let me = ReplicaOptions {
            address: cluster.advertise.unwrap_or_else(|| found.to_string()),
            lease: cluster.lease.duration(),
            configuration_digest: self.config.shared_digest(),
        };
        let replica_address = me.address.clone();
        let replica = Arc::new(Box::pin(Replica::join(options, me)).await.map_err(OpenError::from)?);
        Ok(ListeningReplica { listener, replica_address, replica })
    }
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
