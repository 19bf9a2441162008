//! Overload is refused with an error and a reason, and nothing is kept in memory.

use agentloop_client::{Client, Error, v1 as wire};
use agentloop_tests::credentials::SecurityFiles;
use agentloop_tests::errors::assert_refused;
use agentloop_tests::events::results;
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named, prompt};
use agentloop_tests::model::{Model, Speech};
use agentloop_tests::raw_host::{RawHost, declared, hello};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use tonic::Code;
use tonic_types::StatusExt as _;
use wire::connect_request::Frame;
use wire::{ErrorReason, RunStatus, ToolStatus};

#[tokio::test]
async fn more_live_runs_than_the_server_takes() {
    let model = Model::start().await;
    let server = TestServer::with_server(&model, "max_live_runs = 2").await;
    model.says("before");
    let before = server.run(named("before", "hi")).await;
    let mut speeches = [model.speaks(), model.speaks()];
    let mut live = Vec::new();
    for (at, speech) in speeches.iter_mut().enumerate() {
        live.push(server.stream(named(&format!("r{at}"), "hi")).await);
        speech.asked().await;
    }
    let refused = server.try_run(named("r2", "hi")).await;
    let refused = assert_refused(refused, Code::ResourceExhausted, "TOO_MANY_RUNS");
    assert!(refused.get_details_retry_info().is_some_and(|retry| retry.retry_delay.is_some()));
    assert_eq!(server.run(named("before", "hi")).await, before, "a run that is there needs no place");
    speeches.into_iter().for_each(Speech::end);
    for events in live {
        events.rest().await;
    }
    model.says("now");
    assert_eq!(server.run(named("r2", "hi")).await.status(), RunStatus::Completed);
}

/// Two tenants at a server that takes ten live runs, and as many runs of the first as it is given.
async fn filled_by_one(model: &Model, quotas: &str) -> (TestServer, [Client; 2], Vec<Speech>, SecurityFiles) {
    let files = SecurityFiles::new();
    let tokens = ["red", "blue"].map(|tenant| files.token("ada", tenant, &["caller"]));
    let more = format!("{}{quotas}", files.auth());
    let server = TestServer::configured(model, "max_live_runs = 10", &more).await;
    let clients = tokens.map(|token| server.as_caller(&token));
    let mut live = Vec::new();
    for run in 0..9 {
        live.push(speaking(&clients[0], model, run).await.expect("there is room"));
    }
    (server, clients, live, files)
}

/// A run whose model has been asked, and speaks until the test lets it end.
async fn speaking(client: &Client, model: &Model, run: usize) -> Result<Speech, Error> {
    let mut speech = model.speaks();
    drop(Box::pin(soon(client.run_stream(named(&format!("r{run}"), "hi")))).await?);
    speech.asked().await;
    Ok(speech)
}

#[tokio::test]
async fn a_tenant_leaves_room_for_the_runs_of_others() {
    let model = Model::start().await;
    let (_server, [red, blue], mut live, _files) = filled_by_one(&model, "").await;
    let refused = soon(red.run(named("more", "hi"))).await.expect_err("what is left is for others");
    let status = refused.status().expect("a status");
    assert_eq!((status.code, status.reason), (Code::ResourceExhausted, Some(ErrorReason::TooManyRuns)));
    assert!(
        status.message.contains("the tenant has its share") && status.retry_after.is_some(),
        "{status:?}"
    );
    live.push(speaking(&blue, &model, 0).await.expect("there is room for another tenant"));
    let refused = soon(blue.run(named("more", "hi"))).await.expect_err("the server is full");
    assert!(refused.to_string().contains("the server has its maximum"), "{refused}");
    live.into_iter().for_each(Speech::end);
}

#[tokio::test]
async fn a_quota_of_each_tenant_takes_the_place_of_that_rule() {
    let model = Model::start().await;
    let quotas = "[quotas]\ntenant_live_runs = 10\n";
    let (_server, [red, _], mut live, _files) = filled_by_one(&model, quotas).await;
    live.push(speaking(&red, &model, 9).await.expect("it may have all"));
    live.into_iter().for_each(Speech::end);
}

