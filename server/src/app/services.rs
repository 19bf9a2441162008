//! The part of a server that needs its store: the engine, the fleet of tool hosts, the audit log, and the services.

use std::sync::Arc;
use std::time::Duration;

use agentloop_core::tool::ToolDeclaration;
use futures_util::FutureExt as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::app::audit_lines::{AuditLines, follow, open_file};
use crate::app::hosts::{StoreToolRows, StoredIds, host_options, remember_tools, remembered_tools};
use crate::app::security::Reloader;
use crate::app::serving::{self, Routes, metrics};
use crate::app::store::OwnStore;
use crate::app::{StartError, offers_wait};
use crate::auth::{Authentication, Quota, QuotaScope, Quotas};
use crate::clock::Clock;
use crate::cluster::busy_shards::BusyShards;
use crate::cluster::locate::Locate;
use crate::cluster::{Ownerships, Replicas};
use crate::config::{AuditOptions, Config};
use crate::engine::{Engine, EngineOptions, EngineParts, Recall, Retention};
use crate::extension::LocalExtensions;
use crate::extension::remote::Remote;
use crate::grpc::convert::run_input::input::Agents;
use crate::grpc::edge::audit::{AuditLog, AuditScope};
use crate::grpc::edge::forward::reach::Reach;
use crate::grpc::edge::forward::wire::links::Links;
use crate::grpc::edge::tool_link::{ENCODE_REQUEST, ToolLinkDialer};
use crate::grpc::server::{ServerFacts, SharedDatabase};
use crate::lifecycle::Tasks;
use crate::memory::default_live_bytes;
use crate::model::Models;
use crate::store::Store;
use crate::telemetry::metrics::Metrics;
use crate::tool::{ClusterTools, LocatedOwners, OwnTools, RemoteTools, ToolExecutor, Tools};

/// Time between two looks of a shutdown if runs still wait for updates of their calls.
const RUNS_CHECK_EVERY: Duration = Duration::from_millis(10);

/// Makes the tools that runs see from those of hosts.
pub(super) type WrapTools = Box<dyn FnOnce(Arc<RemoteTools>) -> Arc<dyn Tools> + Send>;

/// Everything that the services are started with, but the store.
pub(super) struct ServiceParts {
    pub(super) config: Config,
    pub(super) models: Arc<dyn Models>,
    pub(super) wrap_tools: Option<WrapTools>,
    /// The names of the tools that run in this process, checked.
    pub(super) own_tools: OwnTools,
    pub(super) tool_executors: Vec<(ToolDeclaration, Arc<dyn ToolExecutor>)>,
    pub(super) extensions: LocalExtensions,
    pub(super) engine: EngineParts,
    pub(super) quotas: Option<Quotas>,
    /// The demand that callers present credentials.
    pub(super) authentication: Authentication,
    /// The replicas that share the database, if it is shared.
    pub(super) cluster: Option<ClusterParts>,
}

/// The parts of a server that shares its database with others.
#[derive(Clone)]
pub(super) struct ClusterParts {
    /// Knows all replicas, as the last beat showed them.
    pub(super) replicas: Arc<dyn Replicas>,
    /// Tells, as it changes, which replica owns which shards.
    pub(super) ownerships: Ownerships,
    /// The shards with work that would be lost with them.
    pub(super) busy_shards: BusyShards,
    /// Finds the shards of runs.
    pub(super) locate: Arc<dyn Locate>,
    /// The links to other replicas.
    pub(super) links: Links,
}

/// The services of the contract and the engine behind them, at work.
pub(super) struct StartedServices {
    pub(super) engine: Engine,
    hosts: Arc<RemoteTools>,
    /// The services of the contract.
    pub(super) routes: Routes,
    /// The audit log, if one is written.
    pub(super) audit: Option<AuditLog>,
    /// Sends the hosts away.
    pub(super) host_shutdown: HostShutdown,
    /// The tools of all replicas, where there are several.
    pub(super) cluster: Option<Arc<ClusterTools>>,
}

