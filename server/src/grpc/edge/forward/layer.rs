//! The RPCs of the public port, behind the check of credentials: each goes to whoever owns its session.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::http;
use tower::{Layer, Service};

use crate::cluster::locate::Locate;
use crate::cluster::{HUB, Ownerships};
use crate::grpc::edge::forward::caller_presence::CallerPresence;
use crate::grpc::edge::forward::host_stream;
use crate::grpc::edge::forward::outcome::ending::done_here;
use crate::grpc::edge::forward::outcome::no_owner_status;
use crate::grpc::edge::forward::passing::{pass, pass_host};
use crate::grpc::edge::forward::request::budget::BufferBudget;
use crate::grpc::edge::forward::request::buffered_rpc::BufferedRpc;
use crate::grpc::edge::forward::request::forwarded_rpc::ForwardedRpc as _;
use crate::grpc::edge::forward::request::replayable::ReplayableRpc;
use crate::grpc::edge::forward::request::resume::StreamPosition;
use crate::grpc::edge::forward::route::local::LocalServices;
use crate::grpc::edge::forward::route::routing::{Destination, ResolvedTarget, Routing, SEARCH_WAIT};
use crate::grpc::edge::forward::route::rpc_place::RpcPlace;
use crate::grpc::edge::forward::send::{SendOptions, send};
use crate::grpc::edge::forward::streams::follow;
use crate::grpc::edge::forward::wire::links::Links;
use crate::grpc::edge::forward::wire::metadata::strip;
use crate::grpc::edge::request_size::request_bytes_max;
use crate::grpc::repetition::RepeatedRpc;
use crate::grpc::rpc::{ForwardMode, RouteKind, Rpc};
use crate::ids::Ids;
use crate::lifecycle::Tasks;

/// The RPCs that have an owner. Each replica does the others itself: health and reflection.
const CONTRACT: &str = "/agentloop.v1.";

/// Sends the RPCs of the contract to their owners. Put it behind the layer that knows the caller.
#[derive(Clone)]
pub struct ForwardLayer(Arc<Inner>);

struct Inner {
    routing: Arc<Routing>,
    locate: Arc<dyn Locate>,
    ids: Arc<dyn Ids>,
    message_bytes_max: usize,
    budget: BufferBudget,
    runs_stopped: CancellationToken,
}

/// The parts of a [`ForwardLayer`].
pub struct ForwardParts {
    /// The owners of all shards.
    pub ownerships: Ownerships,
    /// The connections to the other replicas.
    pub links: Links,
    /// The services of this replica.
    pub local: LocalServices,
    /// Finds the shards of runs, and the creation of sessions.
    pub locate: Arc<dyn Locate>,
    /// Makes the ids that callers leave to the server.
    pub ids: Arc<dyn Ids>,
    /// Length of a request that is sent on, in bytes, at most.
    pub message_bytes_max: usize,
    /// When it is cancelled, the RPCs that were sent on end with UNAVAILABLE (`SHUTTING_DOWN`), so that their callers connect to
    /// another replica.
    pub stop: CancellationToken,
    /// Starts the tasks that go on after an RPC.
    pub tasks: Tasks,
    /// Cancelled when the runs of this replica have stopped after that. Until then the hosts that dialled it keep their streams.
    pub runs_stopped: CancellationToken,
}

impl ForwardLayer {
    /// A layer with these parts.
    #[must_use]
    pub fn new(parts: ForwardParts) -> Self {
        let ForwardParts { ownerships, links, local, locate, ids, .. } = parts;
        let ForwardParts { message_bytes_max, stop, tasks, runs_stopped, .. } = parts;
        let routing = Arc::new(Routing::new(ownerships, links, local, locate.clone(), stop, tasks));
        Self(Arc::new(Inner {
            routing,
            locate,
            ids,
            message_bytes_max,
            budget: BufferBudget::new(),
            runs_stopped,
        }))
    }

    pub(in crate::grpc::edge) fn ownerships(&self) -> Ownerships {
        self.0.routing.ownerships.clone()
    }

    pub(in crate::grpc::edge) fn links(&self) -> &Links {
        &self.0.routing.links
    }

    pub(in crate::grpc::edge) fn local(&self) -> &LocalServices {
        &self.0.routing.local
    }

    /// Serves one RPC of the contract. Its principal, if there is one, is in its extensions.
    pub(in crate::grpc::edge) async fn serve(&self, request: http::Request<Body>) -> http::Response<Body> {
        self.0.serve(request).await
    }
}

impl<S> Layer<S> for ForwardLayer {
    type Service = ForwardService<S>;

    fn layer(&self, inner: S) -> ForwardService<S> {
        ForwardService { inner, forward: self.clone() }
    }
}

