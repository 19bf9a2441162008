//! The server killed in the middle of something, and started again on the same database.

use agentloop_client::host::{ToolHost, ToolHostBuilder};
use agentloop_client::v1::decision::Decision;
use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::{
    self as wire, AnswerInPlace, Approve, Deny, HumanRequestKind, RunStatus, ToolStatus,
};
use agentloop_tests::credentials::SecurityFiles;
use agentloop_tests::host::{Gate, tools};
use serde_json::{Value, json};

use crate::support::follow::{Follower, outcome};
use crate::support::host::{Host, of_principal};
use crate::support::model::Model;
use crate::support::server::{Server, Setting, input};
use crate::support::{eventually, soon};

#[tokio::test]
async fn in_a_model_call() {
    let mut model = Model::start().await;
    let mut server = Server::start(&model.setting()).await;
    let mut run = Follower::start(&server, input("r-1", "s-1", "Say hello")).await;
    let mut cut = model.call().await;
    cut.begin("Good mor").await;
    // A piece, or all pieces so far where they came before the subscriber.
    run.until("a piece of the answer", |event| {
        matches!(event, Event::ModelDelta(_) | Event::PartialMessage(_)).then_some(())
    })
    .await;

    server.kill().await;
    server.start_again().await;

    let again = model.call().await;
    assert_eq!(again.request["messages"], cut.request["messages"]);
    again.say("Hello.").await;
    assert_eq!(run.answer().await, "Hello.");
    assert_eq!(run.count(|event| matches!(event, Event::AssistantMessage(_))), 1);
    assert_eq!(run.entries().await.len(), 2);
    assert!(!model.was_called());
}

#[tokio::test]
async fn between_two_approvals_of_one_question() {
    let (model, files) = (Model::start().await, SecurityFiles::new());
    let token = |name: &str, roles: &[&str]| files.token_in(name, "local", roles, &["sre"]);
    let (ada, tools_of) = (token("ada", &["operator"]), token("tools", &["host"]));
    let approvers = ["ann", "bob"].map(|name| token(name, &["approver"]));
    let rule = "[[policy.rules]]\naction = 'ask'\ntool = 'mail'\napprovers = ['group:sre']\nquorum = 2\n";
    let more = format!("{}{rule}", files.auth());
    let mut server = Server::start(&Setting { more, ..model.setting() }).await;
    let gate = Gate::default();
    let mail = tools(&gate).into_iter().filter(|tool| tool.name() == "mail");
    let host = ToolHost::builder(server.url()).host_id("h-1").token(&tools_of);
    let host = mail.fold(host, ToolHostBuilder::tool).build().expect("a host");
    let serving = tokio::spawn(async move { host.run_until(std::future::pending()).await });
    let ada = server.client_of(Some(&ada));
    eventually("the tool", || async { ada.list_tools().await.ok()?.first().map(drop) }).await;

    model.answers("mail", json!({ "to": "bob" }), "Sent.");
    let waits = ada.run(input("r-1", "s-1", "Mail bob")).await.expect("it asks");
    let approve = async |server: &Server, token: &str| {
        let answer = wire::SubmitApprovalRequest {
            request_id: waits.pending[0].request_id.clone(),
            decision: Some(wire::Decision { decision: Some(Decision::Approve(Approve {})) }),
            ..Default::default()
        };
        server.client_of(Some(token)).submit_approval(answer).await.expect("it counts")
    };
    assert!(approve(&server, &approvers[0]).await.answer.is_none(), "one is not enough");

    server.kill().await;
    server.start_again().await;

    let asked = ada.get_run("r-1").await.expect("it is read").pending;
    let by: Vec<&str> = asked[0].partial_approvals.iter().map(|one| one.decided_by.as_str()).collect();
    assert_eq!(by, ["ann"], "the first one is kept");
    assert!(approve(&server, &approvers[0]).await.answer.is_none(), "the same person counts once");
    assert!(gate.calls().is_empty(), "nothing has run");
    assert!(approve(&server, &approvers[1]).await.answer.is_some(), "two are enough");
    let done = ada.run(input("r-1", "s-1", "Mail bob")).await.expect("it ends");
    assert_eq!(done.status(), RunStatus::Completed);
    assert_eq!(gate.count("mail"), 1);
    serving.abort();
}

