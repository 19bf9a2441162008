//! Streams, and the change of the owner while they are open.

use agentloop_proto::v1::connect_request::Frame as HostFrame;
use agentloop_proto::v1::connect_response::Frame as ServerFrame;
use agentloop_proto::v1::sessions_client::SessionsClient;
use agentloop_proto::v1::tool_host_client::ToolHostClient;
use tonic::Streaming;
use tower::{Layer as _, ServiceExt as _};

use super::*;
use crate::cluster::DEPOSED_AFTER;
use crate::grpc::edge::forward::wire::metadata::LOOK_AGAIN;

fn well() -> NextFrame {
    end_with(&Status::ok(""))
}

async fn seqs(stream: &mut Streaming<wire::RunStreamResponse>, count: usize) -> Vec<u64> {
    let mut seqs = Vec::new();
    for _ in 0..count {
        let next = soon(stream.message()).await.unwrap().expect("the stream goes on");
        seqs.push(next.event.unwrap().seq);
    }
    seqs
}

/// Opens a stream at a replica; the owner is to respond.
async fn open(
    replica: &Replica,
    owner: &mut Owner,
    input: wire::RunInput,
    frames: Vec<NextFrame>,
) -> Streaming<wire::RunStreamResponse> {
    let mut client = replica.client();
    let request = wire::RunStreamRequest { input: Some(input), after_seq: 0 };
    let opened =
        soon(async { tokio::join!(client.run_stream(request), async { owner.sees().await.sends(frames) }) });
    opened.await.0.unwrap().into_inner()
}

#[tokio::test]
async fn events_go_on_at_the_next_owner_without_loss_or_repetition() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let input = wire::RunInput { on_disconnect: 2, ..prompt() };
    let mut stream = open(&replica, &mut first, input, vec![event(1), event(0), event(2), event(0)]).await;
    assert_eq!(seqs(&mut stream, 4).await, [1, 0, 2, 0]);
    replica.ownership.send_replace(owned_by(&second));
    let seen = second.sees().await;
    let request: wire::RunStreamRequest = seen.decode();
    let input = request.input.unwrap();
    assert_eq!(seen.path, "/agentloop.v1.AgentLoop/RunStream");
    // The run is joined by its id alone, which needs none of the configuration that it was started with.
    let joined = wire::RunInput { run_id: Some("r".to_owned()), on_disconnect: 2, ..Default::default() };
    assert_eq!((request.after_seq, input), (2, joined));
    // An owner that repeats an event does no harm.
    seen.sends([event(0), event(2), event(3), event(0), event(4), well()]);
    assert_eq!(seqs(&mut stream, 4).await, [0, 3, 0, 4]);
    assert_eq!(soon(stream.message()).await.unwrap(), None);
}

#[tokio::test]
async fn a_link_that_breaks_in_a_message_costs_nothing() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let half = event(2).unwrap().into_data().unwrap().slice(..6);
    let frames = vec![event(1), Ok(Frame::data(half))];
    let mut stream = open(&replica, &mut first, prompt(), frames).await;
    assert_eq!(seqs(&mut stream, 1).await, [1]);
    first.dies();
    replica.ownership.send_replace(owned_by(&second));
    let seen = second.sees().await;
    assert_eq!(seen.decode::<wire::RunStreamRequest>().after_seq, 1);
    seen.sends([event(2), well()]);
    assert_eq!(seqs(&mut stream, 1).await, [2]);
    assert_eq!(soon(stream.message()).await.unwrap(), None);
}

#[tokio::test]
async fn messages_that_steer_a_run_go_on_with_the_events_of_that_run() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let input = wire::RunInput { on_busy_session: wire::BusySessionPolicy::Steer.into(), ..prompt() };
    let mut stream = open(&replica, &mut first, input, vec![event(5)]).await;
    assert_eq!(seqs(&mut stream, 1).await, [5]);
    replica.ownership.send_replace(owned_by(&second));
    let seen = second.sees().await;
    assert_eq!(seen.path, "/agentloop.v1.AgentLoop/Subscribe");
    let request: wire::SubscribeRequest = seen.decode();
    assert_eq!((request.run_id.as_str(), request.after_seq), ("r", 5));
    seen.sends([event(6), well()]);
    assert_eq!(seqs(&mut stream, 1).await, [6]);
}

#[tokio::test]
async fn a_run_that_a_message_began_because_there_was_none_to_steer_keeps_its_callers_policy() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let steer = wire::BusySessionPolicy::Steer.into();
    let input =
        wire::RunInput { run_id: Some("r".to_owned()), on_disconnect: 2, on_busy_session: steer, ..prompt() };
    let mut stream = open(&replica, &mut first, input, vec![event(1)]).await;
    assert_eq!(seqs(&mut stream, 1).await, [1]);
    replica.ownership.send_replace(owned_by(&second));
    let seen = second.sees().await;
    assert_eq!(seen.path, "/agentloop.v1.AgentLoop/RunStream");
    let request: wire::RunStreamRequest = seen.decode();
    let joined = wire::RunInput { run_id: Some("r".to_owned()), on_disconnect: 2, ..Default::default() };
    assert_eq!((request.after_seq, request.input), (1, Some(joined)));
    seen.sends([event(2), well()]);
    assert_eq!(seqs(&mut stream, 1).await, [2]);
}

