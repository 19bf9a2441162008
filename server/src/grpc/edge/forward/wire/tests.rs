//! Connections to a peer that is made of an HTTP/2 server alone, over real sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentloop_core::cluster::shard::OwnerNo;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http_body::Frame;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::{Bytes, http};

use super::connection::{LinkError, PeerConnection};
use super::links::Links;
use super::metadata;
use crate::cluster::{Ownership, Peer as ClusterPeer};
use crate::grpc::edge::forward::wire::bodies::{NextFrame, next_frame, of_bytes, of_frames};

const PATIENCE: Duration = Duration::from_secs(30);

type Seen = (http::Request<RecvStream>, SendResponse<Bytes>);

/// A peer. Its requests are taken in their order.
struct Peer {
    address: String,
    seen: mpsc::UnboundedReceiver<Seen>,
    connections: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl Peer {
    async fn at(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, seen) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let serving = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let sender = sender.clone();
                open.spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok(seen)) = connection.accept().await {
                        sender.send(seen).unwrap();
                    }
                });
            }
        });
        Self { address, seen, connections, serving }
    }

    async fn new() -> Self {
        Self::at("127.0.0.1:0").await
    }

    fn connection(&self) -> Arc<PeerConnection> {
        PeerConnection::to(&self.address, None).unwrap()
    }

    async fn next(&mut self) -> Seen {
        timeout(PATIENCE, self.seen.recv()).await.expect("a request comes").unwrap()
    }

    /// Responds to the next request with these bytes.
    async fn responds(&mut self, bytes: &'static [u8]) -> http::Request<RecvStream> {
        let (request, mut respond) = self.next().await;
        let mut stream = respond.send_response(http::Response::new(()), false).unwrap();
        stream.send_data(Bytes::from_static(bytes), false).unwrap();
        stream
            .send_trailers(http::HeaderMap::from_iter([(http::header::ETAG, "x".parse().unwrap())]))
            .unwrap();
        request
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Breaks all connections, and takes no more.
    async fn stop(&mut self) {
        self.serving.abort();
        let _stopped = (&mut self.serving).await;
    }
}

fn request(body: Body) -> http::Request<Body> {
    http::Request::post("/a/b").body(body).unwrap()
}

async fn frames(response: http::Response<Body>) -> Vec<Frame<Bytes>> {
    let mut body = response.into_body();
    let mut frames = Vec::new();
    while let Some(frame) = timeout(PATIENCE, next_frame(&mut body)).await.expect("it ends") {
        frames.push(frame.unwrap());
    }
    frames
}

