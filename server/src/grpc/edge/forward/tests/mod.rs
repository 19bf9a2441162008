//! Replicas in one process: owners whose services are scripted, a replica that callers dial, and real connections between them.

mod caller_presence;
mod earlier;
mod leaving;
mod moves;
mod port;
mod refusals;
mod replayable;
mod route_keys;
mod rpcs;
mod silence;
mod streams;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use agentloop_core::cluster::shard::{OwnerNo, SHARDS, ShardNo, shard_of};
use agentloop_core::id::{RunId, SessionId, TenantId};
use agentloop_core::time::Timestamp;
use agentloop_proto::v1::agent_loop_client::AgentLoopClient;
use agentloop_proto::v1::{self as wire};
use async_trait::async_trait;
use futures_util::StreamExt as _;
use http_body::Frame;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::{Bytes, http};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Status};
use tower::Service;
use tower::util::MapRequestLayer;

use super::layer::{ForwardLayer, ForwardParts};
use super::request::budget::BufferBudget;
use super::request::buffered_rpc::BufferedRpc;
use super::route::local::LocalServices;
use super::wire::bodies::{NextFrame, end_with, next_frame, of_frames};
use super::wire::links::Links;
use crate::auth::{Authentication, HostGrant, Principal, Role};
use crate::cluster::locate::{Locate, LocateError};
use crate::cluster::{Ownership, Ownerships, Peer};
use crate::grpc::edge::incoming::{IncomingLink, connections};
use crate::grpc::edge::message_prefix::PREFIX_BYTES;
use crate::grpc::edge::peer::PeerListener;
use crate::grpc::edge::tls::Acceptor;
use crate::grpc::repetition::RepeatedRpc;
use crate::ids::CountingIds;
use crate::lifecycle::Tasks;

/// Long enough for a slow machine, short enough to fail.
const PATIENCE: Duration = Duration::from_secs(30);
/// The number of the replica that callers dial.
const ME: u64 = 100;
/// The creation of every session.
const CREATED_AT: Timestamp = Timestamp(1_700_000_000_123);
/// The largest request that a replica sends on.
const BYTES_MAX: usize = 1024 * 1024;

/// An RPC as it reached an owner.
struct Seen {
    path: String,
    headers: http::HeaderMap,
    principal: Option<Arc<Principal>>,
    link: Option<IncomingLink>,
    repeated: Option<RepeatedRpc>,
    message: Vec<u8>,
    /// The further requests of a host.
    rest: Option<Body>,
    /// The response that the owner gives.
    response: tokio::sync::oneshot::Sender<Vec<NextFrame>>,
    /// Closed when the owner has dropped the RPC.
    dropped: mpsc::Receiver<()>,
}

impl Seen {
    fn decode<M: Message + Default>(&self) -> M {
        M::decode(self.message.as_slice()).unwrap()
    }

    /// Gives one message, and ends well.
    fn responds(self, message: &impl Message) {
        self.sends([frame(message), end_with(&Status::ok(""))]);
    }

    /// Ends the RPC with this status, and no message.
    fn refuses(self, status: &Status) {
        self.sends([end_with(status)]);
    }

    /// Sends frames. A stream without an end stays open.
    fn sends(self, frames: impl IntoIterator<Item = NextFrame>) {
        assert!(self.response.send(frames.into_iter().collect()).is_ok(), "the RPC waits");
    }
}

fn frame(message: &impl Message) -> NextFrame {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    Ok(Frame::data(Bytes::from([&[0], length.as_slice(), &message].concat())))
}

/// A frame with an event of the run `r` in the session `s`.
fn event(seq: u64) -> NextFrame {
    let (run_id, session_id) = ("r".to_owned(), "s".to_owned());
    let event = wire::RunEvent { seq, run_id, session_id, ..Default::default() };
    frame(&wire::RunStreamResponse { event: Some(event) })
}