#[tokio::test]
async fn an_error_of_a_stream_reaches_its_caller() {
    let mut owner = Owner::start(1).await;
    let replica = Replica::start(owned_by(&owner)).await;
    let slow = crate::grpc::status::retryable(
        Code::ResourceExhausted,
        wire::ErrorReason::SubscriberTooSlow,
        "does not read",
    );
    let mut stream = open(&replica, &mut owner, prompt(), vec![event(1), end_with(&slow)]).await;
    assert_eq!(seqs(&mut stream, 1).await, [1]);
    assert_eq!(reason(&soon(stream.message()).await.unwrap_err()), "SUBSCRIBER_TOO_SLOW");
    assert!(owner.rpcs.try_recv().is_err());
}

#[tokio::test]
async fn an_owner_that_stops_ends_no_stream() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let stops = crate::grpc::status::retryable(Code::Unavailable, wire::ErrorReason::ShuttingDown, "stops");
    let mut stream = open(&replica, &mut first, prompt(), vec![event(1), end_with(&stops)]).await;
    assert_eq!(seqs(&mut stream, 1).await, [1]);
    replica.ownership.send_replace(owned_by(&second));
    second.sees().await.sends([event(2), well()]);
    assert_eq!(seqs(&mut stream, 1).await, [2]);
    assert_eq!(soon(stream.message()).await.unwrap(), None);
}

#[tokio::test]
async fn a_session_is_followed_by_its_token() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let item = |token: &str| {
        frame(&wire::SubscribeSessionResponse { resume_token: token.to_owned(), ..Default::default() })
    };
    let mut sessions = SessionsClient::new(replica.channel.clone());
    let request = wire::SubscribeSessionRequest {
        session_id: "s".to_owned(),
        durable_only: true,
        ..Default::default()
    };
    let opened = soon(async {
        let sends = async { first.sees().await.sends([item("one"), item("")]) };
        tokio::join!(sessions.subscribe_session(request), sends)
    });
    let mut stream = opened.await.0.unwrap().into_inner();
    for token in ["one", ""] {
        assert_eq!(soon(stream.message()).await.unwrap().unwrap().resume_token, token);
    }
    replica.ownership.send_replace(owned_by(&second));
    let seen = second.sees().await;
    let request: wire::SubscribeSessionRequest = seen.decode();
    assert_eq!((request.session_id.as_str(), request.resume_token.as_str()), ("s", "one"));
    assert!(request.durable_only);
    seen.sends([item("two"), well()]);
    assert_eq!(soon(stream.message()).await.unwrap().unwrap().resume_token, "two");
    assert_eq!(soon(stream.message()).await.unwrap(), None);
}

#[tokio::test]
async fn a_reader_that_leaves_ends_its_stream_at_the_owner() {
    let mut owner = Owner::start(1).await;
    let replica = Replica::start(owned_by(&owner)).await;
    let mut client = replica.client();
    let request = wire::RunStreamRequest { input: Some(prompt()), after_seq: 0 };
    let opened = soon(async {
        tokio::join!(client.run_stream(request), async {
            let mut seen = owner.sees().await;
            let dropped = std::mem::replace(&mut seen.dropped, mpsc::channel(1).1);
            seen.sends([event(1)]);
            dropped
        })
    });
    let (stream, mut dropped) = opened.await;
    let mut stream = stream.unwrap().into_inner();
    assert_eq!(seqs(&mut stream, 1).await, [1]);
    drop(stream);
    assert_eq!(soon(dropped.recv()).await, None);
}

