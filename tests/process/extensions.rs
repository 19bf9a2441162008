//! Hosts in every language that offer more than plain tools: a planner, hooks, a memory, and a tool with a runtime.

use agentloop_client::v1 as wire;
use agentloop_client::v1::decision::Decision;
use agentloop_client::v1::run_event::Event;
use serde_json::json;

use crate::support::follow::{Follower, outcome};
use crate::support::host::Host;
use crate::support::model::Model;
use crate::support::server::{Server, input};

fn extended(run: &str, prompt: &str) -> wire::RunInput {
    let names = |name: &str| Some(wire::Names { names: vec![name.to_owned()] });
    wire::RunInput {
        planner: Some("careful".to_owned()),
        hooks: names("guard"),
        context_sources: names("diary"),
        runtime_init_data_json: Some(json!({ "profile": "work" }).to_string()),
        ..input(run, "s-1", prompt)
    }
}

#[tokio::test]
async fn all_of_them_in_python() {
    all_of_them_in_one_run_and_the_next_remembers_it("python").await;
}

#[tokio::test]
async fn all_of_them_in_typescript() {
    all_of_them_in_one_run_and_the_next_remembers_it("typescript").await;
}

#[tokio::test]
async fn all_of_them_in_go() {
    all_of_them_in_one_run_and_the_next_remembers_it("go").await;
}

async fn all_of_them_in_one_run_and_the_next_remembers_it(language: &str) {
    let mut model = Model::start().await;
    let server = Server::start(&model.setting()).await;
    let Some(host) = Host::extensions(&server, language).await else { return };
    let mut run = Follower::start(&server, extended("r-1", "What does the page say?")).await;
    let call = model.call().await;
    assert!(call.request.to_string().contains("Never repeat a password."), "the hook added to the prompt");
    call.use_tool("browse", json!({ "page": "news" })).await;
    let question = run.question().await;
    assert_eq!(question.tool, "browse", "the planner has a human asked");
    run.decide(&question, Decision::Approve(wire::Approve {})).await;
    let result = run.result().await;
    let (status, output) = outcome(&result);
    assert_eq!(status, wire::ToolStatus::Succeeded);
    assert_eq!(output, "page 1 in work: news, signed in with [hidden]");
    model.call().await.say("It says: hello.").await;
    assert_eq!(run.answer().await, "It says: hello.");
    let applied = |wanted: &str| {
        run.count(|event| matches!(event, Event::ExtensionApplied(applied) if applied.outcome == wanted))
    };
    assert_eq!(applied("pre_run: added to the system prompt"), 1);
    assert_eq!(applied("post_tool: changed the output; a password was hidden"), 1);
    host.does("closed work after 1").await;
    host.does("filed r-1").await;
    host.does("remembered r-1").await;

    let mut next = Follower::start(&server, extended("r-2", "And now?")).await;
    let call = model.call().await;
    assert!(call.request.to_string().contains("<context source="), "the memory had it read");
    call.use_tool("browse", json!({ "page": "my password" })).await;
    let result = next.result().await;
    let (status, output) = outcome(&result);
    assert_eq!(status, wire::ToolStatus::Rejected);
    assert!(output.contains("pages with passwords are not opened"), "{output}");
    model.call().await.say("I cannot say.").await;
    let ended = |event: &Event| match event {
        Event::RunFinished(end) => Some(end.status()),
        _ => None,
    };
    assert_eq!(next.until("the end", ended).await, wire::RunStatus::Completed);
}
