//! The port for other replicas. It takes the RPCs that they send on, for callers whom they have authenticated, and their
//! streams: tool links and changes of runs.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use agentloop_core::cluster::shard::{OwnerNo, ShardNo};
use futures_util::StreamExt as _;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{self, HeaderMap, HeaderName};
use tonic::service::Routes;
use tonic::transport::Server;
use tower::{Layer, Service};

use crate::auth::{Authentication, ClientAuth, SubjectPattern};
use crate::cluster::Ownerships;
use crate::engine::Engine;
use crate::grpc::edge::forward::layer::ForwardLayer;
use crate::grpc::edge::forward::outcome::refusals::{self, REFUSED};
use crate::grpc::edge::forward::reach::HERE;
use crate::grpc::edge::forward::request::forwarded_rpc::Relayed;
use crate::grpc::edge::forward::route::local::ServiceSet;
use crate::grpc::edge::forward::route::shutdown::STOPPING;
use crate::grpc::edge::forward::wire::connection::{
    HEADERS_BYTES_MAX, LINK_WINDOW_BYTES, LinkTls, PING_EVERY, PING_WAIT, STREAM_WINDOW_BYTES,
};
use crate::grpc::edge::forward::wire::metadata::{
    CALLER, PRINCIPAL, RELAYED, REPEATED, REPLICA, SHARD, strip,
};
use crate::grpc::edge::forward::wire::principal;
use crate::grpc::edge::incoming::{HandshakeFailed, IncomingLink, RemoteEnd, connections, tls_connections};
use crate::grpc::edge::run_changes;
use crate::grpc::edge::tls::{Acceptor, BadTlsFiles, TlsClients, TlsFiles};
use crate::grpc::edge::tool_link::{self, ToolLinkService};
use crate::grpc::repetition::RepeatedRpc;
use crate::grpc::status::{self, unauthenticated};

/// Connections of other replicas. Each replica keeps one.
const CONNECTIONS_MAX: usize = 256;
/// RPCs on one link: those of all callers of a replica. The replica that sends them bounds them.
const STREAMS_MAX: u32 = 1_000_000;
/// Streams that may be reset before they are accepted. Many callers share a link, and many may leave at one time.
const PENDING_RESETS_MAX: usize = 10_000;
/// Time for which an RPC waits until a replica that has just joined has opened its services.
const OPEN_WAIT: Duration = Duration::from_secs(5);
/// Time for the handshake of a connection.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(5);

/// Takes the RPCs and streams of other replicas. RPCs of replicas of this version are done here. Replicas of an earlier
/// version know only one owner, so the [`ForwardLayer`] sends their RPCs on to the right one.
#[derive(Clone)]
pub struct PeerListener {
    ownerships: Ownerships,
    forward: ForwardLayer,
    authentication: Authentication,
    tool_link: Option<ToolLinkService>,
    run_changes: Option<Engine>,
}

/// The acceptor of the port for replicas: a client must present a certificate of the same roots.
///
/// # Errors
/// [`BadTlsFiles`]
pub fn peer_acceptor(tls: &LinkTls) -> Result<Acceptor, BadTlsFiles> {
    let LinkTls { certificate, key, ca, name } = tls.clone();
    // Without a name, every certificate of these roots is a replica's.
    let names = name.iter().map(|name| SubjectPattern::parse(&format!("DNS={name}")));
    let allowed_subjects = names.collect::<Result<_, _>>();
    let allowed_subjects = allowed_subjects.map_err(|problem| BadTlsFiles { file: "tls_name", problem })?;
    let files = TlsFiles { certificate, key, client_ca: Some(ca) };
    let clients =
        TlsClients { auth: ClientAuth::Required, allowed_subjects, handshake_timeout: HANDSHAKE_WAIT };
    Acceptor::new(&files, clients)
}

impl PeerListener {
    /// The listener of the replica with this layer.
    #[must_use]
    pub fn new(forward: ForwardLayer, authentication: Authentication) -> Self {
        Self { ownerships: forward.ownerships(), forward, authentication, tool_link: None, run_changes: None }
    }

    /// Takes the links to the tool hosts of this replica, too.
    #[must_use]
    pub fn with_tool_link(self, tool_link: ToolLinkService) -> Self {
        Self { tool_link: Some(tool_link), ..self }
    }

    /// Tells other replicas the changes of the runs of this engine, too.
    #[must_use]
    pub fn with_run_changes(self, engine: Engine) -> Self {
        Self { run_changes: Some(engine), ..self }
    }

