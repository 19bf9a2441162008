//! Builds a server from a configuration and parts of the embedder. A part that is not given is built from the
//! configuration.

use std::sync::Arc;

use agentloop_core::tool::ToolDeclaration;
use tokio_util::sync::CancellationToken;

use crate::app::observe::{MetricsObserver, TraceObserver};
use crate::app::running::Running;
use crate::app::security::Security;
use crate::app::services::{ServiceParts, StartedServices, WrapTools};
use crate::app::serving::health::Readiness;
use crate::app::serving::listeners::Listeners;
use crate::app::serving::{metrics, serve};
use crate::app::store::OwnStore;
use crate::app::{Server, StartError, providers};
use crate::auth::{Authentication, Quotas};
use crate::clock::Clock;
use crate::config::Config;
use crate::engine::{Compactor, EngineParts, Executors, JobExecutor, LogObserver, Observer, STRATEGIES};
use crate::extension::{ContextSource, Hook, LocalExtensions, Planner};
use crate::grpc::edge::identity::IdentityLayer;
use crate::ids::Ids;
use crate::model::Models;
use crate::secret::Redactor;
use crate::store::Store;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::otlp::Otlp;
use crate::tool::{OwnTools, RemoteTools, ToolExecutor, Tools};

/// Parts of a server that were checked before anything is opened.
pub(super) struct CheckedParts {
    pub(super) redactor: Redactor,
    pub(super) security: Security,
    pub(super) models: Arc<dyn Models>,
    pub(super) own_tools: OwnTools,
}