#[tokio::test]
async fn a_request_has_its_response_with_trailers() {
    let mut peer = Peer::new().await;
    let connection = peer.connection();
    for body in [Body::empty(), of_bytes(Bytes::from_static(b"sent"))] {
        let is_empty = http_body::Body::is_end_stream(&body);
        let (response, seen) = tokio::join!(connection.send(request(body)), peer.responds(b"said"));
        assert_eq!(seen.uri().to_string(), format!("http://{}/a/b", peer.address));
        let mut sent = seen.into_body();
        assert_eq!(sent.is_end_stream(), is_empty);
        if !is_empty {
            assert_eq!(sent.data().await.unwrap().unwrap(), "sent");
            assert!(sent.is_end_stream(), "the frame says that it is the last one");
        }
        let frames = frames(response.unwrap()).await;
        let [data, trailers] = &frames[..] else { panic!("{frames:?}") };
        assert_eq!(data.data_ref().unwrap(), "said");
        assert_eq!(trailers.trailers_ref().unwrap()["etag"], "x");
    }
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn a_body_waits_until_the_peer_reads_and_comes_whole() {
    let mut peer = Peer::new().await;
    let connection = peer.connection();
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = taken.clone();
    let pieces = futures_util::stream::iter(0..20_u8).map(move |piece| {
        counted.fetch_add(1, Ordering::Relaxed);
        NextFrame::Ok(Frame::data(Bytes::from(vec![piece; 30_000])))
    });
    let (response, seen) = tokio::join!(connection.send(request(of_frames(pieces))), peer.responds(b""));
    let _response = response.unwrap();
    // The peer's window has 64 KiB.
    assert!((1..=4).contains(&taken.load(Ordering::Relaxed)), "{taken:?}");
    let (mut sent, mut read) = (seen.into_body(), Vec::new());
    while let Some(piece) = timeout(PATIENCE, sent.data()).await.expect("it ends") {
        let piece = piece.unwrap();
        sent.flow_control().release_capacity(piece.len()).unwrap();
        read.extend_from_slice(&piece);
    }
    assert_eq!(read, (0..20_u8).flat_map(|piece| vec![piece; 30_000]).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_caller_that_leaves_resets_its_stream_alone() {
    let mut peer = Peer::new().await;
    let connection = peer.connection();
    let endless = || request(of_frames(futures_util::stream::pending()));
    let (response, left) = tokio::join!(connection.send(endless()), peer.responds(b"said"));
    drop(response.unwrap());
    let reset = timeout(PATIENCE, left.into_body().data()).await.expect("it ends").unwrap();
    assert_eq!(reset.unwrap_err().reason(), Some(Reason::CANCEL), "after the response");

    let sending = connection.send(endless());
    let left = tokio::select! {
        _response = sending => panic!("there is no response"),
        (left, _respond) = peer.next() => left,
    };
    let reset = timeout(PATIENCE, left.into_body().data()).await.expect("it ends").unwrap();
    assert_eq!(reset.unwrap_err().reason(), Some(Reason::CANCEL), "before it");

    let (response, _) = tokio::join!(connection.send(request(Body::empty())), peer.responds(b"said"));
    assert_eq!(frames(response.unwrap()).await.len(), 2);
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn all_who_wait_share_one_connection_and_its_failure() {
    let mut peer = Peer::new().await;
    let connection = peer.connection();
    let sending = join_all((0..10).map(|_| connection.send(request(Body::empty()))));
    let responding = async {
        for _ in 0..10 {
            peer.responds(b"said").await;
        }
    };
    let (responses, ()) = tokio::join!(sending, responding);
    assert!(responses.iter().all(Result::is_ok));
    assert_eq!(peer.connections(), 1);
    peer.stop().await;
    // It may be the one that finds the connection broken.
    assert!(connection.send(request(Body::empty())).await.is_err());

    let sent = join_all((0..10).map(|_| connection.send(request(Body::empty())))).await;
    assert!(sent.iter().all(|sent| matches!(sent, Err(LinkError::NotReached(_)))), "{sent:?}");

    let mut peer = Peer::at(&peer.address).await;
    let (response, _) = tokio::join!(connection.send(request(Body::empty())), peer.responds(b"said"));
    assert!(response.is_ok(), "it is made anew");
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn a_response_that_a_broken_connection_cuts_is_no_whole_one() {
    let mut peer = Peer::new().await;
    let connection = peer.connection();
    let sending = connection.send(request(Body::empty()));
    let (response, mut stream) = tokio::join!(sending, async {
        let (_, mut respond) = peer.next().await;
        respond.send_response(http::Response::new(()), false).unwrap()
    });
    stream.send_data(Bytes::from_static(b"begun"), false).unwrap();
    let mut body = response.unwrap().into_body();
    assert_eq!(next_frame(&mut body).await.unwrap().unwrap().data_ref().unwrap(), "begun");
    let (cut, ()) = tokio::join!(next_frame(&mut body), peer.stop());
    assert!(cut.unwrap().is_err());
    let sent = connection.send(request(Body::empty())).await;
    assert!(matches!(sent, Err(LinkError::NotReached(_))), "{sent:?}");
}

/// Bytes that a link sends for three requests with this header, whose value is the same and long.
async fn sent_with(header: http::HeaderName) -> u64 {
    const LONG: usize = 2_000;
    let Peer { address: served, mut seen, .. } = Peer::new().await;
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = relay.local_addr().unwrap().to_string();
    let relaying = async {
        let (mut from, _) = relay.accept().await.unwrap();
        let mut to = TcpStream::connect(&served).await.unwrap();
        tokio::io::copy_bidirectional(&mut from, &mut to).await.unwrap().0
    };
    let number = OwnerNo(1);
    let link = Links::new(None).to(&ClusterPeer { number, address }, &Ownership::unknown(number)).unwrap();
    let sending = async move {
        for _ in 0..3 {
            let mut request = request(Body::empty());
            request.headers_mut().insert(header.clone(), "x".repeat(LONG).parse().unwrap());
            frames(link.send(request).await.unwrap()).await;
        }
    };
    let responding = async {
        for _ in 0..3 {
            let (_, mut respond) = timeout(PATIENCE, seen.recv()).await.expect("a request comes").unwrap();
            respond.send_response(http::Response::new(()), true).unwrap();
        }
    };
    tokio::join!(relaying, sending, responding).0
}

#[tokio::test]
async fn a_link_tells_a_value_that_comes_again_once_and_keeps_no_other() {
    let [again, others] = [sent_with(metadata::PRINCIPAL).await, sent_with(metadata::CALLER).await];
    assert!(again < 3_000, "{again} bytes");
    assert!(others > 5_000, "{others} bytes");
}

#[test]
fn what_is_no_address_is_told() {
    for address in ["", "a b:1", "http://a:1/"] {
        assert!(PeerConnection::to(address, None).is_err(), "{address:?}");
    }
}
