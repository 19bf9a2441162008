//! `agentloop demo`, and `agentloop serve` with the files of a demo.

use crate::process::{Running, agentloop, ended};

#[cfg(unix)]
#[tokio::test]
async fn the_demo_ends_by_itself_and_can_be_looked_at_afterwards() {
    let dir = tempfile::tempdir().expect("a directory");
    let demo = dir.path().join("demo");
    let demo_dir = demo.to_str().expect("text");
    let (code, shown, stderr) = ended("unused", &["demo", "--scripted", "--dir", demo_dir]).await;
    assert_eq!(code, 0, "{shown}{stderr}");
    for told in [
        "→ Weather in Beijing  get_weather",
        "← Weather in Beijing succeeded",
        "approved by the demo itself",
        "the mail was sent to team@example.com",
        "agentloop.v1.Sessions/ListEntries",
        "Start the server again",
        "agentloop chat --session",
    ] {
        assert!(shown.contains(told), "{told}: {shown}");
    }
    let outbox = std::fs::read_to_string(demo.join("outbox.jsonl")).expect("written");
    assert!(outbox.contains("celsius") && outbox.lines().count() == 1, "{outbox}");

    let config = demo.join("agentloop.toml");
    let text = std::fs::read_to_string(&config).expect("written");
    let address = text.split_once("listen = \"").and_then(|(_, rest)| rest.split_once('"'));
    let url = format!("http://{}", address.expect("an address").0);
    let serve = agentloop("unused", &["serve", "--config", config.to_str().expect("text")]);
    let server = Running::start_and_wait_for(serve, "listens on").await;
    let (code, runs, stderr) = ended(&url, &["runs"]).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(runs.contains("completed"), "{runs}");
    server.signal("TERM").await;
    assert_eq!(server.code().await, 0);
}

#[cfg(unix)]
#[tokio::test]
async fn a_demo_that_goes_on_does_not_ask_for_another_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let demo = dir.path().join("demo");
    let args = ["demo", "--scripted", "--keep", "--dir", demo.to_str().expect("text")];
    let mut running = Running::start(agentloop("unused", &args));
    let mut told = Vec::new();
    while !told.last().is_some_and(|line: &String| line.contains("go on until ctrl-C")) {
        told.push(running.line().await);
    }
    assert!(!told.iter().any(|line| line.contains("Start the server again")), "{told:?}");
    running.signal("INT").await;
    assert_eq!(running.code().await, 0);
}
