//! The instruction runtime: a planner decides one instruction at a time, each step carries one out, and people are asked on
//! the way.

use std::sync::Arc;

use agentloop_client::v1 as wire;
use agentloop_core::run::plan::{Instruction, SelectOption, Situation};
use agentloop_server::extension::{ExtensionError, PlanView, Planner};
use agentloop_tests::events::{name, names, results};
use agentloop_tests::host::Host;
use agentloop_tests::input::in_session;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use wire::run_event::Event;
use wire::submit_input_request::Input;
use wire::{HumanRequestKind, RunStatus};

use super::{answer, answering, read, tool};

/// The agent's mind: it asks which town and for whom, then calls the model, and a person about every tool call.
struct Agent {
    /// False to call the model at once.
    is_curious: bool,
}

#[async_trait::async_trait]
impl Planner for Agent {
    async fn plan(&self, view: PlanView) -> Result<Instruction, ExtensionError> {
        let option = |id: &str, label: &str| SelectOption { id: id.to_owned(), label: label.to_owned() };
        Ok(match (view.situation, view.decision) {
            (Situation::Prompted, _) if self.is_curious => {
                Instruction::RequestPrompt { question: "Which town?".to_owned(), metadata: None }
            }
            (Situation::HumanAnswered, 2) => Instruction::RequestSelect {
                question: "Which days?".to_owned(),
                options: vec![option("1", "today"), option("2", "tomorrow"), option("3", "Sunday")],
                multiple: true,
                metadata: None,
            },
            (
                Situation::Prompted
                | Situation::HumanAnswered
                | Situation::ToolsSettled
                | Situation::Compacted,
                _,
            ) => Instruction::CallModel,
            (Situation::CallsWaiting, _) => Instruction::RequestApproval,
            (Situation::Responded { .. }, _) => Instruction::Finish { failure: None },
        })
    }
}

async fn world(is_curious: bool) -> (Model, TestServer, Host) {
    let model = Model::start().await;
    let server = TestServer::extended(&model, "", move |extensions| {
        extensions.add_planner("agent", Arc::new(Agent { is_curious }));
    })
    .await;
    let report = json!({ "temperature": 25, "condition": "sunny" });
    let weather = answering(tool("get_weather", "city"), &report);
    let host = Host::serving(&server, "host-1", vec![weather]).await;
    (model, server, host)
}

fn stepped(prompt: &str) -> wire::RunInput {
    wire::RunInput {
        planner: Some("agent".to_owned()),
        stepped: true,
        ..in_session("test-session", "r1", prompt)
    }
}

async fn step(server: &TestServer, request: &str, approve: &str) -> wire::StepResponse {
    server.step("r1", request, approve).await.expect("a step")
}

/// The names of the design for these events.
fn told(events: &[wire::RunEvent]) -> Vec<&'static str> {
    let name = |event: &wire::RunEvent| match event.event.as_ref().expect("an event") {
        Event::RunStarted(_) => Some("init"),
        Event::ModelCallStarted(_) => Some("llm_start"),
        Event::ModelDelta(_) => Some("llm_stream"),
        Event::AssistantMessage(_) => Some("llm_result"),
        Event::ToolCallProposed(_) => Some("tool_pending"),
        Event::ToolCallResult(_) => Some("tool_result"),
        Event::HumanRequested(asked) => match asked.request.as_ref().expect("a question").kind() {
            HumanRequestKind::Approve => Some("human_approve_required"),
            HumanRequestKind::Prompt => Some("human_prompt_required"),
            HumanRequestKind::Select => Some("human_select_required"),
            _ => Some("another question"),
        },
        Event::RunFinished(end) if end.error.is_none() => Some("done"),
        Event::RunFinished(_) => Some("error"),
        _ => None,
    };
    let mut told: Vec<&str> = events.iter().filter_map(name).collect();
    told.dedup_by(|a, b| a == b && *a == "llm_stream");
    told
}

fn status(step: &wire::StepResponse) -> RunStatus {
    step.run.as_ref().expect("a run").status()
}

