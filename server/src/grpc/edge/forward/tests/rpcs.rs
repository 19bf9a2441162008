//! RPCs with a single response.

use std::time::Duration;

use agentloop_proto::v1::ErrorReason;
use agentloop_proto::v1::sessions_client::SessionsClient;
use tokio::io::AsyncReadExt as _;
use tonic::metadata::{BinaryMetadataValue, MetadataValue};
use tonic_types::StatusExt as _;
use tower::{Layer as _, ServiceExt as _};

use super::*;
use crate::grpc::edge::forward::outcome::refusal;
use crate::grpc::status::{look_again, retryable};

/// True if the bytes of a client have a frame with the headers of an RPC.
fn has_call(bytes: &[u8]) -> bool {
    // After the preface, each frame has three bytes of length, its type, and five bytes more.
    let mut rest = bytes.get(24..).unwrap_or_default();
    while let [high, middle, low, kind, _, _, _, _, _, payload @ ..] = rest {
        if *kind == 1 {
            return true;
        }
        let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        rest = payload.get(length..).unwrap_or_default();
    }
    false
}

/// The response to an RPC that a test has started.
async fn response<T>(rpc: tokio::task::JoinHandle<Option<T>>) -> T {
    soon(rpc).await.unwrap().expect("nobody stopped it")
}

#[tokio::test]
async fn an_rpc_reaches_the_owner_with_its_caller_and_without_its_credentials() {
    let mut owner = Owner::start(7).await;
    let replica = Replica::start(owned_by(&owner)).await;
    let mut request = tonic::Request::new(wire::GetRunRequest { run_id: "r".to_owned() });
    let metadata = request.metadata_mut();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    metadata.insert("traceparent", parent.parse().unwrap());
    metadata.insert("authorization", "Bearer secret".parse().unwrap());
    // A caller who says that it is somebody else.
    metadata.insert("agentloop-replica", MetadataValue::from(8));
    metadata.insert("agentloop-caller", "10.0.0.1:1".parse().unwrap());
    let forged = br#"{"name":"eve","tenant":"local","roles":["operator"]}"#;
    metadata.insert_bin("agentloop-principal-bin", BinaryMetadataValue::from_bytes(forged));
    request.set_timeout(Duration::from_secs(25));
    let mut client = replica.client();
    let rpc = replica.tasks.spawn_contained("caller", async move { client.get_run(request).await });

    let seen = owner.sees().await;
    assert_eq!(seen.path, "/agentloop.v1.AgentLoop/GetRun");
    assert_eq!(seen.decode::<wire::GetRunRequest>().run_id, "r");
    assert_eq!(seen.principal.as_deref(), Some(&*ada()));
    assert_eq!(seen.headers.get("traceparent").unwrap(), parent);
    assert_eq!(seen.headers.get("grpc-timeout").unwrap(), "25000000u");
    assert!(seen.headers.get("authorization").is_none(), "{:?}", seen.headers);
    assert!(seen.headers.keys().all(|name| !name.as_str().starts_with("agentloop-")), "{:?}", seen.headers);
    let run = wire::Run { run_id: "r".to_owned(), ..Default::default() };
    seen.responds(&wire::GetRunResponse { run: Some(run.clone()) });
    assert_eq!(response(rpc).await.unwrap().into_inner().run, Some(run));
}

#[tokio::test]
async fn a_replica_believes_nobody_at_its_own_services_either() {
    let (local, mut rpcs) = scripted();
    let replica = Replica::start(owned_here()).await;
    let mut request = tonic::Request::new(wire::GetRunRequest { run_id: "r".to_owned() });
    let forged = br#"{"name":"eve","tenant":"local","roles":["operator"]}"#;
    request.metadata_mut().insert_bin("agentloop-principal-bin", BinaryMetadataValue::from_bytes(forged));
    let mut client = replica.client();
    let rpc = replica.tasks.spawn_contained("caller", async move { client.get_run(request).await });
    // The RPC waits for the services that a new replica has not opened yet.
    replica.local.open_as(&local);
    let seen = soon(rpcs.recv()).await.unwrap();
    assert_eq!(seen.principal.as_deref(), Some(&*ada()));
    assert!(seen.headers.get("agentloop-principal-bin").is_none());
    seen.responds(&wire::GetRunResponse::default());
    response(rpc).await.unwrap();
}

