//! Callers that leave while their owner still sends.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

/// More than the errors of streams after which HTTP/2 gives a connection up by default, and than it remembers.
const CALLERS: u64 = 1_500;
/// Status 200 and the type of gRPC, as [RFC 7541](https://www.rfc-editor.org/rfc/rfc7541) writes headers.
const RESPONSE_HEADERS: &[u8] = b"\x88\x0f\x10\x10application/grpc";

/// The bytes that a client sends first. [RFC 9113](https://www.rfc-editor.org/rfc/rfc9113), section 3.4; the types of frames below
/// are in its section 6.
const PREFACE_BYTES: usize = 24;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

async fn write_frame(way: &mut TcpStream, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let bytes = [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat();
    way.write_all(&bytes).await.unwrap();
}

/// Serves a connection as an owner whose event is always under way when its caller leaves.
async fn serve_late(mut way: TcpStream) {
    let event = event(0).unwrap().into_data().unwrap();
    way.set_nodelay(true).unwrap();
    way.read_exact(&mut [0; PREFACE_BYTES]).await.unwrap();
    write_frame(&mut way, SETTINGS, 0, 0, &[]).await;
    let (mut head, mut left) = ([0; 9], BTreeSet::new());
    while way.read_exact(&mut head).await.is_ok() {
        let [a, b, c, kind, flags, stream @ ..] = head;
        let stream = u32::from_be_bytes(stream);
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        way.read_exact(&mut payload).await.unwrap();
        match kind {
            SETTINGS | PING if flags & ACK == 0 => {
                let payload = if kind == PING { payload } else { Vec::new() };
                write_frame(&mut way, kind, ACK, 0, &payload).await;
            }
            HEADERS => {
                write_frame(&mut way, HEADERS, END_HEADERS, stream, RESPONSE_HEADERS).await;
                write_frame(&mut way, DATA, 0, stream, &event).await;
            }
            // The client answers a late frame with another reset.
            RST_STREAM if left.insert(stream) => write_frame(&mut way, DATA, 0, stream, &event).await,
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_link_outlasts_callers_that_leave_while_their_owner_sends() {
    let (listener, address) = loopback().await;
    let replica = Replica::start(owned_by_peer(&Peer { number: OwnerNo(1), address })).await;
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = connections.clone();
    drop(replica.tasks.spawn("late", async move {
        while let Ok((way, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::Relaxed);
            drop(tokio::spawn(serve_late(way)));
        }
    }));
    for _ in 0..CALLERS {
        let request = wire::RunStreamRequest { input: Some(in_s()), after_seq: 0 };
        let mut stream = soon(replica.client().run_stream(request)).await.unwrap().into_inner();
        soon(stream.message()).await.unwrap().unwrap();
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}
