//! Callers of a replica that ends: each is told to connect to another one, before its connection is lost.

use agentloop_client::v1::ErrorReason;
use agentloop_client::{Client, Error, EventStream};
use agentloop_tests::owners::{moved, sessions_of};
use tonic::Code;

use super::{Replicas, SESSION, impatient};
use crate::support::follow::Follower;
use crate::support::model::Model;
use crate::support::server::{FENCED, input};
use crate::support::soon;

/// Streams that are open at the replica that is fenced.
const STREAMS: usize = 32;

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
