//! The calls that the guide shows, made by grpcurl as they are written.

use serde_json::{Value, json};

use crate::support::grpcurl::Grpcurl;
use crate::support::model::Model;
use crate::support::server::{Server, Setting};
use crate::support::top;

/// Answers whatever is asked.
const SCRIPT: &str = "[[reply]]\ntext = \"Take the ferry.\"\n";

/// A call of a page: the method and its request.
#[derive(Debug)]
struct Call {
    method: String,
    request: Value,
}

/// The unary calls of a page, in order.
fn calls(page: &str) -> Vec<Call> {
    let text = std::fs::read_to_string(top().join("server/docs/guide").join(page)).expect("the page exists");
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let commands = blocks.flat_map(|block| block.split("grpcurl -plaintext -d '").skip(1));
    let call = |command: &str| {
        let (request, rest) = command.split_once("' ").expect("a request in quotes");
        let address = "127.0.0.1:50051 ";
        let method = rest.trim_start_matches("\\\n").trim_start().strip_prefix(address).expect("the address");
        let method = method.split_whitespace().next().expect("a method").to_owned();
        Call { method, request: serde_json::from_str(request).expect("a request in JSON") }
    };
    let streams = ["/RunStream", "/ExportSession"];
    commands.map(call).filter(|call| !streams.iter().any(|name| call.method.ends_with(name))).collect()
}

/// Makes a run of a session, whose answer is the script's.
async fn run(grpcurl: &Grpcurl, session: &str, run: &str) {
    let input = json!({
        "sessionId": session, "runId": run, "autoCreateSession": true, "prompt": "How do I get to Bergen?",
    });
    let result = grpcurl.call("agentloop.v1.AgentLoop/Run", &json!({ "input": input })).await;
    assert_eq!(result["result"]["status"], "RUN_STATUS_COMPLETED", "{result}");
}

#[tokio::test]
async fn every_call_on_the_page_of_sessions_succeeds() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("script.toml");
    std::fs::write(&script, SCRIPT).expect("written");
    let provider = format!("kind = \"scripted\"\nfile = {}\n", json!(script));
    let server = Server::start(&Setting { provider, ..Setting::default() }).await;
    let Some(grpcurl) = Grpcurl::find(server.address()).await else { return };
    run(&grpcurl, "trip", "r1").await;
    let mut made = Vec::new();
    for Call { method, request } in calls("sessions.md") {
        grpcurl.call(&method, &request).await;
        made.push(method.rsplit('/').next().expect("a name").to_owned());
    }
    let mut lines = grpcurl.follow("agentloop.v1.Sessions/ExportSession", &json!({ "sessionId": "trip" }));
    let first = lines.next_with("jsonLine").await;
    assert!(
        first.as_str().is_some_and(|line| line.starts_with(r#"{"session":{"sessionId":"trip""#)),
        "{first}"
    );
    lines.ended().await;
    for wanted in [
        "ListSessions",
        "UpdateSession",
        "GetOrCreateSession",
        "ImportEntries",
        "ForkSession",
        "SearchEntries",
    ] {
        assert!(made.iter().any(|name| name == wanted), "the page shows no {wanted}: {made:?}");
    }
}

#[tokio::test]
async fn the_calls_with_blobs_succeed_as_they_are_written() {
    let model = Model::start().await;
    let server = Server::start(&model.setting()).await;
    let Some(grpcurl) = Grpcurl::find(server.address()).await else { return };
    let page =
        std::fs::read_to_string(top().join("server/docs/guide/tool-hosts.md")).expect("the page exists");
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let block = blocks.filter(|block| block.contains("Blobs/PutBlob")).last().expect("the page shows it");
    let answers = grpcurl.shell(block).await;
    assert!(answers.contains("\"sizeBytes\": \"5\""), "{answers}");
    assert!(answers.contains("\"chunk\": \"aGVsbG8=\""), "{answers}");
}