/// The host is away when another principal's comes under its id.
#[tokio::test]
async fn while_a_host_has_an_id() {
    let files = SecurityFiles::new();
    let [ada, eve] = ["ada", "eve"].map(|name| files.token(name, "local", &["host"]));
    let olga = files.token("olga", "local", &["operator"]);
    let more = files.auth();
    let mut server = Server::start(&Setting { more, ..Model::start().await.setting() }).await;
    let olga = server.client_of(Some(&olga));
    let is_there = || eventually("the host", || async { olga.list_hosts().await.ok()?.first().map(drop) });
    let serving = of_principal(&server, "h-1", &ada);
    is_there().await;

    server.kill().await;
    serving.abort();
    server.start_again().await;

    let refused = soon("the refusal", of_principal(&server, "h-1", &eve)).await.expect("it ends");
    let refused = refused.expect_err("the id is another's");
    assert!(refused.to_string().contains("another principal"), "{refused}");
    let serving = of_principal(&server, "h-1", &ada);
    is_there().await;
    serving.abort();
}

#[tokio::test]
async fn in_a_read_only_tool_call() {
    let model = Model::start().await;
    let mut server = Server::start(&model.setting()).await;
    let host = Host::start(&server, "h-1").await;
    let mut run = Follower::start(&server, input("r-1", "s-1", "Wait")).await;
    model.answers("slow", json!({ "seconds": 2.0 }), "Waited.");
    host.does("slow-start").await;

    server.kill().await;
    server.start_again().await;

    let result = run.result().await;
    assert_eq!(outcome(&result), (ToolStatus::Succeeded, "slept"));
    assert_eq!(run.answer().await, "Waited.");
    assert_eq!(host.did("slow-start").len(), 1, "the call went on at the host that came back");
    assert_eq!(host.did("slow-end").len(), 1);
}

#[tokio::test]
async fn with_the_host_of_a_read_only_tool_call() {
    let mut model = Model::start().await;
    let mut server = Server::start(&Setting { grace_period: "1s", ..model.setting() }).await;
    let first = Host::start(&server, "h-1").await;
    let mut run = Follower::start(&server, input("r-1", "s-1", "Wait")).await;
    model.call().await.use_tool("slow", json!({ "seconds": 0.5 })).await;
    first.does("slow-start").await;

    server.kill().await;
    first.process.kill().await;
    server.start_again().await;
    let second = Host::start(&server, "h-2").await;

    let result = run.result().await;
    assert_eq!(outcome(&result), (ToolStatus::Succeeded, "slept"));
    assert_eq!((result.host_id.as_str(), result.attempt), ("h-2", 2));
    model.call().await.say("Waited.").await;
    assert_eq!(run.answer().await, "Waited.");
    assert_eq!(second.did("slow-start").len(), 1);
}

#[tokio::test]
async fn in_an_unsafe_tool_call_whose_host_survives() {
    let model = Model::start().await;
    let mut server = Server::start(&model.setting()).await;
    let host = Host::start(&server, "h-1").await;
    charges_once(model, &mut server, &host, json!({ "seconds": 2.0 })).await;
}

#[tokio::test]
async fn in_an_unsafe_tool_call_of_an_example() {
    for language in ["python", "typescript", "go"] {
        let model = Model::start().await;
        let mut server = Server::start(&model.setting()).await;
        if let Some(host) = Host::example(&server, language).await {
            charges_once(model, &mut server, &host, json!({ "amount": 5, "seconds": 2.0 })).await;
        }
    }
}

async fn charges_once(model: Model, server: &mut Server, host: &Host, arguments: Value) {
    let mut run = Follower::start(server, input("r-1", "s-1", "Charge")).await;
    model.answers("charge", arguments, "Charged.");
    host.does("charge").await;

    server.kill().await;
    server.start_again().await;

    let result = run.result().await;
    assert_eq!(outcome(&result).0, ToolStatus::Succeeded);
    assert_eq!((result.host_id.as_str(), result.attempt), (host.id.as_str(), 1));
    assert_eq!(run.answer().await, "Charged.");
    assert_eq!(host.did("charge").len(), 1);
}

