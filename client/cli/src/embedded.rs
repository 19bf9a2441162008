//! The server inside this process: the only file that knows the server's library.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use agentloop_server::app::Server;
use agentloop_server::config::Config;
use agentloop_server::lifecycle::Exit as End;
use agentloop_server::telemetry;

use crate::exit::Failure;

/// A server that runs in this process.
pub(crate) struct Embedded(Server);

/// Runs the server until a signal ends it.
pub(crate) async fn serve(config: Option<&Path>) -> Result<ExitCode, Failure> {
    let server = start(load(config)?).await?;
    eprintln!("agentloop listens on http://{}", server.address());
    let end = server.run_until_signal().await.map_err(other)?;
    Ok(ExitCode::from(end.code()))
}

impl Embedded {
    /// Starts the server that the file describes, and logs only what goes wrong.
    pub(crate) async fn start(config: &Path) -> Result<Embedded, Failure> {
        let mut config = load(Some(config))?;
        "warn".clone_into(&mut config.log.level);
        start(config).await.map(Embedded)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Lets it finish and waits for that.
    pub(crate) async fn shutdown(self) {
        let _end: End = self.0.shutdown().await;
    }
}

fn load(path: Option<&Path>) -> Result<Config, Failure> {
    Config::load(path).map_err(other)
}

async fn start(config: Config) -> Result<Server, Failure> {
    telemetry::init(&config.log).map_err(other)?;
    Server::start(config).await.map_err(other)
}

fn other(error: impl std::fmt::Display) -> Failure {
    Failure::Other(error.to_string())
}
