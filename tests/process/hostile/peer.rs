//! A client that speaks HTTP/2 by hand.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use prost::Message;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::server::Server;
use crate::support::soon;

/// An HTTP/2 connection that the test writes frame by frame.
pub(super) struct Peer {
    send: SendRequest<Bytes>,
}

/// The result of a call: the gRPC status and its message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: String,
    pub(super) message: String,
}

impl Peer {
    pub(super) async fn dial(server: &Server) -> Peer {
        Peer::dial_with(server, &Builder::new()).await
    }

    pub(super) async fn dial_with(server: &Server, builder: &Builder) -> Peer {
        let socket = TcpStream::connect(server.address()).await.expect("it listens");
        socket.set_nodelay(true).expect("a live socket");
        let socket = match server.root() {
            Some(root) => encrypted(socket, &root).await,
            None => Box::new(socket) as Box<dyn Socket>,
        };
        let (send, connection) =
            soon("a handshake", builder.handshake(socket)).await.expect("it shakes hands");
        tokio::spawn(async move {
            // Its streams show how it ends.
            let _ended = connection.await;
        });
        Peer { send }
    }

    /// Opens a call; nothing where the connection is over.
    pub(super) async fn call(
        &mut self,
        path: &str,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        self.call_with(request(path)).await
    }

    pub(super) async fn call_with(
        &mut self,
        request: Request<()>,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let ready = soon("room for a stream", self.send.clone().ready()).await?;
        self.send = ready;
        self.send.send_request(request, false)
    }

    /// Makes a call with these bytes, and says how it ended.
    pub(super) async fn ask(&mut self, path: &str, bytes: Bytes) -> Result<Answer, h2::Error> {
        let (response, mut stream) = self.call(path).await?;
        // A server that has heard enough resets the stream; what it said is in the response.
        let _sent = send(&mut stream, bytes, true).await;
        let (head, mut body) = soon("a response", response).await?.into_parts();
        let answer = |headers: &HeaderMap| {
            let text =
                |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
            let message = text("grpc-message").unwrap_or_default();
            text("grpc-status").map(|status| Answer { status, message })
        };
        if let Some(answer) = answer(&head.headers) {
            return Ok(answer);
        }
        read(&mut body).await?;
        let trailers = soon("trailers", body.trailers()).await?.expect("gRPC ends with trailers");
        Ok(answer(&trailers).expect("and those have a status"))
    }
}

/// A connection, plain or encrypted.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

/// Encrypts a connection to a server whose certificate leads to this root.
async fn encrypted(socket: TcpStream, root: &str) -> Box<dyn Socket> {
    let config = client_config(root, &[b"h2"]);
    let name = ServerName::try_from("localhost").expect("a name");
    let connector = TlsConnector::from(Arc::new(config));
    Box::new(soon("a TLS handshake", connector.connect(name, socket)).await.expect("it is trusted"))
}

/// A client of TLS that trusts this root and offers these protocols.
pub(super) fn client_config(root: &str, protocols: &[&[u8]]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(root.as_bytes()).expect("PEM")).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = builder.expect("versions").with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config
}

/// A request for a call.
pub(super) fn request(path: &str) -> Request<()> {
    Request::post(format!("http://server{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .expect("a good request")
}

/// Sends as fast as the other side lets us.
pub(super) async fn send(
    stream: &mut SendStream<Bytes>,
    mut bytes: Bytes,
    end: bool,
) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = soon("room to send", std::future::poll_fn(|context| stream.poll_capacity(context))).await;
        let room = room.ok_or(h2::Reason::CANCEL)??.min(bytes.len());
        let piece = bytes.split_to(room);
        stream.send_data(piece, end && bytes.is_empty())?;
    }
    Ok(())
}

/// Reads to the end.
pub(super) async fn read(body: &mut RecvStream) -> Result<usize, h2::Error> {
    let mut bytes = 0;
    while let Some(piece) = soon("more of the response", body.data()).await {
        let piece = piece?;
        bytes += piece.len();
        body.flow_control().release_capacity(piece.len())?;
    }
    Ok(bytes)
}

/// A message as gRPC frames it.
pub(super) fn framed(message: &impl Message) -> Bytes {
    prefixed(&message.encode_to_vec())
}

/// The bytes of a message, true or not, as gRPC frames them.
pub(super) fn prefixed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(message.len() + 5);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).expect("it is small enough"));
    bytes.put_slice(message);
    bytes.freeze()
}