/// Sends the hosts away when a shutdown has begun. Clones do the same.
#[derive(Clone)]
pub(super) struct HostShutdown {
    engine: Engine,
    hosts: Arc<RemoteTools>,
    cluster: Option<Arc<ClusterTools>>,
    offers_wait: Duration,
}

impl HostShutdown {
    /// Number of runs that are at work here.
    pub(super) fn runs(&self) -> usize {
        self.engine.runs_at_work()
    }

    /// Returns when the hosts have been sent away: calls may end then.
    pub(super) async fn send_hosts_away(&self) {
        self.hosts.close_offers(self.offers_wait).await;
        self.hosts.go_away();
        self.hosts.close();
        if let Some(cluster) = &self.cluster {
            // Until then the runs here may hear over the link if a host at another replica begins a call.
            let _in_time = self.runs_stopped().await;
            cluster.close();
        }
    }

    /// Returns when no run waits for an update of its calls any more, after half of the grace at most: then it is `false`. A shutdown
    /// has begun.
    pub(super) async fn runs_stopped(&self) -> bool {
        let until = Instant::now() + self.offers_wait;
        while self.engine.live_runs() > 0 || self.hosts.has_open_offers() {
            if Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(RUNS_CHECK_EVERY).await;
        }
        true
    }
}

impl ServiceParts {
    /// Continues every unfinished run. The audit log ends after `rpcs_ended`.
    ///
    /// # Errors
    /// [`StartError::Store`], [`StartError::Audit`]. Nothing is left running.
    pub(super) async fn start(
        self,
        store: Arc<dyn Store>,
        own_store: Option<&OwnStore>,
        rpcs_ended: CancellationToken,
    ) -> Result<StartedServices, StartError> {
        let tasks = self.engine.tasks.clone();
        let started = Box::pin(self.start_all(store, own_store, rpcs_ended)).await;
        if started.is_err() {
            tasks.hard().cancel();
            let _ended = tasks.shut_down(Duration::ZERO).await;
        }
        started
    }

    async fn start_all(
        mut self,
        store: Arc<dyn Store>,
        own_store: Option<&OwnStore>,
        rpcs_ended: CancellationToken,
    ) -> Result<StartedServices, StartError> {
        let (clock, tasks) = (self.engine.clock.clone(), self.engine.tasks.clone());
        let hosts = self.hosts(&store).await?;
        let agents = Arc::new(self.agents());
        let server = self.config.server.clone();
        let facts = self.facts(own_store);
        // A replica first looks if another one has taken its place.
        if let (Some(own), None) = (own_store, &self.cluster) {
            tasks.depend_on("store", own.failed().clone());
        }
        let (ids, models) = (self.engine.ids.clone(), self.models.clone());
        let blobs_idle = self.config.blobs.idle_timeout.duration();
        let audited = self.config.audit.clone();
        let shared_database = self.cluster.as_ref().map(ClusterParts::shared_database);
        let replicas = self.cluster.as_ref().map(|parts| parts.ownerships.clone());
        if let Some(parts) = &self.cluster {
            self.engine.busy_shards = parts.busy_shards.clone();
        }
        let (cluster, linking) =
            self.cluster.take().map(|parts| parts.tools(hosts.clone(), store.clone())).unzip();
        let engine = self.start_engine(store.clone(), hosts.clone(), cluster.clone());
        let offers_wait = offers_wait(server.shutdown_grace.duration());
        let host_shutdown = HostShutdown {
            engine: engine.clone(),
            hosts: hosts.clone(),
            cluster: cluster.clone(),
            offers_wait,
        };
        if let Some(linking) = linking {
            spawn_until_runs_stop(&tasks, "tool link", linking, &host_shutdown);
        }
        drive_tools(&host_shutdown, &tasks);
        let remembering = remember_tools(hosts.clone(), store.clone(), tasks.soft().clone());
        tasks.spawn("remember tools", remembering);
        let audit = start_audit(audited, &store, &clock, &tasks, replicas, rpcs_ended)?;
        let (tools, of_services) = (hosts.clone(), engine.clone());
        let services = serving::Services {
            engine: of_services,
            models,
            agents,
            tools,
            ids,
            facts,
            blobs_idle,
            shared_database,
        };
        let routes = services.routes(server.max_message_bytes, &tasks);
        Ok(StartedServices { engine, hosts, routes, audit, host_shutdown, cluster })
    }

