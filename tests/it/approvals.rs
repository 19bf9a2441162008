//! Approvals: a human is asked before a tool runs, and the decision is carried out.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_invalid, assert_refused, metadata};
use agentloop_tests::events::{name, results};
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named, prompt};
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::{Value, json};
use tonic::Code;
use wire::decision::Decision;
use wire::run_event::Event;
use wire::{RunStatus, ToolStatus};

fn approve() -> Decision {
    Decision::Approve(wire::Approve {})
}

fn edits(arguments: &str) -> Decision {
    Decision::ApproveWithEdits(wire::ApproveWithEdits { arguments_json: arguments.to_owned() })
}

fn deny(message: &str) -> Decision {
    Decision::Deny(wire::Deny { message: message.to_owned() })
}

/// A run that waits for approval of a mail to bob.
struct Asked {
    model: Model,
    server: TestServer,
    host: Host,
    question: wire::HumanRequest,
}

async fn asked(input: wire::RunInput) -> Asked {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" })).says("done");
    let waits = Box::pin(server.run(input)).await;
    let [question] = &waits.pending[..] else { panic!("one question: {waits:?}") };
    Asked { model, server, host, question: question.clone() }
}

impl Asked {
    async fn decide(&self, decision: Decision) -> Result<wire::HumanRequest, tonic::Status> {
        self.server.decide(&self.question.request_id, decision).await
    }

    /// The run's one tool result, after its end.
    async fn result(&self) -> wire::ToolResult {
        let events = self.server.subscribe("r1", 0).await.rest().await;
        let [result] = &results(&events)[..] else { panic!("one result: {events:?}") };
        result.clone()
    }

    /// The tool result that the model read.
    fn read(&self) -> Value {
        let request = self.model.last_request();
        request["messages"].as_array().and_then(|all| all.last()).expect("messages")["content"].clone()
    }
}

#[tokio::test]
async fn approved_it_runs_as_it_is() {
    let asked = asked(named("r1", "write")).await;
    let answered = asked.decide(approve()).await.expect("decided");
    assert_eq!(answered.answer.and_then(|answer| answer.decision?.decision), Some(approve()));
    let result = asked.result().await;
    assert_eq!((result.status(), result.output.as_str()), (ToolStatus::Succeeded, "sent to bob"));
    assert_eq!(asked.read(), "sent to bob");
}

