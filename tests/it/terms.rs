//! A tool is declared anew while a call of it waits: the stricter terms count.

use agentloop_client::v1 as wire;
use agentloop_tests::events::results;
use agentloop_tests::input::named;
use agentloop_tests::model::Model;
use agentloop_tests::raw_host::{RawHost, declared, result_of};
use agentloop_tests::server::TestServer;
use serde_json::json;
use wire::connect_request::Frame;
use wire::decision::Decision;
use wire::run_event::Event;
use wire::{EffectClass, HumanRequestKind, RunStatus, ToolDeclaration};

/// Hosts are given up at once.
const NO_GRACE: &str = "[hosts]\ngrace_period = \"0s\"";

fn approve() -> Decision {
    Decision::Approve(wire::Approve {})
}

fn with_approval() -> ToolDeclaration {
    ToolDeclaration { requires_approval: true, ..declared("pay", EffectClass::Unsafe) }
}

#[tokio::test]
async fn a_call_is_not_begun_again_unasked_by_hosts_that_declare_it_unsafe() {
    let model = Model::start().await;
    let server = TestServer::with(&model, NO_GRACE).await;
    let mut first = RawHost::welcomed(&server, "h1", vec![declared("pay", EffectClass::ReadOnly)]).await;
    model.asks("pay", json!({})).says("done");
    let mut events = server.stream(named("r1", "go")).await;
    first.take_call().await;
    events.wait_for_name("tool_call_accepted").await;
    drop(first);
    events.wait_for_name("tool_call_attempt_failed").await;
    let mut second = RawHost::welcomed(&server, "h2", vec![declared("pay", EffectClass::Unsafe)]).await;
    events.wait_for_name("human_requested").await;
    let waits = server.run(named("r1", "go")).await;
    let [question] = &waits.pending[..] else { panic!("one question: {waits:?}") };
    assert_eq!((question.kind(), question.terms_digest.len()), (HumanRequestKind::InDoubt, 32));
    server.decide(&question.request_id, approve()).await.expect("it is decided");
    let call = second.take_call().await;
    assert_eq!(call.attempt, 2);
    second.send(Frame::CallResult(result_of(&call, "paid")));
    let rest = events.rest().await;
    let offered = rest.iter().rev().find_map(|event| match &event.event {
        Some(Event::ToolCallOffered(offered)) => Some(offered.effect()),
        _ => None,
    });
    assert_eq!(offered, Some(EffectClass::Unsafe));
    assert_eq!(results(&rest)[0].output, "paid");
}

#[tokio::test]
async fn a_waiting_call_is_approved_under_the_terms_of_the_host_that_gets_it() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let first = RawHost::welcomed(&server, "h1", vec![with_approval()]).await;
    model.asks("pay", json!({})).says("done");
    let waits = server.run(named("r1", "go")).await;
    let [under_first] = &waits.pending[..] else { panic!("one question: {waits:?}") };
    // The same host comes back with another schema.
    let schema = r#"{"type":"object","properties":{"to":{"type":"string"}}}"#.to_owned();
    let changed = ToolDeclaration { input_schema_json: schema, ..with_approval() };
    let mut second = RawHost::welcomed(&server, "h1", vec![changed]).await;
    drop(first);
    server.decide(&under_first.request_id, approve()).await.expect("it is decided");
    let waits = server.run(named("r1", "go")).await;
    assert_eq!(waits.status(), RunStatus::AwaitingHuman);
    let [under_second] = &waits.pending[..] else { panic!("one question: {waits:?}") };
    assert_eq!(under_second.request_id, format!("{}-2", under_first.request_id));
    assert_ne!(under_second.terms_digest, under_first.terms_digest);
    server.decide(&under_second.request_id, approve()).await.expect("it is decided");
    let call = second.take_call().await;
    second.send(Frame::CallResult(result_of(&call, "paid")));
    assert_eq!(server.run(named("r1", "go")).await.status(), RunStatus::Completed);
}
