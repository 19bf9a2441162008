//! The composition root: every adapter is chosen here, and nowhere else.

mod builder;
mod hosts;
mod metrics;
mod observe;
mod providers;
mod serve;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use self::builder::ServerBuilder;
use crate::config::{Config, StoreLocation, StoreOptions};
use crate::engine::Engine;
use crate::extension::LocalExtensions;
use crate::lifecycle::{Exit, Signals, Tasks};
use crate::store::StoreError;
use crate::store::sqlite::{OpenError, SqliteOptions, SqliteStore};
use crate::telemetry::otlp::{Otlp, OtlpError};

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
    /// A tool of the embedder's cannot be taken.
    #[error(transparent)]
    Tool(#[from] crate::tool::BadTool),
    /// Traces and metrics cannot be sent.
    #[error(transparent)]
    Telemetry(#[from] OtlpError),
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
    metrics_address: Option<SocketAddr>,
    engine: Engine,
    tasks: Tasks,
    /// To be closed; absent where it is the embedder's.
    store: Option<Arc<SqliteStore>>,
    /// To be told what is left at the end.
    otlp: Option<Otlp>,
    grace: Duration,
}

impl Server {
    /// Opens the store, goes on with every unfinished run, and listens.
    ///
    /// # Errors
    /// [`StartError`], with nothing left behind.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::builder(config).start().await
    }

    /// As [`Self::start`], with extensions of whoever embeds the server. Those of hosts are found beside them.
    ///
    /// # Errors
    /// [`StartError`], with nothing left behind.
    pub async fn start_with(config: Config, extensions: LocalExtensions) -> Result<Self, StartError> {
        Self::builder(config).extensions(extensions).start().await
    }

    /// A server of one's own parts.
    #[must_use]
    pub fn builder(config: Config) -> ServerBuilder {
        ServerBuilder::new(config)
    }

    /// Where it listens; the port that was found, where none was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where metrics can be read, if they can; the port that was found, where none was asked for.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
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
        if let Some(store) = self.store {
            store.close().await;
        }
        if let Some(otlp) = self.otlp {
            // It blocks; whether it succeeds is in the log.
            let _told = tokio::task::spawn_blocking(move || otlp.shut_down()).await;
        }
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

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |cause| StartError::Listen { address, cause };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let found = listener.local_addr().map_err(failed)?;
    Ok((listener, found))
}
