//! An HTTP/2 connection to another replica, made with the first request and again after it broke.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, Shared};
use h2::client::{self, SendRequest};
use h2::{Ping, PingPong};
use hyper_util::client::legacy::connect::HttpConnector;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::http::uri::{Authority, Scheme};
use tonic::codegen::{Bytes, http};
use tower::ServiceExt as _;

use crate::grpc::edge::forward::wire::exchange::exchange;
use crate::grpc::edge::tls;
use crate::telemetry::with_causes;

/// Time to make a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(1);
/// Time between two pings, also on an idle link: a peer that stands still keeps its connections open.
pub(in crate::grpc::edge) const PING_EVERY: Duration = Duration::from_secs(1);
/// A link with no response to a ping for this long is broken.
pub(in crate::grpc::edge) const PING_WAIT: Duration = Duration::from_secs(2);
/// Bytes of one stream that wait for its reader.
pub(in crate::grpc::edge) const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// Bytes of all streams together: the most that HTTP/2 knows. So callers who do not read hold up nobody else.
pub(in crate::grpc::edge) const LINK_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// All headers of an RPC together, in bytes. A principal with all the groups and patterns that it may have fits.
pub(in crate::grpc::edge) const HEADERS_BYTES_MAX: u32 = 256 * 1024;

/// Certificates for the links between replicas, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkTls {
    /// The certificate of this replica, and those that lead to its root.
    pub certificate: Vec<u8>,
    /// The key of the certificate.
    pub key: Vec<u8>,
    /// The roots of the certificates of all replicas.
    pub ca: Vec<u8>,
    /// The name that the certificates of all replicas have. `None`: each has the host of its address.
    pub name: Option<String>,
}

impl std::fmt::Debug for LinkTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkTls").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The reason why a request has no response.
#[derive(Debug, Clone, thiserror::Error)]
pub(in crate::grpc::edge) enum LinkError {
    /// There was no connection. The peer did not see the request.
    #[error("{0}")]
    NotReached(Arc<str>),
    /// The connection broke, or the peer has reset the stream. The request may have been done.
    #[error("the connection broke: {0}")]
    Broken(Arc<h2::Error>),
}

/// The address of a peer, and what a connection to it needs.
struct Target {
    scheme: Scheme,
    authority: Authority,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// A connection to a peer. It closes when it is dropped and its last request has ended.
pub(super) struct PeerConnection {
    target: Target,
    state: Mutex<State>,
}

enum State {
    Closed,
    Opening(Opening),
    Open(OpenConnection),
}

#[derive(Clone)]
struct OpenConnection {
    requests: SendRequest<Bytes>,
    /// Cancelled when the connection is of no use any more.
    ended: CancellationToken,
}

type Opening = Shared<BoxFuture<'static, Result<OpenConnection, LinkError>>>;

impl PeerConnection {
    /// A connection to this address, a host and a port. It is not made yet.
    ///
    /// # Errors
    /// The address or the certificates cannot be used. The text says why, for people.
    pub(super) fn to(address: &str, tls: Option<&LinkTls>) -> Result<Arc<Self>, String> {
        let authority: Authority = address.parse().map_err(|error| format!("{error}"))?;
        let (scheme, tls) = match tls {
            None => (Scheme::HTTP, None),
            Some(files) => {
                let config = tls::client_config(&files.certificate, &files.key, &files.ca);
                let config = config.map_err(|bad| bad.to_string())?;
                let name = files.name.as_deref().unwrap_or_else(|| authority.host());
                let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
                (Scheme::HTTPS, Some((TlsConnector::from(Arc::new(config)), name)))
            }
        };
        let target = Target { scheme, authority, tls };
        Ok(Arc::new(Self { target, state: Mutex::new(State::Closed) }))
    }

    /// Sends a request, and waits for the beginning of its response.
    ///
    /// # Errors
    /// [`LinkError`]
    pub(super) async fn send(
        self: &Arc<Self>,
        mut request: http::Request<Body>,
    ) -> Result<http::Response<Body>, LinkError> {
        let mut uri = std::mem::take(request.uri_mut()).into_parts();
        (uri.scheme, uri.authority) = (Some(self.target.scheme.clone()), Some(self.target.authority.clone()));
        *request.uri_mut() = http::Uri::from_parts(uri).map_err(LinkError::not_reached)?;
        let requests = self.ready().await?;
        exchange(requests, request).await.map_err(|error| LinkError::Broken(Arc::new(error)))
    }