#[tokio::test]
async fn edited_it_runs_with_the_new_arguments_if_they_follow_the_schema() {
    let asked = asked(named("r1", "write")).await;
    for bad in [r#"{"to":7}"#, "{}", r#"{"to":"eve","cc":"all"}"#] {
        let refused = asked.decide(edits(bad)).await;
        assert_invalid(refused, &["decision.approve_with_edits.arguments_json"]);
    }
    assert_eq!(asked.server.pending().await, std::slice::from_ref(&asked.question), "it is still asked");
    asked.decide(edits(r#"{"to":"eve"}"#)).await.expect("decided");
    let result = asked.result().await;
    assert_eq!(result.status(), ToolStatus::Succeeded);
    assert_eq!(asked.host.gate.calls(), [("mail".to_owned(), json!({ "to": "eve" }))]);
    let read = asked.read();
    let read = read.as_str().expect("a text");
    assert!(read.contains("sent to eve") && read.contains("a human changed the arguments"), "{read}");
}

#[tokio::test]
async fn denied_it_does_not_run_and_the_model_reads_why() {
    let asked = asked(named("r1", "write")).await;
    asked.decide(deny("bob is on leave")).await.expect("decided");
    let result = asked.result().await;
    assert_eq!(result.status(), ToolStatus::Denied);
    assert!(asked.read().as_str().is_some_and(|read| read.contains("bob is on leave")));
    assert_eq!(asked.host.gate.calls(), []);
    assert_eq!(asked.server.get_run("r1").await.status(), RunStatus::Completed);
}

#[tokio::test]
async fn denied_and_stopped_the_run_ends_and_the_session_goes_on() {
    let asked = asked(in_session("s1", "r1", "write")).await;
    let stop = Decision::DenyAndStop(wire::DenyAndStop { message: "never".to_owned() });
    asked.decide(stop).await.expect("decided");
    let ended = asked.server.run(in_session("s1", "r1", "write")).await;
    assert_eq!(ended.status(), RunStatus::Aborted);
    let error = ended.last_error.expect("why");
    assert_eq!(error.code(), wire::RunErrorCode::AbortedByDenial);
    assert!(error.message.contains("never"), "{}", error.message);
    assert_eq!(asked.host.gate.calls(), []);
    let next = asked.server.run(in_session("s1", "r2", "then what?")).await;
    assert_eq!(next.status(), RunStatus::Completed);
}

#[tokio::test]
async fn answered_in_place_it_does_not_run() {
    let asked = asked(named("r1", "write")).await;
    let answer = Decision::AnswerInPlace(wire::AnswerInPlace { output: "I told him".to_owned() });
    asked.decide(answer).await.expect("decided");
    assert_eq!(asked.result().await.status(), ToolStatus::Answered);
    assert_eq!(asked.read(), "I told him");
    assert_eq!(asked.host.gate.calls(), []);
}

#[tokio::test]
async fn an_approval_needs_the_digest_of_the_shown_call() {
    let asked = asked(named("r1", "write")).await;
    let request = |digest: &str| wire::SubmitApprovalRequest {
        request_id: asked.question.request_id.clone(),
        decision: Some(wire::Decision { decision: Some(approve()) }),
        digest: digest.to_owned(),
        ..Default::default()
    };
    let mut client = asked.server.agent_loop();
    let other = soon(client.submit_approval(request("another"))).await;
    assert_refused(other, Code::FailedPrecondition, "DIGEST_MISMATCH");
    assert_eq!(asked.server.pending().await.len(), 1);
    soon(client.submit_approval(request(&asked.question.digest))).await.expect("decided");
    assert_eq!(asked.result().await.status(), ToolStatus::Succeeded);
}

#[tokio::test]
async fn nobody_answers_in_time() {
    let short = wire::RunInput { approval_timeout_seconds: Some(1), ..named("r1", "write") };
    let mut asked = asked(short).await;
    assert!(asked.question.expires_at.is_some());
    asked.server.restart().await;
    let events = asked.server.subscribe("r1", 0).await.rest().await;
    let [result] = &results(&events)[..] else { panic!("one result: {events:?}") };
    assert_eq!(result.status(), ToolStatus::Denied);
    let resolved = events.iter().find_map(|event| match &event.event {
        Some(Event::HumanResolved(resolved)) => resolved.answer.clone()?.decision?.decision,
        _ => None,
    });
    assert_eq!(resolved, Some(Decision::Expired(wire::Expired {})));
    let late = asked.decide(approve()).await;
    let refused = assert_refused(late, Code::FailedPrecondition, "ALREADY_RESOLVED");
    assert_eq!(metadata(&refused, "decision"), "expired");
    assert_eq!(asked.server.get_run("r1").await.status(), RunStatus::Completed);
}

#[tokio::test]
async fn questions_of_one_message_have_the_order_of_their_calls() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    let names: Vec<String> = (0..12).map(|n| format!("person {n}")).collect();
    let calls: Vec<_> = names.iter().map(|name| ("mail", json!({ "to": name }))).collect();
    model.asks_all(&calls);
    let policy = wire::ToolPolicy { max_parallel: Some(16), ..Default::default() };
    let input = wire::RunInput { tool_policy: Some(policy), ..named("r1", "go") };
    let waits = server.run(input).await;
    assert_eq!(waits.pending.len(), names.len());
    for (question, name) in waits.pending.iter().zip(&names) {
        assert!(question.arguments_json.contains(&format!("\"{name}\"")), "{name}: {question:?}");
    }
}

#[tokio::test]
async fn several_questions_of_one_message_wait_by_themselves() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model
        .asks_all(&[
            ("mail", json!({ "to": "bob" })),
            ("weather", json!({ "city": "Rome" })),
            ("mail", json!({ "to": "eve" })),
        ])
        .says("done");
    let policy = wire::ToolPolicy { max_parallel: Some(4), ..Default::default() };
    let input = wire::RunInput { tool_policy: Some(policy), ..named("r1", "go") };
    let mut events = server.stream(input.clone()).await;
    // Calls that need no approval run meanwhile.
    let weather = events.wait_for_name("tool_call_result").await;
    assert_eq!(results(&[weather])[0].name, "weather");
    let pending = server.pending().await;
    assert_eq!(pending.len(), 2);
    let find = |to: &str| {
        let question = pending.iter().find(|question| question.arguments_json.contains(to));
        question.expect("asked").request_id.clone()
    };
    server.decide(&find("eve"), approve()).await.expect("decided");
    events.wait_for_name("tool_call_result").await;
    let waits = server.run(input.clone()).await;
    assert_eq!((waits.status(), waits.pending.len()), (RunStatus::AwaitingHuman, 1));
    assert_eq!(host.gate.count("mail"), 1);
    server.decide(&find("bob"), deny("no")).await.expect("decided");
    assert_eq!(server.run(input).await.status(), RunStatus::Completed);
    let read: Vec<Value> = model.last_request()["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].clone())
        .collect();
    assert_eq!(read.len(), 3);
    assert!(read.contains(&json!("sent to eve")) && read.contains(&json!("sunny in Rome")), "{read:?}");
}

#[tokio::test]
async fn every_call_is_asked_about_if_the_policy_says_so() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("weather", json!({ "city": "Rome" }));
    let policy = wire::ToolPolicy { require_approval_by_default: Some(true), ..Default::default() };
    let waits = server.run(wire::RunInput { tool_policy: Some(policy), ..prompt("go") }).await;
    assert_eq!(waits.status(), RunStatus::AwaitingHuman);
    assert_eq!(waits.pending[0].tool, "weather");
    assert_eq!(host.gate.calls(), []);
}