    /// The tools of hosts, as far as the store remembers them, and those of the embedder. With authentication, the ids of
    /// hosts are kept for their principals.
    async fn hosts(&mut self, store: &Arc<dyn Store>) -> Result<Arc<RemoteTools>, StartError> {
        let (clock, tasks) = (self.engine.clock.clone(), &self.engine.tasks);
        let own_tools = std::mem::take(&mut self.own_tools);
        let hosts = remembered_tools(&**store, host_options(&self.config), clock.now(), own_tools).await?;
        if self.authentication.is_required() {
            let ids = StoredIds { store: store.clone(), clock };
            hosts.keep_ids(Arc::new(ids.clone()));
            spawn_until_stopped(tasks, "host ids", ids.see(hosts.clone()));
        }
        Ok(hosts)
    }

    fn facts(&self, own_store: Option<&OwnStore>) -> ServerFacts {
        ServerFacts {
            started_at: self.engine.clock.now(),
            store: own_store.map_or("custom", OwnStore::kind),
            message_bytes_max: self.config.server.max_message_bytes,
            live_runs_max: self.config.server.max_live_runs,
            hosts_max: self.config.hosts.max_hosts,
            authentication: self.authentication,
            agent_descriptions: self.config.agent_descriptions.clone(),
        }
    }

    fn agents(&self) -> Agents {
        let in_doubt_timeout = self.config.runs.in_doubt_timeout;
        let mut agents = self.config.agents.clone();
        for spec in agents.values_mut() {
            spec.in_doubt_timeout = in_doubt_timeout;
        }
        for (agent, model) in without_prices(&agents, &*self.models) {
            tracing::warn!(
                agent,
                model,
                "limits.max_cost_micros needs the prices of the agent's models; until they are configured, every run of it is refused"
            );
        }
        agents
    }

    fn start_engine(
        mut self,
        store: Arc<dyn Store>,
        hosts: Arc<RemoteTools>,
        cluster: Option<Arc<ClusterTools>>,
    ) -> Engine {
        self.engine.extensions = Arc::new(extension_chain(self.extensions, store.clone(), &hosts));
        let masks = self.config.masks();
        let Config { server, runs, telemetry, retention, blobs, .. } = self.config;
        // A bound that the operator gave each tenant is its share.
        let has_share = |quotas: &Quotas| quotas.limits().get(Quota::LiveRuns, QuotaScope::Tenant).is_some();
        let tenants_leave_places =
            self.authentication.is_required() && !self.quotas.as_ref().is_some_and(has_share);
        self.engine.options = EngineOptions {
            masks,
            quotas: self.quotas,
            max_live_runs: server.max_live_runs,
            tenants_leave_places,
            tenants_leave_memory: self.authentication.is_required(),
            live_bytes_max: match server.max_live_bytes {
                0 => default_live_bytes(),
                bytes => bytes,
            },
            park_after: runs.park_after,
            subscriber_stall: runs.subscriber_stall,
            subscriber_buffer: runs.subscriber_buffer,
            caller_grace: runs.caller_grace,
            retention: Retention { max_age: retention.max_age, max_sessions: retention.max_sessions },
            unused_blobs_kept: blobs.unused_kept,
            traced: telemetry.otlp_endpoint.is_some(),
            offers_wait: offers_wait(server.shutdown_grace.duration()),
        };
        let own = self.tool_executors.into_iter().map(|(declaration, executor)| (declaration.name, executor));
        self.engine.tool_executors = own.collect();
        let tools: Arc<dyn Tools> = match (self.wrap_tools, cluster) {
            (_, Some(cluster)) => cluster,
            (Some(wrap), None) => wrap(hosts),
            (None, None) => hosts,
        };
        self.engine.start(store, self.models, tools)
    }
}

