//! The calls that the guide shows, made by grpcurl as they are written.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::grpcurl::{Grpcurl, Streaming};
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
    commands.map(call).filter(|call| !call.method.ends_with("/RunStream")).collect()
}

/// The calls of these services that a page shows, each on one line, in order.
fn shown(page: &str, services: &[&str]) -> Vec<Call> {
    let text = std::fs::read_to_string(top().join("server/docs/guide").join(page)).expect("the page exists");
    let call = |line: &str| {
        let rest = line.trim_start_matches("$ ").strip_prefix("grpcurl -plaintext ")?;
        let (request, rest) = match rest.strip_prefix("-d '") {
            Some(rest) => rest.split_once("' ").expect("a request in quotes"),
            None => ("{}", rest),
        };
        let method = rest.strip_prefix("127.0.0.1:50051 ")?;
        let is_wanted =
            services.iter().any(|service| method.starts_with(&format!("agentloop.v1.{service}/")));
        let request = || serde_json::from_str(request).expect("a request in JSON");
        is_wanted.then(|| Call { method: method.to_owned(), request: request() })
    };
    text.lines().filter_map(call).collect()
}

fn script(dir: &std::path::Path) -> String {
    let script = dir.join("script.toml");
    std::fs::write(&script, SCRIPT).expect("written");
    format!("kind = \"scripted\"\nfile = {}\n", json!(script))
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
    let server = Server::start(&Setting { provider: script(dir.path()), ..Setting::default() }).await;
    let Some(grpcurl) = Grpcurl::find(server.address()).await else { return };
    run(&grpcurl, "trip", "r1").await;
    let mut made = Vec::new();
    for Call { method, request } in calls("sessions.md") {
        let name = method.rsplit('/').next().expect("a name").to_owned();
        if name == "ExportSession" {
            let mut lines = grpcurl.follow(&method, &request);
            let first = lines.next_with("jsonLine").await;
            let first = first.as_str().expect("a text");
            assert!(first.starts_with(r#"{"session":{"sessionId":"trip""#), "{first}");
            lines.ended().await;
        } else {
            grpcurl.call(&method, &request).await;
        }
        made.push(name);
    }
    for wanted in [
        "ListSessions",
        "UpdateSession",
        "ExportSession",
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

#[tokio::test]
async fn the_calls_to_read_watch_and_audit_succeed_as_they_are_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let provider = script(dir.path());
    let setting = Setting { provider, server: "[audit]\nenabled = true\n", ..Setting::default() };
    let server = Server::start(&setting).await;
    let Some(grpcurl) = Grpcurl::find(server.address()).await else { return };
    let mut made = BTreeSet::new();
    for page in ["grpcurl.md", "replicas.md", "watching.md", "security.md"] {
        for Call { method, request } in shown(page, &["AgentLoop", "Sessions", "Server"]) {
            let name = method.rsplit('/').next().expect("a name").to_owned();
            match name.as_str() {
                // They are about the run of a model that calls tools.
                "SubmitApproval" | "Subscribe" => continue,
                "WatchRuns" | "SubscribeSession" => {
                    grpcurl.follow(&method, &request).next_with("synced").await;
                }
                _ => drop(grpcurl.call(&method, &request).await),
            }
            made.insert(name);
        }
    }
    for wanted in [
        "GetServerInfo",
        "GetUsage",
        "ListAgents",
        "ListAuditRecords",
        "ListPending",
        "ListReplicas",
        "ListRuns",
        "SubscribeSession",
        "VerifyAudit",
        "WatchRuns",
    ] {
        assert!(made.contains(wanted), "the pages show no {wanted}: {made:?}");
    }
}

/// A host of the tool `pay`, and whether the server took the tool.
async fn paying(grpcurl: &Grpcurl, effect: &str) -> (Streaming, bool) {
    let mut host = grpcurl.stream("agentloop.v1.ToolHost/Connect");
    let tool = json!({ "name": "pay", "description": "Pays", "inputSchemaJson": r#"{"type":"object"}"#, "effect": effect });
    let hello = json!({ "protocolVersion": 1, "hostId": effect, "capabilities": [{ "tool": tool }] });
    host.send(&json!({ "hello": hello })).await;
    let welcome = host.next_with("welcome").await;
    (host, welcome["capabilities"][0]["accepted"] == json!(true))
}

#[tokio::test]
async fn the_calls_on_the_terms_of_tools_succeed_as_they_are_written() {
    let model = Model::start().await;
    let server = Server::start(&model.setting()).await;
    let Some(grpcurl) = Grpcurl::find(server.address()).await else { return };
    let (mut strict, is_taken) = paying(&grpcurl, "EFFECT_CLASS_UNSAFE").await;
    assert!(is_taken);
    strict.send(&json!({ "goodbye": { "reason": "done" } })).await;
    strict.ended().await;
    let (_weaker, is_taken) = paying(&grpcurl, "EFFECT_CLASS_READ_ONLY").await;
    assert!(!is_taken, "it is weaker");
    let calls = shown("tool-hosts.md", &["Tools"]);
    let names: Vec<&str> = calls.iter().filter_map(|call| call.method.rsplit('/').next()).collect();
    assert_eq!(names, ["AcceptTool", "ForgetTool"]);
    for Call { method, request } in &calls {
        grpcurl.call(method, request).await;
    }
}
