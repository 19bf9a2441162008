//! A name belongs to the terms under which it was declared: a weaker declaration waits for an operator.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::assert_refused;
use agentloop_tests::input::named;
use agentloop_tests::model::Model;
use agentloop_tests::raw_host::{RawHost, declared, hello, result_of};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use tonic::{Code, Status};
use wire::connect_request::Frame;
use wire::connect_response::Frame as ServerFrame;
use wire::decision::Decision;
use wire::{CapabilityRefusal, EffectClass, RunStatus, ToolDeclaration};

fn strong() -> ToolDeclaration {
    ToolDeclaration { requires_approval: true, ..declared("pay", EffectClass::Unsafe) }
}

fn weak() -> ToolDeclaration {
    declared("pay", EffectClass::ReadOnly)
}

/// Connects a host that declares this tool. Returns the verdict on it too.
async fn join(server: &TestServer, id: &str, tool: ToolDeclaration) -> (RawHost, wire::CapabilityVerdict) {
    let mut host = RawHost::open(server).await;
    host.send(Frame::Hello(hello(id, vec![tool])));
    let welcome = host.wait_for(|frame| matches!(frame, ServerFrame::Welcome(_))).await;
    let ServerFrame::Welcome(mut welcome) = welcome else { unreachable!("it was waited for") };
    (host, welcome.capabilities.pop().expect("a verdict on each tool"))
}

async fn accept(server: &TestServer, name: &str, digest: &str) -> Result<wire::Tool, Status> {
    let request = wire::AcceptToolRequest { name: name.to_owned(), terms_digest: digest.to_owned() };
    let response = soon(server.tools().accept_tool(request)).await?.into_inner();
    Ok(response.tool.expect("the tool as it is then"))
}

async fn forget(server: &TestServer, name: &str) -> Result<bool, Status> {
    let request = wire::ForgetToolRequest { name: name.to_owned() };
    Ok(soon(server.tools().forget_tool(request)).await?.into_inner().existed)
}

async fn tool(server: &TestServer, name: &str) -> wire::Tool {
    let request = wire::ListToolsRequest { name: name.to_owned(), ..wire::ListToolsRequest::default() };
    let mut tools = soon(server.tools().list_tools(request)).await.expect("listed").into_inner().tools;
    assert_eq!(tools.len(), 1);
    tools.remove(0)
}

#[tokio::test]
async fn nobody_takes_the_name_of_a_host_that_restarts() {
    let model = Model::start().await;
    let mut server = TestServer::with(&model, "[metrics]\nlisten = \"127.0.0.1:0\"\n").await;
    let (real, verdict) = join(&server, "real", strong()).await;
    assert!(verdict.accepted && verdict.refusal() == CapabilityRefusal::Unspecified);
    model.asks("pay", json!({})).says("done");
    let waits = server.run(named("r1", "go")).await;
    let [question] = &waits.pending[..] else { panic!("one question: {waits:?}") };
    real.close().await.expect("it leaves");

    let (_other, verdict) = join(&server, "other", weak()).await;
    assert!(!verdict.accepted, "{verdict:?}");
    assert_eq!(verdict.refusal(), CapabilityRefusal::Weaker);
    for part in ["READ_ONLY", "UNSAFE", "approval", "agentloop tools accept pay"] {
        assert!(verdict.reason.contains(part), "{verdict:?}");
    }
    let [refused] = &tool(&server, "pay").await.refused[..] else { panic!("one was refused") };
    let declared = refused.declaration.clone().expect("what was declared");
    assert_eq!((refused.host_id.as_str(), declared.effect()), ("other", EffectClass::ReadOnly));
    assert_eq!(server.scrape().await.get("tool_declarations_refused_total"), 1.0);

    server.decide(&question.request_id, Decision::Approve(wire::Approve {})).await.expect("it is decided");
    let (mut real, verdict) = join(&server, "real", strong()).await;
    assert!(verdict.accepted, "{verdict:?}");
    let call = real.take_call().await;
    real.send(Frame::CallResult(result_of(&call, "paid")));
    assert_eq!(server.run(named("r1", "go")).await.status(), RunStatus::Completed);

    server.restart().await;
    let (_other, verdict) = join(&server, "other", weak()).await;
    assert_eq!(verdict.refusal(), CapabilityRefusal::Weaker, "terms outlive a restart");
}

#[tokio::test]
async fn terms_outlive_the_time_for_which_a_tool_is_kept() {
    let model = Model::start().await;
    let mut server = TestServer::with(&model, "[hosts]\ntool_retention = \"0s\"\n").await;
    let (real, _) = join(&server, "real", strong()).await;
    real.close().await.expect("it leaves");
    for _ in 0..2 {
        let (other, verdict) = join(&server, "other", weak()).await;
        assert_eq!(verdict.refusal(), CapabilityRefusal::Weaker, "{verdict:?}");
        other.close().await.expect("it leaves");
        server.restart().await;
    }
}

