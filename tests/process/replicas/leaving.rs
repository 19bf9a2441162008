//! A replica that ends: its callers are told to connect to another one before their connections are lost, and the calls of its
//! runs go on.

use agentloop_client::v1::ErrorReason;
use agentloop_client::{Client, Error, EventStream};
use agentloop_tests::owners::{moved, sessions_of};
use futures_util::future::join_all;
use serde_json::json;
use tonic::Code;

use super::{Replicas, SESSION, impatient};
use crate::support::follow::Follower;
use crate::support::host::Host;
use crate::support::model::Model;
use crate::support::server::{FENCED, input};
use crate::support::soon;

/// Streams that are open at the replica that is fenced.
const STREAMS: usize = 32;
/// Runs of the replica that is told to stop.
const RUNS: usize = 48;

async fn end_of(mut stream: EventStream) -> Error {
    loop {
        match soon("the end of a stream", stream.next()).await {
            Some(Ok(_)) => {}
            Some(Err(error)) => return error,
            None => panic!("the run of {} ended", stream.run_id()),
        }
    }
}

#[tokio::test]
async fn a_call_that_waits_at_another_replica_is_told_of_the_shutdown() {
    let mut model = Model::start().await;
    let Some(mut replicas) = Replicas::start(&model).await else { return };
    let client: Client = impatient(replicas.other());
    let waits = tokio::spawn(async move { client.run(input("r-1", SESSION, "Say hello")).await });
    let call = model.call().await;
    let (code, said) = replicas.servers[1].terminate().await;
    assert_eq!(code, 0, "{said}");
    let told = soon("the end of the call", waits).await.unwrap().expect_err("its replica ended");
    assert_eq!(told.reason(), Some(ErrorReason::ShuttingDown), "{told:?}");
    let mut run = Follower::with(impatient(replicas.owner()), input("r-1", SESSION, "Say hello")).await;
    call.say("Hello.").await;
    assert_eq!(run.answer().await, "Hello.");
}

/// A caller whose run is at another replica keeps the process for a moment.
#[tokio::test]
async fn the_sessions_of_a_replica_that_stops_are_given_away_before_its_callers_have_left() {
    let mut model = Model::start().await;
    let Some(mut replicas) = Replicas::start(&model).await else { return };
    let client: Client = impatient(replicas.other());
    let waits = tokio::spawn(async move { client.run(input("r-1", SESSION, "Say hello")).await });
    let _call = model.call().await;
    let Replicas { servers, owners, .. } = &mut replicas;
    servers[1].signal("TERM").await;
    let is_there = soon("its shards", owners.outlives_its_shards(&servers[1])).await;
    assert!(is_there, "it is a replica as long as it has a caller");
    soon("the end of the call", waits).await.unwrap().expect_err("its replica ended");
}

#[tokio::test]
async fn the_streams_of_a_fenced_replica_end_so_that_callers_try_again() {
    let mut model = Model::start().await;
    let Some(mut replicas) = Replicas::start(&model).await else { return };
    let client = impatient(replicas.owner());
    let sessions = sessions_of(&mut replicas.owners, &replicas.servers, 0, STREAMS).await;
    let (mut streams, mut calls) = (Vec::new(), Vec::new());
    for (number, session) in sessions.iter().enumerate() {
        let input = input(&format!("r-{number}"), session, "Say hello");
        streams.push(client.run_stream(input).await.expect("it starts"));
        calls.push(model.call().await);
    }
    replicas.owner().signal("STOP").await;
    moved(&mut replicas.owners, &replicas.servers, &sessions[0], 0).await;
    replicas.owner().signal("CONT").await;
    let (code, said) = replicas.owner().take().ended().await;
    assert_eq!(code, FENCED, "{said}");
    for stream in streams {
        let end = end_of(stream).await;
        assert!(end.is_unreachable() && end.code().is_none_or(|code| code == Code::Unavailable), "{end:?}");
    }
}

#[tokio::test]
async fn calls_that_begin_while_their_owner_stops_are_made_once() {
    stops_while_calls_begin(false).await;
}

#[tokio::test]
async fn calls_that_begin_while_the_replica_that_keeps_the_hosts_stops_are_made_once() {
    stops_while_calls_begin(true).await;
}

/// The owner of many runs is told to stop in the instant in which each of them calls a tool that must not be called twice. None
/// of the calls is in doubt.
async fn stops_while_calls_begin(keeps_hosts: bool) {
    let mut model = Model::start().await;
    let Some(mut replicas) = Replicas::start(&model).await else { return };
    let Replicas { servers, owners, .. } = &mut replicas;
    let hub = owners.hub(servers).await.expect("a replica keeps the hosts");
    let [leaving, stays] = if keeps_hosts { [hub, (hub + 1) % 3] } else { [(hub + 1) % 3, (hub + 2) % 3] };
    let host = Host::start_in(&servers[stays].file(""), &servers[stays].url(), "h-1", RUNS).await;
    let (mut runs, mut calls) = (Vec::new(), Vec::new());
    for (number, session) in sessions_of(owners, servers, leaving, RUNS).await.iter().enumerate() {
        let input = input(&format!("r-{number}"), session, "Charge");
        runs.push(Follower::with(servers[stays].client(), input).await);
        calls.push(model.call().await);
    }
    model.answers("charge", json!({ "seconds": 0.0 }), "Charged.");
    let charge = calls.into_iter().map(|call| call.use_tool("charge", json!({ "seconds": 0.0 })));
    let (_, (code, said)) = tokio::join!(join_all(charge), servers[leaving].terminate());
    assert_eq!(code, 0, "{said}");
    for run in &mut runs {
        assert_eq!(run.answer().await, "Charged.");
    }
    assert_eq!(host.did("charge").len(), RUNS);
}