#[tokio::test]
async fn a_call_that_waits_is_sent_to_the_next_owner_with_the_same_ids() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let rpc = replica.run(prompt());
    let mut seen = first.sees().await;
    let run = seen.decode::<wire::RunRequest>().input.unwrap().run_id.expect("the replica made an id");
    replica.ownership.send_replace(owned_by(&second));
    let again = second.sees().await;
    assert_eq!(again.message, seen.message);
    again.responds(&result(&run));
    assert_eq!(response(rpc).await.unwrap(), result(&run));
    assert_eq!(soon(seen.dropped.recv()).await, None, "the old owner is told that nobody waits");
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_left_as_soon_as_it_is_no_owner() {
    let (listener, address) = loopback().await;
    let mut second = Owner::start(2).await;
    let replica = Replica::start(owned_by_peer(&Peer { number: OwnerNo(1), address })).await;
    let rpc = replica.run(prompt());
    let (mut link, _) = soon(listener.accept()).await.unwrap();
    let mut heard = Vec::new();
    while !has_call(&heard) {
        soon(link.read_buf(&mut heard)).await.unwrap();
    }
    replica.ownership.send_replace(owned_by_nobody());
    replica.ownership.send_replace(owned_by(&second));
    second.sees().await.responds(&result("r"));
    assert_eq!(response(rpc).await.unwrap(), result("r"));
}

#[tokio::test]
async fn an_rpc_whose_owner_dies_is_sent_to_it_again_and_then_to_the_next_one() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let rpc = replica.run(prompt());
    let seen = first.sees().await;
    first.dies();
    drop(seen);
    replica.ownership.send_replace(owned_by(&second));
    second.sees().await.responds(&result("r"));
    assert_eq!(response(rpc).await.unwrap(), result("r"));
}

#[tokio::test]
async fn a_call_that_seems_to_kill_its_owners_is_given_to_three() {
    let mut owners = Vec::new();
    for number in 1..=4 {
        owners.push(Owner::start(number).await);
    }
    let replica = Replica::start(owned_by(&owners[0])).await;
    let rpc = replica.run(prompt());
    for number in 0..3 {
        let seen = owners[number].sees().await;
        owners[number].dies();
        drop(seen);
        replica.ownership.send_replace(owned_by(&owners[number + 1]));
    }
    let refused = soon(rpc).await.unwrap().unwrap().unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "OWNER_UNAVAILABLE"));
    assert!(owners[3].rpcs.try_recv().is_err(), "the fourth never sees it");
}

#[tokio::test]
async fn a_wrong_number_and_a_replica_that_is_not_the_owner_are_not_shown_to_callers() {
    let mut owner = Owner::start(2).await;
    // The address is the right one, and another start of a server has it by now.
    let stale = Peer { number: OwnerNo(1), ..owner.peer.clone() };
    let replica = Replica::start(owned_by_peer(&stale)).await;
    let owns = owner.ownership.send_replace(ownership(2, &[], |_| 0));
    let rpc = replica.run(prompt());
    replica.ownership.send_replace(owned_by(&owner));
    assert!(owner.rpcs.try_recv().is_err());
    owner.ownership.send_replace(owns);
    owner.sees().await.responds(&result("r"));
    assert_eq!(response(rpc).await.unwrap(), result("r"));
}

#[tokio::test]
async fn an_owner_that_stops_leaves_the_call_to_the_next_one() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let rpc = replica.run(prompt());
    let stops = retryable(Code::Unavailable, ErrorReason::ShuttingDown, "stops");
    first.sees().await.refuses(&stops);
    replica.ownership.send_replace(owned_by(&second));
    second.sees().await.responds(&result("r"));
    assert_eq!(response(rpc).await.unwrap(), result("r"));
}

/// Its connections to the database were cut for a moment. No other replica takes its place for that.
#[tokio::test]
async fn an_rpc_that_its_owner_could_not_do_is_sent_to_it_again() {
    let mut owner = Owner::start(1).await;
    let replica = Replica::start(owned_by(&owner)).await;
    let rpc = replica.run(prompt());
    owner.sees().await.refuses(&retryable(Code::Unavailable, ErrorReason::StoreUnavailable, "cut"));
    owner.sees().await.responds(&result("r"));
    assert_eq!(response(rpc).await.unwrap(), result("r"));
}

