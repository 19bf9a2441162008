//! Callers whose runs are to end with them, and who leave while the run moves to another replica.

use super::*;

fn with_policy(policy: wire::DisconnectPolicy) -> wire::RunInput {
    wire::RunInput { run_id: Some("r".to_owned()), on_disconnect: policy.into(), ..in_s() }
}

fn ends_with_caller() -> wire::RunInput {
    with_policy(wire::DisconnectPolicy::Cancel)
}

type Events = tonic::Streaming<wire::RunStreamResponse>;

/// Opens a stream, of which the first event is read. Returns also what tells when its owner has dropped it.
async fn open(replica: &Replica, owner: &mut Owner, input: wire::RunInput) -> (Events, mpsc::Receiver<()>) {
    let mut client = replica.client();
    let request = wire::RunStreamRequest { input: Some(input), after_seq: 0 };
    let responds = async {
        let mut seen = owner.sees().await;
        let dropped = std::mem::replace(&mut seen.dropped, mpsc::channel(1).1);
        seen.sends([event(1)]);
        dropped
    };
    let (opened, dropped) = soon(async { tokio::join!(client.run_stream(request), responds) }).await;
    let mut stream = opened.unwrap().into_inner();
    assert_eq!(soon(stream.message()).await.unwrap().unwrap().event.unwrap().seq, 1);
    (stream, dropped)
}

/// The run is joined at this owner, with the policy of its caller, and left.
async fn is_left_at(owner: &mut Owner) {
    let mut seen = owner.sees().await;
    assert_eq!(seen.path, "/agentloop.v1.AgentLoop/RunStream");
    let joined = wire::RunInput {
        run_id: Some("r".to_owned()),
        on_disconnect: wire::DisconnectPolicy::Cancel.into(),
        ..Default::default()
    };
    assert_eq!(seen.decode::<wire::RunStreamRequest>().input, Some(joined));
    assert!(seen.principal.as_ref().is_some_and(|principal| principal.name == "ada"));
    let link = seen.link.clone().expect("it comes over one");
    let mut dropped = std::mem::replace(&mut seen.dropped, mpsc::channel(1).1);
    seen.sends([event(2)]);
    assert_eq!(soon(dropped.recv()).await, None);
    assert!(!link.is_lost().await, "the caller has left");
}

#[tokio::test]
async fn a_caller_that_leaves_before_its_run_moves_has_left_at_the_next_owner_too() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let (stream, mut dropped) = open(&replica, &mut first, ends_with_caller()).await;
    drop(stream);
    assert_eq!(soon(dropped.recv()).await, None);
    replica.ownership.send_replace(owned_by(&second));
    is_left_at(&mut second).await;
    // The second one may give the run away in the same moment.
    let mut third = Owner::start(3).await;
    replica.ownership.send_replace(owned_by(&third));
    is_left_at(&mut third).await;
}

#[tokio::test]
async fn a_caller_that_leaves_while_its_run_has_no_owner_has_left_at_the_next_one() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let (stream, mut dropped) = open(&replica, &mut first, ends_with_caller()).await;
    replica.ownership.send_replace(owned_by_nobody());
    assert_eq!(soon(dropped.recv()).await, None);
    drop(stream);
    replica.ownership.send_replace(owned_by(&second));
    is_left_at(&mut second).await;
}

#[tokio::test]
async fn a_caller_that_leaves_before_the_response_of_its_run_has_left_at_the_next_owner_too() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let rpc = replica.run(ends_with_caller());
    let mut seen = first.sees().await;
    rpc.abort();
    assert_eq!(soon(seen.dropped.recv()).await, None);
    // The owner may have given the run away just now.
    replica.ownership.send_replace(owned_by(&second));
    is_left_at(&mut second).await;
}

#[tokio::test]
async fn a_run_that_goes_on_without_its_caller_is_not_left() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let goes_on = with_policy(wire::DisconnectPolicy::Continue);
    let (stream, mut dropped) = open(&replica, &mut first, goes_on).await;
    drop(stream);
    assert_eq!(soon(dropped.recv()).await, None);
    // One that has ended is not left either.
    let ended = replica.run(ends_with_caller());
    first.sees().await.responds(&result("r"));
    soon(ended).await.unwrap().unwrap().unwrap();
    replica.ownership.send_replace(owned_by(&second));
    // An RPC that would come before this one is seen before it.
    let next = replica.run(prompt());
    let seen = second.sees().await;
    assert_eq!(seen.path, "/agentloop.v1.AgentLoop/Run");
    seen.responds(&result("other"));
    soon(next).await.unwrap().unwrap().unwrap();
    assert!(second.rpcs.try_recv().is_err());
}
