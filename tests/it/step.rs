//! A stepped run goes on by one instruction at a time, and says what each did.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_invalid, assert_refused, metadata};
use agentloop_tests::events::{name, names, results, text};
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named};
use agentloop_tests::model::{Answer, Model};
use agentloop_tests::server::TestServer;
use serde_json::json;
use tonic::Code;
use wire::decision::Decision;
use wire::instruction::Instruction;
use wire::run_event::Event;
use wire::{RunStatus, ToolStatus, WaitKind};

fn stepped(run: &str, prompt: &str) -> wire::RunInput {
    wire::RunInput { stepped: true, ..named(run, prompt) }
}

async fn step(server: &TestServer, request: &str) -> wire::StepResponse {
    server.step("r1", request, "").await.expect("the call succeeds")
}

/// The instruction of a step, and the kinds of its events.
fn did(step: &wire::StepResponse) -> (&'static str, Vec<&'static str>) {
    let instruction = step.instruction.clone().and_then(|instruction| instruction.instruction);
    let name = match instruction.expect("an instruction") {
        Instruction::CallModel(_) => "call_model",
        Instruction::CallTools(_) => "call_tools",
        Instruction::RequestHumanApprove(_) => "request_human_approve",
        Instruction::RequestHumanPrompt(_) => "request_human_prompt",
        Instruction::RequestHumanSelect(_) => "request_human_select",
        Instruction::RequestHumanForm(_) => "request_human_form",
        Instruction::RequestHumanUrl(_) => "request_human_url",
        Instruction::Compact(_) => "compact",
        Instruction::Finish(_) => "finish",
    };
    (name, names(&step.events))
}

fn status(step: &wire::StepResponse) -> RunStatus {
    step.run.as_ref().expect("a run").status()
}

#[tokio::test]
async fn a_whole_conversation() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" })).says("bob knows");

    let waits = server.run(stepped("r1", "tell bob")).await;
    assert_eq!(waits.status(), RunStatus::Paused);
    let waiting_on = server.get_run("r1").await.waiting_on.expect("it waits");
    assert_eq!((waiting_on.kind(), waiting_on.what.as_str()), (WaitKind::Step, "Step"));
    assert_eq!(model.requests().len(), 0);

    let asked = step(&server, "1").await;
    let wanted = ["instruction_planned", "model_call_started", "assistant_message", "tool_call_proposed"];
    assert_eq!(did(&asked), ("call_model", wanted.to_vec()));
    assert_eq!(status(&asked), RunStatus::Paused);

    let pending = step(&server, "2").await;
    assert_eq!(did(&pending), ("call_tools", vec!["instruction_planned", "human_requested"]));
    assert_eq!((status(&pending), host.gate.count("mail")), (RunStatus::AwaitingHuman, 0));
    let question = pending.run.expect("a run").pending[0].request_id.clone();

    let ran = server.step("r1", "3", &question).await.expect("the call succeeds");
    let wanted = [
        "instruction_planned",
        "human_resolved",
        "tool_call_offered",
        "tool_call_accepted",
        "tool_call_result",
    ];
    assert_eq!(did(&ran), ("call_tools", wanted.to_vec()));
    assert_eq!(results(&ran.events)[0].output, "sent to bob");
    assert_eq!(status(&ran), RunStatus::Paused);

    let said = step(&server, "4").await;
    assert_eq!(did(&said).1, ["instruction_planned", "model_call_started", "assistant_message"]);
    let done = step(&server, "5").await;
    assert_eq!(did(&done), ("finish", vec!["instruction_planned", "run_finished"]));
    let run = done.run.expect("a run");
    assert_eq!((run.status(), run.waiting_on), (RunStatus::Completed, None));
    assert_eq!(text(&run.final_assistant_message.expect("an answer")), "bob knows");

    // Together the steps are the run.
    let whole = server.subscribe("r1", 0).await.rest().await;
    let steps = [asked.events, pending.events, ran.events, said.events, done.events].concat();
    assert_eq!(whole[2..], steps);
    let over = server.step("r1", "6", "").await;
    assert_refused(over, Code::FailedPrecondition, "WRONG_STATE");
}