#[tokio::test]
async fn a_refusal_reaches_the_caller_with_its_details() {
    let mut owner = Owner::start(1).await;
    let replica = Replica::start(owned_by(&owner)).await;
    let rpc = replica.run(prompt());
    owner.sees().await.refuses(&retryable(Code::ResourceExhausted, ErrorReason::TooManyRuns, "full"));
    let refused = response(rpc).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::ResourceExhausted, "TOO_MANY_RUNS"));
}

#[tokio::test]
async fn a_call_that_may_not_be_repeated_is_sent_once() {
    use wire::abort_request::Target::{RunId, SessionId};
    for (target, repeats) in [(SessionId("s".to_owned()), false), (RunId("r".to_owned()), true)] {
        let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
        let replica = Replica::start(owned_by(&first)).await;
        let mut client = replica.client();
        let request = wire::AbortRequest { target: Some(target), ..Default::default() };
        let rpc = replica.tasks.spawn_contained("caller", async move { client.abort(request).await });
        let _seen = first.sees().await;
        replica.ownership.send_replace(owned_by(&second));
        if repeats {
            second.sees().await.responds(&wire::AbortResponse::default());
            response(rpc).await.unwrap();
        } else {
            let refused = response(rpc).await.unwrap_err();
            assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "OWNER_UNAVAILABLE"));
            assert!(refused.get_details_retry_info().is_some() && second.rpcs.try_recv().is_err());
        }
    }
}

#[tokio::test]
async fn what_a_call_creates_has_its_id_before_it_is_sent() {
    let mut owner = Owner::start(1).await;
    let replica = Replica::start(owned_by(&owner)).await;
    let mut sessions = SessionsClient::new(replica.channel.clone());
    let rpc = replica.tasks.spawn_contained("caller", async move {
        sessions.create_session(wire::CreateSessionRequest::default()).await?;
        let given = wire::CreateSessionRequest { session_id: Some("mine".to_owned()), ..Default::default() };
        sessions.create_session(given).await?;
        sessions.fork_session(wire::ForkSessionRequest::default()).await?;
        sessions.import_entries(wire::ImportEntriesRequest::default()).await.map(drop)
    });
    for wanted in ["session-1", "mine"] {
        let seen = owner.sees().await;
        assert_eq!(seen.decode::<wire::CreateSessionRequest>().session_id.as_deref(), Some(wanted));
        seen.responds(&wire::CreateSessionResponse::default());
    }
    let seen = owner.sees().await;
    assert_eq!(seen.decode::<wire::ForkSessionRequest>().new_session_id.as_deref(), Some("session-2"));
    seen.responds(&wire::ForkSessionResponse::default());
    let seen = owner.sees().await;
    assert_eq!(seen.decode::<wire::ImportEntriesRequest>().run_id.as_deref(), Some("run-1"));
    seen.responds(&wire::ImportEntriesResponse::default());
    response(rpc).await.unwrap();
}

#[tokio::test]
async fn an_input_without_anything_gets_no_id_since_it_would_name_a_run_then() {
    let mut owner = Owner::start(1).await;
    let replica = Replica::start(owned_by(&owner)).await;
    // Any replica can refuse it.
    let mut rpcs = replica.serves();
    let rpc = replica.run(wire::RunInput { on_disconnect: 2, ..Default::default() });
    let seen = soon(rpcs.recv()).await.unwrap();
    assert_eq!(seen.decode::<wire::RunRequest>().input.unwrap().run_id, None);
    seen.responds(&result(""));
    response(rpc).await.unwrap();
    assert!(owner.rpcs.try_recv().is_err());
}

#[tokio::test]
async fn a_caller_that_leaves_ends_its_rpc_at_the_owner() {
    let mut owner = Owner::start(1).await;
    let replica = Replica::start(owned_by(&owner)).await;
    let rpc = replica.run(prompt());
    let mut seen = owner.sees().await;
    rpc.abort();
    assert_eq!(soon(seen.dropped.recv()).await, None);
    assert!(!seen.link.unwrap().is_lost().await, "the caller has left, and the replica is well");
}

#[tokio::test]
async fn an_owner_can_tell_a_replica_that_is_gone_from_a_caller_that_has_left() {
    let mut owner = Owner::start(1).await;
    let replica = Replica::start(owned_by(&owner)).await;
    let _call = replica.run(prompt());
    let mut seen = owner.sees().await;
    replica.tasks.hard().cancel();
    drop(replica);
    assert_eq!(soon(seen.dropped.recv()).await, None);
    assert!(seen.link.unwrap().is_lost().await);
}

