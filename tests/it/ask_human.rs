//! The model asks a human by the built-in tool: the answer is the call's result.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_invalid, assert_refused};
use agentloop_tests::events::results;
use agentloop_tests::host::Host;
use agentloop_tests::input::named;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::{Value, json};
use tonic::{Code, Status};
use wire::submit_input_request::Input;
use wire::{HumanRequestKind, RunStatus, ToolCallState, ToolStatus};

fn asking(run: &str) -> wire::RunInput {
    let policy = wire::ToolPolicy { ask_human: Some(true), max_parallel: Some(4), ..Default::default() };
    wire::RunInput { tool_policy: Some(policy), ..named(run, "go") }
}

fn text(text: &str) -> Input {
    Input::Text(text.to_owned())
}

fn chosen(ids: &[&str]) -> Input {
    Input::Selection(wire::Selection { option_ids: ids.iter().map(|id| (*id).to_owned()).collect() })
}

async fn submit(
    server: &TestServer,
    question: &wire::HumanRequest,
    input: Input,
) -> Result<wire::HumanRequest, Status> {
    let request = wire::SubmitInputRequest {
        request_id: question.request_id.clone(),
        input: Some(input),
        answered_by: "ada".to_owned(),
    };
    Ok(soon(server.agent_loop().submit_input(request)).await?.into_inner().request.expect("the question"))
}

fn choice(multiple: bool) -> Value {
    json!({ "question": "Which one?", "options": ["red", "blue"], "multiple": multiple })
}

/// Waits with one question.
async fn asked(server: &TestServer, input: wire::RunInput) -> wire::HumanRequest {
    let waits = Box::pin(server.run(input)).await;
    assert_eq!(waits.status(), RunStatus::AwaitingHuman);
    let [question] = &waits.pending[..] else { panic!("one question: {waits:?}") };
    question.clone()
}

#[tokio::test]
async fn text_is_asked_for_and_becomes_the_result() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    model.asks("ask_human", json!({ "question": "Which city?" })).says("done");
    let question = asked(&server, asking("r1")).await;
    let offered = model.last_request();
    assert_eq!(offered["tools"][0]["function"]["name"], "ask_human", "no host is needed for it");
    assert_eq!((question.kind(), question.question.as_str()), (HumanRequestKind::Prompt, "Which city?"));
    assert_eq!((question.tool.as_str(), question.call_id.as_str()), ("ask_human", "r1/1.0"));
    assert_eq!((question.suggested_rule.clone(), question.options.len()), (None, 0));
    let run = server.get_run("r1").await;
    assert_eq!(run.tool_calls_open[0].state(), ToolCallState::AwaitingInput);
    server.restart().await;
    assert_eq!(server.pending().await, std::slice::from_ref(&question));
    let answered = submit(&server, &question, text("Ulm")).await.expect("answered");
    let answer = answered.answer.expect("an answer");
    assert_eq!((answer.decision, answer.decided_by.as_str()), (None, "ada"));
    let given = wire::human_input::Input::Text("Ulm".to_owned());
    assert_eq!(answer.input.and_then(|input| input.input), Some(given));
    assert_eq!(Box::pin(server.run(asking("r1"))).await.status(), RunStatus::Completed);
    let events = server.subscribe("r1", 0).await.rest().await;
    let [result] = &results(&events)[..] else { panic!("one result: {events:?}") };
    assert_eq!(
        (result.status(), result.output.as_str()),
        (ToolStatus::Answered, "Question: Which city?\nAnswer: Ulm")
    );
}

#[tokio::test]
async fn an_empty_text_is_no_answer() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.asks("ask_human", json!({ "question": "Which city?" })).says("done");
    let question = asked(&server, asking("r1")).await;
    assert!(!question.allow_empty);
    assert_invalid(submit(&server, &question, text("")).await, &["text"]);
    assert_eq!(server.pending().await.len(), 1, "nothing has changed");
}

