//! The composition root: every adapter is chosen here, and nowhere else.

mod providers;
mod serve;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::time::Timestamp;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, SystemClock};
use crate::config::{Config, StoreLocation, StoreOptions};
use crate::engine::{Engine, EngineBuilder, EngineOptions, LogObserver};
use crate::extension::LocalExtensions;
use crate::extension::remote::Remote;
use crate::grpc::convert::input::Agents;
use crate::ids::RandomIds;
use crate::lifecycle::{Exit, Signals, Tasks};
use crate::model::Models;
use crate::store::sqlite::{OpenError, SqliteOptions, SqliteStore};
use crate::store::{Store, StoreError, ToolRow};
use crate::tool::{HostOptions, RememberedTool, RemoteTools};

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The database cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database cannot be read.
    #[error("reading what the store remembers: {0}")]
    Store(#[from] StoreError),
    /// A provider of models cannot be used.
    #[error(transparent)]
    Provider(#[from] crate::model::InvalidProvider),
    /// The address cannot be listened on.
    #[error("listening on {address}: {cause}")]
    Listen {
        /// As configured.
        address: SocketAddr,
        /// The operating system's words.
        cause: std::io::Error,
    },
}

/// A running server.
pub struct Server {
    address: SocketAddr,
    engine: Engine,
    tasks: Tasks,
    store: Arc<SqliteStore>,
    grace: Duration,
}

impl Server {
    /// Opens the store, goes on with every unfinished run, and listens.
    ///
    /// # Errors
    /// [`StartError`], with nothing left behind.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::start_with(config, LocalExtensions::new()).await
    }

    /// As [`Self::start`], with extensions of whoever embeds the server. Those of hosts are found beside them.
    ///
    /// # Errors
    /// [`StartError`], with nothing left behind.
    pub async fn start_with(config: Config, mut extensions: LocalExtensions) -> Result<Self, StartError> {
        let has_providers = !config.providers.is_empty();
        let hosts = host_options(&config);
        let models: Arc<dyn Models> = Arc::new(providers::registry(config.providers)?);
        let store = Arc::new(open(&config.store).await?);
        let listener = listen(config.server.listen).await?;
        let address = listener
            .local_addr()
            .map_err(|cause| StartError::Listen { address: config.server.listen, cause })?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let tools = remembered_tools(&*store, hosts, clock.now()).await?;
        let tasks = Tasks::new();
        extensions.set_next(Arc::new(Remote(tools.extensions().clone())));
        let engine = EngineBuilder::new(store.clone(), models.clone(), tools.clone())
            .extensions(Arc::new(extensions))
            .clock(clock)
            .observer(Arc::new(LogObserver))
            .tasks(tasks.clone())
            .options(EngineOptions {
                max_live_runs: config.server.max_live_runs,
                park_after: config.runs.park_after,
                subscriber_stall: config.runs.subscriber_stall,
                subscriber_buffer: config.runs.subscriber_buffer,
            })
            .start();
        let soft = tasks.soft().clone();
        let driving = tools.clone().drive(Arc::new(engine.clone()));
        tasks.spawn("tools", until(soft.clone(), driving));
        tasks.spawn("remember tools", remember_tools(tools.clone(), store.clone(), soft));
        let agents: Agents = config
            .agents
            .into_iter()
            .map(|(name, mut spec)| {
                spec.in_doubt_timeout = config.runs.in_doubt_timeout;
                (name, spec)
            })
            .collect();
        let services = serve::Services {
            engine: engine.clone(),
            models,
            agents: Arc::new(agents),
            tools,
            ids: Arc::new(RandomIds),
            store: store.clone(),
        };
        tasks.spawn("grpc", serve::serve(listener, services, config.server.clone(), tasks.clone()));
        tracing::info!(%address, "listening");
        if !has_providers {
            tracing::warn!("no provider of models is configured: every run will be refused");
        }
        let grace = config.server.shutdown_grace.duration();
        Ok(Self { address, engine, tasks, store, grace })
    }

    /// Where it listens; the port that was found, where none was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The engine, for those who embed the server.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Takes no more work, lets runs come to their next durable point, and stops. What is unfinished goes on with the
    /// next start.
    pub async fn shutdown(self) -> Exit {
        self.tasks.soft().cancel();
        self.stopped().await
    }

    /// Serves until a signal asks it to shut down; a second one stops at once. Signals are installed before the start,
    /// so that none is missed.
    pub async fn run_until(self, signals: Signals) -> Exit {
        drop(signals.obey(&self.tasks));
        self.tasks.soft().cancelled().await;
        self.stopped().await
    }

    async fn stopped(self) -> Exit {
        let exit = self.tasks.shut_down(self.grace).await;
        self.store.close().await;
        tracing::info!(?exit, "stopped");
        exit
    }
}

/// Does something that has no end of its own until the server stops.
async fn until(stop: CancellationToken, work: impl Future<Output = ()>) {
    // Nothing is lost when it is cut short.
    let _cut = stop.run_until_cancelled(work).await;
}

async fn open(store: &StoreOptions) -> Result<SqliteStore, OpenError> {
    let options = SqliteOptions { search: store.search, ..SqliteOptions::default() };
    match &store.location {
        StoreLocation::Memory => SqliteStore::in_memory_with(&options).await,
        StoreLocation::File(path) => SqliteStore::open(path, &options).await,
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|cause| StartError::Listen { address, cause })
}

fn host_options(config: &Config) -> HostOptions {
    let (hosts, runs) = (&config.hosts, &config.runs);
    let default = HostOptions::default();
    HostOptions {
        fleet: agentloop_core::host::FleetOptions {
            lease_timeout: hosts.lease_timeout,
            grace_period: hosts.grace_period,
            host_wait: hosts.host_wait,
            accept_timeout: hosts.accept_timeout,
            queue_per_tool_max: hosts.queue_per_tool,
            ..default.fleet
        },
        heartbeat_interval: hosts.heartbeat_interval,
        call_timeout: runs.tool_timeout,
        tool_retention: hosts.tool_retention,
        connections_max: hosts.max_hosts,
        max_frame_bytes: config.server.max_message_bytes,
        ..default
    }
}

/// The fleet, with the tools that hosts brought before the restart.
async fn remembered_tools(
    store: &dyn Store,
    options: HostOptions,
    now: Timestamp,
) -> Result<Arc<RemoteTools>, StoreError> {
    let rows = store.tools().await?;
    let remembered = rows.into_iter().map(|(tenant, row)| RememberedTool {
        tenant,
        declaration: row.declaration,
        last_seen: row.last_seen,
    });
    Ok(RemoteTools::new(options, now, remembered.collect()))
}

/// Keeps the store's list of tools up to date.
async fn remember_tools(tools: Arc<RemoteTools>, store: Arc<dyn Store>, stop: CancellationToken) {
    while let Some(unsaved) = stop.run_until_cancelled(tools.unsaved()).await {
        let mut failed = Vec::new();
        for tool in unsaved {
            let row = ToolRow { declaration: tool.declaration.clone(), last_seen: tool.last_seen };
            if store.save_tools(&tool.tenant, &[row]).await.is_err() {
                failed.push(tool);
            }
        }
        if !failed.is_empty() {
            tracing::warn!(tools = failed.len(), "cannot save tools; trying again");
            tools.not_saved(failed);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}
