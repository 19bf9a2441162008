//! Streams of requests, which are sent again until their response begins.

use agentloop_proto::v1::connect_request::Frame as HostFrame;
use agentloop_proto::v1::tool_host_client::ToolHostClient;
use futures_util::Stream;
use tonic::Streaming;
use tower::{Layer as _, ServiceExt as _};

use super::*;
use crate::grpc::edge::forward::request::forwarded_rpc::ForwardedRpc as _;
use crate::grpc::edge::forward::request::replayable::ReplayableRpc;

fn hello(host_id: &str) -> wire::ConnectRequest {
    let hello = wire::Hello { host_id: host_id.to_owned(), ..Default::default() };
    wire::ConnectRequest { frame: Some(HostFrame::Hello(hello)) }
}

/// A host says hello, and waits for the response.
fn connect(
    replica: &Replica,
    hello: wire::ConnectRequest,
) -> tokio::task::JoinHandle<Result<Streaming<wire::ConnectResponse>, Status>> {
    let mut hosts = ToolHostClient::new(replica.channel.clone());
    tokio::spawn(async move {
        let frames = futures_util::stream::iter([hello]).chain(futures_util::stream::pending());
        hosts.connect(frames).await.map(tonic::Response::into_inner)
    })
}

#[tokio::test]
async fn a_host_whose_owner_dies_before_it_responds_is_introduced_to_the_next_one() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let connecting = connect(&replica, hello("h-1"));
    let seen = first.sees().await;
    assert_eq!(seen.decode::<wire::ConnectRequest>(), hello("h-1"));
    first.dies();
    drop(seen);
    replica.ownership.send_replace(owned_by(&second));
    let seen = second.sees().await;
    assert_eq!(seen.decode::<wire::ConnectRequest>(), hello("h-1"));
    seen.sends([frame(&wire::ConnectResponse::default())]);
    let mut stream = soon(connecting).await.unwrap().unwrap();
    assert!(soon(stream.message()).await.unwrap().is_some());
}

#[tokio::test]
async fn a_host_waits_for_an_owner_to_come() {
    let mut owner = Owner::start(2).await;
    // This one takes connections, and ends each at once.
    let (listener, address) = loopback().await;
    let replica = Replica::start(owned_by_peer(&Peer { number: OwnerNo(1), address })).await;
    let connecting = connect(&replica, hello("h-1"));
    drop(soon(listener.accept()).await.unwrap());
    drop(listener);
    replica.ownership.send_replace(owned_by_nobody());
    tokio::task::yield_now().await;
    replica.ownership.send_replace(owned_by(&owner));
    let seen = owner.sees().await;
    assert_eq!(seen.decode::<wire::ConnectRequest>(), hello("h-1"));
    seen.sends([frame(&wire::ConnectResponse::default())]);
    assert!(soon(connecting).await.unwrap().is_ok());
}

/// An RPC of this path whose requests are these, while nobody can be reached at the owner's address.
async fn at_nobody(path: &'static str, requests: impl Stream<Item = NextFrame> + Send + 'static) -> Duration {
    let peer = Peer { number: OwnerNo(1), address: "127.0.0.1:1".to_owned() };
    let (_ownership, ownerships) = watch::channel(owned_by_peer(&peer));
    let forward = forward_layer(ownerships, LocalServices::none());
    let mut request = http::Request::new(of_frames(requests));
    *request.uri_mut() = http::Uri::from_static(path);
    let began = tokio::time::Instant::now();
    let response = forward.layer(Routes::default()).oneshot(request).await.unwrap();
    let refused = Status::from_header_map(response.headers()).unwrap();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "OWNER_UNAVAILABLE"));
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_requests_waits_for_an_owner_as_long_as_other_calls() {
    let waited = at_nobody("/agentloop.v1.ToolHost/Connect", futures_util::stream::pending()).await;
    assert!((10..12).contains(&waited.as_secs()), "{waited:?}");
}

