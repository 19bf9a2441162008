//! Callers and hosts that send what nobody should: too much, too deep, too often, no text where a text belongs.

use agentloop_client::v1::connect_request::Frame;
use agentloop_client::v1::{
    Capability, ConnectRequest, Hello, Pong, RunInput, RunRequest, ToolDeclaration, capability,
};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::FutureExt as _;
use h2::client::ResponseFuture;
use h2::{Reason, SendStream};
use tokio::task::JoinHandle;

use super::peer::{Peer, framed, prefixed, read, send};
use super::{Siege, honest_model, scaled};
use crate::support::memory::MIB;
use crate::support::server::{Leases, Setting};
use crate::support::soon;

const RUN: &str = "/agentloop.v1.AgentLoop/Run";
const CONNECT: &str = "/agentloop.v1.ToolHost/Connect";

/// The codes of gRPC that say whose fault it is: the caller's.
const INVALID_ARGUMENT: &str = "3";
const RESOURCE_EXHAUSTED: &str = "8";

fn run(input: RunInput) -> Bytes {
    framed(&RunRequest { input: Some(input) })
}

fn prompt(prompt: &str) -> RunInput {
    RunInput { prompt: prompt.to_owned(), ..RunInput::default() }
}

/// A field of a message, with its length before its content.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    prost::encoding::encode_varint(content.len() as u64, &mut bytes);
    bytes.extend_from_slice(content);
    bytes
}

/// Invalid messages of a caller, and the expected statuses.
fn requests() -> Vec<(&'static str, Bytes, &'static str)> {
    let deep = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    let hints = |json: String| run(RunInput { runtime_hints_json: Some(json), ..prompt("hi") });
    let mut announced = BytesMut::from(&[0, 0xFF, 0xFF, 0xFF, 0xFF][..]);
    announced.put_bytes(b'x', MIB);
    let nested = (0..100_000)
        .fold(Vec::new(), |inner: Vec<u8>, _| if inner.len() < 200_000 { field(4, &inner) } else { inner });
    let empty_messages: Vec<u8> = [34, 0].repeat(2 * MIB - 64);
    let not_text = field(1, &field(3, b"\xFF\xC3\x28\xED\xA0\x80"));
    vec![
        ("a message said to have 4 GiB", announced.freeze(), RESOURCE_EXHAUSTED),
        ("a message over the limit", run(prompt(&"x".repeat(5 * MIB))), RESOURCE_EXHAUSTED),
        ("JSON that is too deep", hints(deep(65)), INVALID_ARGUMENT),
        ("JSON that is far too deep", hints(deep(500_000)), INVALID_ARGUMENT),
        ("JSON that is only brackets", hints("[".repeat(3 * MIB)), INVALID_ARGUMENT),
        ("messages in messages", prefixed(&field(1, &nested)), INVALID_ARGUMENT),
        ("two million empty messages", prefixed(&field(1, &empty_messages)), INVALID_ARGUMENT),
        ("no UTF-8 in a text", prefixed(&not_text), INVALID_ARGUMENT),
        ("no protobuf", prefixed(&[0xFF; 10_000]), INVALID_ARGUMENT),
        (
            "a compressed message that was not agreed on",
            Bytes::from_static(b"\x01\0\0\0\x01x"),
            INVALID_ARGUMENT,
        ),
    ]
}

#[tokio::test]
async fn messages_that_are_too_much_are_refused() {
    const GROWTH_MAX: usize = 320 * MIB;
    let siege = Siege::begin(&honest_model().await).await;
    for round in 0..scaled(3) {
        for (what, bytes, status) in requests() {
            let mut peer = Peer::dial(&siege.server).await;
            let answer = peer.ask(RUN, bytes).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(answer.status, status, "{what}: {}", answer.message);
            assert!(answer.message.len() < 1_000, "{what}: {}", answer.message);
        }
        siege.serves(&format!("round-{round}")).await;
    }
    siege.end("messages that are too much", GROWTH_MAX).await;
}

fn say(frame: Frame) -> ConnectRequest {
    ConnectRequest { frame: Some(frame) }
}

fn hello(host: &str, capabilities: Vec<Capability>) -> ConnectRequest {
    let host_id = host.to_owned();
    say(Frame::Hello(Hello { protocol_version: 1, host_id, capabilities, ..Hello::default() }))
}

