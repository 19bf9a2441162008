//! Runtimes: opened before the first call that needs one, on one host, closed however the run ends.

use agentloop_client::v1 as wire;
use agentloop_tests::events::{Events, name, results};
use agentloop_tests::input::{named, prompt};
use agentloop_tests::model::Model;
use agentloop_tests::raw_host::{RawHost, declared, hello, result_of};
use agentloop_tests::server::TestServer;
use serde_json::json;
use wire::RunStatus;
use wire::connect_request::Frame;
use wire::connect_response::Frame as ServerFrame;

/// A tool that needs a runtime.
fn browse(effect: wire::EffectClass) -> wire::ToolDeclaration {
    wire::ToolDeclaration { requires_runtime: true, ..declared("browse", effect) }
}

fn browser() -> Vec<wire::ToolDeclaration> {
    vec![browse(wire::EffectClass::ReadOnly)]
}

async fn world() -> (Model, TestServer, RawHost) {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = RawHost::welcomed(&server, "a", browser()).await;
    (model, server, host)
}

async fn opened(host: &mut RawHost) -> wire::OpenRuntime {
    match host.next().await.expect("the stream goes on").expect("the stream goes on") {
        ServerFrame::OpenRuntime(open) => open,
        other => panic!("no runtime is opened: {other:?}"),
    }
}

async fn closed(host: &mut RawHost) -> String {
    match host.wait_for(|frame| matches!(frame, ServerFrame::CloseRuntime(_))).await {
        ServerFrame::CloseRuntime(close) => close.runtime_id,
        _ => unreachable!("it was waited for"),
    }
}

fn answer(host: &RawHost, call: &wire::CallRequest, output: &str) {
    host.send(Frame::CallResult(result_of(call, output)));
}

/// The host goes on with what it has: its runtimes, and its calls in hand.
async fn again(server: &TestServer, open_runtimes: &[&str], calls_in_hand: Vec<wire::CallInHand>) -> RawHost {
    let mut host = RawHost::open(server).await;
    let open_runtimes = open_runtimes.iter().map(|id| (*id).to_owned()).collect();
    host.send(Frame::Hello(wire::Hello { open_runtimes, calls_in_hand, ..hello("a", browser()) }));
    host.wait_for(|frame| matches!(frame, ServerFrame::Welcome(_))).await;
    host
}

async fn ended(mut events: Events) -> Vec<wire::RunEvent> {
    events.wait_for_name("run_finished").await;
    events.seen
}

