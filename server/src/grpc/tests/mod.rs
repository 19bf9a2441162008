//! Tests of the services ToolHost and Tools over a real socket, with the generated client.

mod calls;
mod pace;
mod repeated;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use agentloop_proto::v1::connect_request::Frame as Say;
use agentloop_proto::v1::connect_response::Frame as ServerFrame;
use agentloop_proto::v1::tool_host_client::ToolHostClient;
use agentloop_proto::v1::{self, ConnectRequest, ConnectResponse};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tokio_util::task::TaskTracker;
use tonic::transport::{Channel, Server};
use tonic::{Status, Streaming};
use tonic_types::StatusExt as _;

use crate::engine::{Engine, EngineParts};
use crate::grpc::service::tool_host::ToolHostService;
use crate::grpc::service::tools::ToolsService;
use crate::model::ProviderRegistry;
use crate::store::sqlite::SqliteStore;
use crate::tool::tests::harness::{FakeEngine, NOW, call_id, lease, offer, origin};
use crate::tool::{RemoteTools, RemoteToolsOptions, Seek, Tools as _};

const PATIENCE: Duration = Duration::from_secs(30);

struct Harness {
    tools: Arc<RemoteTools>,
    engine: Arc<FakeEngine>,
    channel: Channel,
}

/// An engine without runs.
async fn idle_engine(tools: Arc<RemoteTools>) -> Engine {
    let store = Arc::new(SqliteStore::in_memory().await.unwrap());
    let models = Arc::new(ProviderRegistry::default());
    EngineParts::default().start(store, models, tools)
}

impl Harness {
    async fn new() -> Self {
        Self::with(RemoteToolsOptions::default()).await
    }

    async fn with(options: RemoteToolsOptions) -> Self {
        let tools = RemoteTools::new(options, NOW, Vec::new());
        let engine = Arc::new(FakeEngine::default());
        tokio::spawn(tools.clone().drive(engine.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::builder()
            .add_service(ToolHostService::server(tools.clone(), TaskTracker::new(), None))
            .add_service(ToolsService::server(
                tools.clone(),
                idle_engine(tools.clone()).await,
                Arc::default(),
            ))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        Self { tools, engine, channel }
    }

    /// Opens a stream and waits for the response headers. The host has sent nothing yet.
    async fn dial(&self) -> Host {
        let (say, frames) = mpsc::unbounded_channel();
        let mut client = ToolHostClient::new(self.channel.clone()).max_encoding_message_size(usize::MAX);
        let told = client.connect(UnboundedReceiverStream::new(frames));
        let told = tokio::time::timeout(PATIENCE, told).await.expect("headers come at once").unwrap();
        Host { say, told: told.into_inner() }
    }

    async fn host(&self, name: &str, tools: &[&str]) -> Host {
        let mut host = self.dial().await;
        host.say(Say::Hello(hello(name, tools)));
        let ServerFrame::Welcome(_) = host.told().await else { panic!("no welcome") };
        host
    }

    fn give(&self, call: &str, attempt: u32, tool: &str) -> String {
        let Seek::Granted { host, .. } = self.tools.seek(&origin(), &call_id(call), tool, None) else {
            panic!("no room")
        };
        self.tools.offer(&origin(), &call_id(call), offer(call, attempt, &host, tool));
        host.to_string()
    }

    async fn complete(&self, outcome: Option<v1::complete_call_request::Outcome>) -> Result<i32, Status> {
        let mut client = ToolHostClient::new(self.channel.clone());
        let response = client.complete_call(v1::CompleteCallRequest { outcome }).await?;
        Ok(response.into_inner().verdict)
    }
}

struct Host {
    say: mpsc::UnboundedSender<ConnectRequest>,
    told: Streaming<ConnectResponse>,
}

impl Host {
    fn say(&self, frame: Say) {
        // A stream that has ended takes nothing more.
        let _ = self.say.send(ConnectRequest { frame: Some(frame) });
    }

    /// The next message that is no ping.
    async fn next(&mut self) -> Result<Option<ConnectResponse>, Status> {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.told.message()).await.expect("something comes");
            match next {
                Ok(Some(ConnectResponse { frame: Some(ServerFrame::Ping(_)) })) => {}
                next => return next,
            }
        }
    }

    async fn told(&mut self) -> ServerFrame {
        self.next()
            .await
            .expect("the stream goes on")
            .expect("the stream goes on")
            .frame
            .expect("a frame is set")
    }

    async fn call(&mut self) -> v1::CallRequest {
        match self.told().await {
            ServerFrame::CallRequest(request) => request,
            other => panic!("no call: {other:?}"),
        }
    }

    async fn take(&mut self) -> v1::CallRequest {
        let request = self.call().await;
        self.say(Say::CallAccepted(v1::CallAccepted {
            call_id: request.call_id.clone(),
            attempt: request.attempt,
        }));
        request
    }

    async fn ack(&mut self) -> (String, v1::ResultVerdict) {
        match self.told().await {
            ServerFrame::ResultAck(ack) => (ack.call_id.clone(), ack.verdict()),
            other => panic!("no acknowledgement: {other:?}"),
        }
    }

    /// The protocol error, and the status that the stream ends with.
    async fn thrown_out(&mut self) -> (String, Status) {
        let ServerFrame::ProtocolError(error) = self.told().await else { panic!("no protocol error") };
        (error.message, self.next().await.expect_err("the stream ends with an error"))
    }
}

fn hello(name: &str, tools: &[&str]) -> v1::Hello {
    v1::Hello {
        protocol_version: 1,
        host_id: name.into(),
        sdk: "test/1".into(),
        capabilities: tools.iter().map(|name| tool(name)).collect(),
        initial_credit: 8,
        ..v1::Hello::default()
    }
}

fn tool(name: &str) -> v1::Capability {
    let tool = v1::ToolDeclaration {
        name: name.into(),
        description: "Does things.".into(),
        input_schema_json: r#"{"type":"object"}"#.into(),
        effect: v1::EffectClass::ReadOnly.into(),
        ..v1::ToolDeclaration::default()
    };
    v1::Capability { capability: Some(v1::capability::Capability::Tool(tool)) }
}

fn result_of(call: &str, attempt: u32) -> v1::CallResult {
    v1::CallResult {
        call_id: call.into(),
        attempt,
        lease_token: lease(call, attempt).as_str().into(),
        output: "sunny".into(),
        ..v1::CallResult::default()
    }
}

fn result(call: &str, attempt: u32) -> Say {
    Say::CallResult(result_of(call, attempt))
}

fn reason(status: &Status) -> String {
    status.get_details_error_info().expect("every error has a reason").reason
}
