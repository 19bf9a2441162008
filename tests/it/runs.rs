//! `GetRun` says why a run is not moving; `ListRuns` finds runs.

use std::sync::Arc;

use agentloop_client::v1 as wire;
use agentloop_core::time::Timestamp;
use agentloop_server::clock::TestClock;
use agentloop_tests::events::name;
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named};
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::raw_host::{RawHost, declared};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use wire::{RunErrorCode, RunStatus, WaitKind};

async fn waiting_on(server: &TestServer, status: RunStatus) -> wire::WaitingOn {
    let run = server.get_run("r1").await;
    assert_eq!(run.status(), status);
    let waiting = run.waiting_on.expect("it waits");
    assert!(waiting.since.is_some());
    waiting
}

#[tokio::test]
async fn waits_for_the_model() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    let events = server.stream(named("r1", "hi")).await;
    speech.asked().await;
    let waiting = waiting_on(&server, RunStatus::ModelRunning).await;
    assert_eq!((waiting.kind(), waiting.what.as_str(), waiting.attempt), (WaitKind::Model, "fake/m", 1));
    speech.end();
    events.rest().await;
    let over = server.get_run("r1").await;
    assert_eq!((over.status(), over.waiting_on), (RunStatus::Completed, None));
}

#[tokio::test]
async fn waits_for_the_next_try() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.then(Answer::Fails(429, Some(60), "slow down".to_owned()));
    let mut events = server.stream(named("r1", "hi")).await;
    events.wait_for_name("model_call_failed").await;
    let waiting = waiting_on(&server, RunStatus::BackingOff).await;
    assert_eq!((waiting.kind(), waiting.attempt), (WaitKind::Backoff, 1));
    let (since, next) = (waiting.since.expect("since"), waiting.next_at.expect("a time"));
    assert!((59..=61).contains(&(next.seconds - since.seconds)), "{waiting:?}");
    let error = waiting.last_error.expect("why");
    assert_eq!((error.code(), error.http_status), (RunErrorCode::ModelRateLimited, 429));
}

#[tokio::test]
async fn waits_for_a_tool() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks_all(&[("hold", json!({ "x": "1" })), ("hold", json!({ "x": "2" }))]);
    let mut events = server.stream(named("r1", "go")).await;
    host.gate.began(1).await;
    events.wait_for_name("tool_call_accepted").await;
    let waiting = waiting_on(&server, RunStatus::ToolRunning).await;
    assert_eq!(waiting.kind(), WaitKind::Tool);
    assert_eq!(waiting.what, "r1/1.0 (hold) on host-1");
    assert!(waiting.next_at.is_some(), "it is given up some time");
    let open = server.get_run("r1").await.tool_calls_open;
    let states: Vec<_> = open.iter().map(|call| (call.call_id.as_str(), call.state())).collect();
    let (accepted, ready) = (wire::ToolCallState::Accepted, wire::ToolCallState::Ready);
    assert_eq!(states, [("r1/1.0", accepted), ("r1/1.1", ready)]);
    assert_eq!((open[0].host_id.as_str(), open[0].attempt, open[1].attempt), ("host-1", 1, 0));
}

#[tokio::test]
async fn get_run_shows_only_journaled_state() {
    let model = Model::start().await;
    // No time passes, so that nothing is written because it has waited for long enough.
    let clock = TestClock::at(Timestamp(1_000_000));
    let server = TestServer::built(&model, "", move |builder| builder.clock(Arc::new(clock.clone()))).await;
    let mut host = RawHost::welcomed(&server, "h1", vec![declared("job", wire::EffectClass::Unsafe)]).await;
    model.asks("job", json!({}));
    let mut events = server.stream(named("r1", "go")).await;
    host.take_call().await;
    let accepted = soon(async {
        loop {
            let run = server.get_run("r1").await;
            if run.tool_calls_open[0].state() == wire::ToolCallState::Accepted {
                break run;
            }
        }
    });
    let last_seq = accepted.await.last_seq;
    server.subscribe("r1", last_seq).await;
    let accepted = events.wait_for(|event| event.seq == last_seq).await;
    assert_eq!(name(&accepted), "tool_call_accepted");
}