#[tokio::test]
async fn a_run_has_one_runtime_on_one_host_until_its_end() {
    let (model, server, mut host) = world().await;
    // It has more room, and is never asked.
    let _other = RawHost::welcomed(&server, "b", browser()).await;
    model.asks_all(&[("browse", json!({})), ("browse", json!({}))]).asks("browse", json!({})).says("done");
    let input = wire::RunInput {
        runtime_init_data_json: Some(r#"{"image":"x"}"#.to_owned()),
        runtime_hints_json: Some(r#"{"cpus":2}"#.to_owned()),
        tool_policy: Some(wire::ToolPolicy { max_parallel: Some(2), ..Default::default() }),
        ..named("r1", "look around")
    };
    // Among equals the one with most credit gets the call first.
    host.send(Frame::Credit(wire::Credit { total: 200 }));
    let events = server.stream(input).await;
    let open = opened(&mut host).await;
    assert_eq!((open.runtime_id.as_str(), open.run_id.as_str()), ("r1/rt1", "r1"));
    assert_eq!(
        (open.init_data_json.as_str(), open.hints_json.as_str()),
        (r#"{"image":"x"}"#, r#"{"cpus":2}"#)
    );
    assert!(!open.session_id.is_empty());
    for _ in 0..3 {
        let call = host.take_call().await;
        assert_eq!(call.runtime_id, "r1/rt1");
        answer(&host, &call, "seen");
    }
    assert_eq!(closed(&mut host).await, "r1/rt1");
    let seen = ended(events).await;
    assert_eq!(seen.last().map(|event| event.status()), Some(RunStatus::Completed));
    assert_eq!(results(&seen).len(), 3);
}

#[tokio::test]
async fn one_that_no_frame_of_its_host_holds_is_told_to_the_model() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::open(&server).await;
    host.send(Frame::Hello(wire::Hello { max_frame_bytes: 4096, ..hello("a", browser()) }));
    host.wait_for(|frame| matches!(frame, ServerFrame::Welcome(_))).await;
    model.asks("browse", json!({})).says("never mind");
    let init_data = json!({ "page": "x".repeat(200_000) }).to_string();
    let input = wire::RunInput { runtime_init_data_json: Some(init_data), ..named("r1", "look") };
    let seen = ended(server.stream(input).await).await;
    assert_eq!(results(&seen)[0].status(), wire::ToolStatus::Rejected);
    assert!(results(&seen)[0].output.contains("4096"), "{}", results(&seen)[0].output);
    assert_eq!(closed(&mut host).await, "r1/rt1");
}

#[tokio::test]
async fn it_is_closed_when_the_run_is_aborted() {
    let (model, server, mut host) = world().await;
    model.asks("browse", json!({}));
    let events = server.stream(named("r1", "look")).await;
    opened(&mut host).await;
    host.take_call().await;
    server.abort("r1").await;
    assert_eq!(closed(&mut host).await, "r1/rt1");
    ended(events).await;
}

#[tokio::test]
async fn a_tool_that_needs_none_gets_none() {
    let (model, server, _host) = world().await;
    let mut plain =
        RawHost::welcomed(&server, "b", vec![declared("look", wire::EffectClass::ReadOnly)]).await;
    model.asks("look", json!({})).says("done");
    let events = server.stream(prompt("look")).await;
    let call = plain.take_call().await;
    assert_eq!(call.runtime_id, "");
    answer(&plain, &call, "seen");
    ended(events).await;
}

#[tokio::test]
async fn a_host_that_comes_back_goes_on_with_its_runtime() {
    let (model, server, mut host) = world().await;
    model.asks("browse", json!({})).asks("browse", json!({})).says("done");
    let events = server.stream(named("r1", "look")).await;
    opened(&mut host).await;
    let call = host.take_call().await;
    let in_hand = wire::CallInHand {
        call_id: call.call_id.clone(),
        attempt: call.attempt,
        lease_token: call.lease_token.clone(),
        finished: false,
    };
    drop(host);
    let mut host = again(&server, &["r1/rt1", "r9/rt1", "nonsense"], vec![in_hand]).await;
    let stale = [closed(&mut host).await, closed(&mut host).await];
    assert_eq!(stale, ["r9/rt1", "nonsense"], "runs that there are not use nothing");
    answer(&host, &call, "seen");
    host.wait_for(|frame| matches!(frame, ServerFrame::ResultAck(_))).await;
    let next = host.next().await.expect("the stream goes on").expect("the stream goes on");
    let ServerFrame::CallRequest(call) = next else { panic!("it is not opened again: {next:?}") };
    assert_eq!(call.runtime_id, "r1/rt1");
    answer(&host, &call, "seen");
    assert_eq!(closed(&mut host).await, "r1/rt1");
    ended(events).await;
}

#[tokio::test]
async fn a_host_that_is_lost_takes_the_runtime_along() {
    let model = Model::start().await;
    let server = TestServer::with(&model, "[hosts]\ngrace_period = \"100ms\"").await;
    let mut host = RawHost::welcomed(&server, "a", browser()).await;
    model.asks("browse", json!({})).says("done");
    let events = server.stream(named("r1", "look")).await;
    opened(&mut host).await;
    host.take_call().await;
    drop(host);
    let mut other = RawHost::welcomed(&server, "b", browser()).await;
    assert_eq!(opened(&mut other).await.runtime_id, "r1/rt2", "another one, elsewhere");
    let call = other.take_call().await;
    assert_eq!((call.runtime_id.as_str(), call.attempt), ("r1/rt2", 2));
    // The first comes back with what nobody uses any more.
    let mut late = again(&server, &["r1/rt1"], Vec::new()).await;
    assert_eq!(closed(&mut late).await, "r1/rt1");
    answer(&other, &call, "seen");
    assert_eq!(closed(&mut other).await, "r1/rt2");
    let seen = ended(events).await;
    assert_eq!(seen.iter().filter(|event| name(event) == "tool_call_attempt_failed").count(), 1);
}

#[tokio::test]
async fn after_a_restart_the_next_call_goes_where_the_runtime_is() {
    let (model, mut server, mut host) = world().await;
    model.asks("browse", json!({})).asks("browse", json!({})).says("done");
    let mut events = server.stream(named("r1", "look")).await;
    opened(&mut host).await;
    let call = host.take_call().await;
    events.wait_for_name("tool_call_accepted").await;
    let in_hand = wire::CallInHand {
        call_id: call.call_id.clone(),
        attempt: call.attempt,
        lease_token: call.lease_token.clone(),
        finished: true,
    };
    drop((host, events));
    server.restart().await;
    let _other = RawHost::welcomed(&server, "b", browser()).await;
    let mut host = again(&server, &["r1/rt1"], vec![in_hand]).await;
    answer(&host, &call, "seen");
    let call = host.take_call().await;
    assert_eq!(call.runtime_id, "r1/rt1");
    answer(&host, &call, "seen");
    assert_eq!(closed(&mut host).await, "r1/rt1");
    let seen = ended(server.subscribe("r1", 0).await).await;
    assert_eq!(results(&seen).len(), 2);
}

#[tokio::test]
async fn a_run_that_ended_while_its_host_was_away_has_its_runtime_closed() {
    let (model, mut server, mut host) = world().await;
    model.asks("browse", json!({}));
    let events = server.stream(named("r1", "look")).await;
    opened(&mut host).await;
    host.take_call().await;
    drop(host);
    server.abort("r1").await;
    ended(events).await;
    server.restart().await;
    let mut host = again(&server, &["r1/rt1"], Vec::new()).await;
    assert_eq!(closed(&mut host).await, "r1/rt1");
}
