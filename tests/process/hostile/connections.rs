//! Connections that are no good: silent, garbled, idle in great number, resetting, never reading.

use std::time::Duration;

use agentloop_client::v1::{ListEntriesRequest, RunRequest, SubscribeRequest};
use bytes::Bytes;
use h2::Reason;
use h2::client::Builder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Code;

use super::peer::{Peer, framed, request, send};
use super::{Siege, honest_model, scaled};
use crate::support::memory::MIB;
use crate::support::server::{Setting, input};
use crate::support::soon;

const RUN: &str = "/agentloop.v1.AgentLoop/Run";
const SUBSCRIBE: &str = "/agentloop.v1.AgentLoop/Subscribe";
const ENTRIES: &str = "/agentloop.v1.Sessions/ListEntries";
const CONNECT: &str = "/agentloop.v1.ToolHost/Connect";

/// The preface of a connection, and an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

async fn dial(siege: &Siege) -> TcpStream {
    TcpStream::connect(siege.server.address()).await.expect("it listens")
}

/// Until the other side hangs up; what it said before.
async fn hung_up(socket: &mut TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    // It may do so in good order or not.
    let _end = soon("the end of a connection", socket.read_to_end(&mut said)).await;
    said
}

#[tokio::test]
async fn garbage_is_hung_up_on() {
    const GROWTH_MAX: usize = 32 * MIB;
    let siege = Siege::begin(&honest_model().await).await;
    let frame = |kind: u8, flags: u8, stream: u8, length: usize| {
        let length = u32::try_from(length).expect("it is small").to_be_bytes();
        [PREFACE, &length[1..], &[kind, flags, 0, 0, 0, stream], &[0xAB; 64]].concat()
    };
    let endless_headers = {
        // HEADERS without an end, then CONTINUATION without an end, of a header that only grows.
        let mut bytes = [PREFACE, &[0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82]].concat();
        for _ in 0..2_000 {
            bytes.extend_from_slice(&[0, 4, 0, 9, 0, 0, 0, 0, 1]);
            bytes.extend(std::iter::repeat_n(0x82, 1_024));
        }
        bytes
    };
    let garbage = [
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(100),
        vec![0; 100_000],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nand something else".to_vec(),
        frame(0, 0, 0, 64),
        frame(1, 4, 1, 64),
        frame(1, 4, 1, 1 << 23),
        frame(4, 0, 0, 63),
        frame(9, 4, 1, 64),
        endless_headers,
    ];
    for _ in 0..scaled(5) {
        for bytes in &garbage {
            let mut socket = dial(&siege).await;
            // The other side may hang up in the middle of it.
            let _heard = socket.write_all(bytes).await;
            let _heard = socket.shutdown().await;
            let said = hung_up(&mut socket).await;
            assert!(said.len() < 4_096, "there is little to say to that");
        }
    }
    siege.end("garbage", GROWTH_MAX).await;
}

/// Silent connections do not use up the limit of connections for good.
#[tokio::test]
async fn silent_connections_lose_their_places() {
    const PLACES: usize = 16;
    let siege = Siege::begin(&Setting { server: "max_connections = 16", ..honest_model().await }).await;
    let mut silent = Vec::new();
    // The rest of the places, and as many that wait for one.
    for at in 0..2 * PLACES {
        let mut socket = dial(&siege).await;
        let begun = at % PREFACE.len().min(24);
        socket.write_all(&PREFACE[..begun]).await.expect("it is buffered");
        silent.push(socket);
    }
    siege.serves("at-last").await;
    for mut socket in silent {
        hung_up(&mut socket).await;
    }
    siege.end("silent connections", 32 * MIB).await;
}

#[tokio::test]
async fn idle_streams_are_cheap() {
    const CONNECTIONS: usize = 25;
    const STREAMS: usize = 400;
    const GROWTH_MAX: usize = 320 * MIB;
    let siege = Siege::begin(&honest_model().await).await;
    let mut idle = Vec::new();
    for _ in 0..scaled(CONNECTIONS) {
        let mut peer = Peer::dial(&siege.server).await;
        let mut streams = Vec::new();
        for at in 0..STREAMS {
            // Some have begun to say something, none says all of it.
            let path = [RUN, CONNECT, ENTRIES, SUBSCRIBE][at % 4];
            let (response, mut stream) = peer.call(path).await.expect("it takes the stream");
            stream.send_data(Bytes::from_static(b"\0\0\0\x10\0x"), false).expect("it is open");
            streams.push((response, stream));
        }
        idle.push((peer, streams));
    }
    siege.serves("beside").await;
    drop(idle);
    siege.end("idle streams", GROWTH_MAX).await;
}