#[tokio::test]
async fn waits_for_a_host() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    Host::start(&server).await.leave().await;
    model.asks("weather", json!({ "city": "Rome" }));
    let mut events = server.stream(named("r1", "go")).await;
    events.wait_for_name("tool_call_proposed").await;
    let waiting = waiting_on(&server, RunStatus::ToolRunning).await;
    assert_eq!((waiting.kind(), waiting.what.as_str()), (WaitKind::ToolHost, "r1/1.0 (weather)"));
    let _host = Host::start(&server).await;
    model.says("sunny");
    assert_eq!(events.rest().await.last().map(wire::RunEvent::status), Some(RunStatus::Completed));
}

#[tokio::test]
async fn waits_for_a_human() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" }));
    let result = server.run(named("r1", "go")).await;
    for _ in 0..2 {
        let waiting = waiting_on(&server, RunStatus::AwaitingHuman).await;
        assert_eq!(waiting.kind(), WaitKind::Human);
        assert!(waiting.what.contains(&result.pending[0].request_id), "{}", waiting.what);
        server.restart().await;
    }
}

#[tokio::test]
async fn waits_for_an_operator() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.fails(503);
    let policy =
        wire::RetryPolicy { max_retries: Some(0), pause_when_exhausted: Some(true), ..Default::default() };
    server.run(wire::RunInput { retry_policy: Some(policy), ..named("r1", "hi") }).await;
    let waiting = waiting_on(&server, RunStatus::Paused).await;
    assert_eq!(waiting.kind(), WaitKind::Operator);
    assert_eq!(waiting.last_error.expect("why").http_status, 503);
}

#[tokio::test]
async fn runs_are_found_by_label_text_and_time() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    for (run, team, text) in
        [("r0", "blue", "A trip\nto   Bergen"), ("r1", "red", "a TRIP home"), ("r2", "blue", "mail")]
    {
        model.says("hello");
        let labels = [("team".to_owned(), team.to_owned())].into();
        server.run(wire::RunInput { labels, ..named(run, text) }).await;
    }
    let created_at = server.get_run("r1").await.created_at;
    let found = async |filter: wire::RunFilter| {
        list(&server, wire::ListRunsRequest { filter: Some(filter), ..Default::default() }).await.0
    };
    let any = wire::RunFilter::default;
    let labels = [("team".to_owned(), "blue".to_owned())];
    assert_eq!(found(wire::RunFilter { labels: labels.clone().into(), ..any() }).await, ["r2", "r0"]);
    let text = |text: &str| wire::RunFilter { text: text.to_owned(), ..any() };
    assert_eq!(found(text("trip")).await, ["r1", "r0"]);
    assert_eq!(found(text("TRIP TO BERGEN")).await, ["r0"]);
    assert_eq!(found(text("%")).await, [] as [&str; 0]);
    assert_eq!(found(wire::RunFilter { created_before: created_at, ..any() }).await, ["r0"]);
    assert_eq!(found(wire::RunFilter { created_after: created_at, ..any() }).await, ["r2", "r1"]);
    assert_eq!(
        found(wire::RunFilter { models: vec!["fake/m".to_owned()], ..any() }).await,
        ["r2", "r1", "r0"]
    );
    assert_eq!(found(wire::RunFilter { agents: vec!["none".to_owned()], ..any() }).await, [] as [&str; 0]);
    // With the older fields.
    let both = wire::ListRunsRequest {
        statuses: vec![RunStatus::Failed.into()],
        filter: Some(wire::RunFilter { statuses: vec![RunStatus::Completed.into()], ..any() }),
        ..Default::default()
    };
    assert_eq!(list(&server, both).await, (Vec::new(), String::new()));
    server.restart().await;
    assert_eq!(server.get_run("r0").await.preview, "A trip to Bergen");
}

async fn list(server: &TestServer, request: wire::ListRunsRequest) -> (Vec<String>, String) {
    let found = soon(server.agent_loop().list_runs(request)).await.expect("listed").into_inner();
    (found.runs.into_iter().map(|run| run.run_id).collect(), found.next_page_token)
}