/// The services of the replica that callers dial are told the same.
#[tokio::test]
async fn an_owner_can_tell_an_rpc_of_its_own_that_moves_from_a_caller_that_has_left() {
    let other = Owner::start(1).await;
    let replica = Replica::start(owned_here()).await;
    let mut rpcs = replica.serves();
    let rpc = replica.run(in_s());
    let mut left = soon(rpcs.recv()).await.unwrap();
    rpc.abort();
    assert_eq!(soon(left.dropped.recv()).await, None);
    assert!(!left.link.unwrap().is_lost().await, "the caller has left");
    let _call = replica.run(in_s());
    let mut moved = soon(rpcs.recv()).await.unwrap();
    replica.ownership.send_replace(owned_by(&other));
    assert_eq!(soon(moved.dropped.recv()).await, None);
    assert!(moved.link.unwrap().is_lost().await, "the caller waits for the next owner");
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused_by_its_reason() {
    let owner = Owner::start(1).await;
    let replica = Replica::start(owned_by(&owner)).await;
    let refused =
        response(replica.run(wire::RunInput { prompt: "x".repeat(BYTES_MAX + 1), ..prompt() })).await;
    assert_eq!(reason(&refused.unwrap_err()), "MESSAGE_TOO_LARGE");
}

#[tokio::test]
async fn a_replica_that_becomes_the_owner_does_the_calls_that_wait() {
    let mut first = Owner::start(1).await;
    let replica = Replica::start(owned_by(&first)).await;
    let rpc = replica.run(prompt());
    let seen = first.sees().await;
    replica.ownership.send_replace(owned_here());
    let mut rpcs = replica.serves();
    let again = soon(rpcs.recv()).await.unwrap();
    assert_eq!((again.message.as_slice(), again.principal.as_deref()), (&seen.message[..], Some(&*ada())));
    again.responds(&result("r"));
    assert_eq!(response(rpc).await.unwrap(), result("r"));
}

/// An RPC in this process, so that the clock may be paused.
async fn unserved(ownership: Ownership) -> (Status, Duration) {
    let (_ownership, ownerships) = watch::channel(ownership);
    let forward = forward_layer(ownerships, LocalServices::none());
    let began = tokio::time::Instant::now();
    let request = wire::GetRunRequest { run_id: "r".to_owned() };
    let mut request = http::Request::new(of_frames(futures_util::stream::iter([frame(&request)])));
    *request.uri_mut() = http::Uri::from_static("/agentloop.v1.AgentLoop/GetRun");
    let response = forward.layer(Routes::default()).oneshot(request).await.unwrap();
    (Status::from_header_map(response.headers()).unwrap(), began.elapsed())
}

/// The replica does the RPC itself both times: over a socket, a paused clock would run ahead.
#[tokio::test(start_paused = true)]
async fn a_start_whose_run_has_begun_elsewhere_goes_there_without_a_pause() {
    let (_ownership, ownerships) = watch::channel(owned_here());
    let (local, mut rpcs) = scripted();
    let forward = forward_layer(ownerships, local);
    let began = tokio::time::Instant::now();
    let input = wire::RunInput { run_id: Some("r".to_owned()), ..prompt() };
    let message = frame(&wire::RunRequest { input: Some(input) });
    let mut request = http::Request::new(of_frames(futures_util::stream::iter([message])));
    *request.uri_mut() = http::Uri::from_static("/agentloop.v1.AgentLoop/Run");
    let rpc = tokio::spawn(forward.layer(Routes::default()).oneshot(request));
    let first = rpcs.recv().await.unwrap();
    first.refuses(&look_again("its session is another replica's"));
    let second = rpcs.recv().await.unwrap();
    assert!(began.elapsed().is_zero(), "{:?}", began.elapsed());
    // A wrong place that was looked up is another matter: its owner may learn of the shard in a moment.
    second.refuses(&look_again("not yet"));
    rpcs.recv().await.unwrap().responds(&result("r"));
    assert!(began.elapsed() >= Duration::from_millis(100), "{:?}", began.elapsed());
    assert!(refusal(&rpc.await.unwrap().unwrap()).is_none());
}

#[tokio::test(start_paused = true)]
async fn without_an_owner_a_call_waits_and_is_then_refused() {
    for ownership in [owned_by_nobody(), owned_here(), owned_here().lapsed()] {
        let (refused, waited) = unserved(ownership).await;
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "OWNER_UNAVAILABLE"));
        assert!(refused.get_details_retry_info().is_some());
        assert!((10..11).contains(&waited.as_secs()), "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_cannot_be_reached_is_named() {
    let (listener, address) = loopback().await;
    drop(listener);
    let (refused, _) = unserved(owned_by_peer(&Peer { number: OwnerNo(7), address })).await;
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "OWNER_UNAVAILABLE"));
    assert!(refused.message().starts_with("replica 7, which has to do"), "{refused:?}");
}