#[tokio::test]
async fn the_stream_of_a_tool_host_ends_when_its_owner_is_the_owner_no_more() {
    let (mut first, second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let mut hosts = ToolHostClient::new(replica.channel.clone());
    let hello = wire::ConnectRequest::default();
    let frames = futures_util::stream::iter([hello]).chain(futures_util::stream::pending());
    let opened = soon(async {
        let sends = async { first.sees().await.sends([frame(&wire::ConnectResponse::default())]) };
        tokio::join!(hosts.connect(frames), sends)
    });
    let mut stream = opened.await.0.unwrap().into_inner();
    assert!(soon(stream.message()).await.unwrap().is_some());
    replica.ownership.send_replace(owned_by(&second));
    let ended = soon(stream.message()).await.unwrap_err();
    assert_eq!((ended.code(), reason(&ended).as_str()), (Code::Unavailable, "OWNER_UNAVAILABLE"));
    assert!(ended.metadata().get(LOOK_AGAIN.as_str()).is_none());
}

#[tokio::test]
async fn a_host_is_said_to_drain_before_its_replica_ends_its_stream() {
    let mut owner = Owner::start(1).await;
    let replica = Replica::start(owned_by(&owner)).await;
    let mut hosts = ToolHostClient::new(replica.channel.clone());
    let (frames, sent) = mpsc::unbounded_channel();
    let hello = wire::ConnectRequest { frame: Some(HostFrame::Hello(wire::Hello::default())) };
    frames.send(hello.clone()).unwrap();
    let sent = tokio_stream::wrappers::UnboundedReceiverStream::new(sent);
    let opened = soon(async {
        tokio::join!(hosts.connect(sent), async {
            let mut seen = owner.sees().await;
            assert_eq!(seen.decode::<wire::ConnectRequest>(), hello);
            let rest = seen.rest.take().unwrap();
            seen.sends([frame(&wire::ConnectResponse::default())]);
            rest
        })
    });
    let (stream, mut rest) = opened.await;
    let mut stream = stream.unwrap().into_inner();
    assert!(soon(stream.message()).await.unwrap().unwrap().frame.is_none());
    replica.stop.cancel();
    let next = |bytes: Vec<u8>| wire::ConnectRequest::decode(&*bytes).unwrap().frame.unwrap();
    assert!(matches!(next(soon(next_message(&mut rest)).await), HostFrame::Draining(_)));
    let accepted = wire::CallAccepted { call_id: "r/1.0".to_owned(), ..Default::default() };
    let accepted = HostFrame::CallAccepted(accepted);
    frames.send(wire::ConnectRequest { frame: Some(accepted.clone()) }).unwrap();
    assert_eq!(next(soon(next_message(&mut rest)).await), accepted, "a reply to an offer still passes");
    let last = soon(stream.message()).await.unwrap().unwrap().frame.unwrap();
    assert!(matches!(last, ServerFrame::GoAway(_)), "{last:?}");
    assert_eq!(soon(stream.message()).await.unwrap(), None, "it ends well");
}

#[tokio::test]
async fn a_replica_that_stops_ends_its_streams_and_the_owner_knows_that_nobody_has_left() {
    let mut owner = Owner::start(1).await;
    let replica = Replica::start(owned_by(&owner)).await;
    let rpc = replica.run(prompt());
    let mut waits = owner.sees().await;
    let mut client = replica.client();
    let request = wire::RunStreamRequest { input: Some(prompt()), after_seq: 0 };
    let opened = soon(async {
        tokio::join!(client.run_stream(request), async {
            let mut seen = owner.sees().await;
            let dropped = std::mem::replace(&mut seen.dropped, mpsc::channel(1).1);
            let link = seen.link.clone().unwrap();
            seen.sends([event(1)]);
            (dropped, link)
        })
    });
    let (stream, (mut dropped, link)) = opened.await;
    let mut stream = stream.unwrap().into_inner();
    assert_eq!(seqs(&mut stream, 1).await, [1]);
    replica.stop.cancel();
    assert_eq!(reason(&soon(stream.message()).await.unwrap_err()), "SHUTTING_DOWN");
    assert_eq!(soon(dropped.recv()).await, None);
    assert!(link.is_lost().await, "the replica stops, and its caller has not left");
    let refused = soon(rpc).await.unwrap().unwrap().unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "SHUTTING_DOWN"));
    assert_eq!(soon(waits.dropped.recv()).await, None);
}

#[tokio::test(start_paused = true)]
async fn an_owner_without_a_lease_lets_go_of_its_own_streams() {
    for before in [owned_here(), owned_by_nobody()] {
        for (path, request) in [
            (
                "/agentloop.v1.AgentLoop/Subscribe",
                frame(&wire::SubscribeRequest { run_id: "r".to_owned(), ..Default::default() }),
            ),
            ("/agentloop.v1.AgentLoop/WatchRuns", frame(&wire::WatchRunsRequest::default())),
        ] {
            lets_go_of_a_stream_that_began(before.clone(), path, request).await;
        }
    }
}

/// A stream that begins before this replica owns anything is served here as soon as it does, or at once if any replica serves it.
async fn lets_go_of_a_stream_that_began(before: Ownership, path: &'static str, request: NextFrame) {
    let (ownership, ownerships) = watch::channel(before);
    let (local, mut rpcs) = scripted();
    let forward = forward_layer(ownerships, local);
    let mut request = http::Request::new(of_frames(futures_util::stream::iter([request])));
    *request.uri_mut() = http::Uri::from_static(path);
    let served = forward.layer(Routes::default()).oneshot(request);
    let responds = async {
        ownership.send_replace(owned_here());
        rpcs.recv().await.unwrap().sends([event(1)]);
    };
    let (response, ()) = tokio::join!(served, responds);
    let mut body = response.unwrap().into_body();
    assert!(next_frame(&mut body).await.unwrap().unwrap().is_data());
    // A moment without a lease is none of their business.
    for now in [owned_here().lapsed(), owned_here()] {
        ownership.send_replace(now);
        let waited = tokio::time::timeout(DEPOSED_AFTER.duration() / 2, next_frame(&mut body)).await;
        assert!(waited.is_err(), "the stream goes on");
    }
    ownership.send_replace(owned_here().lapsed());
    let end = next_frame(&mut body).await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(Status::from_header_map(&end).unwrap().code(), Code::Unavailable);
}