/// Starts a task that ends when a shutdown begins.
pub(super) fn spawn_until_stopped(
    tasks: &Tasks,
    name: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
) {
    let until = tasks.soft().clone();
    drop(tasks.spawn(name, async move {
        let _stopped = until.run_until_cancelled(work).await;
    }));
}

/// Starts the task that hands reports of tools to the runs, until the runs have stopped.
fn drive_tools(host_shutdown: &HostShutdown, tasks: &Tasks) {
    let driving = match host_shutdown.cluster.clone() {
        Some(cluster) => cluster.drive(host_shutdown.engine.sink()).boxed(),
        None => host_shutdown.hosts.clone().drive(host_shutdown.engine.sink()).boxed(),
    };
    spawn_until_runs_stop(tasks, "tools", driving, host_shutdown);
}

/// Starts a task that ends when a shutdown has begun and the runs have stopped, which wait for what hosts say to their offers.
fn spawn_until_runs_stop(
    tasks: &Tasks,
    name: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
    host_shutdown: &HostShutdown,
) {
    let (soft, host_shutdown) = (tasks.soft().clone(), host_shutdown.clone());
    drop(tasks.spawn(name, async move {
        let stopped = async {
            soft.cancelled().await;
            host_shutdown.runs_stopped().await;
        };
        tokio::select! { biased;
            () = work => {}
            () = stopped => {}
        }
    }));
}

impl ClusterParts {
    /// The replicas, for operators.
    fn shared_database(&self) -> SharedDatabase {
        let reach = Reach::new(self.ownerships.clone(), self.links.clone());
        SharedDatabase { replicas: self.replicas.clone(), reach }
    }

    /// The tools of all replicas, and the task that keeps the way to their hosts. `hosts` are those of this replica.
    fn tools(
        self,
        hosts: Arc<RemoteTools>,
        store: Arc<dyn Store>,
    ) -> (Arc<ClusterTools>, impl Future<Output = ()> + Send + use<>) {
        let Self { replicas: _, ownerships, locate, links, busy_shards: _ } = self;
        let me = ownerships.borrow().me();
        let owners = Arc::new(LocatedOwners::new(locate, ownerships.clone()));
        let tools = ClusterTools::new(me, hosts, owners, Arc::new(StoreToolRows(store)), ENCODE_REQUEST);
        let dialer = Arc::new(ToolLinkDialer::new(links, ownerships.clone()));
        let linking = tools.clone().keep_linked(ownerships, dialer);
        (tools, linking)
    }
}

impl StartedServices {
    /// Has its readings shown at each scrape, and what is read again written to its audit log, where there are such.
    pub(super) fn show(
        &self,
        metrics: Option<&Metrics>,
        store: Option<&OwnStore>,
        reloader: Option<&Arc<Reloader>>,
    ) {
        if let Some(metrics) = metrics {
            let (engine, tools) = (self.engine.clone(), self.hosts.clone());
            let (store, reloader, audit) = (store.cloned(), reloader.cloned(), self.audit.clone());
            metrics::read_at_scrape(metrics, metrics::Sources { engine, tools, store, reloader, audit });
        }
        if let (Some(reloader), Some(audit)) = (reloader, &self.audit) {
            reloader.report_to(audit.clone());
        }
    }
}

