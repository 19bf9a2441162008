//! Model servers that others wrote: what we take for a provider's format is what they take for it.

use agentloop_client::v1::decision::Decision;
use agentloop_client::v1::run_event::Event;
use agentloop_client::v1::{Approve, ToolStatus};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::child::Process;
use crate::support::follow::{Follower, outcome};
use crate::support::host::Host;
use crate::support::server::{Server, Setting, input};
use crate::support::{leave_out, may_install, on_path, top};

/// Longer than a chunk, so that it comes in pieces.
const ANSWER: &str = "Everything was waited for, and the mail is out: \u{1f4e8} to a@example.com.";

#[tokio::test]
async fn in_the_format_of_openai() {
    converse("openai", "v1", [0, 1, 2]).await;
}

#[tokio::test]
async fn in_the_format_of_responses() {
    // Each item counts as a turn: a text, and two calls.
    converse("openai-responses", "v1", [0, 3, 4]).await;
}

#[tokio::test]
async fn in_the_format_of_anthropic() {
    converse("anthropic", "v1", [0, 1, 2]).await;
}

#[tokio::test]
async fn in_the_format_of_gemini() {
    converse("gemini", "v1beta", [0, 1, 2]).await;
}

async fn converse(format: &str, version: &str, turns: [u32; 3]) {
    let dir = tempfile::tempdir().expect("a directory");
    let Some((_model, url)) = model_server(dir.path(), turns).await else { return };
    let key = dir.path().join("key");
    std::fs::write(&key, "none").expect("written");
    let provider =
        format!("kind = \"{format}\"\nbase_url = \"{url}/{version}\"\napi_key_file = {}\n", json!(key));
    let server = Server::start(&Setting { provider, max_parallel: 2, ..Setting::default() }).await;
    let host = Host::start(&server, "h-1").await;
    let mut run = Follower::start(&server, input("r-1", "s-1", "Wait twice, then mail it")).await;
    for _ in 0..2 {
        assert_eq!(outcome(&run.result().await), (ToolStatus::Succeeded, "slept"));
    }
    let question = run.question().await;
    assert_eq!(question.arguments_json, r#"{"to":"a@example.com"}"#);
    run.decide(&question, Decision::Approve(Approve {})).await;
    let pieces = pieces(&mut run).await;
    assert!(pieces > 1, "the answer came in {pieces} pieces");
    assert_eq!(run.answer().await, ANSWER);
    assert_eq!((host.did("slow-end").len(), host.did("send_email").len()), (2, 1));
    assert_eq!(run.count(|event| matches!(event, Event::ModelCallStarted(_))), 3);
    assert_eq!(run.count(|event| matches!(event, Event::ModelCallFailed(_))), 0);
}

/// In how many pieces the model's last message came.
async fn pieces(run: &mut Follower) -> usize {
    let mut pieces = 0;
    while run
        .until("the answer", |event| match event {
            Event::ModelDelta(_) => Some(true),
            Event::AssistantMessage(_) => Some(false),
            _ => None,
        })
        .await
    {
        pieces += 1;
    }
    pieces
}

/// Starts one, and where it listens. It is strict: a request that nothing is prepared for fails.
async fn model_server(dir: &std::path::Path, turns: [u32; 3]) -> Option<(Process, String)> {
    let script = top().join("tests/mock-llm");
    let installed = top().join(".work/mock-llm/node_modules").exists();
    let installable = may_install() && on_path("npm").is_some();
    if !installed && !installable {
        leave_out("a model server (tests/mock-llm --setup-only installs it)");
        return None;
    }
    let fixtures = dir.join("fixtures.json");
    std::fs::write(&fixtures, fixtures_json(turns).to_string()).expect("written");
    let mut command = Command::new(script);
    // Chunks that are shorter than the answer, some milliseconds apart.
    command
        .args(["--strict", "--port", "0", "--chunk-size", "9", "--latency", "25", "--fixtures"])
        .arg(fixtures);
    let mut process = Process::start("model", command);
    let line = process.line_with("listening on").await;
    let url = line.rsplit(' ').next().expect("the line names it").to_owned();
    Some((process, url))
}

/// What it answers, by how often it spoke before.
fn fixtures_json([first, second, third]: [u32; 3]) -> Value {
    let call = |name: &str, arguments: Value| json!({ "name": name, "arguments": arguments.to_string() });
    let slow = call("slow", json!({ "seconds": 0.1 }));
    let mail = call("send_email", json!({ "to": "a@example.com" }));
    json!({ "fixtures": [
        {
            "match": { "userMessage": "Wait twice", "turnIndex": first },
            "response": { "content": "I wait.", "toolCalls": [slow.clone(), slow] },
        },
        { "match": { "userMessage": "Wait twice", "turnIndex": second }, "response": { "toolCalls": [mail] } },
        { "match": { "userMessage": "Wait twice", "turnIndex": third }, "response": { "content": ANSWER } },
    ] })
}
