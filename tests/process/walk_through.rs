//! The walk-through of the guide to credentials, followed to the letter by a shell.

use std::fs;
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::json;
use tokio::process::Command;

use crate::support::{built, soon, top};

/// Answers whatever is asked.
const SCRIPT: &str = "[[reply]]\ntext = \"Take the ferry.\"\n[[reply]]\ntext = \"Take the ferry.\"\n";

/// The part of the page below this heading.
fn section(heading: &str) -> String {
    let page = top().join("server/docs/guide/security.md");
    let page = fs::read_to_string(page).expect("the page exists");
    let (_, rest) = page.split_once(heading).expect("the page has the heading");
    rest.split("\n## ").next().expect("a section").to_owned()
}

/// The blocks of this language in a section.
fn blocks<'a>(section: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    section.split(&begin).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// The commands of a section, each announced before it runs. The server's port is another, and is waited for.
fn script(section: &str, port: u16) -> String {
    let mut script = "set -eu\ntrap 'kill $(jobs -p)' EXIT\n".to_owned();
    for block in blocks(section, "console") {
        for command in block.lines().filter_map(|line| line.strip_prefix("$ ")) {
            let command = command.replace("localhost:50051", &format!("localhost:{port}"));
            script +=
                &format!("echo '### {}'\n{command}\n", command.split_whitespace().nth(1).unwrap_or_default());
            if command.starts_with("agentloop serve") {
                script +=
                    &format!("until (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.1; done\n");
            }
        }
    }
    script
}

#[tokio::test]
async fn two_teams_share_one_server_as_the_guide_says() {
    let section = section("## Two teams on one server, in five minutes\n");
    let dir = tempfile::tempdir().expect("a directory");
    let written = dir.path().join("script.toml");
    fs::write(&written, SCRIPT).expect("written");
    let models = format!(
        "\n[providers.demo]\nkind = \"scripted\"\nfile = {}\n[agents.default]\nmodel = \"demo/m\"\n",
        json!(written)
    );
    let config = blocks(&section, "toml").concat() + &models;
    fs::write(dir.path().join("agentloop.toml"), config).expect("written");
    let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = free.local_addr().expect("it is bound").port();
    drop(free);

    let command = built("agentloop");
    let folders =
        [command.parent().expect("a folder").to_str().expect("text"), "/usr/local/bin:/usr/bin:/bin"];
    let mut shell = Command::new("bash");
    shell.arg("-c").arg(script(&section, port)).current_dir(dir.path()).env_clear();
    shell.env("PATH", folders.join(":")).env("HOME", dir.path());
    shell.env("AGENTLOOP_SERVER_LISTEN", format!("127.0.0.1:{port}"));
    shell.stdin(Stdio::null()).kill_on_drop(true);
    let output = soon("the end of the walk-through", shell.output()).await.expect("bash is there");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");

    let of = |command: &str| -> Vec<&str> {
        let parts = said.split("### ").filter_map(|part| part.split_once('\n'));
        parts.filter(|(name, _)| *name == command).map(|(_, text)| text).collect()
    };
    let (info, sessions, tools, runs) = (of("info"), of("sessions"), of("tools"), of("run"));
    assert!(info[0].contains("ada") && info[0].contains("red"), "{said}");
    assert!(!sessions[0].contains("plan"), "{said}");
    assert!(!tools[0].contains("get_weather"), "{said}");
    assert_eq!(runs.len(), 2, "{said}");
    assert!(runs.iter().all(|run| run.contains("Take the ferry.")), "{said}");
}
