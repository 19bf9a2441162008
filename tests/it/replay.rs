//! A run's journal is folded anew, and leads to where the run stands.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_invalid, assert_refused};
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named};
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use tonic::Code;
use wire::decision::Decision;

#[track_caller]
fn faithful(replay: &wire::ReplayRunResponse) {
    assert!(replay.faithful && replay.difference.is_empty(), "{replay:?}");
    assert!(!replay.state_digest.is_empty());
}

#[tokio::test]
async fn at_every_place_that_a_run_can_be() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" }));
    let waits = server.run(in_session("s1", "r1", "tell bob")).await;
    let parked = server.replay("r1").await;
    faithful(&parked);
    assert_eq!(parked.events, server.get_run("r1").await.last_seq);

    let mut speech = model.speaks();
    let approve = Decision::Approve(wire::Approve {});
    server.decide(&waits.pending[0].request_id, approve).await.expect("decided");
    speech.asked().await;
    let live = server.replay("r1").await;
    faithful(&live);
    assert_ne!(live.state_digest, parked.state_digest);
    assert_ne!(live.context_digest, parked.context_digest, "it read the result meanwhile");
    speech.say("done");
    speech.end();
    server.run(in_session("s1", "r1", "tell bob")).await;
    let done = server.replay("r1").await;
    faithful(&done);
    assert_eq!(done.context_digest, live.context_digest, "the same model call");

    drop(host);
    server.restart().await;
    assert_eq!(server.replay("r1").await, done, "the same journal is the same run");
    model.says("once more");
    server.run(in_session("s1", "r2", "and now?")).await;
    faithful(&server.replay("r2").await);
    assert_eq!(server.replay("r1").await, done, "what follows in the session changes nothing");
}

#[tokio::test]
async fn a_run_that_did_nothing_yet_sent_nothing() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    server.run(wire::RunInput { stepped: true, ..named("r1", "hi") }).await;
    let replay = server.replay("r1").await;
    faithful(&replay);
    assert_eq!((replay.events, replay.context_digest.as_str()), (2, ""));
    assert_eq!(server.get_run("r1").await.last_seq, 2, "nothing was changed");
}

#[tokio::test]
async fn an_unknown_run_is_not_replayed() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let replay = |run: &str| {
        let (request, mut client) = (wire::ReplayRunRequest { run_id: run.to_owned() }, server.agent_loop());
        async move { soon(client.replay_run(request)).await }
    };
    assert_invalid(replay("").await, &["run_id"]);
    assert_refused(replay("none").await, Code::NotFound, "RUN_NOT_FOUND");
}
