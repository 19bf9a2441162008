//! A host lost in the middle of a call.

use agentloop_client::v1::decision::Decision;
use agentloop_client::v1::{Approve, HostHealth, HumanRequestKind, ListPendingRequest, ToolStatus};
use serde_json::json;

use crate::support::follow::{Follower, outcome};
use crate::support::host::Host;
use crate::support::model::Model;
use crate::support::proxy::Proxy;
use crate::support::server::{Server, Setting, input};

async fn server_that_waits(grace_period: &'static str) -> (Model, Server) {
    let model = Model::start().await;
    let server = Server::start(&Setting { grace_period, ..model.setting() }).await;
    (model, server)
}

#[tokio::test]
async fn a_read_only_call_moves_to_the_next_host() {
    let (mut model, server) = server_that_waits("1s").await;
    let first = Host::start(&server, "h-1").await;
    let mut run = Follower::start(&server, input("r-1", "s-1", "Wait")).await;
    model.call().await.use_tool("slow", json!({ "seconds": 1.0 })).await;
    let started = first.does("slow-start").await;
    first.process.kill().await;
    let second = Host::start(&server, "h-2").await;

    let result = run.result().await;
    assert_eq!(outcome(&result), (ToolStatus::Succeeded, "slept"));
    assert_eq!((result.host_id.as_str(), result.attempt), ("h-2", 2));
    let call_id = result.result.expect("a result").call_id;
    assert_eq!(started, format!("slow-start {call_id} 1"));
    assert_eq!(second.did("slow-start"), [format!("slow-start {call_id} 2")]);
    model.call().await.say("Waited.").await;
    assert_eq!(run.answer().await, "Waited.");
}

#[tokio::test]
async fn an_unsafe_call_waits_for_a_human_and_runs_again_only_on_his_word() {
    let (mut model, server) = server_that_waits("1s").await;
    let first = Host::start(&server, "h-1").await;
    let mut run = Follower::start(&server, input("r-1", "s-1", "Charge")).await;
    model.call().await.use_tool("charge", json!({ "seconds": 1.0 })).await;
    first.does("charge").await;
    let Host { process, .. } = first;
    process.kill().await;
    let second = Host::start(&server, "h-2").await;

    let question = run.question().await;
    assert_eq!(question.kind(), HumanRequestKind::InDoubt);
    assert_eq!(server.question("r-1").await.request_id, question.request_id);
    assert!(second.did("charge").is_empty(), "{:?}", second.did("charge"));
    run.decide(&question, Decision::Approve(Approve {})).await;

    let result = run.result().await;
    assert_eq!(outcome(&result), (ToolStatus::Succeeded, "charged"));
    assert_eq!((result.host_id.as_str(), result.attempt), ("h-2", 2));
    model.call().await.say("Charged.").await;
    assert_eq!(run.answer().await, "Charged.");
    assert_eq!(second.did("charge").len(), 1);
}

#[tokio::test]
async fn a_call_goes_on_at_a_host_whose_connection_broke() {
    let (mut model, server) = server_that_waits("30s").await;
    let proxy = Proxy::start(server.address()).await;
    let host = Host::start_at(&server, "h-1", &proxy.url()).await;
    let mut run = Follower::start(&server, input("r-1", "s-1", "Charge")).await;
    model.call().await.use_tool("charge", json!({ "seconds": 1.0 })).await;
    host.does("charge").await;

    proxy.cut();
    server.host_is("h-1", HostHealth::Lost).await;
    proxy.join();

    let result = run.result().await;
    assert_eq!(outcome(&result), (ToolStatus::Succeeded, "charged"));
    assert_eq!((result.host_id.as_str(), result.attempt), ("h-1", 1));
    model.call().await.say("Charged.").await;
    assert_eq!(run.answer().await, "Charged.");
    assert_eq!(host.did("charge").len(), 1);
}

#[tokio::test]
async fn a_call_goes_on_at_a_host_that_was_frozen() {
    let (mut model, server) = server_that_waits("30s").await;
    let host = Host::start(&server, "h-1").await;
    let mut run = Follower::start(&server, input("r-1", "s-1", "Charge")).await;
    model.call().await.use_tool("charge", json!({ "seconds": 1.0 })).await;
    host.does("charge").await;

    host.process.signal("STOP").await;
    server.host_is("h-1", HostHealth::Lost).await;
    host.process.signal("CONT").await;

    let result = run.result().await;
    assert_eq!(outcome(&result), (ToolStatus::Succeeded, "charged"));
    assert_eq!(result.attempt, 1);
    model.call().await.say("Charged.").await;
    assert_eq!(run.answer().await, "Charged.");
    assert_eq!(host.did("charge").len(), 1);
}

#[tokio::test]
async fn a_late_result_settles_a_call_in_doubt() {
    let (mut model, server) = server_that_waits("500ms").await;
    let proxy = Proxy::start(server.address()).await;
    let host = Host::start_at(&server, "h-1", &proxy.url()).await;
    let mut run = Follower::start(&server, input("r-1", "s-1", "Charge")).await;
    model.call().await.use_tool("charge", json!({ "seconds": 1.0 })).await;
    host.does("charge").await;

    proxy.cut();
    assert_eq!(run.question().await.kind(), HumanRequestKind::InDoubt);
    proxy.join();

    let result = run.result().await;
    assert_eq!(outcome(&result), (ToolStatus::Succeeded, "charged"));
    assert_eq!((result.host_id.as_str(), result.attempt), ("h-1", 1));
    model.call().await.say("Charged.").await;
    assert_eq!(run.answer().await, "Charged.");
    assert_eq!(host.did("charge").len(), 1);
    let pending = server.client().list_pending(ListPendingRequest::default()).await.expect("listed");
    assert_eq!(pending.requests, []);
}

#[tokio::test]
async fn a_call_in_doubt_that_nobody_settles_has_an_unknown_outcome() {
    let mut model = Model::start().await;
    let setting = Setting { grace_period: "200ms", in_doubt_timeout: "1s", ..model.setting() };
    let server = Server::start(&setting).await;
    let host = Host::start(&server, "h-1").await;
    let mut run = Follower::start(&server, input("r-1", "s-1", "Charge")).await;
    model.call().await.use_tool("charge", json!({ "seconds": 600.0 })).await;
    host.does("charge").await;
    host.process.kill().await;
    // Another host of the tool is no reason to run the call there.
    let second = Host::start(&server, "h-2").await;

    let result = run.result().await;
    assert_eq!(outcome(&result).0, ToolStatus::OutcomeUnknown);
    model.call().await.say("It may be charged.").await;
    assert_eq!(run.answer().await, "It may be charged.");
    assert!(second.did("charge").is_empty());
    let pending = server.client().list_pending(ListPendingRequest::default()).await.expect("listed");
    assert_eq!(pending.requests, []);
}