#[tokio::test]
async fn questions_survive_a_restart() {
    let mut asked = asked(named("r1", "write")).await;
    asked.server.restart().await;
    assert_eq!(asked.server.pending().await, std::slice::from_ref(&asked.question));
    let host = Host::start(&asked.server).await;
    asked.decide(approve()).await.expect("decided");
    assert_eq!(asked.server.run(named("r1", "write")).await.status(), RunStatus::Completed);
    assert_eq!(host.gate.count("mail"), 1);
    assert_eq!(asked.server.pending().await, []);
}

#[tokio::test]
async fn the_inbox_is_filtered_and_paged() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    let mut asked = Vec::new();
    for at in 0..5 {
        model.asks("mail", json!({ "to": format!("bob {at}") }));
        let session = if at % 2 == 0 { "even" } else { "odd" };
        let input = in_session(&format!("{session}{at}"), &format!("r{at}"), "write");
        asked.push(server.run(input).await.pending[0].clone());
    }
    let list = |request: wire::ListPendingRequest| {
        let mut client = server.agent_loop();
        async move { soon(client.list_pending(request)).await.expect("listed").into_inner() }
    };
    let all = wire::ListPendingRequest::default;
    assert_eq!(list(all()).await.requests, asked, "oldest first");
    let of_run = wire::ListPendingRequest { run_id: "r3".to_owned(), ..all() };
    assert_eq!(list(of_run).await.requests, asked[3..4]);
    let of_session = wire::ListPendingRequest { session_id: "even2".to_owned(), ..all() };
    assert_eq!(list(of_session).await.requests, asked[2..3]);
    let both = wire::ListPendingRequest { session_id: "even2".to_owned(), run_id: "r3".to_owned(), ..all() };
    assert_eq!(list(both).await.requests, []);
    let (mut paged, mut token) = (Vec::new(), String::new());
    for page in [2, 2, 1] {
        let request = wire::ListPendingRequest { page_size: 2, page_token: token, ..all() };
        let found = list(request).await;
        assert_eq!(found.requests.len(), page);
        paged.extend(found.requests);
        token = found.next_page_token;
    }
    assert_eq!((paged, token.as_str()), (asked, ""));
}

#[tokio::test]
async fn the_request_is_durable_before_it_is_shown() {
    let asked = asked(named("r1", "write")).await;
    let run = asked.server.get_run("r1").await;
    assert_eq!(run.pending, std::slice::from_ref(&asked.question));
    let mut stream = asked.server.subscribe("r1", 0).await;
    let shown = stream.wait_for(|event| name(event) == "human_requested").await;
    let Some(Event::HumanRequested(shown)) = shown.event else { unreachable!("it was waited for") };
    assert_eq!(shown.request, Some(asked.question.clone()));
}