#[tokio::test]
async fn the_same_request_is_the_same_step() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    model.says("hello").says("hello again");
    server.run(stepped("r1", "hi")).await;
    let (first, second, third) = tokio::join!(step(&server, "1"), step(&server, "1"), step(&server, "1"));
    assert_eq!((&first.events, &first.events), (&second.events, &third.events));
    assert_eq!(model.requests().len(), 1);
    server.restart().await;
    assert_eq!(step(&server, "1").await.events, first.events);
    let done = step(&server, "2").await;
    server.restart().await;
    assert_eq!(step(&server, "1").await.events, first.events, "after the end too");
    assert_eq!(step(&server, "2").await.events, done.events);
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn the_same_request_for_another_question_is_refused() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks_all(&[("mail", json!({ "to": "bob" })), ("mail", json!({ "to": "eve" }))]);
    server.run(stepped("r1", "write")).await;
    step(&server, "1").await;
    let pending = step(&server, "2").await.run.expect("a run").pending;
    let (bob, eve) = (&pending[0].request_id, &pending[1].request_id);
    let first = server.step("r1", "3", bob).await.expect("the call succeeds");
    drop(host);
    for _ in 0..2 {
        assert_eq!(server.step("r1", "3", bob).await.expect("confirmed").events, first.events);
        for other in [eve.as_str(), ""] {
            assert_refused(server.step("r1", "3", other).await, Code::AlreadyExists, "ID_REUSED");
        }
        for no_question_of_it in [bob.as_str(), "r2:1.0:0"] {
            let reused = server.step("r1", "2", no_question_of_it).await;
            assert_refused(reused, Code::AlreadyExists, "ID_REUSED");
        }
        server.restart().await;
    }
    assert_eq!(server.pending().await.len(), 1, "nothing came of what was refused");
}

#[tokio::test]
async fn one_step_at_a_time() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    server.run(stepped("r1", "hi")).await;
    let (first, ()) = tokio::join!(step(&server, "1"), async {
        speech.asked().await;
        let refused = server.step("r1", "2", "").await;
        let refused = assert_refused(refused, Code::FailedPrecondition, "WRONG_STATE");
        assert_eq!(metadata(&refused, "status"), "model_running");
        speech.say("hello");
        speech.end();
    });
    assert_eq!(status(&first), RunStatus::Paused);
}

#[tokio::test]
async fn a_decision_waits_for_the_next_step() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" })).says("done");
    server.run(stepped("r1", "tell bob")).await;
    step(&server, "1").await;
    let pending = step(&server, "2").await;
    let refused = server.step("r1", "3", "").await;
    assert_eq!(
        metadata(&assert_refused(refused, Code::FailedPrecondition, "WRONG_STATE"), "status"),
        "awaiting_human"
    );
    let question = pending.run.expect("a run").pending[0].request_id.clone();
    let edits = wire::ApproveWithEdits { arguments_json: r#"{"to":"eve"}"#.to_owned() };
    server.decide(&question, Decision::ApproveWithEdits(edits)).await.expect("decided");
    assert_eq!((server.get_run("r1").await.status(), host.gate.count("mail")), (RunStatus::Paused, 0));
    drop(host);
    server.restart().await;
    let host = Host::start(&server).await;
    let ran = step(&server, "3").await;
    assert_eq!(results(&ran.events)[0].status(), ToolStatus::Succeeded);
    assert_eq!(host.gate.calls(), [("mail".to_owned(), json!({ "to": "eve" }))]);
}

#[tokio::test]
async fn a_stream_shows_a_stepped_run_to_its_end() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.says("hello");
    let mut events = server.stream(stepped("r1", "hi")).await;
    events.wait_for(|event| event.status() == RunStatus::Paused).await;
    step(&server, "1").await;
    step(&server, "2").await;
    let seen = events.rest().await;
    assert!(seen.iter().any(|event| name(event) == "model_delta"), "what is live is shown");
    assert_eq!(name(seen.last().expect("events")), "run_finished");
}

#[tokio::test]
async fn a_step_whose_model_fails_ends_the_run() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.fails(400);
    server.run(stepped("r1", "hi")).await;
    let failed = step(&server, "1").await;
    assert_eq!(did(&failed).1.last(), Some(&"run_finished"));
    assert_eq!(status(&failed), RunStatus::Failed);
}

