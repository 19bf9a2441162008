//! A server that shares its database with others: one of them owns it and does the work, the others send calls on to it, and
//! one takes its place when it ends.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::app::builder::ServerBuilder;
use crate::app::health::Readiness;
use crate::app::ports::Ports;
use crate::app::security::{self, Reloader, Security};
use crate::app::store::{OwnStore, postgres_options};
use crate::app::work::{Stop, WorkParts};
use crate::app::{OpenError, StartError, listen, metrics, serve};
use crate::config::{Config, StoreLocation};
use crate::grpc::edge::forward::front::Front;
use crate::grpc::edge::forward::links::Links;
use crate::grpc::edge::forward::local::LocalServices;
use crate::grpc::edge::forward::peer::PeerPort;
use crate::grpc::edge::identity::IdentityLayer;
use crate::lifecycle::{Exit, Signals, Tasks};
use crate::secret::Redactor;
use crate::store::postgres::{Claim, PostgresOptions, Replica, ReplicaOptions};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::otlp::Otlp;

/// Time for which an owner that is told to stop waits for its runs to come to a durable point. All runs stand still until
/// another replica owns the database, so a longer model call is cut, and made again there.
const HANDOVER_WAIT: Duration = Duration::from_secs(1);
/// Time for which one that stands by lets its callers' last answers leave.
const LEAVE_WAIT: Duration = Duration::from_secs(3);
/// Time for the last commit of an owner that stops.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// The wait before a database that this replica owns is opened again after a failure, and the number of tries.
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
    store: watch::Receiver<Option<OwnStore>>,
    otlp: Option<Otlp>,
    grace: Duration,
    reloader: Option<Arc<Reloader>>,
}

/// What it takes to do the work.
struct Successor {
    options: PostgresOptions,
    parts: WorkParts,
    replica: Arc<Replica>,
    local: LocalServices,
    metrics: Option<Metrics>,
    reloader: Option<Arc<Reloader>>,
    tasks: Tasks,
    calls_ended: CancellationToken,
    /// Told of the store as soon as the work goes on.
    store: watch::Sender<Option<OwnStore>>,
    stop: Arc<OnceLock<Stop>>,
}

impl ReplicaServer {
    /// Joins the replicas of the database, and listens. It does the work as soon as it owns the database.
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
    pub fn number(&self) -> i64 {
        self.replica.number()
    }

    /// The address of the metrics endpoint, if one is configured.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Reads the certificate and the tokens again, as SIGHUP does. A file that cannot be used is logged, and the old one counts
    /// on.
    pub async fn reload(&self) {
        if let Some(reloader) = &self.reloader {
            security::reload(reloader.clone()).await;
        }
    }

