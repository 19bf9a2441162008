//! The server inside this process: the only file that knows the server's library.

use std::{error::Error, net::SocketAddr, path::Path, process::ExitCode};

use agentloop_server::{app::Server, config::Config, lifecycle::Signals, telemetry};

use crate::exit::Failure;

/// A server that runs in this process.
pub(crate) struct Embedded(Server);

/// Runs the server until a signal ends it. The server's own log says where it listens.
pub(crate) async fn serve(file: Option<&Path>) -> Result<ExitCode, Failure> {
    let config = Config::load(file).map_err(failed)?;
    telemetry::init(&config.log).map_err(failed)?;
    let signals = Signals::install()?;
    let server = Box::pin(Server::start(config)).await.map_err(failed)?;
    eprintln!("agentloop listens on http://{}", server.address());
    Ok(ExitCode::from(server.run_until(signals).await.code()))
}

impl Embedded {
    /// Starts the server that the file describes. Only its warnings are logged: what it does is shown otherwise.
    pub(crate) async fn start(file: &Path) -> Result<Embedded, Failure> {
        let mut config = Config::load(Some(file)).map_err(failed)?;
        "warn".clone_into(&mut config.log.level);
        telemetry::init(&config.log).map_err(failed)?;
        Ok(Embedded(Box::pin(Server::start(config)).await.map_err(failed)?))
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Lets it finish and waits for that.
    pub(crate) async fn shutdown(self) {
        let exit = self.0.shutdown().await;
        tracing::debug!(?exit, "server stopped");
    }
}

/// The error with its causes, which often say more than it does.
fn failed(error: impl Error) -> Failure {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    Failure::Other(text)
}
