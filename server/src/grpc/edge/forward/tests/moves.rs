//! Sessions that move between the replica that callers dial and another one.

use agentloop_proto::v1::ErrorReason;
use agentloop_proto::v1::sessions_client::SessionsClient;
use tonic::Streaming;

use super::*;
use crate::grpc::status::{look_again, retryable};

fn elsewhere() -> Status {
    look_again("the session is another replica's")
}

fn stops() -> Status {
    retryable(Code::Unavailable, ErrorReason::ShuttingDown, "stops")
}

/// The session `s` has no owner for the moment. This replica owns everything else.
fn given_away() -> Ownership {
    ownership(ME, &[], |shard| if shard == shard_of_r() { 0 } else { ME })
}

/// The session `s` is this owner's, and the rest is this replica's.
fn s_of(owner: &Owner) -> Ownership {
    ownership(ME, &[&owner.peer], |shard| if shard == shard_of_r() { owner.peer.number.0 } else { ME })
}

async fn next_seq(stream: &mut Streaming<wire::RunStreamResponse>) -> u64 {
    soon(stream.message()).await.unwrap().expect("the stream goes on").event.unwrap().seq
}

/// Opens the stream of a new run at a replica that owns everything. Returns what tells when its services' stream is dropped.
async fn open(
    replica: &Replica,
    rpcs: &mut mpsc::UnboundedReceiver<Seen>,
    frames: Vec<NextFrame>,
) -> (Streaming<wire::RunStreamResponse>, mpsc::Receiver<()>) {
    let mut client = replica.client();
    let request = wire::RunStreamRequest { input: Some(prompt()), after_seq: 0 };
    let responds = async {
        let mut seen = rpcs.recv().await.unwrap();
        let dropped = std::mem::replace(&mut seen.dropped, mpsc::channel(1).1);
        seen.sends(frames);
        dropped
    };
    let (opened, dropped) = soon(async { tokio::join!(client.run_stream(request), responds) }).await;
    (opened.unwrap().into_inner(), dropped)
}

/// When a stream moves, the services of this replica know that nobody has left; when its caller leaves, they know that, too.
#[tokio::test]
async fn services_can_tell_a_stream_that_moves_from_a_caller_that_has_left() {
    let mut owner = Owner::start(1).await;
    let replica = Replica::start(owned_here()).await;
    let mut rpcs = replica.serves();
    let mut open = async || {
        let mut client = replica.client();
        let request = wire::RunStreamRequest { input: Some(in_s()), after_seq: 0 };
        let responds = async {
            let mut seen = rpcs.recv().await.unwrap();
            let dropped = std::mem::replace(&mut seen.dropped, mpsc::channel(1).1);
            let link = seen.link.clone().unwrap();
            seen.sends([event(1)]);
            (dropped, link)
        };
        let (opened, ends) = soon(async { tokio::join!(client.run_stream(request), responds) }).await;
        let mut stream = opened.unwrap().into_inner();
        assert_eq!(next_seq(&mut stream).await, 1);
        (stream, ends)
    };
    let (stream, (mut dropped, link)) = open().await;
    drop(stream);
    assert_eq!(soon(dropped.recv()).await, None);
    assert!(!link.is_lost().await);
    let (stream, (mut dropped, link)) = open().await;
    replica.ownership.send_replace(s_of(&owner));
    goes_on_at(&mut owner, stream).await;
    assert_eq!(soon(dropped.recv()).await, None);
    assert!(link.is_lost().await);
}

/// The stream goes on at the new owner after its first event.
async fn goes_on_at(owner: &mut Owner, mut stream: Streaming<wire::RunStreamResponse>) {
    let seen = owner.sees().await;
    let request: wire::RunStreamRequest = seen.decode();
    assert_eq!(request.after_seq, 1);
    assert_eq!(request.input.unwrap().run_id.as_deref(), Some("r"));
    seen.sends([event(1), event(2), end_with(&Status::ok(""))]);
    assert_eq!(next_seq(&mut stream).await, 2);
    assert_eq!(soon(stream.message()).await.unwrap(), None);
}

