//! The server inside this process: the only file that knows the server's library.

use std::{net::SocketAddr, path::Path};

use crate::exit::{Exit, Failure};

/// A server that runs in this process.
pub(crate) struct Embedded {
    address: SocketAddr,
}

/// Runs the server until a signal ends it.
pub(crate) async fn serve(config: Option<&Path>) -> Result<Exit, Failure> {
    let server = Embedded::start(config).await?;
    eprintln!("agentloop listens on http://{}", server.address());
    server.shutdown().await;
    Ok(Exit::Completed)
}

impl Embedded {
    /// Starts the server that the file describes.
    pub(crate) async fn start(config: Option<&Path>) -> Result<Embedded, Failure> {
        let name = config.map_or_else(String::new, |path| format!(" for {}", path.display()));
        std::future::ready(Err(Failure::Other(format!("this build has no server{name}")))).await
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets it finish and waits for that.
    pub(crate) async fn shutdown(self) {
        std::future::ready(()).await;
    }
}
