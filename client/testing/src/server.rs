//! A server in the test's process, with the scripted services.

use std::{net::SocketAddr, time::Duration};

use agentloop_client::{
    Backoff, Client,
    v1::{agent_loop_server::AgentLoopServer, tool_host_server::ToolHostServer},
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

use crate::{agent_loop::Script, tool_host::Hosts};

/// A server that stops when it is dropped.
pub struct FakeServer {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl FakeServer {
    pub async fn start(script: Script, hosts: Hosts) -> FakeServer {
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
        FakeServer { address, task }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A backoff of milliseconds, so that tests are fast.
pub fn quick_backoff() -> Backoff {
    Backoff { max_retries: 5, initial: Duration::from_millis(1), max: Duration::from_millis(20) }
}

pub fn client(url: &str) -> Client {
    Client::builder(url).backoff(quick_backoff()).build().expect("a good address")
}