/// The services of every replica behind a [`ForwardLayer`].
#[derive(Clone)]
pub struct ForwardService<S> {
    inner: S,
    forward: ForwardLayer,
}

type Boxed<E> = Pin<Box<dyn Future<Output = Result<http::Response<Body>, E>> + Send>>;

impl<S> Service<http::Request<Body>> for ForwardService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<S::Future, Boxed<S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        strip(request.headers_mut());
        if !request.uri().path().starts_with(CONTRACT) {
            return Either::Left(self.inner.call(request));
        }
        let forward = self.forward.clone();
        Either::Right(Box::pin(async move { Ok(forward.serve(request).await) }))
    }
}

impl Inner {
    async fn serve(&self, request: http::Request<Body>) -> http::Response<Body> {
        // An RPC that this version does not know is refused by the services of this replica.
        let Rpc { mode, kind, .. } = *Rpc::of(request.uri().path());
        let routing = &self.routing;
        match kind {
            RouteKind::Here => return self.here(mode, request).await,
            RouteKind::Hub if mode == ForwardMode::HostStream => return self.at_hub(request).await,
            _ => {}
        }
        let bytes_max = request_bytes_max(request.uri().path(), self.message_bytes_max);
        let mut rpc = match BufferedRpc::read(request, bytes_max, &self.budget).await {
            Ok(rpc) => rpc,
            Err(refused) => return refused.into_http(),
        };
        let has_new_ids = rpc.set_ids(&*self.ids);
        let route_key = kind.key(rpc.head().tenant(), rpc.message(), has_new_ids);
        match mode {
            ForwardMode::Unary => {
                let mut caller = CallerPresence::new(routing, StreamPosition::join_of_run(&rpc));
                let options = SendOptions::unary();
                let sent = Box::pin(send(routing, &rpc, &route_key, options, caller.at())).await;
                caller.stays();
                sent.response
            }
            ForwardMode::UnaryIfNamed | ForwardMode::UnaryOnce => {
                let (options, at) = (SendOptions::unary_if(rpc.names_its_target()), RpcPlace::default());
                Box::pin(send(routing, &rpc, &route_key, options, &at)).await.response
            }
            ForwardMode::UnaryOfSession => {
                let (options, at) = (SendOptions::unary_as(self.repetition(&rpc).await), RpcPlace::default());
                Box::pin(send(routing, &rpc, &route_key, options, &at)).await.response
            }
            ForwardMode::Events => {
                let position = StreamPosition::before_events(&rpc);
                Box::pin(follow(routing.clone(), rpc, route_key, position)).await
            }
            ForwardMode::Changes => {
                Box::pin(follow(routing.clone(), rpc, route_key, StreamPosition::before_changes())).await
            }
            ForwardMode::Download | ForwardMode::Upload | ForwardMode::HostStream => {
                Box::pin(pass(routing, rpc, &route_key)).await
            }
        }
    }

    /// The mark of a repetition of an RPC about the session that there is now. `None` if that cannot be looked up.
    async fn repetition(&self, rpc: &BufferedRpc) -> Option<RepeatedRpc> {
        let session = rpc.session()?;
        let created_at = self.locate.session_created_at(&rpc.head().tenant(), &session).await;
        let created_at =
            created_at.inspect_err(|error| tracing::debug!(%error, "an RPC is sent once")).ok()?;
        Some(RepeatedRpc { created_at })
    }

    /// Gives an RPC to the services of this replica as soon as they are there. Nothing is kept of it.
    async fn here(&self, mode: ForwardMode, request: http::Request<Body>) -> http::Response<Body> {
        let target = match self.routing.current_target(Destination::Here) {
            Some(target) => Some(target),
            None => self.routing.wait_for_target(Destination::Here, Instant::now() + SEARCH_WAIT).await,
        };
        let Some(target) = target else { return no_owner_status().into_http() };
        let recipient = target.recipient(Destination::Here);
        match target {
            ResolvedTarget::Here(services) => {
                done_here(&self.routing, services, recipient, mode, request).await
            }
            ResolvedTarget::Owner { .. } => no_owner_status().into_http(),
        }
    }

    /// Has the stream of a tool host served by the replica that keeps the hosts. If it is this one, nothing is kept of it.
    async fn at_hub(&self, request: http::Request<Body>) -> http::Response<Body> {
        let routing = &self.routing;
        if let Some(target) = routing.current_target(Destination::Owner(HUB)) {
            let recipient = target.recipient(Destination::Owner(HUB));
            if let ResolvedTarget::Here(services) = target {
                return done_here(routing, services, recipient, ForwardMode::HostStream, request).await;
            }
        }
        let request = request.map(|body| host_stream::requests(routing, body));
        let rpc = ReplayableRpc::of(request, &self.budget);
        Box::pin(pass_host(routing, rpc, self.runs_stopped.clone())).await
    }
}