/// The agents whose runs have a limit on their cost, which cannot be known: each with the model that has no prices.
fn without_prices<'a>(agents: &'a Agents, models: &dyn Models) -> Vec<(&'a str, &'a str)> {
    let limited = agents.iter().filter(|(_, spec)| spec.limits.max_cost_micros.is_some());
    let unpriced = limited.filter_map(|(agent, spec)| {
        let mut used = [Some(&spec.model), spec.context.summary_model.as_ref()].into_iter().flatten();
        let model = used.find(|model| models.facts(model).prices.is_none())?;
        Some((agent.as_str(), model.as_str()))
    });
    unpriced.collect()
}

/// Starts the audit log and the lines that follow it, if the configuration wants it. The log ends after the last call, and
/// the lines end after the log.
fn start_audit(
    options: Option<AuditOptions>,
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    tasks: &Tasks,
    replicas: Option<Ownerships>,
    rpcs_ended: CancellationToken,
) -> Result<Option<AuditLog>, StartError> {
    let Some(AuditOptions { required, reads, path, stdout }) = options else { return Ok(None) };
    if let Some(path) = &path {
        // Later it is tried again and again, since the table has the rows. Now somebody is there who can mend the path.
        open_file(path).map_err(|cause| StartError::Audit { path: path.clone(), cause })?;
    }
    let scope = AuditScope { required, reads };
    let (log, writing) = AuditLog::new(scope, store.clone(), clock.clone(), replicas, rpcs_ended);
    let log_ended = CancellationToken::new();
    let ends = log_ended.clone().drop_guard();
    drop(tasks.spawn("audit log", async move {
        writing.await;
        drop(ends);
    }));
    let lines = path.map(AuditLines::File).or_else(|| stdout.then_some(AuditLines::Stdout));
    if let Some(lines) = lines {
        drop(tasks.spawn("audit lines", follow(lines, store.clone(), log_ended)));
    }
    Ok(Some(log))
}

/// All extensions: the embedder's come first, then the built-in ones, then those of hosts.
fn extension_chain(mut own: LocalExtensions, store: Arc<dyn Store>, hosts: &RemoteTools) -> LocalExtensions {
    let mut built_in = LocalExtensions::new();
    built_in.add_context_source(Recall::NAME, Arc::new(Recall::new(store)));
    built_in.set_next(Arc::new(Remote(hosts.extensions().clone())));
    own.set_next(Arc::new(built_in));
    own
}

#[cfg(test)]
mod tests {
    use agentloop_core::agent::RunSpec;
    use agentloop_core::model::facts::{ModelFacts, Prices};

    use super::*;
    use crate::model::{Model, UnknownModel};

    /// Knows the prices of one model.
    struct OnePrice;

    impl Models for OnePrice {
        fn resolve(&self, reference: &str) -> Result<(Arc<dyn Model>, String), UnknownModel> {
            panic!("{reference} is not called")
        }

        fn facts(&self, reference: &str) -> ModelFacts {
            let prices = (reference == "p/priced").then(Prices::default);
            ModelFacts { prices, ..ModelFacts::default() }
        }
    }

    #[test]
    fn an_agent_whose_cost_is_limited_and_unknown_is_found() {
        let agent = |model: &str, summary_model: Option<&str>, limit: Option<u64>| {
            let mut spec = RunSpec { model: model.to_owned(), ..RunSpec::default() };
            spec.context.summary_model = summary_model.map(str::to_owned);
            spec.limits.max_cost_micros = limit;
            spec
        };
        let agents: Agents = [
            ("a", agent("p/free", None, Some(5))),
            ("b", agent("p/priced", None, Some(5))),
            ("c", agent("p/priced", Some("p/small"), Some(5))),
            ("d", agent("p/free", None, None)),
        ]
        .into_iter()
        .map(|(name, spec)| (name.to_owned(), spec))
        .collect();
        assert_eq!(without_prices(&agents, &OnePrice), [("a", "p/free"), ("c", "p/small")]);
    }
}