#[tokio::test]
async fn large_requests_that_are_kept_have_a_bound_and_small_ones_pass() {
    let budget = BufferBudget::of(100_000);
    let read = async |bytes: usize| {
        let message = frame(&wire::GetRunRequest { run_id: "r".repeat(bytes) });
        let request = http::Request::new(of_frames(futures_util::stream::iter([message])));
        BufferedRpc::read(request, BYTES_MAX, &budget).await
    };
    let large = read(100_000).await.unwrap();
    assert_eq!(reason(&read(100_000).await.err().unwrap()), "QUEUE_FULL");
    assert!(read(1_000).await.is_ok());
    // An RPC that goes on by the id of a run needs the budget no more.
    let small = large.with("/agentloop.v1.AgentLoop/Subscribe", b"");
    drop(large);
    assert!(read(100_000).await.is_ok());
    drop(small);
}

/// The first try may have deleted it, and somebody may have made another one since.
#[tokio::test]
async fn a_deletion_that_is_repeated_names_the_session_that_was_meant() {
    let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
    let replica = Replica::start(owned_by(&first)).await;
    let mut sessions = SessionsClient::new(replica.channel.clone());
    let request = wire::DeleteSessionRequest { session_id: "s".to_owned() };
    let rpc = replica.tasks.spawn_contained("caller", async move { sessions.delete_session(request).await });
    let meant = Some(RepeatedRpc { created_at: Some(CREATED_AT) });
    let seen = first.sees().await;
    assert_eq!(seen.repeated, None, "nobody can have done it before");
    replica.ownership.send_replace(owned_by(&second));
    let seen = second.sees().await;
    assert_eq!(seen.repeated, meant);
    assert!(seen.headers.keys().all(|name| !name.as_str().starts_with("agentloop-")), "{:?}", seen.headers);
    // The services of the replica itself are told the same.
    let mut rpcs = replica.serves();
    replica.ownership.send_replace(owned_here());
    let seen = soon(rpcs.recv()).await.unwrap();
    assert_eq!(seen.repeated, meant);
    seen.responds(&wire::DeleteSessionResponse { existed: false });
    assert!(!response(rpc).await.unwrap().into_inner().existed);
}

#[tokio::test]
async fn a_change_that_a_repetition_would_make_over_a_later_one_is_sent_once() {
    use wire::tools_client::ToolsClient;
    for (named, repeats) in [(None, false), (Some(""), false), (Some("digest"), true)] {
        let (mut first, mut second) = (Owner::start(1).await, Owner::start(2).await);
        let replica = Replica::start(owned_by(&first)).await;
        let mut tools = ToolsClient::new(replica.channel.clone());
        let rpc = replica.tasks.spawn_contained("caller", async move {
            match named.map(str::to_owned) {
                None => tools.forget_tool(wire::ForgetToolRequest { name: "t".to_owned() }).await.map(drop),
                Some(terms_digest) => {
                    let terms = wire::AcceptToolRequest { name: "t".to_owned(), terms_digest };
                    tools.accept_tool(terms).await.map(drop)
                }
            }
        });
        let _seen = first.sees().await;
        replica.ownership.send_replace(owned_by(&second));
        if repeats {
            second.sees().await.responds(&wire::AcceptToolResponse::default());
            response(rpc).await.unwrap();
        } else {
            let refused = response(rpc).await.unwrap_err();
            assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "OWNER_UNAVAILABLE"));
            assert!(second.rpcs.try_recv().is_err(), "{named:?}");
        }
    }
}