#[tokio::test]
async fn rapid_resets_end_the_connection() {
    const STREAMS: usize = 20_000;
    const GROWTH_MAX: usize = 64 * MIB;
    let siege = Siege::begin(&honest_model().await).await;
    let mut peer = Peer::dial(&siege.server).await;
    let (mut opened, mut ended) = (0, 0);
    while opened < scaled(STREAMS) {
        match peer.call(RUN).await {
            Ok((_response, mut stream)) => {
                stream.send_reset(Reason::CANCEL);
                opened += 1;
                // Without a pause nothing is sent before the next one.
                tokio::task::yield_now().await;
            }
            Err(_over) => {
                ended += 1;
                peer = Peer::dial(&siege.server).await;
            }
        }
    }
    assert!(ended > 0, "{opened} streams were reset, and no connection ended for it");
    siege.end("rapid resets", GROWTH_MAX).await;
}

#[tokio::test]
async fn headers_past_the_limit_are_refused() {
    const GROWTH_MAX: usize = 32 * MIB;
    // A little past the limit is answered, as far past it as a second frame of headers goes is hung up on.
    const ANSWERED: usize = 16;
    const HUNG_UP_ON: usize = 40;
    let siege = Siege::begin(&honest_model().await).await;
    let run = framed(&RunRequest { input: Some(input("run-refused", "refused", "hi")) });
    for _ in 0..scaled(20) {
        for count in [ANSWERED, HUNG_UP_ON] {
            let mut peer = Peer::dial(&siege.server).await;
            let mut large = request(RUN);
            for at in 0..count {
                let name = http::HeaderName::try_from(format!("x-{at}")).expect("a good name");
                large.headers_mut().insert(name, "y".repeat(1_000).parse().expect("a good value"));
            }
            let (response, mut stream) = peer.call_with(large).await.expect("it is sent");
            // The other side may have refused it before it is all said.
            let _heard = send(&mut stream, run.clone(), true).await;
            match soon("an answer to the headers", response).await {
                Ok(response) => assert_eq!((response.status().as_u16(), count), (431, ANSWERED)),
                // The socket may be closed before the reason is read.
                Err(error) => {
                    assert_eq!(count, HUNG_UP_ON, "{error}");
                    assert!(error.is_io() || error.is_go_away() && error.is_remote(), "{error}");
                }
            }
        }
    }
    let refused = soon("word of the run", siege.server.client().get_run("run-refused")).await;
    assert_eq!(refused.expect_err("nothing of it was heard").code(), Some(Code::NotFound));
    siege.end("headers", GROWTH_MAX).await;
}

/// Answers that nobody reads, on streams without any room for them, and some that are read a byte at a time.
#[tokio::test]
async fn answers_that_are_not_read_are_bounded() {
    const STREAMS: usize = 48;
    // An answer of up to 3 MiB for each stream, converted once.
    const GROWTH_MAX: usize = 512 * MIB;
    let siege = Siege::begin(&honest_model().await).await;
    let long = agentloop_client::v1::RunInput { prompt: "x".repeat(2 * MIB), ..input("long", "long", "") };
    soon("a run", siege.server.client().run(long)).await.expect("it runs");
    let mut builder = Builder::new();
    builder.initial_window_size(0);
    let mut peer = Peer::dial_with(&siege.server, &builder).await;
    let entries =
        framed(&ListEntriesRequest { session_id: "long".to_owned(), ..ListEntriesRequest::default() });
    let events = framed(&SubscribeRequest { run_id: "long".to_owned(), ..SubscribeRequest::default() });
    let again = framed(&RunRequest { input: Some(input("run-before", "before", "hi")) });
    let mut unread = Vec::new();
    for at in 0..scaled(STREAMS) {
        let (path, message) = [(ENTRIES, &entries), (SUBSCRIBE, &events), (RUN, &again)][at % 3];
        let (response, mut stream) = peer.call(path).await.expect("it takes the stream");
        send(&mut stream, message.clone(), true).await.expect("it is heard");
        unread.push(soon("headers", response).await.expect("it is answered").into_body());
    }
    siege.serves("beside").await;
    for body in unread.iter_mut().take(2) {
        for _ in 0..50 {
            body.flow_control().release_capacity(0).expect("nothing is no fault");
        }
        let slow = tokio::time::timeout(Duration::from_millis(100), body.data()).await;
        assert!(slow.is_err(), "there is no room for a byte");
    }
    siege.end("answers that are not read", GROWTH_MAX).await;
}