#[tokio::test]
async fn in_an_unsafe_tool_call_whose_result_the_host_has_when_it_comes_back() {
    let model = Model::start().await;
    let mut server = Server::start(&model.setting()).await;
    let host = Host::start(&server, "h-1").await;
    let mut run = Follower::start(&server, input("r-1", "s-1", "Charge")).await;
    model.answers("charge", json!({ "seconds": 0.0 }), "Charged.");
    host.does("charge").await;

    // The result may be recorded, or on its way, or only with the host.
    server.kill().await;
    server.start_again().await;

    assert_eq!(run.answer().await, "Charged.");
    assert_eq!(host.did("charge").len(), 1);
}

#[tokio::test]
async fn with_the_host_and_the_call_is_denied() {
    let (mut model, _server, host, mut run) = unsafe_call_in_doubt().await;
    let question = run.question().await;
    assert_eq!(question.kind(), HumanRequestKind::InDoubt);
    let deny = Deny { message: "Nobody knows.".to_owned() };
    run.decide(&question, Decision::Deny(deny)).await;

    let result = run.result().await;
    assert_eq!(outcome(&result).0, ToolStatus::OutcomeUnknown);
    model.call().await.say("It may be charged.").await;
    assert_eq!(run.answer().await, "It may be charged.");
    assert_eq!(host.len(), 1);
}

#[tokio::test]
async fn with_the_host_and_the_call_is_answered() {
    let (mut model, server, before, mut run) = unsafe_call_in_doubt().await;
    let question = run.question().await;
    // A new host of the same tool changes nothing: only a human's word runs the call again.
    let host = Host::start(&server, "h-2").await;
    let answer = AnswerInPlace { output: "It was charged; I looked.".to_owned() };
    run.decide(&question, Decision::AnswerInPlace(answer)).await;

    let result = run.result().await;
    assert_eq!(outcome(&result), (ToolStatus::Answered, "It was charged; I looked."));
    let call = model.call().await;
    assert!(call.last_message().contains("I looked"), "{}", call.last_message());
    call.say("Charged.").await;
    assert_eq!(run.answer().await, "Charged.");
    assert_eq!((before.len(), host.did("charge").len()), (1, 0));
}

/// A run whose server and host were killed in the middle of an UNSAFE call, and what the host had done by then.
async fn unsafe_call_in_doubt() -> (Model, Server, Vec<String>, Follower) {
    let mut model = Model::start().await;
    let mut server = Server::start(&Setting { grace_period: "1s", ..model.setting() }).await;
    let host = Host::start(&server, "h-1").await;
    let run = Follower::start(&server, input("r-1", "s-1", "Charge")).await;
    model.call().await.use_tool("charge", json!({ "seconds": 600.0 })).await;
    host.does("charge").await;
    let done = host.did("charge");

    server.kill().await;
    host.process.kill().await;
    server.start_again().await;

    let asked = server.question("r-1").await;
    assert_eq!((asked.kind(), asked.tool.as_str()), (HumanRequestKind::InDoubt, "charge"));
    assert!(!model.was_called(), "the model goes on before the call is settled");
    (model, server, done, run)
}

#[tokio::test]
async fn while_a_human_is_asked() {
    let mut model = Model::start().await;
    let mut server = Server::start(&model.setting()).await;
    let host = Host::start(&server, "h-1").await;
    let mut run = Follower::start(&server, input("r-1", "s-1", "Mail it")).await;
    model.call().await.use_tool("send_email", json!({ "to": "a@example.com" })).await;
    let asked = run.question().await;

    server.kill().await;
    server.start_again().await;

    assert_eq!(server.question("r-1").await, asked);
    assert!(host.did("send_email").is_empty());
    run.decide(&asked, Decision::Approve(Approve {})).await;
    assert_eq!(outcome(&run.result().await), (ToolStatus::Succeeded, "sent"));
    model.call().await.say("Sent.").await;
    assert_eq!(run.answer().await, "Sent.");
    assert_eq!(host.did("send_email").len(), 1);
    assert_eq!(run.count(|event| matches!(event, Event::HumanRequested(_))), 1);
}