#[tokio::test]
async fn the_weather_is_asked_approved_looked_up_and_told() {
    let (model, server, _host) = world(false).await;
    let live = server.stream(stepped("What's the weather in Beijing?")).await;

    let speech = model.speaks();
    speech.say("I'll check the weather for you.");
    speech.ask(0, "get_weather", &json!({ "city": "Beijing" }));
    speech.end_with_calls();
    let asked = step(&server, "1", "").await;
    assert_eq!(told(&asked.events), ["llm_start", "llm_result", "tool_pending"]);

    let waits = step(&server, "2", "").await;
    assert_eq!(told(&waits.events), ["human_approve_required"]);
    assert_eq!(status(&waits), RunStatus::AwaitingHuman);
    let run = waits.run.expect("a run");
    let [question] = &run.pending[..] else { panic!("one call waits: {run:?}") };
    assert_eq!(
        (question.tool.as_str(), question.arguments_json.as_str(), question.session_id.as_str()),
        ("get_weather", r#"{"city":"Beijing"}"#, "test-session")
    );

    let ran = step(&server, "3", &question.request_id).await;
    assert_eq!(told(&ran.events), ["tool_result"]);
    assert_eq!(results(&ran.events)[0].output, r#"{"condition":"sunny","temperature":25}"#);

    model.says("The weather in Beijing is 25°C and sunny.");
    let said = step(&server, "4", "").await;
    assert_eq!(told(&said.events), ["llm_start", "llm_result"]);
    let roles: Vec<String> = read(&model.last_request()).into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["user", "assistant", "tool"]);
    let done = step(&server, "5", "").await;
    assert_eq!((told(&done.events), status(&done)), (vec!["done"], RunStatus::Completed));

    // The stream of the whole run has the pieces of the answers too.
    let table = [
        "init",
        "llm_start",
        "llm_stream",
        "llm_result",
        "tool_pending",
        "human_approve_required",
        "tool_result",
        "llm_start",
        "llm_stream",
        "llm_result",
        "done",
    ];
    assert_eq!(told(&live.rest().await), table);
    // The final state: what the events fold to is what the run's row says.
    let replay = server.replay("r1").await;
    assert_eq!((replay.faithful, replay.difference.as_str()), (true, ""));
    let result = server.run(stepped("What's the weather in Beijing?")).await;
    assert_eq!(answer(&result), "The weather in Beijing is 25°C and sunny.");
}

#[tokio::test]
async fn people_are_prompted_and_choose_before_the_model_is_called() {
    let (model, mut server, _host) = world(true).await;
    server.run(stepped("Plan my trip.")).await;
    let answered = |question: &wire::HumanRequest, input: Input| wire::SubmitInputRequest {
        request_id: question.request_id.clone(),
        answered_by: "ada".to_owned(),
        input: Some(input),
    };

    let prompted = step(&server, "1", "").await;
    assert_eq!(told(&prompted.events), ["human_prompt_required"]);
    assert_eq!(status(&prompted), RunStatus::AwaitingHuman);
    let question = prompted.run.expect("a run").pending[0].clone();
    assert_eq!((question.question.as_str(), question.session_id.as_str()), ("Which town?", "test-session"));
    // Pending work is part of the state, and stays over a restart.
    server.restart().await;
    assert_eq!(server.pending().await, std::slice::from_ref(&question));
    let text = Input::Text("Beijing".to_owned());
    soon(server.agent_loop().submit_input(answered(&question, text))).await.expect("answered");

    let choosing = step(&server, "2", "").await;
    assert_eq!(told(&choosing.events).last(), Some(&"human_select_required"));
    let question = choosing.run.expect("a run").pending[0].clone();
    let labels: Vec<&str> = question.options.iter().map(|option| option.label.as_str()).collect();
    assert_eq!((labels, question.multiple), (vec!["today", "tomorrow", "Sunday"], true));
    let chosen = Input::Selection(wire::Selection { option_ids: vec!["1".to_owned(), "3".to_owned()] });
    soon(server.agent_loop().submit_input(answered(&question, chosen))).await.expect("answered");

    model.says("Take an umbrella.");
    let said = step(&server, "3", "").await;
    assert_eq!(told(&said.events), ["llm_start", "llm_result"], "{:?}", names(&said.events));
    let shown: Vec<String> = read(&model.last_request()).into_iter().map(|(_, text)| text).collect();
    let wanted = [
        "Plan my trip.",
        "Question: Which town?\nAnswer: Beijing",
        "Question: Which days?\nAnswers:\n- today\n- Sunday",
    ];
    assert_eq!(shown, wanted);
    let done = step(&server, "4", "").await;
    assert_eq!(done.events.last().map(name), Some("run_finished"));
    assert_eq!(status(&done), RunStatus::Completed);
}