#[tokio::test]
async fn the_model_asks_for_a_form_and_reads_what_fits_it() {
    let model = Model::start().await;
    let mut server = TestServer::start(&model).await;
    let schema = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "minLength": 1 },
            "age": { "type": "integer", "minimum": 18 },
            "size": { "type": "string", "enum": ["s", "m"] },
            "post": { "type": "boolean" },
        },
        "required": ["name"],
    });
    model.asks("ask_human", json!({ "question": "Who?", "form": schema })).says("done");
    let question = asked(&server, asking("r1")).await;
    assert_eq!(question.kind(), HumanRequestKind::Form);
    assert_eq!(serde_json::from_str::<Value>(&question.form_schema_json).expect("JSON"), schema);
    server.restart().await;
    let form = |fields: Value| Input::FormJson(fields.to_string());
    assert_invalid(submit(&server, &question, text("Ada")).await, &["input"]);
    for (fields, at) in [
        (json!({ "age": 20 }), "form_json.name"),
        (json!({ "name": "Ada", "age": 17 }), "form_json.age"),
        (json!({ "name": "Ada", "size": "xl" }), "form_json.size"),
        (json!({ "name": "Ada", "post": "yes" }), "form_json.post"),
        (json!({ "name": "Ada", "pin": 1 }), "form_json.pin"),
        (json!("Ada"), "form_json"),
    ] {
        assert_invalid(submit(&server, &question, form(fields)).await, &[at]);
    }
    let fields = json!({ "size": "m", "name": "Ada", "age": 36, "post": true });
    let answered = submit(&server, &question, form(fields.clone())).await.expect("answered");
    let given = answered.answer.and_then(|answer| answer.input).and_then(|input| input.input);
    let canonical = r#"{"age":36,"name":"Ada","post":true,"size":"m"}"#;
    assert_eq!(given, Some(wire::human_input::Input::FormJson(canonical.to_owned())));
    submit(&server, &question, form(fields)).await.expect("the same is confirmed");
    assert_eq!(Box::pin(server.run(asking("r1"))).await.status(), RunStatus::Completed);
    let read = model.last_request();
    let read = read["messages"].as_array().and_then(|all| all.last()).expect("messages");
    assert_eq!(read["content"], format!("Question: Who?\nAnswer: {canonical}"));
}

#[tokio::test]
async fn a_question_is_declined_and_the_model_reads_why() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.asks("ask_human", choice(false)).says("done");
    let question = asked(&server, asking("r1")).await;
    let decline = |message: &str| Input::Declined(wire::Declined { message: message.to_owned() });
    assert_invalid(submit(&server, &question, decline(&"x".repeat(5_000))).await, &["declined.message"]);
    submit(&server, &question, decline("neither")).await.expect("declined");
    assert_eq!(Box::pin(server.run(asking("r1"))).await.status(), RunStatus::Completed);
    let events = server.subscribe("r1", 0).await.rest().await;
    let [result] = &results(&events)[..] else { panic!("one result: {events:?}") };
    let told = "Question: Which one?\nNot answered: the person declined: neither";
    assert_eq!((result.status(), result.output.as_str()), (ToolStatus::Denied, told));
}

#[tokio::test]
async fn a_choice_is_one_of_its_options() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.asks("ask_human", choice(false)).says("done");
    let question = asked(&server, asking("r1")).await;
    assert_eq!((question.kind(), question.multiple), (HumanRequestKind::Select, false));
    let labels: Vec<&str> = question.options.iter().map(|option| option.label.as_str()).collect();
    assert_eq!(labels, ["red", "blue"]);
    assert_invalid(submit(&server, &question, text("red")).await, &["input"]);
    assert_invalid(submit(&server, &question, chosen(&["9"])).await, &["selection.option_ids"]);
    assert_invalid(submit(&server, &question, chosen(&["1", "2"])).await, &["selection.option_ids"]);
    assert_invalid(submit(&server, &question, chosen(&[])).await, &["selection.option_ids"]);
    let approve = wire::decision::Decision::Approve(wire::Approve {});
    assert_invalid(server.decide(&question.request_id, approve).await, &["request_id"]);
    assert_eq!(server.pending().await.len(), 1, "nothing has changed");
    let blue = question.options[1].id.clone();
    submit(&server, &question, chosen(&[&blue])).await.expect("answered");
    submit(&server, &question, chosen(&[&blue])).await.expect("the same is confirmed");
    let other = submit(&server, &question, chosen(&["1"])).await;
    assert_refused(other, Code::FailedPrecondition, "ALREADY_RESOLVED");
    assert_eq!(Box::pin(server.run(asking("r1"))).await.status(), RunStatus::Completed);
    let read = model.last_request();
    let read = read["messages"].as_array().and_then(|all| all.last()).expect("messages");
    assert_eq!(read["content"], "Question: Which one?\nAnswer: blue");
}