    /// Serves until `stop`, then waits until every RPC has ended. Without an acceptor, whoever reaches the port is believed.
    ///
    /// # Errors
    /// The transport's.
    pub async fn serve(
        self,
        listener: TcpListener,
        acceptor: Option<watch::Receiver<Acceptor>>,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), tonic::transport::Error> {
        let incoming = match acceptor {
            Some(acceptor) => {
                let local = self.forward.local().clone();
                let failed: HandshakeFailed = Arc::new(move |from, why| {
                    if let Some(audit) = local.audit() {
                        audit.handshake_failed(from, why);
                    }
                });
                tls_connections(listener, CONNECTIONS_MAX, acceptor, failed).left_stream()
            }
            None => connections(listener, CONNECTIONS_MAX).right_stream(),
        };
        Server::builder()
            .http2_keepalive_interval(Some(PING_EVERY))
            .http2_keepalive_timeout(Some(PING_WAIT))
            .http2_max_header_list_size(HEADERS_BYTES_MAX)
            .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS_MAX))
            .http2_max_local_error_reset_streams(None)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(LINK_WINDOW_BYTES)
            .max_concurrent_streams(STREAMS_MAX)
            .layer(self)
            .add_routes(Routes::default())
            .serve_with_incoming_shutdown(incoming, stop)
            .await
    }

    async fn take(&self, request: http::Request<Body>) -> http::Response<Body> {
        match self.take_own(request).await {
            ControlFlow::Break(response) => response,
            ControlFlow::Continue(request) => self.take_relayed(request).await,
        }
    }

    /// Takes what replicas request for themselves. An RPC that one sends on comes back, if it means this replica. A replica of
    /// another cluster, which may have had this address before, is refused everything.
    async fn take_own(
        &self,
        request: http::Request<Body>,
    ) -> ControlFlow<http::Response<Body>, http::Request<Body>> {
        if self.forward.links().is_of_another_cluster(request.headers()) {
            return ControlFlow::Break(look_again());
        }
        let means_me =
            number_in(request.headers(), &REPLICA).map(OwnerNo) == Some(self.ownerships.borrow().me());
        let response = match (request.uri().path(), &self.tool_link, &self.run_changes) {
            (STOPPING, ..) => {
                if let Some(replica) = request.extensions().get::<RemoteEnd>() {
                    replica.link.mark_given_up();
                }
                Status::ok("").into_http()
            }
            (tool_link::PATH, Some(tool_link), _) => tool_link.serve(request).await,
            _ if !means_me => look_again(),
            (HERE, ..) => Status::ok("").into_http(),
            (run_changes::PATH, _, Some(engine)) => run_changes::serve(engine.clone(), request).await,
            (REFUSED, ..) => refusals::take(self.forward.local().audit(), request).await.into_http(),
            _ => return ControlFlow::Continue(request),
        };
        ControlFlow::Break(response)
    }

    /// Does an RPC that a replica sends on for its caller, or sends it on further for one of an earlier version.
    async fn take_relayed(&self, mut request: http::Request<Body>) -> http::Response<Body> {
        let services = if request.headers().contains_key(SHARD) {
            let shard = number_in(request.headers(), &SHARD).map(ShardNo);
            let services = match shard {
                Some(shard) => self.services(shard).await,
                None => None,
            };
            let Some(services) = services else { return look_again() };
            Some(services)
        } else {
            None
        };
        let sent = request.headers().get(PRINCIPAL).map(principal::decode);
        match sent {
            Some(Some(principal)) => drop(request.extensions_mut().insert(principal)),
            None if !self.authentication.is_required() => {}
            Some(None) | None => {
                return unauthenticated("the replica that took the RPC names no caller").into_http();
            }
        }
        let link = match request.headers().contains_key(RELAYED) {
            // This link counts as lost from the beginning.
            true => Some(IncomingLink::default()),
            false => request.extensions().get::<RemoteEnd>().map(|replica| replica.link.clone()),
        };
        if let Some(link) = link {
            request.extensions_mut().insert(link);
        }
        // The audit log has the caller's address, and not that of the replica.
        let caller = caller(request.headers());
        request.extensions_mut().insert(caller);
        if let Some(mark) = request.headers().get(REPEATED).map(RepeatedRpc::from_header) {
            request.extensions_mut().insert(mark);
        }
        strip(request.headers_mut());
        match services {
            Some(services) => services.call(request).await,
            None => {
                request.extensions_mut().insert(Relayed);
                self.forward.serve(request).await
            }
        }
    }
}

impl PeerListener {
    /// The services, while this replica owns the shard. A replica that has just joined opens its services within moments, so
    /// this waits for them: that costs less than to send every RPC again.
    async fn services(&self, shard: ShardNo) -> Option<ServiceSet> {
        let (mut ownerships, mut local) = (self.ownerships.clone(), self.forward.local().subscribe());
        let until = Instant::now() + OPEN_WAIT;
        loop {
            if !ownerships.borrow_and_update().is_mine(shard) {
                return None;
            }
            local.mark_unchanged();
            if let Some(services) = self.forward.local().get() {
                return Some(services);
            }
            tokio::select! {
                changed = ownerships.changed() => changed.ok()?,
                changed = local.changed() => changed.ok()?,
                () = sleep_until(until) => return None,
            }
        }
    }
}

fn number_in<N: FromStr>(headers: &HeaderMap, name: &HeaderName) -> Option<N> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

fn caller(headers: &HeaderMap) -> RemoteEnd {
    let address = headers.get(CALLER).and_then(|address| address.to_str().ok()?.parse().ok());
    RemoteEnd { address, ..RemoteEnd::default() }
}

/// Tells the other replica that nothing was done. It does not show this to its caller.
fn look_again() -> http::Response<Body> {
    status::look_again("this replica does not own the session; look again").into_http()
}

impl<S> Layer<S> for PeerListener {
    type Service = PeerService;

    fn layer(&self, _no_services: S) -> PeerService {
        PeerService(Arc::new(self.clone()))
    }
}

/// The service behind the listener.
#[derive(Clone)]
pub struct PeerService(Arc<PeerListener>);

impl Service<http::Request<Body>> for PeerService {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let listener = self.0.clone();
        Box::pin(async move { Ok(listener.take(request).await) })
    }
}