#[tokio::test]
async fn an_rpc_of_another_version_stays_here() {
    let mut owner = Owner::start(1).await;
    let replica = Replica::start(owned_by(&owner)).await;
    let mut rpcs = replica.serves();
    let channel = replica.channel.clone();
    let mut request = http::Request::new(of_frames(futures_util::stream::iter([frame(&hello("h-1"))])));
    *request.uri_mut() = http::Uri::from_static("/agentloop.v1.ToolHost/Later");
    let calling = tokio::spawn(async move { channel.oneshot(request).await.unwrap() });
    let seen = soon(rpcs.recv()).await.unwrap();
    assert_eq!(seen.path, "/agentloop.v1.ToolHost/Later");
    seen.refuses(&Status::unimplemented("a later version knows it"));
    let refused = Status::from_header_map(soon(calling).await.unwrap().headers()).unwrap();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(owner.rpcs.try_recv().is_err());
}

#[tokio::test]
async fn an_owner_that_stops_leaves_a_host_to_the_next_one() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let connecting = connect(&replica, hello("h-1"));
    let stops = crate::grpc::status::retryable(Code::Unavailable, wire::ErrorReason::ShuttingDown, "stops");
    first.sees().await.refuses(&stops);
    replica.ownership.send_replace(owned_by(&second));
    let seen = second.sees().await;
    assert_eq!(seen.decode::<wire::ConnectRequest>(), hello("h-1"));
    seen.sends([frame(&wire::ConnectResponse::default())]);
    assert!(soon(connecting).await.unwrap().is_ok());
}

/// An RPC with three messages of so many bytes each, and a fault behind them, if any.
fn three_of(bytes: usize, fault: Option<Status>, budget: &BufferBudget) -> ReplayableRpc {
    let messages = (0..3).map(|_| Ok(Frame::data(Bytes::from(vec![7; bytes]))));
    let messages: Vec<NextFrame> = messages.chain(fault.map(Err)).collect();
    ReplayableRpc::of(http::Request::new(of_frames(futures_util::stream::iter(messages))), budget)
}

/// Number of bytes up to the end.
async fn rest_of(body: &mut Body) -> usize {
    let mut bytes = 0;
    while let Some(frame) = next_frame(body).await {
        bytes += frame.unwrap().into_data().unwrap().len();
    }
    bytes
}

#[tokio::test]
async fn a_call_can_be_sent_again_from_wherever_the_attempt_before_has_come_to() {
    let budget = BufferBudget::new();
    for read in 0..3 {
        let rpc = three_of(10, None, &budget);
        let mut first = rpc.body();
        for _ in 0..read {
            assert!(next_frame(&mut first).await.unwrap().is_ok());
        }
        let mut second = rpc.body();
        assert!(rpc.is_whole());
        // The response has begun, and the attempt goes on.
        drop(rpc);
        assert_eq!(rest_of(&mut second).await, 30);
        assert!(next_frame(&mut first).await.unwrap().is_err(), "nothing is sent to two owners");
    }
}

#[tokio::test]
async fn at_most_a_mebibyte_is_kept_and_what_the_budget_allows() {
    for (bytes, budget) in [(600 * 1024, BufferBudget::new()), (20 * 1024, BufferBudget::of(20 * 1024))] {
        let rpc = three_of(bytes, None, &budget);
        let mut body = rpc.body();
        assert!(next_frame(&mut body).await.unwrap().is_ok());
        assert!(rpc.is_whole());
        assert_eq!(rest_of(&mut body).await, 2 * bytes);
        assert!(!rpc.is_whole());
        assert!(budget.take(20 * 1024).is_some(), "what is not kept takes no room");
    }
}

#[tokio::test]
async fn what_breaks_off_is_not_sent_again_as_if_it_had_ended() {
    let rpc = three_of(10, Some(Status::cancelled("the caller has left")), &BufferBudget::new());
    let mut body = rpc.body();
    for _ in 0..3 {
        assert!(next_frame(&mut body).await.unwrap().is_ok());
    }
    assert!(rpc.is_whole());
    assert!(next_frame(&mut body).await.unwrap().is_err());
    assert!(!rpc.is_whole());
}
