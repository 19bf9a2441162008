//! Responses fit into a message of default size, however large the stored data is.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::assert_invalid;
use agentloop_tests::events::{Events, name, names, results};
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named};
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::raw_host::{RawHost, declared, result_of};
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use tonic::Status;
use tonic::transport::Channel;
use wire::agent_loop_client::AgentLoopClient;
use wire::connect_request::Frame;
use wire::decision::Decision;
use wire::sessions_client::SessionsClient;
use wire::{EffectClass, RunStatus};

const MIB: usize = 1024 * 1024;
/// So many rows of [`labels`] are more than one message takes.
const ROWS: usize = 18;

/// One that takes messages of 4 MiB, as every client does that is not told otherwise.
fn client(server: &TestServer) -> AgentLoopClient<Channel> {
    AgentLoopClient::new(server.channel())
}

fn labels() -> std::collections::BTreeMap<String, String> {
    (0..64).map(|at| (format!("label{at:02}"), "x".repeat(4_000))).collect()
}

async fn step(server: &TestServer, request: &str) -> Result<wire::StepResponse, Status> {
    let request =
        wire::StepRequest { run_id: "r1".to_owned(), request_id: request.to_owned(), ..Default::default() };
    Ok(soon(client(server).step(request)).await?.into_inner())
}

async fn decide(
    server: &TestServer,
    request_id: &str,
    decision: Decision,
) -> Result<wire::HumanRequest, Status> {
    let request = wire::SubmitApprovalRequest {
        request_id: request_id.to_owned(),
        decision: Some(wire::Decision { decision: Some(decision) }),
        ..Default::default()
    };
    let answer = soon(client(server).submit_approval(request)).await?.into_inner();
    Ok(answer.request.expect("the question"))
}

#[tokio::test]
async fn lists_of_runs_and_sessions_have_fewer_rows() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.answers(|_| Answer::Says("hello".to_owned()));
    for at in 0..ROWS {
        let (session, run) = (format!("s{at:02}"), format!("r{at:02}"));
        let request = wire::CreateSessionRequest {
            session_id: Some(session.clone()),
            labels: labels(),
            ..Default::default()
        };
        soon(server.sessions().create_session(request)).await.expect("created");
        server.run(wire::RunInput { labels: labels(), ..in_session(&session, &run, "hi") }).await;
    }
    let (mut runs, mut sessions) = (Vec::new(), Vec::new());
    let mut page_token = String::new();
    loop {
        let request = wire::ListRunsRequest { page_token, ..Default::default() };
        let page = soon(client(&server).list_runs(request)).await.expect("listed").into_inner();
        runs.extend(page.runs.into_iter().map(|run| run.run_id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    loop {
        let request = wire::ListSessionsRequest { page_token, ..Default::default() };
        let mut client = SessionsClient::new(server.channel());
        let page = soon(client.list_sessions(request)).await.expect("listed").into_inner();
        sessions.extend(page.sessions.into_iter().map(|session| session.session_id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let newest_first =
        |letter: char| (0..ROWS).rev().map(|at| format!("{letter}{at:02}")).collect::<Vec<_>>();
    assert_eq!((runs, sessions), (newest_first('r'), newest_first('s')));
}

#[tokio::test]
async fn a_step_has_the_events_that_there_is_room_for_beside_the_run() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.says(&"x".repeat(11 * MIB / 5));
    server.run(wire::RunInput { stepped: true, ..named("r1", "hi") }).await;
    let said = step(&server, "1").await.expect("it fits");
    assert_eq!(names(&said.events), ["instruction_planned", "model_call_started", "assistant_message"]);
    assert_eq!(step(&server, "2").await.expect("it fits").run.expect("a run").status(), RunStatus::Completed);
    // The run has the message as its answer by now.
    let again = step(&server, "1").await.expect("it fits");
    assert!(again.run.expect("a run").final_assistant_message.is_some());
    assert_eq!(again.events, said.events[..2]);
    let rest = Events::of_subscription(
        soon(client(&server).subscribe(wire::SubscribeRequest {
            run_id: "r1".to_owned(),
            after_seq: again.events[1].seq,
            durable_only: true,
        }))
        .await
        .expect("subscribed"),
    );
    assert_eq!(rest.rest().await[0], said.events[2]);
}

#[tokio::test]
async fn a_step_that_asks_has_what_waits_in_its_run() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    let to = "x".repeat(9 * MIB / 10);
    model.asks_all(&[
        ("mail", json!({ "to": to })),
        ("mail", json!({ "to": to })),
        ("mail", json!({ "to": to })),
    ]);
    server.run(wire::RunInput { stepped: true, ..named("r1", "write") }).await;
    step(&server, "1").await.expect("it fits");
    for _ in 0..2 {
        let asks = step(&server, "2").await.expect("it fits");
        assert_eq!(asks.run.expect("a run").pending.len(), 3);
        assert_eq!(names(&asks.events), ["instruction_planned", "human_requested"]);
    }
}

#[tokio::test]
async fn a_result_beside_edited_arguments_is_passed_by_a_subscriber() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut host = RawHost::welcomed(&server, "h1", vec![declared("job", EffectClass::Unsafe)]).await;
    model.asks("job", json!({})).says("done");
    let policy = wire::ToolPolicy { require_approval_by_default: Some(true), ..Default::default() };
    let waits = server.run(wire::RunInput { tool_policy: Some(policy), ..named("r1", "go") }).await;
    let arguments_json = json!({ "to": "x".repeat(MIB - 100) }).to_string();
    let edits = Decision::ApproveWithEdits(wire::ApproveWithEdits { arguments_json: arguments_json.clone() });
    decide(&server, &waits.pending[0].request_id, edits).await.expect("decided");
    let call = host.take_call().await;
    assert_eq!(call.arguments_json, arguments_json);
    host.send(Frame::CallResult(result_of(&call, &"y".repeat(3 * MIB))));
    let request = wire::SubscribeRequest { run_id: "r1".to_owned(), ..Default::default() };
    let events = Events::of_subscription(soon(client(&server).subscribe(request)).await.expect("subscribed"));
    let events = events.rest().await;
    assert_eq!(events.last().map(name), Some("run_finished"));
    let output = &results(&events)[0].output;
    assert!(output.starts_with(&format!("[a human changed the arguments to {}", &arguments_json[..4_096])));
    assert!(output.ends_with("y") && output.contains(&format!("4096 of {} bytes", arguments_json.len())));
}

#[tokio::test]
async fn a_question_is_shown_with_its_answer() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "x".repeat(MIB - 100) })).says("done");
    let waits = server.run(named("r1", "write")).await;
    let question = &waits.pending[0].request_id;
    let answer = |bytes: usize| Decision::AnswerInPlace(wire::AnswerInPlace { output: "y".repeat(bytes) });
    let refused = decide(&server, question, answer(2 * MIB + 1)).await;
    assert_invalid(refused, &["decision.answer_in_place.output"]);
    let answered = decide(&server, question, answer(2 * MIB)).await.expect("it fits");
    assert_eq!(answered.arguments_json, waits.pending[0].arguments_json);
    assert_eq!(server.run(named("r1", "write")).await.status(), RunStatus::Completed);
}
