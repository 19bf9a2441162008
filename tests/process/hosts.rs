//! Several hosts of one tool.

use std::collections::BTreeMap;

use serde_json::json;
use tokio::process::Command;

use crate::support::child::Process;
use crate::support::follow::Follower;
use crate::support::host::{Host, example_of, of_the_command};
use crate::support::model::Model;
use crate::support::server::{Server, Setting, input};
use crate::support::{eventually, top};

#[tokio::test]
async fn share_the_load() {
    let mut model = Model::start().await;
    let server = Server::start(&Setting { max_parallel: 8, ..model.setting() }).await;
    let (one, two) = (Host::start(&server, "h-1").await, Host::start(&server, "h-2").await);
    let mut run = Follower::start(&server, input("r-1", "s-1", "Wait much")).await;
    // Each host takes four at a time.
    let calls: Vec<_> = (0..8).map(|_| ("slow", json!({ "seconds": 2.0 }))).collect();
    model.call().await.use_tools(&calls).await;
    for _ in 0..8 {
        run.result().await;
    }
    model.call().await.say("Waited.").await;
    assert_eq!(run.answer().await, "Waited.");
    assert_eq!((one.did("slow-start").len(), two.did("slow-start").len()), (4, 4));
}

/// The number of hosts of each tool, once there are as many of `get_weather`.
async fn hosts_by_tool(server: &Server, weather: usize) -> BTreeMap<String, usize> {
    let client = server.client();
    eventually(&format!("{weather} hosts of get_weather"), || async {
        let tools = client.list_tools().await.expect("listed");
        let hosts: BTreeMap<_, _> = tools
            .into_iter()
            .map(|tool| (tool.declaration.expect("declared").name, tool.host_ids.len()))
            .collect();
        (hosts.get("get_weather") == Some(&weather)).then_some(hosts)
    })
    .await
}

/// A tool that two hosts declare differently would be refused to the second.
#[tokio::test]
async fn of_all_languages_declare_alike() {
    let model = Model::start().await;
    let server = Server::start(&model.setting()).await;
    let _command = of_the_command(&server, "command-1", &server.file("outbox")).await;
    let mut examples = Vec::new();
    for language in ["rust", "python", "typescript", "go"] {
        examples.extend(Host::example(&server, language).await);
    }
    let of_examples = examples.len();
    let shared = ["add", "get_weather", "send_email"].map(|tool| (tool.to_owned(), of_examples + 1));
    let more = ["charge", "fail", "slow"].map(|tool| (tool.to_owned(), of_examples));
    let expected: BTreeMap<_, _> = shared.into_iter().chain(more).collect();
    assert_eq!(hosts_by_tool(&server, of_examples + 1).await, expected);
}

/// The host that the README has its readers write, beside the host of the command.
#[tokio::test]
async fn of_the_readme_joins_the_example() {
    let Some(folder) = example_of("python") else { return };
    let model = Model::start().await;
    let server = Server::start(&model.setting()).await;
    let _command = of_the_command(&server, "command-1", &server.file("outbox")).await;
    let readme = std::fs::read_to_string(top().join("README.md")).expect("there is one");
    let host = readme.split("```python\n").nth(1).and_then(|rest| rest.split("```").next());
    let host = host.expect("a host in Python").replace("127.0.0.1:50051", &server.address());
    let file = server.file("weather_host.py");
    std::fs::write(&file, host).expect("written");

    let mut command = Command::new(folder.join(".venv/bin/python"));
    command.arg(&file).env("PYTHONPATH", &folder);
    let mut process = Process::start("weather_host.py", command);
    process.line_with("ready").await;
    assert_eq!(hosts_by_tool(&server, 2).await["send_email"], 1);
}
