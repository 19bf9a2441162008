//! A server that is told to stop while hosts have calls that they did not begin.

use agentloop_client::v1 as wire;
use agentloop_tests::events::names;
use agentloop_tests::input::named;
use agentloop_tests::model::Model;
use agentloop_tests::raw_host::{RawHost, declared, hello, result_of};
use agentloop_tests::server::TestServer;
use serde_json::json;
use wire::connect_request::Frame;
use wire::connect_response::Frame as ServerFrame;
use wire::run_event::Event;
use wire::{EffectClass, HumanRequestKind, RejectReason, RunStatus};

/// The most calls that a run has with hosts at a time.
const CALLS: usize = 64;

async fn connects(server: &TestServer, id: &str, instance: &str) -> RawHost {
    let mut host = RawHost::open(server).await;
    let tools = vec![declared("pay", EffectClass::Unsafe)];
    host.send(Frame::Hello(wire::Hello { instance_id: instance.to_owned(), ..hello(id, tools) }));
    host.wait_for(|frame| matches!(frame, ServerFrame::Welcome(_))).await;
    host
}

/// Starts a run whose calls are all offered, and not answered.
async fn offered(model: &Model, server: &TestServer, calls: usize) {
    let asked: Vec<_> = (0..calls).map(|number| ("pay", json!({ "x": number.to_string() }))).collect();
    model.asks_all(&asked).says("paid");
    let policy = wire::ToolPolicy { max_parallel: u32::try_from(calls).ok(), ..Default::default() };
    let mut events = server.stream(wire::RunInput { tool_policy: Some(policy), ..named("r1", "go") }).await;
    for _ in 0..calls {
        events.wait_for_name("tool_call_offered").await;
    }
}

/// Every call goes on as its second attempt, and the run completes without asking anybody.
async fn all_go_on(server: &TestServer, host: &mut RawHost) {
    for _ in 0..CALLS {
        let call = host.take_call().await;
        assert_eq!(call.attempt, 2, "{}", call.call_id);
        host.send(Frame::CallResult(result_of(&call, "done")));
    }
    let events = server.subscribe("r1", 0).await.rest().await;
    let names = names(&events);
    assert!(!names.contains(&"human_requested"), "nothing is in doubt: {names:?}");
    assert_eq!(server.get_run("r1").await.status(), RunStatus::Completed);
}

#[tokio::test]
async fn calls_that_the_same_process_did_not_begin_go_on() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let host = connects(&server, "h1", "p-1").await;
    offered(&model, &server, CALLS).await;
    server.stop().await;
    drop(host);
    server.restart().await;
    let mut host = connects(&server, "h1", "p-1").await;
    all_go_on(&server, &mut host).await;
    let events = server.subscribe("r1", 0).await.rest().await;
    let at = events.iter().filter_map(|event| match &event.event {
        Some(Event::ToolCallOffered(offered)) => Some(offered.instance_id.as_str()),
        _ => None,
    });
    assert!(at.clone().count() == 2 * CALLS && at.clone().all(|instance| instance == "p-1"), "each names it");
}

#[tokio::test]
async fn calls_that_are_given_back_while_it_stops_go_on() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let mut host = connects(&server, "h1", "").await;
    offered(&model, &server, CALLS).await;
    let gives_back = async {
        for _ in 0..CALLS {
            let frame = host.wait_for(|frame| matches!(frame, ServerFrame::CallRequest(_))).await;
            let ServerFrame::CallRequest(call) = frame else { unreachable!("it was waited for") };
            host.send(Frame::CallRejected(wire::CallRejected {
                call_id: call.call_id,
                attempt: call.attempt,
                reason: RejectReason::Draining.into(),
                message: "leaving".to_owned(),
            }));
        }
    };
    tokio::join!(server.stop(), gives_back);
    server.restart().await;
    let mut other = connects(&server, "h2", "").await;
    all_go_on(&server, &mut other).await;
}

#[tokio::test]
async fn a_host_without_a_name_for_its_process_proves_nothing() {
    for (before, after) in [("", ""), ("p-1", "p-2"), ("p-1", "")] {
        let model = Model::start().await;
        let mut server = TestServer::start(&model).await;
        let host = connects(&server, "h1", before).await;
        offered(&model, &server, 1).await;
        server.stop().await;
        drop(host);
        server.restart().await;
        let _host = connects(&server, "h1", after).await;
        let asked = server.subscribe("r1", 0).await.wait_for_name("human_requested").await;
        let Some(Event::HumanRequested(asked)) = asked.event else { unreachable!("it was waited for") };
        let kind = asked.request.expect("a question").kind();
        assert_eq!(kind, HumanRequestKind::InDoubt, "{before}, {after}");
    }
}
