//! The beginning of a connection: `hello`, and the server's answer to it.

use std::time::Duration;

use agentloop_proto::v1::{
    Capability, ConnectRequest, ConnectResponse, Hello, ProtocolError, Welcome, capability,
    connect_request::Frame, connect_response::Frame as ServerFrame,
};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::Error;
use crate::host::{
    Extension, HostError, HostEvent, ToolHost,
    link::runtime::{Ended, Runtime},
};

const PROTOCOL_VERSION: u32 = 1;
const SDK: &str = concat!("rust/", env!("CARGO_PKG_VERSION"));
/// How long the server may take to answer `hello`.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Frames on their way into the connection; more wait in the host, which slows its handlers down.
const OUTGOING_MAX: usize = 32;

/// A connection that the server has welcomed.
pub(crate) struct Connection {
    pub(crate) incoming: Streaming<ConnectResponse>,
    pub(crate) outgoing: mpsc::Sender<ConnectRequest>,
    pub(crate) welcome: Welcome,
    /// The calls that `hello` granted.
    pub(crate) free: usize,
}

/// Connects and says `hello`.
pub(crate) async fn connect(runtime: &Runtime) -> Result<Connection, Ended> {
    let free = runtime.free();
    match timeout(HANDSHAKE_TIMEOUT, greet(runtime, free)).await {
        Ok(connection) => connection,
        Err(_) => Err(Ended::Lost(format!("no welcome within {HANDSHAKE_TIMEOUT:?}"))),
    }
}

async fn greet(runtime: &Runtime, free: usize) -> Result<Connection, Ended> {
    let (outgoing, requests) = mpsc::channel(OUTGOING_MAX);
    let hello = Frame::Hello(hello(runtime, free));
    // The channel is new and has room.
    outgoing.try_send(ConnectRequest { frame: Some(hello) }).ok();
    let mut client = runtime.client.tool_host();
    let response = client.connect(ReceiverStream::new(requests)).await.map_err(turned_away)?;
    let mut incoming = response.into_inner();
    let welcome = welcome(runtime, &mut incoming).await?;
    Ok(Connection { incoming, outgoing, welcome, free })
}

fn hello(runtime: &Runtime, free: usize) -> Hello {
    let host = &runtime.host;
    let tools = host.tools.values().map(|tool| tool.declaration.clone());
    let tools = tools.map(|tool| Capability { capability: Some(capability::Capability::Tool(tool)) });
    Hello {
        protocol_version: PROTOCOL_VERSION,
        host_id: host.host_id.clone(),
        sdk: SDK.to_owned(),
        capabilities: tools.chain(host.extensions.values().map(Extension::capability)).collect(),
        max_frame_bytes: 0,
        calls_in_hand: runtime.calls.in_hand(),
        initial_credit: free as u64,
        labels: host.labels.clone().into_iter().collect(),
        open_runtimes: runtime.open.ids(),
    }
}

async fn welcome(runtime: &Runtime, incoming: &mut Streaming<ConnectResponse>) -> Result<Welcome, Ended> {
    let first = incoming.message().await.map_err(turned_away)?;
    match first.and_then(|message| message.frame) {
        Some(ServerFrame::Welcome(welcome)) if welcome.protocol_version == PROTOCOL_VERSION => Ok(welcome),
        Some(ServerFrame::Welcome(welcome)) => {
            let version = welcome.protocol_version;
            let message = format!("it speaks version {version} of the protocol, not {PROTOCOL_VERSION}");
            Err(Ended::Fatal(HostError::TurnedAway(message)))
        }
        Some(ServerFrame::ProtocolError(error)) => {
            complain(&runtime.host, &error);
            Err(Ended::Fatal(HostError::TurnedAway(error.message)))
        }
        Some(ServerFrame::GoAway(go_away)) => Err(Ended::Lost(go_away.reason)),
        Some(_) => Err(Ended::Lost("the server spoke before its welcome".into())),
        None => Err(Ended::Lost("the server ended the stream before its welcome".into())),
    }
}

/// A status before `welcome`: some stay as they are, however often the host tries.
pub(crate) fn turned_away(status: Status) -> Ended {
    let error = Error::from(status);
    let lasting = [
        Code::InvalidArgument,
        Code::FailedPrecondition,
        Code::Unauthenticated,
        Code::PermissionDenied,
        Code::Unimplemented,
    ];
    match error.code() {
        Some(code) if lasting.contains(&code) => Ended::Fatal(HostError::TurnedAway(error.to_string())),
        _ => Ended::Lost(error.to_string()),
    }
}

/// Tells of a broken protocol, which is a fault of this runtime or of the server.
pub(crate) fn complain(host: &ToolHost, error: &ProtocolError) {
    let (message, call_id) = (error.message.clone(), error.call_id.clone());
    tracing::error!(host_id = %host.host_id, %message, %call_id, "the server reports a broken protocol");
    host.listener.tell(&HostEvent::ProtocolError { message, call_id });
}
