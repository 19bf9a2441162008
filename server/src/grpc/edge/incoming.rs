//! Accepts connections, plain or with TLS: sets TCP_NODELAY, limits their number and that of handshakes under way, and
//! drops clients that send nothing. Of each handshake that fails, somebody is told.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, Aborted};
use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::auth::CertificateFacts;
use crate::grpc::edge::tls::{Accepted, Acceptor, HandshakeError};

/// Length of the connection preface that every HTTP/2 client sends first.
const PREFACE_BYTES: usize = 24;
/// Time within which the preface must arrive. After it, the transport's keepalive watches the client.
const PREFACE_WAIT: Duration = Duration::from_secs(10);
/// Time in which a connection that is lost ends after its RPCs.
const LOSS_WAIT: Duration = Duration::from_millis(100);
/// Handshakes under way at one time, at most, and never more than a quarter of the connections. A further connection ends the
/// oldest of them, so that clients who never finish theirs keep nobody out.
const HANDSHAKES_MAX: usize = 1_024;

/// Told of each connection whose handshake failed: the peer's address, if the system knows it, and the cause.
pub type HandshakeFailed = Arc<dyn Fn(Option<SocketAddr>, String) + Send + Sync>;

/// An accepted connection. It holds one of the permits that limit their number.
#[derive(Debug)]
pub struct Connection {
    stream: Transport,
    preface: Option<Preface>,
    peer: RemoteEnd,
    /// Ends with the connection.
    _open: Arc<Open>,
    _slot: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// The other side of a connection.
#[derive(Debug, Clone, Default)]
pub struct RemoteEnd {
    /// Address of the peer, if the system knows it.
    pub address: Option<SocketAddr>,
    /// Its verified certificate; `None` if it presented none.
    pub certificate: Option<Arc<CertificateFacts>>,
    /// The connection, with or without TLS.
    pub(in crate::grpc) link: IncomingLink,
}

/// The connection over which an RPC was forwarded: from another replica, or within this one.
#[derive(Debug, Clone)]
pub struct IncomingLink(IncomingLinkEnd);

#[derive(Debug, Clone)]
enum IncomingLinkEnd {
    Connection(Weak<Open>),
    Here(Arc<Open>),
}

impl Default for IncomingLink {
    /// A connection that is lost.
    fn default() -> Self {
        Self(IncomingLinkEnd::Connection(Weak::new()))
    }
}

#[derive(Debug, Default)]
struct Open {
    /// True if the other side has said that it ends, or gives its RPCs up.
    is_given_up: AtomicBool,
}

impl IncomingLink {
    /// The link of one RPC that this replica sends to its own services.
    pub(in crate::grpc) fn here() -> Self {
        Self(IncomingLinkEnd::Here(Arc::default()))
    }

    /// True if the RPC came from another replica.
    pub(in crate::grpc) fn is_from_replica(&self) -> bool {
        matches!(self.0, IncomingLinkEnd::Connection(_))
    }

    /// Notes that the other side ends: it resets RPCs that nobody has left.
    pub(in crate::grpc) fn mark_given_up(&self) {
        if let Some(open) = self.open() {
            open.is_given_up.store(true, Ordering::Relaxed);
        }
    }

    /// Tells why an RPC of this link was dropped: true if the connection is lost or the other side ends, false if that side has
    /// reset the RPC for its caller. The transport drops the RPCs of a lost connection a moment before the connection.
    pub(in crate::grpc) async fn is_lost(&self) -> bool {
        sleep(LOSS_WAIT).await;
        self.open().is_none_or(|open| open.is_given_up.load(Ordering::Relaxed))
    }