    /// An open connection. One that has broken meanwhile is made anew.
    async fn ready(self: &Arc<Self>) -> Result<SendRequest<Bytes>, LinkError> {
        let OpenConnection { requests, ended } = self.open().await?;
        if let Ok(requests) = requests.ready().await {
            return Ok(requests);
        }
        ended.cancel();
        self.open().await?.requests.ready().await.map_err(LinkError::not_reached)
    }

    async fn open(self: &Arc<Self>) -> Result<OpenConnection, LinkError> {
        let opening = {
            let mut state = self.state.lock();
            match &*state {
                State::Open(open) if !open.ended.is_cancelled() => return Ok(open.clone()),
                // One that has ended without a change of the state was of a task that is gone.
                State::Opening(opening) if opening.peek().is_none() => opening.clone(),
                State::Open(_) | State::Opening(_) | State::Closed => {
                    let opening = opening(self.clone());
                    *state = State::Opening(opening.clone());
                    opening
                }
            }
        };
        opening.await
    }
}

/// A task makes a connection, so that it is made whoever leaves. All who wait for it share the outcome.
fn opening(connection: Arc<PeerConnection>) -> Opening {
    #[expect(clippy::disallowed_methods, reason = "it ends in bounded time")]
    let task = tokio::spawn(async move {
        let opened = match timeout(CONNECT_WAIT, connection.target.connect()).await {
            Ok(opened) => opened,
            Err(_late) => Err(format!("there is no connection within {} s", CONNECT_WAIT.as_secs())),
        };
        *connection.state.lock() = opened.as_ref().map_or(State::Closed, |open| State::Open(open.clone()));
        opened.map_err(LinkError::not_reached)
    });
    // The task is gone when the runtime ends.
    task.map(|opened| opened.unwrap_or_else(|gone| Err(LinkError::not_reached(gone)))).boxed().shared()
}

impl LinkError {
    fn not_reached(why: impl Display) -> Self {
        Self::NotReached(why.to_string().into())
    }
}

impl Target {
    async fn connect(&self) -> Result<OpenConnection, String> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let uri = http::Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        let uri = uri.path_and_query("/").build().map_err(|error| error.to_string())?;
        let stream = connector.oneshot(uri).await.map_err(|error| with_causes(&error))?.into_inner();
        match &self.tls {
            None => begin(stream).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await;
                begin(stream.map_err(|error| with_causes(&error))?).await
            }
        }
    }
}

/// Begins to speak HTTP/2. A task does so until the connection ends, or nothing comes over it.
async fn begin(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<OpenConnection, String> {
    let begun = client::Builder::new()
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(LINK_WINDOW_BYTES)
        .max_header_list_size(HEADERS_BYTES_MAX)
        // Late frames of streams that callers have left count as errors.
        .max_local_error_reset_streams(None)
        .enable_push(false)
        .handshake(stream);
    let (requests, mut connection) = begun.await.map_err(|error| with_causes(&error))?;
    let pings = connection.ping_pong();
    let ended = CancellationToken::new();
    let guard = ended.clone().drop_guard();
    #[expect(clippy::disallowed_methods, reason = "it ends with the link, as a task of the transport does")]
    tokio::spawn(async move {
        let _ended = guard;
        tokio::select! {
            end = connection => tracing::debug!(?end, "a link to another replica has ended"),
            () = silence(pings) => tracing::debug!("nothing comes over a link to another replica"),
        }
    });
    Ok(OpenConnection { requests, ended })
}

/// Returns when there is no response to a ping.
async fn silence(pings: Option<PingPong>) {
    let Some(mut pings) = pings else { return std::future::pending().await };
    loop {
        sleep(PING_EVERY).await;
        match timeout(PING_WAIT, pings.ping(Ping::opaque())).await {
            Ok(Ok(_pong)) => {}
            // The connection ends by itself.
            Ok(Err(_)) => std::future::pending().await,
            Err(_late) => return,
        }
    }
}