#[tokio::test]
async fn a_weaker_declaration_is_accepted_by_an_operator() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    assert_refused(accept(&server, "pay", "").await, Code::NotFound, "TOOL_NOT_FOUND");
    assert!(!forget(&server, "pay").await.expect("it is confirmed"));
    let (real, _) = join(&server, "real", strong()).await;
    assert_refused(accept(&server, "pay", "").await, Code::FailedPrecondition, "WRONG_STATE");
    assert_refused(forget(&server, "pay").await, Code::FailedPrecondition, "WRONG_STATE");
    real.close().await.expect("it leaves");

    let (mut other, verdict) = join(&server, "other", weak()).await;
    assert!(!verdict.accepted);
    let before = tool(&server, "pay").await;
    let accepted = accept(&server, "pay", "").await.expect("one was refused");
    assert_eq!(accepted.terms_digest, before.refused[0].terms_digest);
    assert_eq!(accepted.refused, []);
    other.wait_for(|frame| matches!(frame, ServerFrame::GoAway(_))).await;
    assert!(matches!(other.next().await, Ok(None)), "the stream ends well");
    server.restart().await;
    let (other, verdict) = join(&server, "other", weak()).await;
    assert!(verdict.accepted, "the acceptance outlives a restart: {verdict:?}");
    accept(&server, "pay", &accepted.terms_digest).await.expect("accepting twice is accepting once");
    other.close().await.expect("it leaves");

    let (real, verdict) = join(&server, "real", strong()).await;
    assert!(verdict.accepted, "stricter terms need nobody: {verdict:?}");
    real.close().await.expect("it leaves");
    assert!(forget(&server, "pay").await.expect("nobody serves it"));
    let (_other, verdict) = join(&server, "other", weak()).await;
    assert!(verdict.accepted, "nothing is known of the name: {verdict:?}");
}

/// The terms of a tool are unreadable after a restart: a name that nobody knows must not be free for all.
#[tokio::test]
async fn a_name_whose_terms_are_damaged_has_the_strictest() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let (real, _) = join(&server, "real", strong()).await;
    real.close().await.expect("it leaves");
    let sql = "UPDATE tools SET declaration = replace(declaration, 'unsafe', 'read_only') WHERE name = 'pay'";
    assert_eq!(server.change_stored(sql).await, 1);

    let (_other, verdict) = join(&server, "other", weak()).await;
    assert_eq!(verdict.refusal(), CapabilityRefusal::Weaker, "{verdict:?}");
    let (_real, verdict) = join(&server, "real", strong()).await;
    assert!(verdict.accepted, "{verdict:?}");
    let tool = tool(&server, "pay").await;
    assert_eq!(tool.declaration.expect("it is known").effect(), EffectClass::Unsafe);
}

#[tokio::test]
async fn a_connected_host_that_declares_anew_is_refused_too() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let (mut host, _) = join(&server, "real", strong()).await;
    let capabilities = hello("real", vec![weak()]).capabilities;
    host.send(Frame::UpdateTools(wire::UpdateTools { capabilities }));
    let updated = host.wait_for(|frame| matches!(frame, ServerFrame::ToolsUpdated(_))).await;
    let ServerFrame::ToolsUpdated(updated) = updated else { unreachable!("it was waited for") };
    assert_eq!(updated.capabilities[0].refusal(), CapabilityRefusal::Weaker);
    assert_eq!(tool(&server, "pay").await.host_ids, Vec::<String>::new(), "it serves the tool no more");
}

#[tokio::test]
async fn terms_in_the_configuration_win() {
    let model = Model::start().await;
    let terms =
        "[tools]\nweaker = \"accept\"\n[tools.terms.pay]\neffect = \"keyed\"\nrequires_approval = true\n";
    let server = TestServer::with(&model, terms).await;
    let (_first, verdict) = join(&server, "first", weak()).await;
    assert_eq!((verdict.accepted, verdict.refusal()), (false, CapabilityRefusal::Weaker));
    assert!(verdict.reason.contains("configuration"), "{verdict:?}");
    let (real, verdict) = join(&server, "real", strong()).await;
    assert!(verdict.accepted, "it is stricter: {verdict:?}");
    assert!(tool(&server, "pay").await.configured);
    assert_refused(accept(&server, "pay", "").await, Code::FailedPrecondition, "WRONG_STATE");
    real.close().await.expect("it leaves");
    assert_refused(forget(&server, "pay").await, Code::FailedPrecondition, "WRONG_STATE");
    let keyed = ToolDeclaration { effect: EffectClass::Keyed.into(), ..strong() };
    let (_real, verdict) = join(&server, "real", keyed).await;
    assert!(verdict.accepted, "the configuration allows it: {verdict:?}");
}

#[tokio::test]
async fn where_every_host_is_trusted_a_weaker_declaration_is_taken() {
    let model = Model::start().await;
    let server = TestServer::with(&model, "[tools]\nweaker = \"accept\"\n").await;
    let (real, _) = join(&server, "real", strong()).await;
    real.close().await.expect("it leaves");
    let (_other, verdict) = join(&server, "other", weak()).await;
    assert!(verdict.accepted, "{verdict:?}");
}