#[tokio::test]
async fn other_calls_run_while_a_question_waits() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let host = Host::start(&server).await;
    let calls = [("ask_human", choice(true)), ("weather", json!({ "city": "Rome" }))];
    model.asks_all(&calls).says("done");
    let question = asked(&server, asking("r1")).await;
    assert_eq!(host.gate.count("weather"), 1);
    submit(&server, &question, chosen(&["2", "1"])).await.expect("answered");
    assert_eq!(Box::pin(server.run(asking("r1"))).await.status(), RunStatus::Completed);
    let events = server.subscribe("r1", 0).await.rest().await;
    assert_eq!(results(&events)[1].output, "Question: Which one?\nAnswers:\n- red\n- blue");
}

#[tokio::test]
async fn nobody_answers_in_time() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.asks("ask_human", json!({ "question": "Which city?" })).says("done");
    let question = asked(&server, wire::RunInput { approval_timeout_seconds: Some(1), ..asking("r1") }).await;
    assert!(question.expires_at.is_some());
    let events = server.subscribe("r1", 0).await.rest().await;
    let [result] = &results(&events)[..] else { panic!("one result: {events:?}") };
    let told = "Question: Which city?\nNot answered: nobody answered in time";
    assert_eq!((result.status(), result.output.as_str()), (ToolStatus::Denied, told));
    let late = submit(&server, &question, text("Ulm")).await;
    assert_refused(late, Code::FailedPrecondition, "ALREADY_RESOLVED");
}

#[tokio::test]
async fn an_abort_withdraws_the_question() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.asks("ask_human", json!({ "question": "Which city?" }));
    let question = asked(&server, asking("r1")).await;
    server.abort("r1").await;
    assert_eq!(server.pending().await, []);
    let late = submit(&server, &question, text("Ulm")).await;
    assert_refused(late, Code::FailedPrecondition, "ALREADY_RESOLVED");
}

#[tokio::test]
async fn without_leave_there_is_no_such_tool() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    model.asks("ask_human", json!({ "question": "Which city?" })).says("done");
    assert_eq!(Box::pin(server.run(named("r1", "go"))).await.status(), RunStatus::Completed);
    let events = server.subscribe("r1", 0).await.rest().await;
    assert_eq!(results(&events)[0].status(), ToolStatus::Rejected);
    model.asks("ask_human", json!({ "question": "" })).says("done");
    assert_eq!(Box::pin(server.run(asking("r2"))).await.status(), RunStatus::Completed);
    let events = server.subscribe("r2", 0).await.rest().await;
    assert_eq!(results(&events)[0].status(), ToolStatus::Rejected, "a question is missing");
}

#[tokio::test]
async fn answers_to_nothing_are_refused() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let submit = |request| {
        let mut client = server.agent_loop();
        async move { soon(client.submit_input(request)).await }
    };
    assert_invalid(submit(wire::SubmitInputRequest::default()).await, &["request_id"]);
    let named = || wire::SubmitInputRequest { request_id: "r1:1.0:0.1".to_owned(), ..Default::default() };
    assert_invalid(submit(named()).await, &["input"]);
    let nobody = wire::SubmitInputRequest { input: Some(text("x")), ..named() };
    assert_refused(submit(nobody).await, Code::NotFound, "REQUEST_NOT_FOUND");
    let long = wire::SubmitInputRequest { input: Some(text(&"x".repeat(300_000))), ..named() };
    assert_invalid(submit(long).await, &["text"]);
}
