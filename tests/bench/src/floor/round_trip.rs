//! A bare tonic server and a bare host on one bidirectional stream: a call, its acceptance, its result, the
//! acknowledgement, as often as a run has tool rounds.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use agentloop_client::v1::connect_request::Frame as FromHost;
use agentloop_client::v1::connect_response::Frame as ToHost;
use agentloop_client::v1::tool_host_client::ToolHostClient;
use agentloop_client::v1::{
    CallAccepted, CallRequest, CallResult, ConnectRequest, ConnectResponse, ResultAck, ResultVerdict,
};
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt as _};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::transport::Endpoint;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::Failure;
use crate::floor::Said;
use crate::process::{Process, Usage};

/// Frames on their way to the host.
const FRAMES_MAX: usize = 1024;
/// About as many bytes as W1's tool result has.
const OUTPUT: &str = "the weather in Beijing is sunny, 25 degrees";

/// One call on its way, and the task that waits for its result.
struct Trip {
    id: String,
    done: oneshot::Sender<()>,
}

/// Makes `runs` runs of `rounds` calls each, `concurrency` at a time, and says what one run costs this server.
pub(crate) async fn run(rounds: u32, concurrency: usize, runs: u64) -> Result<(), Failure> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let (trips, queue) = mpsc::channel(FRAMES_MAX);
    let (connected, connection) = oneshot::channel();
    let service = Bare { connection: Arc::new(parking_lot::Mutex::new(Some(Wiring { queue, connected }))) };
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
    let args = ["role", "floor-host", &url].map(std::ffi::OsStr::new);
    let host = Process::start(&std::env::current_exe()?, &args)?;
    connection.await?;
    let left = Arc::new(AtomicU64::new(runs));
    let before = Usage::own()?;
    let tasks: Vec<_> =
        (0..concurrency).map(|_| tokio::spawn(call(trips.clone(), left.clone(), rounds))).collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await??);
    }
    let cpu = Usage::own()?.since(before).cpu;
    host.kill().await?;
    Said::new(cpu, &times).say()
}

type Times = Vec<(std::time::Duration, std::time::Duration)>;

async fn call(trips: mpsc::Sender<Trip>, left: Arc<AtomicU64>, rounds: u32) -> Result<Times, Failure> {
    let mut times = Vec::new();
    while let Ok(run) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
        let began = Instant::now();
        let mut first = None;
        for round in 0..rounds {
            let (done, told) = oneshot::channel();
            trips.send(Trip { id: format!("run-{run}/{round}.0"), done }).await?;
            told.await?;
            first.get_or_insert_with(|| began.elapsed());
        }
        times.push((began.elapsed(), first.unwrap_or_default()));
    }
    Ok(times)
}

/// The server's end of the one stream, until it is taken.
struct Wiring {
    queue: mpsc::Receiver<Trip>,
    connected: oneshot::Sender<()>,
}

#[derive(Clone)]
struct Bare {
    connection: Arc<parking_lot::Mutex<Option<Wiring>>>,
}

impl NamedService for Bare {
    const NAME: &'static str = "agentloop.v1.ToolHost";
}

type Frames = Pin<Box<dyn Stream<Item = Result<ConnectResponse, Status>> + Send>>;

impl StreamingService<ConnectRequest> for Bare {
    type Response = ConnectResponse;
    type ResponseStream = Frames;
    type Future = BoxFuture<'static, Result<Response<Frames>, Status>>;

    fn call(&mut self, request: Request<Streaming<ConnectRequest>>) -> Self::Future {
        let wiring = self.connection.lock().take();
        Box::pin(async move {
            let wiring = wiring.ok_or_else(|| Status::unavailable("one host is enough"))?;
            let (frames, outgoing) = mpsc::channel(FRAMES_MAX);
            tokio::spawn(serve(request.into_inner(), wiring, frames));
            Ok(Response::new(Box::pin(ReceiverStream::new(outgoing)) as Frames))
        })
    }
}

/// Sends each call to the host, and acknowledges its result.
async fn serve(
    mut host: Streaming<ConnectRequest>,
    wiring: Wiring,
    frames: mpsc::Sender<Result<ConnectResponse, Status>>,
) {
    let Wiring { mut queue, connected } = wiring;
    let mut open: BTreeMap<String, oneshot::Sender<()>> = BTreeMap::new();
    let mut connected = Some(connected);
    loop {
        let frame = tokio::select! {
            Some(Trip { id, done }) = queue.recv() => {
                open.insert(id.clone(), done);
                ToHost::CallRequest(request(id))
            }
            Some(Ok(frame)) = host.next() => match frame.frame {
                Some(FromHost::CallResult(result)) => {
                    if let Some(done) = open.remove(&result.call_id) {
                        // The task that waits for it cannot have gone.
                        let _waiting = done.send(());
                    }
                    ToHost::ResultAck(ResultAck {
                        call_id: result.call_id,
                        attempt: result.attempt,
                        verdict: ResultVerdict::Recorded.into(),
                    })
                }
                Some(FromHost::Hello(_)) => {
                    if let Some(connected) = connected.take() {
                        let _waiting = connected.send(());
                    }
                    continue;
                }
                _ => continue,
            },
            else => return,
        };
        if frames.send(Ok(ConnectResponse { frame: Some(frame) })).await.is_err() {
            return;
        }
    }
}

fn request(call_id: String) -> CallRequest {
    CallRequest {
        idempotency_key: format!("key-of-{call_id}"),
        lease_token: format!("lease-of-{call_id}"),
        call_id,
        attempt: 1,
        tool: "echo".to_owned(),
        arguments_json: format!(r#"{{"text":"{OUTPUT}"}}"#),
        ..CallRequest::default()
    }
}

impl tonic::codegen::Service<http::Request<Body>> for Bare {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let codec = ProstCodec::<ConnectResponse, ConnectRequest>::default();
            Ok(Grpc::new(codec).streaming(service, request).await)
        })
    }
}

/// The host: accepts each call and answers it, until it is killed.
pub(crate) async fn host(url: &str) -> Result<(), Failure> {
    let channel = Endpoint::from_shared(url.to_owned())?.tcp_nodelay(true).connect().await?;
    let (frames, outgoing) = mpsc::channel(FRAMES_MAX);
    frames.send(frame(FromHost::Hello(agentloop_client::v1::Hello::default()))).await?;
    let mut calls = ToolHostClient::new(channel).connect(ReceiverStream::new(outgoing)).await?.into_inner();
    while let Some(response) = calls.next().await {
        if let Some(ToHost::CallRequest(call)) = response?.frame {
            let accepted = CallAccepted { call_id: call.call_id.clone(), attempt: call.attempt };
            frames.send(frame(FromHost::CallAccepted(accepted))).await?;
            let result = CallResult {
                call_id: call.call_id,
                attempt: call.attempt,
                lease_token: call.lease_token,
                output: OUTPUT.to_owned(),
                ..CallResult::default()
            };
            frames.send(frame(FromHost::CallResult(result))).await?;
        }
    }
    Ok(())
}

fn frame(frame: FromHost) -> ConnectRequest {
    ConnectRequest { frame: Some(frame) }
}