#[tokio::test]
async fn requests_that_add_no_live_run_are_taken_at_the_maximum() {
    let model = Model::start().await;
    let server = TestServer::with_server(&model, "max_live_runs = 1").await;
    let mut speech = model.speaks();
    let live = server.stream(in_session("s1", "r1", "one")).await;
    speech.asked().await;
    let busy = |policy: wire::BusySessionPolicy, session: &str, run: &str| wire::RunInput {
        on_busy_session: policy.into(),
        ..in_session(session, run, run)
    };
    use wire::BusySessionPolicy::{Enqueue, Interrupt, Steer};
    for (policy, run) in [(Steer, "steers"), (Enqueue, "waits")] {
        drop(server.stream(busy(policy, "s1", run)).await);
    }
    for policy in [Steer, Enqueue, Interrupt] {
        let refused = server.try_run(busy(policy, "s2", "new")).await;
        assert_refused(refused, Code::ResourceExhausted, "TOO_MANY_RUNS");
    }
    model.says("interrupted").says("waited");
    let interrupting = server.stream(busy(Interrupt, "s1", "interrupts")).await;
    let ended = live.rest().await;
    assert_eq!(ended.last().map(wire::RunEvent::status), Some(RunStatus::Aborted));
    interrupting.rest().await;
    assert_eq!(server.run(busy(Enqueue, "s1", "waits")).await.status(), RunStatus::Completed);
}

#[tokio::test]
async fn runs_that_wait_for_a_human_do_not_count() {
    let model = Model::start().await;
    let server = TestServer::with_server(&model, "max_live_runs = 1").await;
    let _host = Host::start(&server).await;
    for at in 0..4 {
        model.asks("mail", json!({ "to": "bob" }));
        let waits = server.run(named(&format!("r{at}"), "write")).await;
        assert_eq!(waits.status(), RunStatus::AwaitingHuman);
    }
    assert_eq!(server.pending().await.len(), 4);
}

#[tokio::test]
async fn more_hosts_than_the_server_takes() {
    let model = Model::start().await;
    let server = TestServer::with(&model, "[hosts]\nmax_hosts = 1").await;
    let tools = || vec![declared("t", wire::EffectClass::ReadOnly)];
    let _first = RawHost::welcomed(&server, "h1", tools()).await;
    let (frames, sent) = tokio::sync::mpsc::channel(1);
    let frame = wire::ConnectRequest { frame: Some(Frame::Hello(hello("h2", tools()))) };
    frames.send(frame).await.expect("there is room");
    let stream = tokio_stream::wrappers::ReceiverStream::new(sent);
    let second = soon(server.tool_host().connect(stream)).await.map(|_| ());
    let refused = assert_refused(second, Code::ResourceExhausted, "TOO_MANY_HOSTS");
    assert!(refused.get_details_retry_info().is_some());
}

#[tokio::test]
async fn more_calls_than_a_tools_queue_takes() {
    let model = Model::start().await;
    let server = TestServer::with(&model, "[hosts]\nqueue_per_tool = 2\nhost_wait = \"100ms\"").await;
    let host =
        wire::Hello { initial_credit: 0, ..hello("h1", vec![declared("t", wire::EffectClass::ReadOnly)]) };
    let mut raw = RawHost::open(&server).await;
    raw.send(Frame::Hello(host));
    raw.wait_for(|_| true).await;
    model.asks_all(&[("t", json!({})), ("t", json!({})), ("t", json!({}))]).says("done");
    let policy = wire::ToolPolicy { max_parallel: Some(3), ..Default::default() };
    let mut events = server.stream(wire::RunInput { tool_policy: Some(policy), ..prompt("go") }).await;
    let refused = results(&[events.wait_for_name("tool_call_result").await]).remove(0);
    assert_eq!(refused.status(), ToolStatus::Unavailable);
    assert!(refused.output.contains("too many"), "{}", refused.output);
    raw.close().await.expect("the stream ends well");
    let events = events.rest().await;
    assert_eq!(results(&events).len(), 3);
    assert_eq!(events.last().map(wire::RunEvent::status), Some(RunStatus::Completed));
}