#[tokio::test]
async fn aborted_between_steps_and_within_one() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" }));
    server.run(wire::RunInput { stepped: true, ..in_session("s1", "r1", "tell bob") }).await;
    step(&server, "1").await;
    assert_eq!(server.abort("r1").await.status(), RunStatus::Aborted);
    let events = server.subscribe("r1", 0).await.rest().await;
    assert_eq!(results(&events)[0].status(), ToolStatus::Aborted, "the session takes the next message");

    let mut speech = model.speaks();
    server.run(wire::RunInput { stepped: true, ..in_session("s1", "r2", "hello?") }).await;
    let (cut, ()) = tokio::join!(server.step("r2", "1", ""), async {
        speech.asked().await;
        server.abort("r2").await;
    });
    let cut = cut.expect("the call succeeds");
    assert_eq!(did(&cut), ("call_model", vec!["instruction_planned", "model_call_started", "run_finished"]));
    assert_eq!(status(&cut), RunStatus::Aborted);
}

#[tokio::test]
async fn a_step_goes_on_after_a_restart() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let mut speech = model.speaks();
    server.run(stepped("r1", "hi")).await;
    let mut client = server.agent_loop();
    let request =
        wire::StepRequest { run_id: "r1".to_owned(), request_id: "1".to_owned(), ..Default::default() };
    let called = tokio::spawn(async move { client.step(request).await });
    speech.asked().await;
    model.answers(|_| Answer::Says("hello".to_owned()));
    server.restart().await;
    assert!(agentloop_tests::soon(called).await.expect("no panic").is_err(), "its server is gone");
    let done = step(&server, "1").await;
    let wanted = [
        "instruction_planned",
        "model_call_started",
        "model_call_failed",
        "model_call_started",
        "assistant_message",
    ];
    assert_eq!(did(&done).1, wanted);
}

#[tokio::test]
async fn bad_requests() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    assert_invalid(server.step("", "1", "").await, &["run_id"]);
    assert_invalid(server.step("r1", "", "").await, &["request_id"]);
    assert_invalid(server.step("r1", "1", "a b").await, &["approve_request_id"]);
    assert_refused(server.step("none", "1", "").await, Code::NotFound, "RUN_NOT_FOUND");
    model.asks("mail", json!({ "to": "bob" }));
    let waits = server.run(named("r1", "go")).await;
    assert_refused(server.step("r1", "1", "").await, Code::FailedPrecondition, "WRONG_STATE");
    server.run(stepped("r2", "go")).await;
    let other_runs = server.step("r2", "1", &waits.pending[0].request_id).await;
    assert_refused(other_runs, Code::NotFound, "REQUEST_NOT_FOUND");
    assert_refused(server.step("r2", "1", "r2:1.0:0").await, Code::NotFound, "REQUEST_NOT_FOUND");
    let run = server.get_run("r2").await;
    assert_eq!((run.status(), run.last_seq), (RunStatus::Paused, 2), "nothing is half done");
}

#[tokio::test]
async fn a_question_that_takes_a_text_is_not_approved() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.asks("ask_human", json!({ "question": "Which city?" }));
    let policy = wire::ToolPolicy { ask_human: Some(true), ..Default::default() };
    server.run(wire::RunInput { tool_policy: Some(policy), ..stepped("r1", "go") }).await;
    let pending = step(&server, "1").await.run.expect("a run").pending;
    let refused = server.step("r1", "2", &pending[0].request_id).await;
    assert_invalid(refused, &["approve_request_id"]);
}

#[tokio::test]
async fn parallel_calls_are_one_step() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.asks_all(&[("weather", json!({ "city": "Rome" })), ("weather", json!({ "city": "Oslo" }))]);
    let policy = wire::ToolPolicy { max_parallel: Some(2), ..Default::default() };
    server.run(wire::RunInput { tool_policy: Some(policy), ..stepped("r1", "compare") }).await;
    step(&server, "1").await;
    let ran = step(&server, "2").await;
    assert_eq!((results(&ran.events).len(), status(&ran)), (2, RunStatus::Paused));
    let planned = ran.events.iter().filter(|event| matches!(event.event, Some(Event::InstructionPlanned(_))));
    assert_eq!(planned.count(), 1);
}
