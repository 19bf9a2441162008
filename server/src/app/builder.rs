//! A server of one's own parts: what is not given is what the configuration says.

use std::sync::Arc;

use agentloop_core::tool::ToolDeclaration;

use crate::app::hosts::{host_options, remember_tools, remembered_tools};
use crate::app::observe::{Counting, Tracing};
use crate::app::{Server, StartError, listen, metrics, open, providers, serve, until};
use crate::clock::Clock;
use crate::config::Config;
use crate::engine::{
    Compactor, Engine, EngineOptions, EngineParts, Executors, JobExecutor, LogObserver, Observer, Recall,
};
use crate::extension::remote::Remote;
use crate::extension::{ContextSource, Hook, LocalExtensions, Planner};
use crate::grpc::convert::input::Agents;
use crate::ids::Ids;
use crate::model::Models;
use crate::store::Store;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::otlp::Otlp;
use crate::tool::{OwnTools, RemoteTools, ToolExecutor, Tools};

/// Tools of one's own, put around those of hosts.
type WrapTools = Box<dyn FnOnce(Arc<RemoteTools>) -> Arc<dyn Tools> + Send>;

/// What a server is made of. Agents and bounds come from the configuration; every port can be the embedder's own.
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

    /// A store of one's own in place of the configured database. Whoever made it closes it, after the server's end.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Models in place of those of the configured providers.
    #[must_use]
    pub fn models(mut self, models: Arc<dyn Models>) -> Self {
        self.models = Some(models);
        self
    }

    /// Tools in place of those of hosts, or around them: what `wrap` makes of them is what runs see.
    #[must_use]
    pub fn tools(mut self, wrap: impl FnOnce(Arc<RemoteTools>) -> Arc<dyn Tools> + Send + 'static) -> Self {
        self.tools = Some(Box::new(wrap));
        self
    }

    /// One more tool, which runs in this process: every run may be offered it, as lists and policies say, and its calls
    /// are checked, approved and recorded like those of hosts. No host can bring a tool of its name.
    #[must_use]
    pub fn tool(mut self, declaration: ToolDeclaration, executor: Arc<dyn ToolExecutor>) -> Self {
        self.own_tools.push((declaration, executor));
        self
    }

    /// Another clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.engine.clock = clock;
        self
    }

    /// Another source of ids and chance.
    #[must_use]
    pub fn ids(mut self, ids: Arc<dyn Ids>) -> Self {
        self.engine.ids = ids;
        self
    }

    /// One more observer, beside the one that writes the log.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.engine.observers.push(observer);
        self
    }

    /// All extensions at once, in place of those that were given before. They win over what is built in and over those
    /// of hosts, which are asked for what is not among them.
    #[must_use]
    pub fn extensions(mut self, extensions: LocalExtensions) -> Self {
        self.extensions = extensions;
        self
    }

    /// One more planner.
    #[must_use]
    pub fn planner(mut self, name: impl Into<String>, planner: Arc<dyn Planner>) -> Self {
        self.extensions.add_planner(name, planner);
        self
    }

    /// One more hook.
    #[must_use]
    pub fn hook(mut self, name: impl Into<String>, hook: Arc<dyn Hook>) -> Self {
        self.extensions.add_hook(name, hook);
        self
    }

    /// One more context source.
    #[must_use]
    pub fn context_source(mut self, name: impl Into<String>, source: Arc<dyn ContextSource>) -> Self {
        self.extensions.add_context_source(name, source);
        self
    }

    /// Executors of instructions in place of the built-in ones, for every agent that has none of its own.
    #[must_use]
    pub fn executors(mut self, executors: Executors) -> Self {
        self.engine.executors = executors;
        self
    }

    /// Executors of the instructions of one agent's runs.
    #[must_use]
    pub fn agent_executors(mut self, agent: impl Into<String>, executors: Executors) -> Self {
        self.engine.agent_executors.insert(agent.into(), executors);
        self
    }

    /// One more way to make a context smaller, which runs name in their context policy.
    #[must_use]
    pub fn compactor(mut self, name: impl Into<String>, compactor: Arc<dyn Compactor>) -> Self {
        self.engine.compactors.insert(name.into(), compactor);
        self
    }

    /// One more executor of what follows runs, beside those that are built in.
    #[must_use]
    pub fn job_executor(mut self, executor: Arc<dyn JobExecutor>) -> Self {
        self.engine.job_executors.push(executor);
        self
    }

    /// Opens the store, goes on with every unfinished run, and listens.
    ///
    /// # Errors
    /// [`StartError`], with nothing left behind.
    pub async fn start(mut self) -> Result<Server, StartError> {
        let models = self.take_models()?;
        let declared = self.own_tools.iter().map(|(declaration, _)| declaration.clone());
        let own_tools = OwnTools::check(declared.collect())?;
        let (store, own_store) = match self.store.take() {
            Some(store) => (store, None),
            None => {
                let own = Arc::new(open(&self.config.store).await?);
                (own.clone() as Arc<dyn Store>, Some(own))
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
            self.engine.observers.push(Arc::new(Counting(metrics.clone())));
        }
        let otlp = self.start_otlp()?;
        let options = host_options(&self.config);
        let hosts = remembered_tools(&*store, options, self.engine.clock.now(), own_tools).await?;
        let server = self.config.server.clone();
        let agents = Arc::new(self.take_agents());
        let (ids, tasks) = (self.engine.ids.clone(), self.engine.tasks.clone());
        if let Some(own) = &own_store {
            tasks.depend_on("store", own.failed().clone());
        }
        let engine = self.start_engine(store.clone(), models.clone(), hosts.clone());
        let soft = tasks.soft().clone();
        let soft_of_metrics = soft.clone();
        let driving = hosts.clone().drive(engine.sink());
        tasks.spawn("tools", until(soft.clone(), driving));
        tasks.spawn("remember tools", remember_tools(hosts.clone(), store.clone(), soft));
        let (metrics_address, counted) = match scrapes {
            Some(((listener, address), metrics)) => {
                metrics::read_at_scrape(&metrics, engine.clone(), hosts.clone(), own_store.clone());
                let serving = metrics::serve(listener, address, metrics.clone(), soft_of_metrics);
                drop(tasks.spawn("metrics", serving));
                tracing::info!(%address, "metrics can be read");
                (Some(address), Some(metrics))
            }
            None => (None, None),
        };
        let services = serve::Services {
            engine: engine.clone(),
            models,
            agents,
            tools: hosts,
            ids,
            store,
            metrics: counted,
        };
        let grace = server.shutdown_grace.duration();
        tasks.spawn("grpc", serve::serve(listener, services, server, tasks.clone()));
        tracing::info!(%address, "listening");
        Ok(Server { address, metrics_address, engine, tasks, store: own_store, otlp, grace })
    }

    /// Sends traces and metrics, where a collector is configured.
    fn start_otlp(&mut self) -> Result<Option<Otlp>, StartError> {
        let options = &self.config.telemetry;
        let Some(endpoint) = &options.otlp_endpoint else { return Ok(None) };
        let otlp = Otlp::start(endpoint, options, metrics::known_models(&self.config))?;
        self.engine.observers.push(Arc::new(Tracing(otlp.clone())));
        Ok(Some(otlp))
    }

    fn take_models(&mut self) -> Result<Arc<dyn Models>, StartError> {
        let configured = std::mem::take(&mut self.config.providers);
        if let Some(models) = self.models.take() {
            return Ok(models);
        }
        if configured.is_empty() {
            tracing::warn!("no provider of models is configured: every run will be refused");
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
    ) -> Engine {
        self.engine.extensions = Arc::new(with_next(self.extensions, store.clone(), &hosts));
        let Config { server, runs, telemetry, .. } = self.config;
        self.engine.options = EngineOptions {
            max_live_runs: server.max_live_runs,
            park_after: runs.park_after,
            subscriber_stall: runs.subscriber_stall,
            subscriber_buffer: runs.subscriber_buffer,
            traced: telemetry.otlp_endpoint.is_some(),
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

/// The embedder's own come first, then what is built in, then those of hosts.
fn with_next(mut own: LocalExtensions, store: Arc<dyn Store>, hosts: &RemoteTools) -> LocalExtensions {
    let mut built_in = LocalExtensions::new();
    built_in.add_context_source(Recall::NAME, Arc::new(Recall::new(store)));
    built_in.set_next(Arc::new(Remote(hosts.extensions().clone())));
    own.set_next(Arc::new(built_in));
    own
}
