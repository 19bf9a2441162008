//! Builds a server from a configuration and parts of the embedder. A part that is not given is built from the
//! configuration.

use std::sync::Arc;
use std::time::Duration;

use agentloop_core::tool::ToolDeclaration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::app::audit::{AuditLines, follow};
use crate::app::host_check::HostCheck;
use crate::app::hosts::{host_options, remember_tools, remembered_tools};
use crate::app::observe::{MetricsObserver, TraceObserver};
use crate::app::security::{Security, keep_current};
use crate::app::store::OwnStore;
use crate::app::{Server, StartError, listen, metrics, offers_wait, providers, serve};
use crate::auth::Quotas;
use crate::auth::jwt::KeySource;
use crate::clock::Clock;
use crate::config::{AuditOptions, Config};
use crate::engine::{
    Compactor, Engine, EngineOptions, EngineParts, Executors, JobExecutor, LogObserver, Observer, Recall,
    Retention,
};
use crate::extension::remote::Remote;
use crate::extension::{ContextSource, Hook, LocalExtensions, Planner};
use crate::grpc::convert::input::Agents;
use crate::grpc::edge::audit::{AuditLog, AuditScope};
use crate::grpc::edge::identity::Gate;
use crate::grpc::server::ServerFacts;
use crate::ids::Ids;
use crate::lifecycle::Tasks;
use crate::mask::Masks;
use crate::memory::default_live_bytes;
use crate::model::Models;
use crate::secret::Redactor;
use crate::store::Store;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::otlp::Otlp;
use crate::tool::{OwnTools, RemoteTools, ToolExecutor, Tools};

/// How often a shutdown looks if runs still wait for news of their calls.
const RUNS_CHECK_EVERY: Duration = Duration::from_millis(10);

/// Makes the tools that runs see from those of hosts.
type WrapTools = Box<dyn FnOnce(Arc<RemoteTools>) -> Arc<dyn Tools> + Send>;

/// The parts of a server. Agents and bounds come from the configuration; every port can be the embedder's.
pub struct ServerBuilder {
    config: Config,
    store: Option<Arc<dyn Store>>,
    models: Option<Arc<dyn Models>>,
    tools: Option<WrapTools>,
    own_tools: Vec<(ToolDeclaration, Arc<dyn ToolExecutor>)>,
    extensions: LocalExtensions,
    engine: EngineParts,
}