#[tokio::test]
async fn a_host_that_offers_too_much_is_sent_away() {
    const GROWTH_MAX: usize = 640 * MIB;
    let siege = Siege::begin(&honest_model().await).await;
    let offer = |schema: &str| {
        let input_schema_json = schema.to_owned();
        let tool = ToolDeclaration { name: "t".to_owned(), input_schema_json, ..ToolDeclaration::default() };
        Capability { capability: Some(capability::Capability::Tool(tool)) }
    };
    // A field of two bytes for each: what comes of them in memory is far larger.
    let empty = field(1, &[field(2, b"h"), [34, 0].repeat(2 * MIB - 64)].concat());
    let deep = format!("{{\"not\":{}{{}}{}", "{\"not\":".repeat(5_000), "}".repeat(5_001));
    let hellos = [
        ("two million nothings", prefixed(&empty), INVALID_ARGUMENT),
        ("calls instead of a hello", framed(&say(Frame::Pong(Pong::default()))), INVALID_ARGUMENT),
        ("no protobuf", prefixed(&[0xFF; 10_000]), INVALID_ARGUMENT),
        ("a frame over the limit", prefixed(&vec![b'x'; 5 * MIB]), INVALID_ARGUMENT),
    ];
    for (what, bytes, status) in hellos {
        let mut peer = Peer::dial(&siege.server).await;
        let answer = peer.ask(CONNECT, bytes).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(answer.status, status, "{what}: {}", answer.message);
    }
    // A tool that is no good is no fault of its host's: it is told, and its stream ends as it wants.
    let hostile = [deep.as_str(), "{\"$ref\":\"#\"}", "{\"pattern\":\"(((a+)+)+)+$\"}", "[", ""];
    let bytes = framed(&hello("h", hostile.map(offer).to_vec()));
    let answer = Peer::dial(&siege.server).await.ask(CONNECT, bytes).await.expect("it is answered");
    assert_eq!(answer.status, "0", "{}", answer.message);
    siege.end("hosts that offer too much", GROWTH_MAX).await;
}

/// A stream of a host that is in, and what its response ends with.
async fn joined(peer: &mut Peer, host: &str) -> (SendStream<Bytes>, JoinHandle<Result<(), h2::Error>>) {
    let (response, mut stream) = peer.call(CONNECT).await.expect("it connects");
    send(&mut stream, framed(&hello(host, Vec::new())), false).await.expect("it is heard");
    let mut body = soon("the response's headers", response).await.expect("it is answered").into_body();
    (stream, tokio::spawn(async move { read(&mut body).await.map(|_bytes| ()) }))
}

#[tokio::test]
async fn tiny_frames_without_end_cost_nothing() {
    const FRAMES: usize = 200_000;
    const GROWTH_MAX: usize = 48 * MIB;
    // A caller that is served in the middle of it takes its time on a busy machine.
    let patient = Setting { leases: Leases::EndAfter("60s"), ..honest_model().await };
    let siege = Siege::begin(&patient).await;
    let pong = framed(&say(Frame::Pong(Pong { nonce: 7 })));

    // A frame of HTTP/2 for every byte is taken for an attack, and ends the connection.
    let mut peer = Peer::dial(&siege.server).await;
    let (mut stream, reading) = joined(&mut peer, "bytes").await;
    let mut bytes = pong.iter().cycle().take(scaled(FRAMES));
    while let Some(byte) = bytes.next()
        && send(&mut stream, Bytes::copy_from_slice(&[*byte]), false).await.is_ok()
    {}
    let end = soon("the end of the connection", reading).await.expect("no panic").expect_err("it is cut off");
    // The socket may be closed before the reason is read.
    assert!(end.is_io() || end.reason() == Some(Reason::ENHANCE_YOUR_CALM), "{end}");

    // As many frames of the protocol, packed as clients pack them, are just read.
    let (mut stream, reading) = joined(&mut Peer::dial(&siege.server).await, "tiny").await;
    let packed = Bytes::from(pong.repeat(100));
    for at in 0..scaled(FRAMES) / 100 {
        send(&mut stream, packed.clone(), false).await.expect("it is heard");
        if at == FRAMES / 200 {
            siege.serves("between").await;
        }
    }
    let hosts = siege.server.client().list_hosts().await.expect("listed");
    assert!(hosts.iter().any(|host| host.host_id == "tiny"), "it is still taken for a host: {hosts:?}");
    stream.send_data(Bytes::new(), true).expect("it is open");
    soon("the end of the stream", reading).await.expect("no panic").expect("it ends well");
    siege.end("tiny frames", GROWTH_MAX).await;
}

/// The beginnings of messages are kept in memory until they are whole: that has a bound over all callers, and whoever
/// has little to say is not refused for it.
#[tokio::test]
async fn messages_that_never_end_are_bounded_together() {
    const STREAMS: usize = 160;
    // The server's own bound of 256 MiB, buffers that grow by doubling, and what the transport holds.
    const GROWTH_MAX: usize = 640 * MIB;
    let siege = Siege::begin(&honest_model().await).await;
    let large = run(prompt(&"x".repeat(3 * MIB)));
    let unfinished = large.slice(..large.len() - 1);
    let (mut refused, mut held) = (0, Vec::new());
    for at in 0..scaled(STREAMS) {
        // Not on one connection: their number is no protection.
        let mut peer = Peer::dial(&siege.server).await;
        let (response, mut stream) = peer.call(RUN).await.expect("it connects");
        let sent = send(&mut stream, unfinished.clone(), false).await;
        if sent.is_err() {
            refused += 1;
        } else {
            held.push((peer, response, stream));
        }
        if at == STREAMS - 1 {
            siege.serves("beside").await;
        }
    }
    let answered =
        |held: &mut (Peer, ResponseFuture, SendStream<Bytes>)| (&mut held.1).now_or_never().is_some();
    refused += held.iter_mut().filter_map(|held| answered(held).then_some(())).count();
    println!("{} messages begun, {refused} refused", scaled(STREAMS));
    assert!(refused >= scaled(STREAMS) / 4, "{refused} were refused");
    drop(held);
    siege.end("messages that never end", GROWTH_MAX).await;
}
