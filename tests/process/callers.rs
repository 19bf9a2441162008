//! Callers as processes, whose server is killed while they wait.

use agentloop_tests::credentials::SecurityFiles;
use serde_json::json;
use tokio::process::Command;

use crate::support::child::Process;
use crate::support::host::{Host, caller_command};
use crate::support::model::Model;
use crate::support::server::{Server, Setting, agentloop};

/// The languages that have an example caller.
const LANGUAGES: [&str; 4] = ["python", "typescript", "go", "rust"];

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
async fn in_rust() {
    an_example("rust").await;
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
        let mut command = caller_command(language)?;
        command.args(["--server", &server.address(), "Mail it"]);
        Some(command)
    })
    .await;
    if let Some(said) = said {
        assert!(said.lines().any(|line| line == "status: completed"), "{said}");
        assert!(said.lines().any(|line| line == "answer: It is sent."), "{said}");
    }
}

#[tokio::test]
async fn an_example_without_a_prompt_says_its_usage() {
    for mut example in LANGUAGES.into_iter().filter_map(caller_command) {
        let output = example.output().await.expect("it is there");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("usage: "), "{example:?}: {said}");
    }
}

#[tokio::test]
async fn over_tls_with_a_token() {
    let (mut model, files) = (Model::start().await, SecurityFiles::new());
    let token = files.token("ada", "red", &["caller"]);
    let setting = Setting { tls: true, more: files.auth(), ..model.setting() };
    let server = Server::start(&setting).await;
    files.write("ca.pem", &server.root().expect("it has one"));
    let address = server.address();
    let (_, port) = address.rsplit_once(':').expect("a port");
    let presenting = |mut command: Command, token: &str| {
        command.env("AGENTLOOP_SERVER", format!("https://localhost:{port}"));
        command.env("AGENTLOOP_CA_FILE", files.path("ca.pem")).env("AGENTLOOP_TOKEN", token);
        Process::start("caller", command)
    };
    let examples = LANGUAGES.map(|language| {
        let mut command = caller_command(language)?;
        command.arg("Say it");
        Some(command)
    });
    let mut command = agentloop();
    command.args(["run", "Say it"]);
    let wrong = format!("{}x", &token[..token.len() - 1]);
    for command in examples.into_iter().flatten().chain([command]) {
        let again = repeated(&command);
        let process = presenting(command, &token);
        model.call().await.say("It is said.").await;
        let (code, said) = process.ended().await;
        assert!(code == 0 && said.contains("It is said."), "{said}");
        let (code, said) = presenting(again, &wrong).ended().await;
        assert!(code != 0 && !said.contains(&wrong), "{said}");
    }
    assert!(!model.was_called(), "nobody else was let in");
}

/// The same command once more.
fn repeated(command: &Command) -> Command {
    let mut again = Command::new(command.as_std().get_program());
    again.args(command.as_std().get_args());
    again
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