impl ServerBuilder {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            store: None,
            models: None,
            tools: None,
            own_tools: Vec::new(),
            extensions: LocalExtensions::new(),
            engine: EngineParts { observers: vec![Arc::new(LogObserver)], ..EngineParts::default() },
        }
    }

    /// Replaces the configured database. The embedder closes the store after the server has stopped.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Replaces the models of the configured providers.
    #[must_use]
    pub fn models(mut self, models: Arc<dyn Models>) -> Self {
        self.models = Some(models);
        self
    }

    /// Replaces or wraps the tools of hosts. Runs see the tools that `wrap` returns.
    #[must_use]
    pub fn tools(mut self, wrap: impl FnOnce(Arc<RemoteTools>) -> Arc<dyn Tools> + Send + 'static) -> Self {
        self.tools = Some(Box::new(wrap));
        self
    }

    /// Adds a tool that runs in this process. It is offered to runs by the same lists and policies as a host's tool, and
    /// its calls are checked, approved and recorded in the same way. No host can declare a tool of this name.
    #[must_use]
    pub fn tool(mut self, declaration: ToolDeclaration, executor: Arc<dyn ToolExecutor>) -> Self {
        self.own_tools.push((declaration, executor));
        self
    }

    /// Replaces the system's clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.engine.clock = clock;
        self
    }

    /// Replaces the random source of ids and seeds.
    #[must_use]
    pub fn ids(mut self, ids: Arc<dyn Ids>) -> Self {
        self.engine.ids = ids;
        self
    }

    /// Adds an observer beside the one that writes the log.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.engine.observers.push(observer);
        self
    }

    /// Sets all extensions at once and drops those that were added before. They come before built-in extensions and those
    /// of hosts.
    #[must_use]
    pub fn extensions(mut self, extensions: LocalExtensions) -> Self {
        self.extensions = extensions;
        self
    }

    /// Adds a planner, which runs name in their spec.
    #[must_use]
    pub fn planner(mut self, name: impl Into<String>, planner: Arc<dyn Planner>) -> Self {
        self.extensions.add_planner(name, planner);
        self
    }

    /// Adds a hook, which runs name in their spec.
    #[must_use]
    pub fn hook(mut self, name: impl Into<String>, hook: Arc<dyn Hook>) -> Self {
        self.extensions.add_hook(name, hook);
        self
    }

    /// Adds a context source, which runs name in their spec.
    #[must_use]
    pub fn context_source(mut self, name: impl Into<String>, source: Arc<dyn ContextSource>) -> Self {
        self.extensions.add_context_source(name, source);
        self
    }

    /// Replaces the built-in executors of instructions, for every agent that has none of its own.
    #[must_use]
    pub fn executors(mut self, executors: Executors) -> Self {
        self.engine.executors = executors;
        self
    }

    /// Replaces the executors of instructions for the runs of one agent.
    #[must_use]
    pub fn agent_executors(mut self, agent: impl Into<String>, executors: Executors) -> Self {
        self.engine.agent_executors.insert(agent.into(), executors);
        self
    }

    /// Adds a compaction strategy, which runs name in their context policy.
    #[must_use]
    pub fn compactor(mut self, name: impl Into<String>, compactor: Arc<dyn Compactor>) -> Self {
        self.engine.compactors.insert(name.into(), compactor);
        self
    }

    /// Adds an executor of jobs that follow runs, beside the built-in ones.
    #[must_use]
    pub fn job_executor(mut self, executor: Arc<dyn JobExecutor>) -> Self {
        self.engine.job_executors.push(executor);
        self
    }

    /// Opens the store, continues every unfinished run, and listens.
    ///
    /// # Errors
    /// [`StartError`]. Nothing is left running.
    pub async fn start(mut self) -> Result<Server, StartError> {
        let quotas = Quotas::new(self.config.quotas);
        let blobs_idle = self.config.blobs.idle_timeout.duration();
        let redactor = Redactor::new(self.config.secrets());
        let hosts_of_metrics = HostCheck::new(&self.config.metrics);
        let security = Security::load(&self.config, self.engine.clock.clone())?;
        let models = self.take_models()?;
        let declared = self.own_tools.iter().map(|(declaration, _)| declaration.clone());
        let own_tools = OwnTools::check(declared.collect())?;
        let (store, own_store) = match self.store.take() {
            Some(store) => (store, None),
            None => {
                let own = Box::pin(OwnStore::open(&self.config.store, &self.config.blobs)).await?;
                (own.shared(), Some(own))
            }
        };
        let (listener, address) = listen(self.config.server.listen).await?;
        let scrapes = match self.config.metrics.listen {
            Some(address) => {
                Some((listen(address).await?, Metrics::new(metrics::known_models(&self.config))))
            }
            None => None,
        };
        if let Some((_, metrics)) = &scrapes {
            self.engine.observers.push(Arc::new(MetricsObserver(metrics.clone())));
        }
        let otlp = self.start_otlp(redactor)?;
        let options = host_options(&self.config);
        let hosts = remembered_tools(&*store, options, self.engine.clock.now(), own_tools).await?;
        let server = self.config.server.clone();
        let agents = Arc::new(self.take_agents());
        let facts = ServerFacts {
            started_at: self.engine.clock.now(),
            store: own_store.as_ref().map_or("custom", OwnStore::kind),
            message_bytes_max: server.max_message_bytes,
            live_runs_max: server.max_live_runs,
            hosts_max: self.config.hosts.max_hosts,
            authentication_required: security.authenticator.is_some(),
            agent_descriptions: std::mem::take(&mut self.config.agent_descriptions),
        };
        let (ids, tasks) = (self.engine.ids.clone(), self.engine.tasks.clone());
        let clock = self.engine.clock.clone();
        let (clock_of_audit, self_audit) = (clock.clone(), self.config.audit.take());
        if let Some(own) = &own_store {
            tasks.depend_on("store", own.failed().clone());
        }
        let engine = self.start_engine(store.clone(), models.clone(), hosts.clone(), quotas.clone());
        let soft = tasks.soft().clone();
        let soft_of_metrics = soft.clone();
        let driving = hosts.clone().drive(engine.sink());
        let grace = server.shutdown_grace.duration();
        let stopped = runs_stopped(soft.clone(), engine.clone(), hosts.clone(), offers_wait(grace));
        tasks.spawn("tools", async move {
            tokio::select! { biased;
                () = driving => {}
                () = stopped => {}
            }
        });
        tasks.spawn("remember tools", remember_tools(hosts.clone(), store.clone(), soft));
        let (metrics_address, counted) = match scrapes {
            Some(((listener, address), metrics)) => {
                let sources = metrics::Sources {
                    engine: engine.clone(),
                    tools: hosts.clone(),
                    store: own_store.clone(),
                    reloader: security.reloader.clone(),
                };
                metrics::read_at_scrape(&metrics, sources);
                let serving =
                    metrics::serve(listener, address, metrics.clone(), hosts_of_metrics, soft_of_metrics);
                drop(tasks.spawn("metrics", serving));
                tracing::info!(%address, "serving metrics");
                (Some(address), Some(metrics))
            }
            None => (None, None),
        };
        security.describe();
        if let Some(reloader) = &security.reloader {
            let keeping = keep_current(reloader.clone(), tasks.soft().clone());
            drop(tasks.spawn("certificates and tokens", keeping));
        }
        let gate = security.authenticator.map(|authenticator| {
            let counted = counted.clone();
            let keys = security.jwks.map(|jwks| jwks as Arc<dyn KeySource>);
            Gate::new(authenticator, keys, clock, quotas, move |cause| {
                counted.iter().for_each(|metrics| metrics.rejected(cause));
            })
        });
        let calls_ended = CancellationToken::new();
        let audit = start_audit(self_audit, &store, &clock_of_audit, &tasks, calls_ended.clone());
        if let (Some(reloader), Some(audit)) = (&security.reloader, &audit) {
            reloader.report_to(audit.clone());
        }
        let services = serve::Services {
            engine: engine.clone(),
            models,
            agents,
            tools: hosts,
            ids,
            store,
            facts,
            blobs_idle,
            metrics: counted,
            acceptor: security.acceptor,
            gate,
            audit,
        };
        let serving = serve::serve(listener, services, server, tasks.clone());
        let calls_ended = calls_ended.drop_guard();
        tasks.spawn("grpc", async move {
            serving.await;
            drop(calls_ended);
        });
        tracing::info!(%address, "listening");
        let reloader = security.reloader;
        Ok(Server { address, metrics_address, engine, tasks, store: own_store, otlp, grace, reloader })
    }

    /// Starts the export of traces and metrics, if a collector is configured.
    fn start_otlp(&mut self, redactor: Redactor) -> Result<Option<Otlp>, StartError> {
        let options = &self.config.telemetry;
        let Some(endpoint) = &options.otlp_endpoint else { return Ok(None) };
        let masks = Masks::new(self.config.sensitive_arguments.clone());
        let otlp = Otlp::start(endpoint, options, metrics::known_models(&self.config), redactor, masks)?;
        self.engine.observers.push(Arc::new(TraceObserver(otlp.clone())));
        Ok(Some(otlp))
    }

    fn take_models(&mut self) -> Result<Arc<dyn Models>, StartError> {
        let configured = std::mem::take(&mut self.config.providers);
        if let Some(models) = self.models.take() {
            return Ok(models);
        }
        if configured.is_empty() {
            tracing::warn!(
                "no model provider is configured: every run will be refused; add [providers.NAME] to the configuration"
            );
        }
        Ok(Arc::new(providers::registry(configured)?))
    }

    fn take_agents(&mut self) -> Agents {
        let in_doubt_timeout = self.config.runs.in_doubt_timeout;
        let mut agents = std::mem::take(&mut self.config.agents);
        for spec in agents.values_mut() {
            spec.in_doubt_timeout = in_doubt_timeout;
        }
        agents
    }

    fn start_engine(
        mut self,
        store: Arc<dyn Store>,
        models: Arc<dyn Models>,
        hosts: Arc<RemoteTools>,
        quotas: Option<Quotas>,
    ) -> Engine {
        self.engine.extensions = Arc::new(extension_chain(self.extensions, store.clone(), &hosts));
        let Config { server, runs, telemetry, retention, blobs, .. } = self.config;
        self.engine.options = EngineOptions {
            masks: Masks::new(self.config.sensitive_arguments.clone()),
            quotas,
            max_live_runs: server.max_live_runs,
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
        let own = self.own_tools.into_iter().map(|(declaration, executor)| (declaration.name, executor));
        self.engine.tool_executors = own.collect();
        let tools: Arc<dyn Tools> = match self.tools {
            Some(wrap) => wrap(hosts),
            None => hosts,
        };
        self.engine.start(store, models, tools)
    }
}

