//! The composition root: builds a server from its configuration. Adapters are chosen here and nowhere else.

mod audit_lines;
mod builder;
mod hosts;
mod observe;
pub mod ports;
mod providers;
mod replica;
mod running;
mod security;
mod services;
mod serving;
mod store;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::net::TcpListener;

pub use self::builder::ServerBuilder;
pub use self::replica::ReplicaServer;
use self::running::Running;
pub use self::security::{CERTIFICATE_WARN_BEFORE, SecurityError, SecurityFacts, check_security};
use self::store::OwnStore;
pub use self::store::{OpenError, check_database};
use crate::config::Config;
use crate::engine::Engine;
use crate::extension::LocalExtensions;
use crate::lifecycle::{Exit, Signals};
use crate::store::StoreError;
use crate::telemetry::otlp::OtlpError;

/// The reason why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The database cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The tools that hosts declared before cannot be read.
    #[error("cannot read the remembered tools from the store: {0}")]
    Store(#[from] StoreError),
    /// A model provider is configured in a way that it cannot be used.
    #[error(transparent)]
    Provider(#[from] crate::model::InvalidProvider),
    /// A tool of the embedder has an invalid declaration.
    #[error(transparent)]
    Tool(#[from] crate::tool::BadTool),
    /// An agent has a compaction strategy that neither the server nor the embedder has: each of its runs would be refused.
    #[error(
        "agents.{agent}.context.strategy: no compaction strategy is named \"{strategy}\"; there is {known}"
    )]
    Strategy {
        /// The agent, as `[agents.NAME]` names it.
        agent: String,
        /// The strategy that its configuration names.
        strategy: String,
        /// The strategies that there are, for people.
        known: String,
    },
    /// The export of traces and metrics cannot be set up.
    #[error(transparent)]
    Telemetry(#[from] OtlpError),
    /// The certificate of the gRPC port or the tokens of callers cannot be used.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The configuration has `[cluster]`, or has none where it is needed: [`ReplicaServer`] is for servers that share a
    /// database.
    #[error("{0}")]
    Cluster(&'static str),
    /// The file of the audit log cannot be written.
    #[error("audit.path: cannot write {path}: {cause}", path = path.display())]
    Audit {
        /// The path from the configuration.
        path: PathBuf,
        /// The operating system's error.
        cause: std::io::Error,
    },
    /// The server cannot listen on a configured address.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address from the configuration.
        address: SocketAddr,
        /// The operating system's error.
        cause: std::io::Error,
    },
}

/// A running server, with its engine and its gRPC services.
pub struct Server {
    address: SocketAddr,
    metrics_address: Option<SocketAddr>,
    engine: Engine,
    /// Closed at the end. `None` if the embedder gave the store.
    store: Option<OwnStore>,
    running: Running,
}

impl Server {
    /// Opens the store, continues every unfinished run, and listens.
    ///
    /// # Errors
    /// [`StartError`]. Nothing is left running.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::builder(config).start().await
    }

    /// As [`Self::start`], with the embedder's extensions beside those of hosts.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_with(config: Config, extensions: LocalExtensions) -> Result<Self, StartError> {
        Self::builder(config).extensions(extensions).start().await
    }

    /// A builder for a server with parts of the embedder.
    #[must_use]
    pub fn builder(config: Config) -> ServerBuilder {
        ServerBuilder::new(config)
    }

    /// The address that the server listens on. If port 0 is configured, this has the port that was chosen.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the metrics endpoint, if one is configured. If port 0 is configured, this has the port that was
    /// chosen.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// The engine, for those who embed the server.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Reads the certificate and the tokens again, as SIGHUP does. A file that cannot be used is logged, and the old one
    /// stays in use.
    pub async fn reload(&self) {
        self.running.reload().await;
    }

    /// Stops the server: runs come to their next durable point. The next start continues unfinished runs.
    pub async fn shutdown(self) -> Exit {
        self.running.tasks.soft().cancel();
        self.stopped().await
    }

    /// Serves until a signal begins a shutdown. A second signal stops at once. Install the signals before the start, so
    /// that none is missed.
    pub async fn run_until(self, signals: Signals) -> Exit {
        self.running.until(signals).await;
        self.stopped().await
    }

    async fn stopped(self) -> Exit {
        let exit = self.running.tasks.shut_down(self.running.grace).await;
        if let Some(store) = self.store {
            store.close().await;
        }
        self.running.end_export(exit).await
    }
}

/// The part of a shutdown's grace in which hosts may still say if they begin the calls that they were offered.
fn offers_wait(grace: Duration) -> Duration {
    grace / 2
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |cause| StartError::Listen { address, cause };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let found = listener.local_addr().map_err(failed)?;
    Ok((listener, found))
}
