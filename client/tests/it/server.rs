//! An in-process server of the scripted services.

use std::{net::SocketAddr, time::Duration};

use agentloop_client::{
    Backoff, Client,
    v1::{agent_loop_server::AgentLoopServer, tool_host_server::ToolHostServer},
};
use tokio::{net::TcpListener, task::JoinHandle, time::timeout};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

use crate::{agent_loop::Script, tool_host::Hosts};

/// Long enough for a slow machine, short enough to fail.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server that ends with the test.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Fake {
    pub(crate) async fn start(script: Script, hosts: Hosts) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let task = tokio::spawn(async move {
            Server::builder()
                .add_service(AgentLoopServer::new(script))
                .add_service(ToolHostServer::new(hosts))
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .expect("the listener stays open");
        });
        Fake { address, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A backoff that no test has to wait for.
pub(crate) fn quick() -> Backoff {
    Backoff { max_retries: 5, initial: Duration::from_millis(1), max: Duration::from_millis(20) }
}

pub(crate) fn client(url: &str) -> Client {
    Client::builder(url).backoff(quick()).build().expect("a good address")
}

/// What is awaited must come.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("it takes too long")
}