/// Starts the audit log and the lines that follow it, if the configuration wants it. The log ends after the last call, and
/// the lines end after the log.
fn start_audit(
    options: Option<AuditOptions>,
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    tasks: &Tasks,
    calls_ended: CancellationToken,
) -> Option<AuditLog> {
    let AuditOptions { required, reads, path, stdout } = options?;
    let scope = AuditScope { required, reads };
    let (log, writing) = AuditLog::new(scope, store.clone(), clock.clone(), calls_ended);
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
    Some(log)
}

/// All extensions: the embedder's come first, then the built-in ones, then those of hosts.
fn extension_chain(mut own: LocalExtensions, store: Arc<dyn Store>, hosts: &RemoteTools) -> LocalExtensions {
    let mut built_in = LocalExtensions::new();
    built_in.add_context_source(Recall::NAME, Arc::new(Recall::new(store)));
    built_in.set_next(Arc::new(Remote(hosts.extensions().clone())));
    own.set_next(Arc::new(built_in));
    own
}

/// Returns when a shutdown has begun and no run waits for news of its calls any more, but at most `wait` later.
async fn runs_stopped(soft: CancellationToken, engine: Engine, hosts: Arc<RemoteTools>, wait: Duration) {
    soft.cancelled().await;
    let until = Instant::now() + wait;
    while (engine.live_runs() > 0 || hosts.has_open_offers()) && Instant::now() < until {
        tokio::time::sleep(RUNS_CHECK_EVERY).await;
    }
}