/// The next message of a stream that sends each in a frame of its own.
async fn next_message(body: &mut Body) -> Vec<u8> {
    let frame = next_frame(body).await.expect("there is one").expect("it arrives");
    frame.into_data().unwrap().split_off(PREFIX_BYTES).into()
}

/// Serves every RPC of a service by handing the RPCs to the test.
#[derive(Clone)]
struct Scripted<const SERVICE: u8>(mpsc::UnboundedSender<Seen>);

impl NamedService for Scripted<0> {
    const NAME: &'static str = "agentloop.v1.AgentLoop";
}

impl NamedService for Scripted<1> {
    const NAME: &'static str = "agentloop.v1.Sessions";
}

impl NamedService for Scripted<2> {
    const NAME: &'static str = "agentloop.v1.ToolHost";
}

impl NamedService for Scripted<3> {
    const NAME: &'static str = "agentloop.v1.Server";
}

impl NamedService for Scripted<4> {
    const NAME: &'static str = "agentloop.v1.Tools";
}

impl NamedService for Scripted<5> {
    const NAME: &'static str = "agentloop.v1.Blobs";
}

impl<const SERVICE: u8> Service<http::Request<Body>> for Scripted<SERVICE> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let rpcs = self.0.clone();
        Box::pin(async move {
            let (path, headers) = (request.uri().path().to_owned(), request.headers().clone());
            let principal = request.extensions().get::<Arc<Principal>>().cloned();
            let link = request.extensions().get::<IncomingLink>().cloned();
            let repeated = request.extensions().get::<RepeatedRpc>().copied();
            let (message, rest) = match SERVICE {
                // The requests of a host never end: the first one is enough.
                2 => {
                    let mut body = request.into_body();
                    (next_message(&mut body).await, Some(body))
                }
                _ => {
                    let rpc = BufferedRpc::read(request, BYTES_MAX, &BufferBudget::new()).await.unwrap();
                    (rpc.message().unwrap().to_vec(), None)
                }
            };
            let (response, responded) = tokio::sync::oneshot::channel();
            let (alive, dropped) = mpsc::channel(1);
            let _test_ended = rpcs.send(Seen {
                path,
                headers,
                principal,
                link,
                repeated,
                message,
                rest,
                response,
                dropped,
            });
            let Ok(frames) = responded.await else { return std::future::pending().await };
            let frames: Vec<NextFrame> = frames;
            // A refusal has nothing but headers.
            if let [Ok(only)] = frames.as_slice()
                && let Some(trailers) = only.trailers_ref()
            {
                return Ok(Status::from_header_map(trailers).unwrap().into_http());
            }
            let is_open = !frames.iter().any(|frame| frame.as_ref().is_ok_and(Frame::is_trailers));
            let rest = futures_util::stream::once(async move {
                let _alive = alive;
                if is_open {
                    std::future::pending::<()>().await;
                }
                None
            });
            let frames = futures_util::stream::iter(frames).chain(rest.filter_map(std::future::ready));
            let mut response = http::Response::new(of_frames(frames));
            let grpc = http::HeaderValue::from_static("application/grpc");
            response.headers_mut().insert(http::header::CONTENT_TYPE, grpc);
            Ok(response)
        })
    }
}

/// A replica that owns all shards of which nothing else is said, with its port for other replicas.
struct Owner {
    peer: Peer,
    rpcs: mpsc::UnboundedReceiver<Seen>,
    ownership: watch::Sender<Ownership>,
    tasks: Tasks,
}

/// Services that hand their RPCs to the test.
fn scripted() -> (LocalServices, mpsc::UnboundedReceiver<Seen>) {
    let (sender, rpcs) = mpsc::unbounded_channel();
    let routes = Routes::new(Scripted::<0>(sender.clone()))
        .add_service(Scripted::<1>(sender.clone()))
        .add_service(Scripted::<2>(sender.clone()))
        .add_service(Scripted::<3>(sender.clone()))
        .add_service(Scripted::<4>(sender.clone()))
        .add_service(Scripted::<5>(sender));
    let local = LocalServices::none();
    local.open(routes, None);
    (local, rpcs)
}