/// The parts of a server. Agents and bounds come from the configuration; every port can be the embedder's.
pub struct ServerBuilder {
    pub(super) config: Config,
    store: Option<Arc<dyn Store>>,
    models: Option<Arc<dyn Models>>,
    pub(super) tools: Option<WrapTools>,
    own_tools: Vec<(ToolDeclaration, Arc<dyn ToolExecutor>)>,
    extensions: LocalExtensions,
    pub(super) engine: EngineParts,
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
        if self.config.cluster.is_some() && self.store.is_none() {
            return Err(StartError::Cluster("the configuration has [cluster]: start a ReplicaServer"));
        }
        let (clock, tasks) = (self.engine.clock.clone(), self.engine.tasks.clone());
        let CheckedParts { redactor, security, models, own_tools } = self.check()?;
        let (store, own_store) = match self.store.take() {
            Some(store) => (store, None),
            None => {
                let own = Box::pin(OwnStore::open(&self.config.store, &self.config.blobs)).await?;
                (own.shared(), Some(own))
            }
        };
        let (listeners, otlp) = self.listen(security, redactor).await?;
        let grace = self.config.server.shutdown_grace.duration();
        let parts = self.into_parts(models, own_tools, listeners.authentication);
        let quotas = parts.quotas.clone();
        let rpcs_ended = CancellationToken::new();
        let services = parts.start(store.clone(), own_store.as_ref(), rpcs_ended.clone()).await?;
        let Listeners { address, metrics_address, .. } = listeners;
        let reloader = listeners.reloader.clone();
        services.show(listeners.metrics.as_ref(), own_store.as_ref(), reloader.as_ref());
        let StartedServices { engine, routes, audit, host_shutdown, .. } = services;
        let caller_listener = listeners.start(quotas, clock, |gate| IdentityLayer::new(gate, audit), &tasks);
        let soft = tasks.soft().clone();
        let stopped = async move {
            soft.cancelled().await;
            host_shutdown.send_hosts_away().await;
        };
        let readiness = Readiness::of_store(store).telling(engine.clone());
        let serving = serve(caller_listener, routes, None, readiness, stopped, tasks.clone());
        let rpcs = rpcs_ended.drop_guard();
        tasks.spawn("grpc", async move {
            serving.await;
            drop(rpcs);
        });
        tracing::info!(%address, "listening");
        let running = Running { tasks, otlp, reloader, grace };
        Ok(Server { address, metrics_address, engine, store: own_store, running })
    }

    /// Checks the configuration and the parts of the embedder. Nothing is opened.
    pub(super) fn check(&self) -> Result<CheckedParts, StartError> {
        self.check_strategies()?;
        Ok(CheckedParts {
            redactor: Redactor::new(self.config.secrets()),
            security: Security::load(&self.config, self.engine.clock.clone())?,
            models: self.choose_models()?,
            own_tools: self.check_tools()?,
        })
    }

    /// Listens, and observes runs for metrics and the export of traces, if they are configured.
    pub(super) async fn listen(
        &mut self,
        security: Security,
        redactor: Redactor,
    ) -> Result<(Listeners, Option<Otlp>), StartError> {
        let listeners = Listeners::listen(&self.config, security).await?;
        self.observe(listeners.metrics.as_ref());
        let otlp = self.start_otlp(redactor)?;
        Ok((listeners, otlp))
    }

    /// Counts what happens in runs, if metrics are configured.
    fn observe(&mut self, metrics: Option<&Metrics>) {
        if let Some(metrics) = metrics {
            self.engine.observers.push(Arc::new(MetricsObserver(metrics.clone())));
        }
    }

    /// Only here are the compaction strategies of the embedder known, which agents may name beside the built-in ones.
    fn check_strategies(&self) -> Result<(), StartError> {
        let known = || STRATEGIES.into_iter().chain(self.engine.compactors.keys().map(String::as_str));
        let is_known = |strategy: &str| known().any(|known| known == strategy);
        match self.config.agents.iter().find(|(_, spec)| !is_known(&spec.context.strategy)) {
            None => Ok(()),
            Some((agent, spec)) => Err(StartError::Strategy {
                agent: agent.clone(),
                strategy: spec.context.strategy.clone(),
                known: known().collect::<Vec<_>>().join(", "),
            }),
        }
    }

    fn check_tools(&self) -> Result<OwnTools, StartError> {
        let declared = self.own_tools.iter().map(|(declaration, _)| declaration.clone());
        Ok(OwnTools::check(declared.collect())?)
    }

    pub(super) fn into_parts(
        self,
        models: Arc<dyn Models>,
        own_tools: OwnTools,
        authentication: Authentication,
    ) -> ServiceParts {
        ServiceParts {
            quotas: Quotas::new(self.config.quotas),
            config: self.config,
            models,
            wrap_tools: self.tools,
            own_tools,
            tool_executors: self.own_tools,
            extensions: self.extensions,
            engine: self.engine,
            authentication,
            cluster: None,
        }
    }

    /// Starts the export of traces and metrics, if a collector is configured.
    fn start_otlp(&mut self, redactor: Redactor) -> Result<Option<Otlp>, StartError> {
        let options = &self.config.telemetry;
        let Some(endpoint) = &options.otlp_endpoint else { return Ok(None) };
        let (models, masks) = (metrics::known_models(&self.config), self.config.masks());
        let otlp = Otlp::start(endpoint, options, models, redactor, masks)?;
        self.engine.observers.push(Arc::new(TraceObserver(otlp.clone())));
        Ok(Some(otlp))
    }

    /// The models of the embedder, or those of the configuration, which labels of metrics and the digest of replicas need later.
    fn choose_models(&self) -> Result<Arc<dyn Models>, StartError> {
        if let Some(models) = &self.models {
            return Ok(models.clone());
        }
        let configured = self.config.providers.clone();
        if configured.is_empty() {
            tracing::warn!(
                "no model provider is configured: every run will be refused; add [providers.NAME] to the configuration"
            );
        }
        Ok(Arc::new(providers::registry(configured)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checks_take_nothing_out_of_the_configuration() {
        let with_model = |model: &str| {
            let provider = "[providers.p]\nkind = 'openai'\nbase_url = 'http://127.0.0.1:1/v1'";
            let text = format!("{provider}\n[providers.p.models.'{model}']\ncontext_window = 1000");
            let builder = ServerBuilder::new(Config::parse(&text, "agentloop.toml").expect("it is valid"));
            let before = builder.config.clone();
            builder.check().expect("it can be started");
            assert_eq!(builder.config, before, "metrics and the digest of replicas are read from it later");
            builder.config.shared_digest()
        };
        assert_ne!(with_model("a"), with_model("b"));
    }
}
