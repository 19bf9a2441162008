//! The handshake of a connection: `hello`, and the server's answer to it.

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
    config::{HostConfig, HostEvent},
    error::HostError,
    extension::Extension,
    link::{
        end::{ConnectionEnd, GoingAway},
        state::HostState,
    },
};

const PROTOCOL_VERSION: u32 = 1;
const SDK: &str = concat!("rust/", env!("CARGO_PKG_VERSION"));
/// Time that the server may take to answer `hello`.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bound on frames between the host and the connection. More wait in the host.
const OUTGOING_MAX: usize = 32;

/// A connection after the server's `welcome`.
pub(crate) struct WelcomedConnection {
    pub(crate) incoming: Streaming<ConnectResponse>,
    pub(crate) outgoing: mpsc::Sender<ConnectRequest>,
    pub(crate) welcome: Welcome,
    /// The credit that `hello` granted.
    pub(crate) free: usize,
}

/// Connects and says `hello`.
pub(crate) async fn connect(state: &HostState) -> Result<WelcomedConnection, ConnectionEnd> {
    let free = state.free();
    match timeout(HANDSHAKE_TIMEOUT, greet(state, free)).await {
        Ok(connection) => connection,
        Err(_) => Err(ConnectionEnd::Lost(format!("no welcome within {HANDSHAKE_TIMEOUT:?}"))),
    }
}

async fn greet(state: &HostState, free: usize) -> Result<WelcomedConnection, ConnectionEnd> {
    let (outgoing, requests) = mpsc::channel(OUTGOING_MAX);
    let hello = Frame::Hello(hello(state, free));
    // The channel is new and has room.
    outgoing.try_send(ConnectRequest { frame: Some(hello) }).ok();
    let mut client = state.client.tool_host();
    let response = client.connect(ReceiverStream::new(requests)).await.map_err(refusal)?;
    let mut incoming = response.into_inner();
    let welcome = welcome(state, &mut incoming).await?;
    Ok(WelcomedConnection { incoming, outgoing, welcome, free })
}

fn hello(state: &HostState, free: usize) -> Hello {
    let config = &state.config;
    let tools = config.tools.values().map(|tool| tool.declaration.clone());
    let tools = tools.map(|tool| Capability { capability: Some(capability::Capability::Tool(tool)) });
    Hello {
        protocol_version: PROTOCOL_VERSION,
        host_id: config.host_id.clone(),
        sdk: SDK.to_owned(),
        capabilities: tools.chain(config.extensions.values().map(Extension::capability)).collect(),
        max_frame_bytes: 0,
        calls_in_hand: state.calls.in_hand(),
        initial_credit: free as u64,
        labels: config.labels.clone().into_iter().collect(),
        open_runtimes: state.runtimes.ids(),
        instance_id: format!("{}.{}", state.instance, state.calls.forgotten()),
        connection_no: state.connection_no(),
    }
}

async fn welcome(
    state: &HostState,
    incoming: &mut Streaming<ConnectResponse>,
) -> Result<Welcome, ConnectionEnd> {
    let first = incoming.message().await.map_err(refusal)?;
    match first.and_then(|message| message.frame) {
        Some(ServerFrame::Welcome(welcome)) if welcome.protocol_version == PROTOCOL_VERSION => Ok(welcome),
        Some(ServerFrame::Welcome(welcome)) => {
            let version = welcome.protocol_version;
            let message = format!("it speaks version {version} of the protocol, not {PROTOCOL_VERSION}");
            Err(ConnectionEnd::Fatal(HostError::Refused(message)))
        }
        Some(ServerFrame::ProtocolError(error)) => {
            report_protocol_error(&state.config, &error);
            Err(ConnectionEnd::Fatal(HostError::Refused(error.message)))
        }
        Some(ServerFrame::GoAway(go_away)) => Err(ConnectionEnd::GoAway(GoingAway::new(go_away))),
        Some(_) => Err(ConnectionEnd::Lost("the server spoke before its welcome".into())),
        None => Err(ConnectionEnd::Lost("the server ended the stream before its welcome".into())),
    }
}

/// Classifies a status before `welcome`: some would stay the same, however often the host tries.
pub(crate) fn refusal(status: Status) -> ConnectionEnd {
    let error = Error::from(status);
    let lasting = [
        Code::InvalidArgument,
        Code::FailedPrecondition,
        Code::Unauthenticated,
        Code::PermissionDenied,
        Code::Unimplemented,
    ];
    match error.code() {
        Some(code) if lasting.contains(&code) => ConnectionEnd::Fatal(HostError::Refused(error.to_string())),
        _ => ConnectionEnd::Lost(error.to_string()),
    }
}

/// Reports a protocol error, which is a bug of this library or of the server.
pub(crate) fn report_protocol_error(config: &HostConfig, error: &ProtocolError) {
    let (message, call_id) = (error.message.clone(), error.call_id.clone());
    tracing::error!(host_id = %config.host_id, %message, %call_id, "the server reports a broken protocol");
    config.listener.notify(&HostEvent::ProtocolError { message, call_id });
}
