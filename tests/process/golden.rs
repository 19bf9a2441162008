//! The database of each version of the schema, opened by the server as it is.

use agentloop_client::Client;
use agentloop_client::v1::decision::Decision;
use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::submit_input_request::Input;
use agentloop_client::v1::{
    Approve, HumanRequest, HumanRequestKind, ListEntriesRequest, ListRunsRequest, RunInput, RunStatus,
    SubmitInputRequest,
};
use agentloop_tests::golden::{self, Known};
use agentloop_tests::load::brain::{Brain, Temper};
use agentloop_tests::load::script::Script;
use agentloop_tests::load::world::setting;
use agentloop_tests::model::Model;
use futures_util::future::join_all;

use crate::support::follow::{Follower, decide};
use crate::support::host::Host;
use crate::support::server::Server;

#[test]
fn every_version_has_its_file() {
    let missing: Vec<i64> = golden::versions().into_iter().filter(|at| !golden::file(*at).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}: cargo run -p agentloop-tests --example make-golden");
    for version in golden::versions() {
        let bytes = golden::file(version).metadata().expect("a file").len();
        assert!(bytes < 100_000, "{version} has {bytes} bytes");
    }
}

#[tokio::test]
async fn every_version_is_taken_over() {
    let (model, brain) = (Model::start().await, Brain::default());
    for Known { key, script, .. } in golden::known() {
        brain.learn(key, script);
    }
    brain.learn("queued", Script::default());
    brain.learn("next", Script::default());
    brain.drive(&model, Temper { fails: 0, thinks_ms: 0 }, 1);
    join_all(golden::versions().into_iter().map(|version| opened(&model, version))).await;
    assert_eq!(model.faults(), Vec::<String>::new());
}

async fn opened(model: &Model, version: i64) {
    let mut server = Server::start(&setting(model)).await;
    server.kill().await;
    for ending in ["-wal", "-shm"] {
        let _absent = std::fs::remove_file(server.file(&format!("agentloop.db{ending}")));
    }
    std::fs::copy(golden::file(version), server.file("agentloop.db")).expect("copied");
    server.start_again().await;
    println!("version {version}");
    Box::pin(taken_over(&server, version)).await;
}

async fn taken_over(server: &Server, version: i64) {
    let host = Host::start(server, "h-2").await;
    let client = server.client();
    for Known { key, since, finished, .. } in golden::known() {
        if since > version {
            continue;
        }
        if finished {
            let run = client.get_run(format!("r-{key}")).await.expect("it is there");
            assert_eq!(run.status(), RunStatus::Completed, "{run:?}");
        }
        let run = goes_on(server, golden::input(key)).await;
        assert!(run.count(|event| matches!(event, Event::AssistantMessage(_))) > 0, "{key}");
        assert!(run.entries().await.len() >= 2, "{key}");
    }
    if version >= 2 {
        for (session, entries) in [("s-forked", 5), ("s-kept", 2)] {
            let request = ListEntriesRequest { session_id: session.to_owned(), ..Default::default() };
            let shared = client.list_entries(request).await.expect("listed").entries;
            assert_eq!(shared.len(), entries, "{shared:?}");
        }
    }
    if version >= 3 {
        goes_on(server, golden::queued()).await;
    }
    assert_eq!(host.did("begin parked.0.0").len(), 1, "what was approved was done");
    assert_eq!(host.did("begin looks.0.0").len(), 1, "what was lost and harms nobody was done again");
    assert!(host.did("begin pays.0.0").is_empty(), "what may have been done was not done again");
    for run in client.list_runs(ListRunsRequest::default()).await.expect("listed").runs {
        assert!(run.preview.starts_with("Follow the script of <"), "{run:?}");
        let replayed = client.replay_run(&run.run_id).await.expect("replayed");
        assert!(replayed.faithful, "{}: {}", run.run_id, replayed.difference);
        let next = agentloop_tests::input::in_session(
            &run.session_id,
            &format!("next-{}", run.run_id),
            &agentloop_tests::load::brain::prompt("next"),
        );
        goes_on(server, next).await;
    }
}

/// Follows a run, whose request is the same as it was then, to its good end.
async fn goes_on(server: &Server, input: RunInput) -> Follower {
    let client = server.client();
    let mut run = Follower::start(server, input).await;
    let mut seq = 1;
    while let Some(event) = run.event(seq).await {
        if let Event::HumanRequested(asked) = event {
            answer(&client, run.run_id(), asked.request.expect("a question")).await;
        }
        seq += 1;
    }
    run.answer().await;
    run
}

/// Answers what still waits for an answer. A call that nobody knows about is left to its time.
async fn answer(client: &Client, run_id: &str, asked: HumanRequest) {
    let pending = client.get_run(run_id).await.expect("it is there").pending;
    if !pending.iter().any(|open| open.request_id == asked.request_id) {
        return;
    }
    match asked.kind() {
        HumanRequestKind::Approve => decide(client, &asked, Decision::Approve(Approve {})).await,
        HumanRequestKind::Prompt => {
            let input = Some(Input::Text("Blue.".to_owned()));
            let request =
                SubmitInputRequest { request_id: asked.request_id, input, answered_by: String::new() };
            client.submit_input(request).await.expect("answered");
        }
        HumanRequestKind::InDoubt
        | HumanRequestKind::Select
        | HumanRequestKind::Form
        | HumanRequestKind::Url
        | HumanRequestKind::Unspecified => {}
    }
}
