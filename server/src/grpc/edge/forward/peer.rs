//! The port for other replicas: takes the calls that they send on, for the callers whom they have authenticated.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{self, HeaderMap, HeaderValue};
use tonic::service::Routes;
use tonic::transport::Server;
use tower::{Layer, Service};

use crate::auth::{ClientAuth, SubjectPattern};
use crate::cluster::{Standing, Standings};
use crate::grpc::edge::forward::leave::LEAVE;
use crate::grpc::edge::forward::links::{
    HEADERS_BYTES_MAX, LINK_WINDOW_BYTES, LinkTls, PING_EVERY, PING_WAIT, STREAM_WINDOW_BYTES,
};
use crate::grpc::edge::forward::local::{LocalServices, Opened};
use crate::grpc::edge::forward::metadata::{CALLER, LOOK_AGAIN, PRINCIPAL, REPLICA, strip};
use crate::grpc::edge::forward::principal;
use crate::grpc::edge::forward::refusals::{self, REFUSED};
use crate::grpc::edge::incoming::{HandshakeFailed, Peer as Connected, connections, tls_connections};
use crate::grpc::edge::tls::{Acceptor, BadTlsFiles, TlsClients, TlsFiles};
use crate::grpc::status::{owner_unavailable, unauthenticated};

/// Connections of other replicas. Each replica keeps one.
const CONNECTIONS_MAX: usize = 256;
/// Calls on one link: those of all callers of a replica. That replica bounds them.
const STREAMS_MAX: u32 = 1_000_000;
/// Streams that may be reset before they are accepted. Many callers share a link, and many may leave at one time.
const PENDING_RESETS_MAX: usize = 10_000;
/// Time for which a call waits until a new owner has opened its services.
const OPEN_WAIT: Duration = Duration::from_secs(5);
/// Time for the handshake of a connection.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(5);

/// Takes calls that other replicas send on. It never sends them further.
#[derive(Clone)]
pub struct PeerPort {
    number: i64,
    standings: Standings,
    local: LocalServices,
    needs_principal: bool,
}

/// The acceptor of the port for replicas: a client must present a certificate of the same roots.
///
/// # Errors
/// [`BadTlsFiles`]
pub fn peer_acceptor(tls: &LinkTls) -> Result<Acceptor, BadTlsFiles> {
    let LinkTls { certificate, key, ca, name } = tls.clone();
    // Without a name, every certificate of these roots is a replica's.
    let names = name.iter().map(|name| SubjectPattern::parse(&format!("DNS={name}")));
    let allowed_subjects = names.collect::<Result<_, _>>().map_err(BadTlsFiles::from)?;
    let files = TlsFiles { certificate, key, client_ca: Some(ca) };
    let clients =
        TlsClients { auth: ClientAuth::Required, allowed_subjects, handshake_timeout: HANDSHAKE_WAIT };
    Acceptor::new(&files, clients)
}

impl PeerPort {
    /// The port of the replica with this number. `needs_principal` is true if callers must present credentials.
    #[must_use]
    pub fn new(number: i64, standings: Standings, local: LocalServices, needs_principal: bool) -> Self {
        Self { number, standings, local, needs_principal }
    }

    /// Serves until `stop`, then waits until every call has ended. Without an acceptor, whoever reaches the port is believed.
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
                let local = self.local.clone();
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

    async fn take(&self, mut request: http::Request<Body>) -> http::Response<Body> {
        if request.uri().path() == LEAVE {
            if let Some(replica) = request.extensions().get::<Connected>() {
                replica.link.leaves();
            }
            return Status::ok("").into_http();
        }
        let meant = request.headers().get(REPLICA).and_then(|number| number.to_str().ok()?.parse().ok());
        let services = if meant == Some(self.number) { self.services().await } else { None };
        let Some(services) = services else { return look_again() };
        if request.uri().path() == REFUSED {
            return refusals::take(services.audit(), request).await.into_http();
        }
        let told = request.headers().get(PRINCIPAL).map(principal::decode);
        match told {
            Some(Some(principal)) => drop(request.extensions_mut().insert(principal)),
            None if !self.needs_principal => {}
            Some(None) | None => {
                return unauthenticated("the replica that took the call names no caller").into_http();
            }
        }
        let link = request.extensions().get::<Connected>().map(|replica| replica.link.clone());
        if let Some(link) = link {
            request.extensions_mut().insert(link);
        }
        // The audit log has the caller's address, and not that of the replica.
        let caller = caller(request.headers());
        request.extensions_mut().insert(caller);
        strip(request.headers_mut());
        services.call(request).await
    }
}

impl PeerPort {
    /// The services, while this replica owns the database. A new owner opens them within moments: waiting here costs less than a
    /// question of every call again and again.
    async fn services(&self) -> Option<Opened> {
        let (mut standings, mut local) = (self.standings.clone(), self.local.news());
        let until = Instant::now() + OPEN_WAIT;
        loop {
            if *standings.borrow_and_update() != Standing::Owner {
                return None;
            }
            local.mark_unchanged();
            if let Some(services) = self.local.get() {
                return Some(services);
            }
            tokio::select! {
                changed = standings.changed() => changed.ok()?,
                changed = local.changed() => changed.ok()?,
                () = sleep_until(until) => return None,
            }
        }
    }
}

fn caller(headers: &HeaderMap) -> Connected {
    let address = headers.get(CALLER).and_then(|address| address.to_str().ok()?.parse().ok());
    Connected { address, ..Connected::default() }
}

/// Tells the other replica that nothing was done. It does not show this to its caller.
fn look_again() -> http::Response<Body> {
    let mut response = owner_unavailable("this replica does not own the database; look again").into_http();
    response.headers_mut().insert(LOOK_AGAIN, HeaderValue::from_static("1"));
    response
}

impl<S> Layer<S> for PeerPort {
    type Service = BudgetShare;

    fn layer(&self, _no_services: S) -> BudgetShare {
        BudgetShare(Arc::new(self.clone()))
    }
}

/// The service behind the port.
#[derive(Clone)]
pub struct BudgetShare(Arc<PeerPort>);

impl Service<http::Request<Body>> for BudgetShare {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let port = self.0.clone();
        Box::pin(async move { Ok(port.take(request).await) })
    }
}