#[tokio::test]
async fn runs_are_listed_filtered_and_paged_newest_first() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    for at in 0..6 {
        if at % 3 == 0 {
            model.fails(400)
        } else {
            model.says("hello")
        };
        let session = if at % 2 == 0 { "even" } else { "odd" };
        let labels = [("at".to_owned(), at.to_string())].into();
        server.run(wire::RunInput { labels, ..in_session(session, &format!("r{at}"), "hi") }).await;
    }
    let all = wire::ListRunsRequest::default;
    for _ in 0..2 {
        let newest = ["r5", "r4", "r3", "r2", "r1", "r0"];
        assert_eq!(list(&server, all()).await.0, newest);
        let even = wire::ListRunsRequest { session_id: "even".to_owned(), ..all() };
        assert_eq!(list(&server, even).await.0, ["r4", "r2", "r0"]);
        let failed = wire::ListRunsRequest { statuses: vec![RunStatus::Failed.into()], ..all() };
        assert_eq!(list(&server, failed).await.0, ["r3", "r0"]);
        let statuses = vec![RunStatus::Failed.into(), RunStatus::Completed.into()];
        let odd = wire::ListRunsRequest { session_id: "odd".to_owned(), statuses, ..all() };
        assert_eq!(list(&server, odd).await.0, ["r5", "r3", "r1"]);
        let live = wire::ListRunsRequest { statuses: vec![RunStatus::ModelRunning.into()], ..all() };
        assert_eq!(list(&server, live).await, (Vec::new(), String::new()));
        let (mut paged, mut token) = (Vec::new(), String::new());
        for page in [4, 2] {
            let request = wire::ListRunsRequest { page_size: 4, page_token: token, ..all() };
            let (runs, next) = list(&server, request).await;
            assert_eq!(runs.len(), page);
            paged.extend(runs);
            token = next;
        }
        assert_eq!((paged, token.as_str()), (newest.map(str::to_owned).to_vec(), ""));
        server.restart().await;
    }
    let run = server.get_run("r3").await;
    assert_eq!(
        (run.labels["at"].as_str(), run.agent.as_str(), run.model.as_str()),
        ("3", "default", "fake/m")
    );
    assert_eq!(run.last_error.expect("why").code(), RunErrorCode::ModelBadRequest);
}

#[tokio::test]
async fn a_run_that_a_caller_started_is_the_top_of_its_tree() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" })).asks("mail", json!({ "to": "eve" }));
    for run in ["r1", "r2"] {
        server.run(named(run, "write")).await;
    }
    let run = server.get_run("r1").await;
    assert_eq!((run.root_run_id.as_str(), run.parent_run_id.as_str(), run.start_at), ("r1", "", None));
    let listed = async |filter: wire::RunFilter| {
        let request = wire::ListRunsRequest { filter: Some(filter), ..Default::default() };
        let page = soon(server.agent_loop().list_runs(request)).await.expect("a list").into_inner();
        page.runs.into_iter().map(|run| run.run_id).collect::<Vec<_>>()
    };
    let below = |root: &str| wire::RunFilter { root_run_id: root.to_owned(), ..Default::default() };
    assert_eq!(listed(below("r2")).await, ["r2"]);
    assert_eq!(listed(below("r3")).await, [""; 0]);
    let asked_by = wire::RunFilter { parent_run_id: "r1".to_owned(), ..Default::default() };
    assert_eq!(listed(asked_by).await, [""; 0], "it has asked for none");
    let inbox = async |root: &str| {
        let filter = Some(wire::PendingFilter { root_run_id: root.to_owned(), ..Default::default() });
        let request = wire::ListPendingRequest { filter, ..Default::default() };
        let page = soon(server.agent_loop().list_pending(request)).await.expect("a list").into_inner();
        page.requests.into_iter().map(|request| request.run_id).collect::<Vec<_>>()
    };
    assert_eq!((inbox("r1").await, inbox("").await.len()), (vec!["r1".to_owned()], 2));
    let bad = wire::RunFilter { root_run_id: "no id".to_owned(), ..Default::default() };
    let request = wire::ListRunsRequest { filter: Some(bad), ..Default::default() };
    let refused = soon(server.agent_loop().list_runs(request)).await;
    agentloop_tests::errors::assert_invalid(refused, &["filter.root_run_id"]);
    assert_eq!(host.gate.count("mail"), 0);
}
