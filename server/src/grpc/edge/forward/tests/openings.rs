//! Streams of requests that have no answer yet.

use agentloop_proto::v1::connect_request::Frame as HostFrame;
use agentloop_proto::v1::tool_host_client::ToolHostClient;
use tonic::Streaming;

use super::*;
use crate::grpc::edge::forward::call::Call as _;
use crate::grpc::edge::forward::opening::Opening;

fn hello(host_id: &str) -> wire::ConnectRequest {
    let hello = wire::Hello { host_id: host_id.to_owned(), ..Default::default() };
    wire::ConnectRequest { frame: Some(HostFrame::Hello(hello)) }
}

/// A host says hello, and waits for the answer.
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
async fn a_host_whose_owner_dies_before_it_answers_is_introduced_to_the_next_one() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let connecting = connect(&replica, hello("h-1"));
    let seen = first.sees().await;
    assert_eq!(seen.decode::<wire::ConnectRequest>(), hello("h-1"));
    first.dies();
    drop(seen);
    replica.standing.send_replace(owned_by(&second));
    let seen = second.sees().await;
    assert_eq!(seen.decode::<wire::ConnectRequest>(), hello("h-1"));
    seen.sends([frame(&wire::ConnectResponse::default())]);
    let mut stream = soon(connecting).await.unwrap().unwrap();
    assert!(soon(stream.message()).await.unwrap().is_some());
}

#[tokio::test]
async fn a_host_waits_for_an_owner_to_come() {
    let mut owner = Owner::start(2).await;
    // Nobody is there any more.
    let (listener, address) = loopback().await;
    drop(listener);
    let replica = Replica::start(Standing::Standby { owner: Some(Peer { number: 1, address }) }).await;
    let connecting = connect(&replica, hello("h-1"));
    replica.standing.send_replace(Standing::Standby { owner: None });
    replica.standing.send_replace(owned_by(&owner));
    owner.sees().await.sends([frame(&wire::ConnectResponse::default())]);
    assert!(soon(connecting).await.unwrap().is_ok());
}

#[tokio::test]
async fn an_owner_that_stops_leaves_a_host_to_the_next_one() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let connecting = connect(&replica, hello("h-1"));
    let stops = crate::grpc::status::retryable(Code::Unavailable, wire::ErrorReason::ShuttingDown, "stops");
    first.sees().await.refuses(&stops);
    replica.standing.send_replace(owned_by(&second));
    let seen = second.sees().await;
    assert_eq!(seen.decode::<wire::ConnectRequest>(), hello("h-1"));
    seen.sends([frame(&wire::ConnectResponse::default())]);
    assert!(soon(connecting).await.unwrap().is_ok());
}

/// A call with three messages of so many bytes each.
fn three_of(bytes: usize, room: &Room) -> Opening {
    let messages: Vec<NextFrame> = (0..3).map(|_| Ok(Frame::data(Bytes::from(vec![7; bytes])))).collect();
    Opening::of(http::Request::new(of_frames(futures_util::stream::iter(messages))), room)
}

async fn bytes_of(body: &mut Body) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let Some(frame) = next_frame(body).await {
        lengths.push(frame.unwrap().into_data().unwrap().len());
    }
    lengths
}

#[tokio::test]
async fn an_opening_can_be_sent_again_from_wherever_the_attempt_before_has_come_to() {
    let room = Room::new();
    for read in 0..3 {
        let opening = three_of(10, &room);
        let mut first = opening.body();
        for _ in 0..read {
            assert!(next_frame(&mut first).await.unwrap().is_ok());
        }
        let mut second = opening.body();
        assert!(opening.is_whole());
        // The answer has begun, and the attempt goes on.
        drop(opening);
        assert_eq!(bytes_of(&mut second).await, [10, 10, 10]);
        assert!(next_frame(&mut first).await.unwrap().is_err(), "nothing is sent to two owners");
    }
}

#[tokio::test]
async fn an_opening_keeps_at_most_a_mebibyte_and_what_there_is_room_for() {
    for (bytes, room) in [(600 * 1024, Room::new()), (20 * 1024, Room::of(20 * 1024))] {
        let opening = three_of(bytes, &room);
        let mut body = opening.body();
        assert!(next_frame(&mut body).await.unwrap().is_ok());
        assert!(opening.is_whole());
        assert_eq!(bytes_of(&mut body).await, [bytes, bytes]);
        assert!(!opening.is_whole());
        assert!(room.take(20 * 1024).is_some(), "what is not kept takes no room");
    }
}