    /// Stops: runs come to their next durable point, and go on at the next owner.
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
        let is_owner = self.store.borrow().is_some();
        let wait = if is_owner { HANDOVER_WAIT } else { LEAVE_WAIT };
        let exit = match self.tasks.shut_down(self.grace.min(wait)).await {
            Exit::Forced if !was_cut => Exit::Clean,
            exit => exit,
        };
        let store = self.store.borrow().clone();
        if let Some(store) = store {
            if store.failed().is_cancelled() {
                // It may be the first to find out that another replica has this one's place. The next beat tells.
                let _unknown = tokio::time::timeout(VERDICT_WAIT, self.replica.failed().cancelled()).await;
            }
            // A fenced one has nothing to write. Another one may have a database that does not answer; whatever it still
            // has to write is refused as soon as this replica has left.
            if !self.replica.failed().is_cancelled() {
                let _cut = tokio::time::timeout(CLOSE_WAIT, store.close()).await;
            }
        }
        let is_fenced = self.replica.failed().is_cancelled();
        if !is_fenced {
            // After the last write: the next owner begins where this one ended.
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
        let (Some(cluster), StoreLocation::Postgres(postgres)) =
            (self.config.cluster.clone(), &self.config.store.location)
        else {
            return Err(StartError::Cluster("a replica needs [cluster] and store.url in its configuration"));
        };
        let options = postgres_options(postgres, &self.config.store, &self.config.blobs);
        let (clock, ids) = (self.engine.clock.clone(), self.engine.ids.clone());
        let tasks = self.engine.tasks.clone();
        let redactor = Redactor::new(self.config.secrets());
        let security = Security::load(&self.config, clock.clone())?;
        let peer_tls = security.links.clone();
        let models = self.take_models()?;
        let own_tools = self.check_tools()?;
        let ports = Ports::listen(&self.config, security).await?;
        self.observe(ports.metrics.as_ref());
        let otlp = self.start_otlp(redactor)?;
        let (listener, found) = listen(cluster.listen).await?;
        let me = ReplicaOptions {
            address: cluster.advertise.unwrap_or_else(|| found.to_string()),
            lease: cluster.lease.duration(),
            configuration_digest: self.config.shared_digest(),
        };
        let (replica_address, lease) = (me.address.clone(), me.lease);
        let replica = Arc::new(Box::pin(Replica::join(&options, me)).await.map_err(OpenError::from)?);
        let (grace, max) =
            (self.config.server.shutdown_grace.duration(), self.config.server.max_message_bytes);
        let is_audited = self.config.audit.is_some();
        let mut parts = self.into_parts(models, own_tools, ports.asks);
        parts.replicas = Some(replica.clone());
        let quotas = parts.quotas.clone();
        let (local, standings) = (LocalServices::none(), replica.standings());
        let (address, metrics_address) = (ports.address, ports.metrics_address);
        let reloader = ports.reloader.clone();
        if let Some(metrics) = &ports.metrics {
            metrics::read_replicas_at_scrape(metrics, standings.clone(), replica.clone());
        }
        let (store_sender, store) = watch::channel(None);
        let (stop, calls_ended) = (Arc::<OnceLock<Stop>>::default(), CancellationToken::new());
        let calls = Arc::new(calls_ended.clone().drop_guard());
        let successor = Successor {
            options,
            parts,
            replica: replica.clone(),
            local: local.clone(),
            metrics: ports.metrics.clone(),
            reloader: reloader.clone(),
            tasks: tasks.clone(),
            calls_ended,
            store: store_sender,
            stop: stop.clone(),
        };
        tasks.spawn("ownership", successor.succeed());
        drop(tasks.spawn("fence", end_when_fenced(replica.clone(), tasks.clone(), stop.clone())));
        let peers = PeerPort::new(replica.number(), standings.clone(), local.clone(), ports.asks);
        let acceptor = peer_tls.as_ref().map(|tls| tls.acceptor());
        let serving = peers.serve(listener, acceptor, work_stopped(tasks.clone(), stop.clone()));
        let (of_peers, calls_of_peers) = (tasks.clone(), calls.clone());
        tasks.spawn("replicas", async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "the port for replicas failed; shutting down");
                of_peers.soft().cancel();
            }
            drop(calls_of_peers);
        });
        let links = peer_tls.map_or_else(|| Links::new(None), |tls| tls.links());
        let front = Front::new(standings.clone(), links, local, ids, max, tasks.soft().clone());
        let readiness =
            Readiness::Replica { standings, store: store.clone(), replicas: replica.clone(), lease };
        let refusals = is_audited.then(|| {
            let (refusals, telling) = front.refusals();
            tasks.spawn("refused calls", telling);
            refusals
        });
        let port = ports.open(quotas, clock, |gate| IdentityLayer::of_replica(gate, refusals), &tasks);
        let stopped = work_stopped(tasks.clone(), stop);
        let routes = serve::Routes::default();
        let serving = serve::serve(port, routes, Some(front), readiness, stopped, tasks.clone());
        tasks.spawn("grpc", async move {
            serving.await;
            drop(calls);
        });
        tracing::info!(%address, replica = replica.number(), at = replica_address, "listening");
        Ok(ReplicaServer {
            address,
            replica_address,
            metrics_address,
            replica,
            tasks,
            store,
            otlp,
            grace,
            reloader,
        })
    }
}

impl Successor {
    /// Waits until this replica owns the database, and goes on with the work.
    async fn succeed(self) {
        let (tasks, replica) = (self.tasks.clone(), self.replica.clone());
        let Some(Some(claim)) = tasks.soft().run_until_cancelled(replica.owned()).await else { return };
        tracing::info!(replica = replica.number(), "this replica owns the database");
        if let Err(error) = Box::pin(self.work(claim)).await {
            tracing::error!(%error, "this replica cannot do the work; shutting down, so that another one does");
            tasks.fail("ownership");
        }
    }

    async fn work(self, claim: Claim) -> Result<(), StartError> {
        let (options, replica) = (self.options, self.replica);
        let own = open(&options, &replica, claim).await?;
        let work = self.parts.start(own.shared(), Some(&own), self.calls_ended).await?;
        work.show(self.metrics.as_ref(), Some(&own), self.reloader.as_ref());
        self.stop.get_or_init(|| work.stop.clone());
        let ending = end_when_the_store_fails(own.failed().clone(), replica, self.tasks.clone());
        drop(self.tasks.spawn("store", ending));
        self.store.send_replace(Some(own));
        self.local.open(work.routes, work.audit);
        tracing::info!("every unfinished run goes on");
        Ok(())
    }
}

/// Opens the database that this replica owns. It may be away for a moment: then nobody else could open it either.
async fn open(options: &PostgresOptions, replica: &Replica, claim: Claim) -> Result<OwnStore, OpenError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match Box::pin(OwnStore::open_owned(options, claim)).await {
            Err(error) if tries < OPEN_TRIES && !replica.failed().is_cancelled() => {
                tracing::warn!(%error, "the database cannot be opened; trying again");
                tokio::time::sleep(OPEN_AGAIN).await;
            }
            opened => return opened,
        }
    }
}

/// Ends the process at once when another replica has taken this one for dead. There is nothing to save: no write of this one
/// counts any more.
async fn end_when_fenced(replica: Arc<Replica>, tasks: Tasks, stop: Arc<OnceLock<Stop>>) {
    if tasks.soft().run_until_cancelled(replica.failed().cancelled()).await.is_some() {
        let runs = stop.get().map_or(0, Stop::runs);
        tracing::error!(
            runs,
            "another replica has taken this one for dead, and takes its place: the runs at work here go on there; ending at once"
        );
        tasks.hard().cancel();
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
async fn work_stopped(tasks: Tasks, stop: Arc<OnceLock<Stop>>) {
    tasks.soft().cancelled().await;
    if let Some(stop) = stop.get() {
        stop.send_hosts_away().await;
    }
}
