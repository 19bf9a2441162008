//! The server inside this process: the only file that knows the server's library.

use std::{net::SocketAddr, path::Path, process::ExitCode};

use crate::exit::Failure;

/// A server that runs in this process.
pub(crate) struct Embedded {
    address: SocketAddr,
}

/// Runs the server until a signal ends it.
pub(crate) async fn serve(_config: Option<&Path>) -> Result<ExitCode, Failure> {
    std::future::ready(Err(absent())).await
}

impl Embedded {
    /// Starts the server that the file describes.
    pub(crate) async fn start(_config: &Path) -> Result<Embedded, Failure> {
        std::future::ready(Err(absent())).await
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

fn absent() -> Failure {
    Failure::Other("this build has no server".into())
}
