//! Callers as processes, whose server is killed while they wait.

use serde_json::json;
use tokio::process::Command;

use crate::support::child::Process;
use crate::support::host::{Host, example_of};
use crate::support::model::Model;
use crate::support::server::{Server, agentloop};

#[tokio::test]
async fn in_python() {
    an_example("python").await;
}

#[tokio::test]
async fn in_typescript() {
    an_example("typescript").await;
}

#[tokio::test]
async fn in_go() {
    an_example("go").await;
}

#[tokio::test]
async fn as_the_command() {
    let said = outlives_the_server(|server| {
        let mut command = agentloop();
        command.args(["run", "Mail it", "--yes", "--server", &server.url()]);
        Some(command)
    })
    .await;
    let said = said.expect("the command is always there");
    assert_eq!(said.matches("It is sent.").count(), 1, "{said}");
}

async fn an_example(language: &str) {
    let said = outlives_the_server(|server| {
        let mut command = Command::new(example_of(language)?.join("run-caller"));
        command.args(["--server", &server.address(), "Mail it"]);
        Some(command)
    })
    .await;
    if let Some(said) = said {
        assert!(said.lines().any(|line| line == "status: completed"), "{said}");
        assert!(said.lines().any(|line| line == "answer: It is sent."), "{said}");
    }
}

/// A caller that approves what it is asked, and what it said by its end.
async fn outlives_the_server(caller: impl Fn(&Server) -> Option<Command>) -> Option<String> {
    let mut model = Model::start().await;
    let mut server = Server::start(&model.setting()).await;
    let command = caller(&server)?;
    let host = Host::start(&server, "h-1").await;
    let process = Process::start("caller", command);
    model.call().await.use_tool("send_email", json!({ "to": "a@example.com" })).await;
    let mut cut = model.call().await;
    cut.begin("It is s").await;

    server.kill().await;
    server.start_again().await;

    model.call().await.say("It is sent.").await;
    let (code, said) = process.ended().await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(host.did("send_email").len(), 1);
    Some(said)
}
