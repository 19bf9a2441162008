//! Runs whose model calls were recorded, run again without the model.

use std::path::Path;

use agentloop_client::v1 as wire;
use agentloop_tests::events::{durable, names, results, text};
use agentloop_tests::host::Host;
use agentloop_tests::input::named;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use serde_json::json;
use wire::run_event::Event;
use wire::{RunErrorCode, RunInput, RunStatus};

fn recording(model: &Model, file: &Path) -> String {
    let base_url = model.base_url();
    format!(
        "[providers.live]\nkind = 'openai'\nbase_url = '{base_url}'\nrecord = '{}'\n\
         [agents.live]\nmodel = 'live/m'\nretry = {{ initial_backoff = '1ms' }}",
        file.display()
    )
}

fn replaying(file: &Path) -> String {
    format!(
        "[providers.again]\nkind = 'replay'\nfile = '{}'\n\
         [agents.again]\nmodel = 'again/m'\nretry = {{ initial_backoff = '1ms' }}",
        file.display()
    )
}

fn by(agent: &str, run: &str, prompt: &str) -> RunInput {
    RunInput { agent: Some(agent.to_owned()), ..named(run, prompt) }
}

/// The messages and events of a run, without fields that differ from run to run.
struct Told {
    events: Vec<&'static str>,
    answer: String,
    results: Vec<String>,
    usage: Option<wire::Usage>,
}

async fn told(server: &TestServer, input: RunInput) -> Told {
    let seen = server.stream(input).await.rest().await;
    let said = |event: &wire::RunEvent| match &event.event {
        Some(Event::AssistantMessage(said)) => said.message.as_ref().map(text),
        _ => None,
    };
    let usage = |event: &wire::RunEvent| match &event.event {
        Some(Event::RunFinished(finished)) => finished.usage,
        _ => None,
    };
    let output = |result: wire::ToolResult| result.output;
    Told {
        events: names(&durable(&seen)),
        answer: seen.iter().filter_map(said).next_back().expect("an answer"),
        results: results(&seen).into_iter().map(output).collect(),
        usage: seen.iter().find_map(usage),
    }
}

#[tokio::test]
async fn a_recorded_run_goes_the_same_way_without_its_model() {
    let folder = tempfile::tempdir().expect("a temporary directory can be made");
    let file = folder.path().join("calls.jsonl");
    let (model, silent) = (Model::start().await, Model::start().await);
    model.fails(503).asks("weather", json!({ "city": "Rome" })).says("It is sunny in Rome.");
    let mut live = TestServer::with(&model, &recording(&model, &file)).await;
    let host = Host::start(&live).await;
    let first = told(&live, by("live", "r1", "weather in Rome?")).await;
    drop(host);
    live.stop().await;
    assert_eq!(std::fs::read_to_string(&file).expect("recorded").lines().count(), 3);

    let replay = TestServer::with(&silent, &replaying(&file)).await;
    let _host = Host::start(&replay).await;
    let second = told(&replay, by("again", "r2", "weather in Rome?")).await;
    assert!(first.events.contains(&"model_call_failed") && first.events.contains(&"tool_call_result"));
    assert_eq!(second.events, first.events);
    assert_eq!((second.answer, &second.results[..]), (first.answer, &["sunny in Rome".to_owned()][..]));
    assert_eq!((second.results, second.usage), (first.results, first.usage));
    assert_eq!((model.requests().len(), silent.requests().len()), (3, 0), "nobody is asked");
}

#[tokio::test]
async fn another_question_than_the_recorded_one_fails_and_says_what_differs() {
    let folder = tempfile::tempdir().expect("a temporary directory can be made");
    let file = folder.path().join("calls.jsonl");
    let model = Model::start().await;
    model.says("hello");
    let mut live = TestServer::with(&model, &recording(&model, &file)).await;
    live.run(by("live", "r1", "my name is Ann")).await;
    live.stop().await;

    let replay = TestServer::with(&model, &replaying(&file)).await;
    let result = replay.run(by("again", "r2", "my name is Bob")).await;
    let error = result.last_error.clone().expect("an error");
    assert_eq!((result.status(), error.code()), (RunStatus::Failed, RunErrorCode::ModelBadRequest));
    for part in ["line 1, message 1 (User) differs", "my name is Ann", "my name is Bob"] {
        assert!(error.message.contains(part), "{part} is not in {}", error.message);
    }
    let again = replay.run(by("again", "r3", "my name is Ann")).await;
    assert_eq!(text(&again.final_assistant_message.expect("an answer")), "hello");
    let once_more = replay.run(by("again", "r4", "my name is Ann")).await;
    assert!(once_more.last_error.expect("an error").message.contains("was played before (line 1)"));
}