async fn loopback() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// The shard of the run `r`, whose session has the id `s`.
fn shard_of_r() -> ShardNo {
    shard_of(&ada().tenant, &SessionId::parse("s").unwrap())
}

/// Knows the run `r` alone, and can be told of others. Every session was created at the same time.
#[derive(Clone)]
struct KnownRuns(watch::Sender<BTreeMap<String, ShardNo>>);

impl KnownRuns {
    fn new() -> Self {
        Self(watch::Sender::new(BTreeMap::from([("r".to_owned(), shard_of_r())])))
    }

    fn add(&self, run: &str, shard: ShardNo) {
        self.0.send_modify(|runs| {
            runs.insert(run.to_owned(), shard);
        });
    }
}

#[async_trait]
impl Locate for KnownRuns {
    async fn shard_of_run(&self, _: &TenantId, run: &RunId) -> Result<Option<ShardNo>, LocateError> {
        Ok(self.0.borrow().get(run.as_str()).copied())
    }

    async fn session_created_at(
        &self,
        _: &TenantId,
        _: &SessionId,
    ) -> Result<Option<Timestamp>, LocateError> {
        Ok(Some(CREATED_AT))
    }
}

/// A forward that follows this ownership.
fn forward_layer(ownerships: Ownerships, local: LocalServices) -> ForwardLayer {
    forward_layer_with(ownerships, Links::new(None), local, KnownRuns::new(), CancellationToken::new())
}

fn forward_layer_with(
    ownerships: Ownerships,
    links: Links,
    local: LocalServices,
    runs: KnownRuns,
    stop: CancellationToken,
) -> ForwardLayer {
    ForwardLayer::new(ForwardParts {
        ownerships,
        links,
        local,
        locate: Arc::new(runs),
        ids: Arc::new(CountingIds::default()),
        message_bytes_max: BYTES_MAX,
        runs_stopped: stop.clone(),
        stop,
        tasks: Tasks::new(),
    })
}

/// The view of the replica of number `me`: each shard is of the peer that `owner` names, of itself if that is `me`, of nobody if it
/// is 0.
fn ownership(me: u64, peers: &[&Peer], owner: impl Fn(ShardNo) -> u64) -> Ownership {
    let owners =
        (0..SHARDS).map(|shard| Some(OwnerNo(owner(ShardNo(shard)))).filter(|owner| owner.0 > 0)).collect();
    let peers = peers.iter().map(|peer| (peer.number, (*peer).clone())).collect();
    Ownership::new(OwnerNo(me), true, owners, Arc::new(peers))
}

/// The view of the replica that callers dial while this owner has everything.
fn owned_by(owner: &Owner) -> Ownership {
    owned_by_peer(&owner.peer)
}

fn owned_by_peer(peer: &Peer) -> Ownership {
    ownership(ME, &[peer], |_| peer.number.0)
}

/// The same when it has everything itself.
fn owned_here() -> Ownership {
    ownership(ME, &[], |_| ME)
}

/// The same when nobody has anything.
fn owned_by_nobody() -> Ownership {
    ownership(ME, &[], |_| 0)
}

impl Owner {
    async fn start(number: u64) -> Self {
        Self::with_acceptors(number, None, Authentication::NotRequired).await
    }

    async fn with_acceptors(
        number: u64,
        acceptors: Option<watch::Receiver<Acceptor>>,
        authentication: Authentication,
    ) -> Self {
        Self::with_links(number, acceptors, authentication, Links::new(None)).await
    }