#[tokio::test]
async fn a_stream_of_this_replica_goes_on_when_its_session_moves_to_another_one() {
    let mut peer = Owner::start(2).await;
    let replica = Replica::start(owned_here()).await;
    let mut rpcs = replica.serves();
    let (mut stream, mut dropped) = open(&replica, &mut rpcs, vec![event(1)]).await;
    assert_eq!(next_seq(&mut stream).await, 1);
    // As long as the engine here may be at work, its stream is not dropped: that would be a caller who leaves.
    replica.ownership.send_replace(given_away());
    let other = replica.run(wire::RunInput { session_id: Some("other".to_owned()), ..prompt() });
    soon(rpcs.recv()).await.unwrap().responds(&result("other"));
    soon(other).await.unwrap().unwrap().unwrap();
    assert!(matches!(dropped.try_recv(), Err(mpsc::error::TryRecvError::Empty)));
    replica.ownership.send_replace(s_of(&peer));
    assert_eq!(soon(dropped.recv()).await, None);
    goes_on_at(&mut peer, stream).await;
}

#[tokio::test]
async fn a_stream_that_the_services_end_because_the_session_moves_goes_on() {
    for told in [elsewhere(), stops()] {
        let mut peer = Owner::start(2).await;
        let replica = Replica::start(owned_here()).await;
        let mut rpcs = replica.serves();
        let request = wire::SubscribeRequest { run_id: "r".to_owned(), after_seq: 0, durable_only: true };
        let mut client = replica.client();
        let responds = async {
            let seen = rpcs.recv().await.unwrap();
            replica.ownership.send_replace(given_away());
            seen.sends([event(1), end_with(&told)]);
        };
        let (opened, ()) = soon(async { tokio::join!(client.subscribe(request), responds) }).await;
        let mut stream = opened.unwrap().into_inner();
        assert_eq!(soon(stream.message()).await.unwrap().unwrap().event.unwrap().seq, 1);
        replica.ownership.send_replace(s_of(&peer));
        let seen = peer.sees().await;
        let request: wire::SubscribeRequest = seen.decode();
        assert_eq!((request.after_seq, request.durable_only), (1, true));
        seen.sends([event(2), end_with(&Status::ok(""))]);
        assert_eq!(soon(stream.message()).await.unwrap().unwrap().event.unwrap().seq, 2);
        assert_eq!(soon(stream.message()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_stream_that_ends_while_this_replica_keeps_the_session_tells_why() {
    let replica = Replica::start(owned_here()).await;
    let mut rpcs = replica.serves();
    let (mut stream, _) = open(&replica, &mut rpcs, vec![event(1), end_with(&stops())]).await;
    assert_eq!(next_seq(&mut stream).await, 1);
    assert_eq!(reason(&soon(stream.message()).await.unwrap_err()), "SHUTTING_DOWN");
}

#[tokio::test]
async fn a_stream_of_another_replica_goes_on_here() {
    let mut peer = Owner::start(2).await;
    let replica = Replica::start(owned_by(&peer)).await;
    let mut rpcs = replica.serves();
    let mut client = replica.client();
    let request = wire::RunStreamRequest { input: Some(prompt()), after_seq: 0 };
    let responds = async { peer.sees().await.sends([event(1)]) };
    let (opened, ()) = soon(async { tokio::join!(client.run_stream(request), responds) }).await;
    let mut stream = opened.unwrap().into_inner();
    assert_eq!(next_seq(&mut stream).await, 1);
    replica.ownership.send_replace(owned_here());
    let seen = soon(rpcs.recv()).await.unwrap();
    assert_eq!(seen.decode::<wire::RunStreamRequest>().after_seq, 1);
    seen.sends([event(2), end_with(&Status::ok(""))]);
    assert_eq!(next_seq(&mut stream).await, 2);
}

#[tokio::test]
async fn what_happens_in_a_session_goes_on_by_its_token() {
    let mut peer = Owner::start(2).await;
    let replica = Replica::start(owned_here()).await;
    let mut rpcs = replica.serves();
    let item = |token: &str| {
        frame(&wire::SubscribeSessionResponse { resume_token: token.to_owned(), ..Default::default() })
    };
    let mut sessions = SessionsClient::new(replica.channel.clone());
    let request = wire::SubscribeSessionRequest { session_id: "s".to_owned(), ..Default::default() };
    let responds = async { rpcs.recv().await.unwrap().sends([item("one")]) };
    let (opened, ()) = soon(async { tokio::join!(sessions.subscribe_session(request), responds) }).await;
    let mut stream = opened.unwrap().into_inner();
    assert_eq!(soon(stream.message()).await.unwrap().unwrap().resume_token, "one");
    replica.ownership.send_replace(s_of(&peer));
    let seen = peer.sees().await;
    assert_eq!(seen.decode::<wire::SubscribeSessionRequest>().resume_token, "one");
    seen.sends([item("two"), end_with(&Status::ok(""))]);
    assert_eq!(soon(stream.message()).await.unwrap().unwrap().resume_token, "two");
}

#[tokio::test]
async fn a_service_that_has_lost_the_session_is_not_shown_to_callers() {
    let mut peer = Owner::start(2).await;
    let replica = Replica::start(owned_here()).await;
    let mut rpcs = replica.serves();
    let rpc = replica.run(wire::RunInput { session_id: Some("s".to_owned()), ..prompt() });
    let seen = soon(rpcs.recv()).await.unwrap();
    replica.ownership.send_replace(given_away());
    seen.refuses(&elsewhere());
    replica.ownership.send_replace(s_of(&peer));
    // The same holds of another replica's service, before this one knows of the next owner.
    peer.sees().await.refuses(&elsewhere());
    peer.sees().await.responds(&result("r"));
    assert_eq!(soon(rpc).await.unwrap().unwrap().unwrap(), result("r"));
}

#[tokio::test]
async fn a_run_that_is_not_where_it_was_is_looked_up_again() {
    let mut peer = Owner::start(2).await;
    let replica = Replica::start(s_of(&peer)).await;
    let mut rpcs = replica.serves();
    let get = || {
        let mut client = replica.client();
        replica.tasks.spawn_contained("caller", async move {
            client.get_run(wire::GetRunRequest { run_id: "r".to_owned() }).await.map(drop)
        })
    };
    let before = get();
    peer.sees().await.responds(&wire::GetRunResponse::default());
    soon(before).await.unwrap().unwrap().unwrap();
    // Its session was deleted, and the id is that of a run in another one.
    let elsewhere_by_now = (0..SHARDS).map(ShardNo).find(|shard| *shard != shard_of_r()).unwrap();
    replica.runs.add("r", elsewhere_by_now);
    let after = get();
    peer.sees().await.refuses(&elsewhere());
    soon(rpcs.recv()).await.unwrap().responds(&wire::GetRunResponse::default());
    soon(after).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_session_without_an_owner_holds_up_no_other_one() {
    let mut peer = Owner::start(2).await;
    let replica = Replica::start(given_away()).await;
    let mut rpcs = replica.serves();
    let waits = replica.run(wire::RunInput { session_id: Some("s".to_owned()), ..prompt() });
    let (other, not_s) = ("other".to_owned(), SessionId::parse("other").unwrap());
    assert_ne!(shard_of(&ada().tenant, &not_s), shard_of_r());
    let passes = replica.run(wire::RunInput { session_id: Some(other), ..prompt() });
    soon(rpcs.recv()).await.unwrap().responds(&result("passes"));
    assert_eq!(soon(passes).await.unwrap().unwrap().unwrap(), result("passes"));
    assert!(!waits.is_finished());
    replica.ownership.send_replace(s_of(&peer));
    peer.sees().await.responds(&result("r"));
    assert_eq!(soon(waits).await.unwrap().unwrap().unwrap(), result("r"));
}

#[tokio::test]
async fn each_owner_has_a_link_of_its_own() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let of_both =
        ownership(ME, &[&first.peer, &second.peer], |shard| if shard == shard_of_r() { 2 } else { 1 });
    let replica = Replica::start(of_both).await;
    let at_second = replica.run(wire::RunInput { session_id: Some("s".to_owned()), ..prompt() });
    let waits = second.sees().await;
    let at_first = replica.run(wire::RunInput { session_id: Some("other".to_owned()), ..prompt() });
    first.sees().await.responds(&result("first"));
    assert_eq!(soon(at_first).await.unwrap().unwrap().unwrap(), result("first"));
    // The end of one link does not touch the other.
    first.dies();
    waits.responds(&result("r"));
    assert_eq!(soon(at_second).await.unwrap().unwrap().unwrap(), result("r"));
    assert!(second.rpcs.try_recv().is_err());
}