    fn open(&self) -> Option<Arc<Open>> {
        match &self.0 {
            IncomingLinkEnd::Connection(open) => open.upgrade(),
            IncomingLinkEnd::Here(open) => Some(open.clone()),
        }
    }
}

/// The part of the preface that has not arrived yet, and its deadline.
#[derive(Debug)]
struct Preface {
    missing: usize,
    late: Pin<Box<Sleep>>,
}

impl Connection {
    fn new(stream: Transport, peer: RemoteEnd, slot: OwnedSemaphorePermit) -> Self {
        let open = Arc::new(Open::default());
        let peer =
            RemoteEnd { link: IncomingLink(IncomingLinkEnd::Connection(Arc::downgrade(&open))), ..peer };
        let preface = Preface { missing: PREFACE_BYTES, late: Box::pin(sleep(PREFACE_WAIT)) };
        Self { stream, preface: Some(preface), peer, _open: open, _slot: slot }
    }
}

/// Accepts plain connections. At the limit, further clients wait in the listener's backlog.
pub fn connections(
    listener: TcpListener,
    max_connections: usize,
) -> impl Stream<Item = io::Result<Connection>> + Send {
    accepted(listener, max_connections).map(|accepted| {
        let (stream, slot) = accepted?;
        let peer = RemoteEnd { address: stream.peer_addr().ok(), certificate: None, ..RemoteEnd::default() };
        Ok(Connection::new(Transport::Plain(stream), peer, slot))
    })
}

/// Accepts connections with TLS. Each handshake uses the acceptor that is the newest when it begins.
pub fn tls_connections(
    listener: TcpListener,
    max_connections: usize,
    acceptor: watch::Receiver<Acceptor>,
    failed: HandshakeFailed,
) -> impl Stream<Item = io::Result<Connection>> + Send {
    let accepting = Box::pin(accepted(listener, max_connections));
    let state = (accepting, Handshakes::of(max_connections, failed));
    futures_util::stream::unfold(state, move |(mut accepting, mut handshakes)| {
        let acceptor = acceptor.clone();
        async move {
            loop {
                tokio::select! {
                    biased;
                    Some(connection) = handshakes.next(), if !handshakes.under_way.is_empty() => {
                        if let Some(connection) = connection {
                            return Some((Ok(connection), (accepting, handshakes)));
                        }
                    }
                    accepted = accepting.next() => match accepted? {
                        Ok((stream, slot)) => handshakes.start(acceptor.borrow().clone(), stream, slot),
                        Err(error) => return Some((Err(error), (accepting, handshakes))),
                    },
                }
            }
        }
    })
}

/// Accepts TCP connections until the listener ends.
fn accepted(
    listener: TcpListener,
    max_connections: usize,
) -> impl Stream<Item = io::Result<(TcpStream, OwnedSemaphorePermit)>> + Send {
    let slots = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
    futures_util::stream::unfold((listener, slots), |(listener, slots)| async move {
        let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
        let accepted = match listener.accept().await {
            Ok((stream, _)) => {
                // An error means that the connection is dead already; the first read reports that.
                let _dead = stream.set_nodelay(true);
                Ok((stream, slot))
            }
            Err(error) => {
                // Mostly a lack of file descriptors. Waiting avoids a busy loop.
                tracing::warn!(%error, "cannot accept a connection; if files are exhausted, raise the limit of open files");
                sleep(Duration::from_millis(100)).await;
                Err(error)
            }
        };
        Some((accepted, (listener, slots)))
    })
}

type Handshake = Pin<Box<dyn Future<Output = (u64, Option<Connection>)> + Send>>;

/// The handshakes under way, oldest first.
struct Handshakes {
    /// Each holds the place of a connection, so they must not take all of them.
    max: usize,
    under_way: FuturesUnordered<Handshake>,
    by_age: BTreeMap<u64, AbortHandle>,
    started: u64,
    failed: HandshakeFailed,
}

impl Handshakes {
    /// None yet, of a server with so many connections.
    fn of(max_connections: usize, failed: HandshakeFailed) -> Self {
        let max = (max_connections / 4).clamp(1, HANDSHAKES_MAX);
        Self { max, under_way: FuturesUnordered::new(), by_age: BTreeMap::new(), started: 0, failed }
    }

    /// Starts a handshake. If there are too many, the oldest ends at once.
    fn start(&mut self, acceptor: Acceptor, stream: TcpStream, slot: OwnedSemaphorePermit) {
        if self.by_age.len() >= self.max
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            oldest.abort();
        }
        self.started += 1;
        let (number, address, failed) = (self.started, stream.peer_addr().ok(), self.failed.clone());
        let (abort, registration) = AbortHandle::new_pair();
        self.by_age.insert(number, abort);
        let handshake = Abortable::new(handshake(acceptor, address, stream, slot), registration);
        self.under_way.push(Box::pin(async move {
            let done = handshake.await.unwrap_or_else(|Aborted| Err(HandshakeError::Displaced));
            (number, done.inspect_err(|error| report(&failed, address, error)).ok())
        }));
    }