    async fn with_links(
        number: u64,
        acceptors: Option<watch::Receiver<Acceptor>>,
        authentication: Authentication,
        links: Links,
    ) -> Self {
        let (local, rpcs) = scripted();
        let (ownership, ownerships) = watch::channel(ownership(number, &[], |_| number));
        let (listener, address) = loopback().await;
        let tasks = Tasks::new();
        let forward =
            forward_layer_with(ownerships, links, local, KnownRuns::new(), CancellationToken::new());
        let port = PeerListener::new(forward, authentication);
        drop(tasks.spawn("peers", async move {
            port.serve(listener, acceptors, std::future::pending()).await.unwrap();
        }));
        Self { peer: Peer { number: OwnerNo(number), address }, rpcs, ownership, tasks }
    }

    /// The next RPC that arrives.
    async fn sees(&mut self) -> Seen {
        soon(self.rpcs.recv()).await.expect("the owner serves")
    }

    /// Ends the process: its connections break.
    fn dies(&self) {
        self.tasks.hard().cancel();
    }
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it comes soon")
}

/// A replica that callers dial.
struct Replica {
    ownership: watch::Sender<Ownership>,
    local: LocalServices,
    runs: KnownRuns,
    channel: Channel,
    stop: CancellationToken,
    tasks: Tasks,
}

fn ada() -> Arc<Principal> {
    let host = HostGrant::new(Some(vec!["git_*".to_owned()]), Some("keyed"), ["hook"]).unwrap();
    Arc::new(Principal {
        name: "ada".to_owned(),
        tenant: TenantId::parse("acme").unwrap(),
        roles: vec![Role::Caller, Role::Host],
        groups: vec!["sre".to_owned()],
        host,
    })
}

impl Replica {
    async fn start(ownership: Ownership) -> Self {
        Self::with_links(ownership, Links::new(None)).await
    }

    async fn with_links(ownership: Ownership, links: Links) -> Self {
        let (ownership, ownerships) = watch::channel(ownership);
        let (local, runs, stop) = (LocalServices::none(), KnownRuns::new(), CancellationToken::new());
        let forward = forward_layer_with(ownerships, links, local.clone(), runs.clone(), stop.clone());
        let (listener, address) = loopback().await;
        let tasks = Tasks::new();
        drop(tasks.spawn("public", async move {
            Server::builder()
                .layer(MapRequestLayer::new(|mut request: http::Request<Body>| {
                    request.extensions_mut().insert(ada());
                    request
                }))
                .layer(forward)
                .add_routes(Routes::default())
                .serve_with_incoming(connections(listener, 16))
                .await
                .unwrap();
        }));
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
        Self { ownership, local, runs, channel, stop, tasks }
    }

    /// Gives it services, to whose RPCs the test responds.
    fn serves(&self) -> mpsc::UnboundedReceiver<Seen> {
        let (local, rpcs) = scripted();
        self.local.open_as(&local);
        rpcs
    }

    fn client(&self) -> AgentLoopClient<Channel> {
        AgentLoopClient::new(self.channel.clone())
    }

    /// Starts a `Run`, to which somebody has to respond.
    fn run(
        &self,
        input: wire::RunInput,
    ) -> tokio::task::JoinHandle<Option<Result<wire::RunResponse, Status>>> {
        let mut client = self.client();
        self.tasks.spawn_contained("caller", async move {
            let response = client.run(wire::RunRequest { input: Some(input) }).await;
            response.map(tonic::Response::into_inner)
        })
    }
}

fn prompt() -> wire::RunInput {
    wire::RunInput { prompt: "hello".to_owned(), ..Default::default() }
}

/// A prompt in the session `s`.
fn in_s() -> wire::RunInput {
    wire::RunInput { session_id: Some("s".to_owned()), ..prompt() }
}

/// The response of a run of this id.
fn result(run_id: &str) -> wire::RunResponse {
    let result = wire::RunResult { run_id: run_id.to_owned(), ..Default::default() };
    wire::RunResponse { result: Some(result) }
}

/// The reason that a status names.
fn reason(status: &Status) -> String {
    use tonic_types::StatusExt as _;
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}