    /// The next handshake that has ended: `Some(None)` if it failed.
    async fn next(&mut self) -> Option<Option<Connection>> {
        let (number, connection) = self.under_way.next().await?;
        self.by_age.remove(&number);
        Some(connection)
    }
}

async fn handshake(
    acceptor: Acceptor,
    address: Option<SocketAddr>,
    stream: TcpStream,
    slot: OwnedSemaphorePermit,
) -> Result<Connection, HandshakeError> {
    let Accepted { stream, certificate } = acceptor.handshake(stream).await?;
    let peer = RemoteEnd { address, certificate, ..RemoteEnd::default() };
    Ok(Connection::new(Transport::Tls(Box::new(stream)), peer, slot))
}

/// Tells why a connection was not accepted. Of a probe of the port nobody is told: balancers send one every few seconds.
fn report(failed: &HandshakeFailed, address: Option<SocketAddr>, error: &HandshakeError) {
    tracing::debug!(%error, "a TLS handshake failed");
    if *error != HandshakeError::Silent {
        failed(address, error.to_string());
    }
}

impl Connected for Connection {
    type ConnectInfo = RemoteEnd;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.peer.clone()
    }
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let Some(preface) = &mut self.preface else { return read };
        preface.missing = preface.missing.saturating_sub(buf.filled().len() - before);
        if preface.missing == 0 {
            self.preface = None;
        } else if preface.late.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

/// Vectored writes are left out on purpose: without them the transport joins frames below 1 KiB into one write.
impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::auth::ClientAuth;
    use crate::grpc::edge::tls::{TlsClients, TlsFiles};

    async fn pair() -> (TcpStream, Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let connection = Box::pin(connections(listener, 1)).next().await.unwrap().unwrap();
        (client, connection)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_without_a_whole_preface_is_dropped() {
        for begin in ["", "P", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r"] {
            let (mut client, mut connection) = pair().await;
            client.write_all(begin.as_bytes()).await.unwrap();
            let mut heard = Vec::new();
            let error = connection.read_to_end(&mut heard).await.unwrap_err();
            assert_eq!((error.kind(), heard.as_slice()), (io::ErrorKind::TimedOut, begin.as_bytes()));
        }
    }

    /// Takes connections with TLS, of which one at a time may be in its handshake.
    async fn secured(failed: HandshakeFailed) -> (SocketAddr, impl Stream<Item = io::Result<Connection>>) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let files = TlsFiles {
            certificate: made.cert.pem().into_bytes(),
            key: made.signing_key.serialize_pem().into_bytes(),
            client_ca: None,
        };
        let clients = TlsClients {
            auth: ClientAuth::None,
            allowed_subjects: Vec::new(),
            handshake_timeout: Duration::from_secs(60),
        };
        let (_, acceptor) = watch::channel(Acceptor::new(&files, clients).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (address, tls_connections(listener, 4, acceptor, failed))
    }

    #[tokio::test]
    async fn a_handshake_that_ends_for_another_is_told_and_a_probe_of_the_port_is_not() {
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let (address, accepting) =
            secured(Arc::new(move |from, why| told.send((from, why)).expect("it is heard"))).await;
        let mut accepting = Box::pin(accepting);
        let mut probe = TcpStream::connect(address).await.unwrap();
        probe.shutdown().await.unwrap();
        // It was closed, so its handshake is over.
        let mut rest = Vec::new();
        tokio::select! {
            _ = accepting.next() => panic!("nobody completes a handshake"),
            read = probe.read_to_end(&mut rest) => assert_eq!(read.unwrap(), 0),
        }
        let first = TcpStream::connect(address).await.unwrap();
        let _second = TcpStream::connect(address).await.unwrap();
        let (from, why) = tokio::select! {
            _ = accepting.next() => panic!("nobody completes a handshake"),
            told = heard.recv() => told.unwrap(),
        };
        assert_eq!((from, why), (first.local_addr().ok(), HandshakeError::Displaced.to_string()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_may_be_silent_after_its_preface() {
        let (mut client, mut connection) = pair().await;
        client.write_all(&[b'x'; PREFACE_BYTES]).await.unwrap();
        connection.read_exact(&mut [0; PREFACE_BYTES]).await.unwrap();
        let mut byte = [0];
        let silence = tokio::time::timeout(10 * PREFACE_WAIT, connection.read(&mut byte));
        assert!(silence.await.is_err(), "it is waited for");
    }
}
