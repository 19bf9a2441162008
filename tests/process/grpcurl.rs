//! Everything by grpcurl alone: the contract explains itself, and is usable by hand.

use serde_json::{Value, json};

use crate::support::grpcurl::{Grpcurl, Streaming};
use crate::support::server::{Leases, Server, Setting};

/// The first reply whose conditions hold.
const SCRIPT: &str = r#"
[[reply]]
when = { step = 0 }
text = "I will send it."
tool_calls = [{ name = "send_fax", arguments = { to = "1234" } }]

[[reply]]
text = "Done: {{result}}."
"#;

struct Place {
    server: Server,
    grpcurl: Grpcurl,
    _script: tempfile::TempDir,
}

async fn place() -> Option<Place> {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("script.toml");
    std::fs::write(&script, SCRIPT).expect("written");
    let server = Server::start(&Setting {
        provider: format!("kind = \"scripted\"\nfile = {}\n", json!(script)),
        // A hand does not send heartbeats.
        leases: Leases::EndAfter("5m"),
        ..Setting::default()
    })
    .await;
    let grpcurl = Grpcurl::find(server.address()).await?;
    Some(Place { server, grpcurl, _script: dir })
}

#[tokio::test]
async fn the_contract_explains_itself() {
    let Some(Place { server: _server, grpcurl, _script }) = place().await else { return };
    let services = grpcurl.ask(&["list"]).await;
    for service in
        ["agentloop.v1.AgentLoop", "agentloop.v1.Blobs", "agentloop.v1.Sessions", "agentloop.v1.ToolHost"]
    {
        assert!(services.lines().any(|line| line == service), "{service} is not in {services}");
    }
    for service in ["agentloop.v1.Server", "agentloop.v1.Tools", "grpc.health.v1.Health"] {
        assert!(services.lines().any(|line| line == service), "{service} is not in {services}");
    }
    let method = grpcurl.ask(&["describe", "agentloop.v1.AgentLoop.RunStream"]).await;
    assert!(method.contains("// Starts a run and streams its events"), "{method}");
    let message = grpcurl.ask(&["describe", "agentloop.v1.ToolDeclaration"]).await;
    assert!(message.contains("// True requires a human's approval for each call."), "{message}");
    let health = grpcurl.call("grpc.health.v1.Health/Check", &json!({})).await;
    assert_eq!(health["status"], "SERVING");
    let info = grpcurl.call("agentloop.v1.Server/GetServerInfo", &json!({})).await;
    assert_eq!(info["caller"], json!({ "tenant": "local" }));
    let agents = grpcurl.call("agentloop.v1.Server/ListAgents", &json!({})).await;
    assert_eq!(agents["agents"][0]["name"], "default");
    let by_model = json!({ "group_by": ["USAGE_GROUP_MODEL"], "bucket": "3600s" });
    let usage = grpcurl.call("agentloop.v1.Server/GetUsage", &by_model).await;
    assert_eq!(usage, json!({}), "nothing has run");
}

#[tokio::test]
async fn a_whole_conversation_by_hand() {
    let Some(Place { server: _server, grpcurl, _script }) = place().await else { return };
    let mut host = connected(&grpcurl).await;
    let input = json!({
        "runId": "r-1", "sessionId": "s-1", "autoCreateSession": true, "prompt": "Send a fax",
    });
    let mut run = grpcurl.follow("agentloop.v1.AgentLoop/RunStream", &json!({ "input": input }));

    let request = asked(&mut run).await;
    assert_eq!(request["tool"], "send_fax");
    assert_eq!(request["argumentsJson"], r#"{"to":"1234"}"#);
    let pending = grpcurl.call("agentloop.v1.AgentLoop/ListPending", &json!({})).await;
    assert_eq!(pending["requests"], json!([request]));
    let approval = json!({
        "requestId": request["requestId"], "digest": request["digest"],
        "decision": { "approve": {} }, "decidedBy": "a hand",
    });
    let approved = grpcurl.call("agentloop.v1.AgentLoop/SubmitApproval", &approval).await;
    assert_eq!(approved["request"]["answer"]["decidedBy"], "a hand");

    answer_call(&mut host).await;
    let finished = event(&mut run, "runFinished").await;
    assert_eq!(finished["status"], "RUN_STATUS_COMPLETED");
    run.ended().await;
    check_entries(&grpcurl).await;
    host.send(&json!({ "goodbye": { "reason": "done" } })).await;
    host.ended().await;
}

#[tokio::test]
async fn a_list_and_a_session_are_watched_by_hand() {
    let Some(Place { server: _server, grpcurl, _script }) = place().await else { return };
    let mut host = connected(&grpcurl).await;
    let filter =
        json!({ "filter": { "labels": { "team": "blue" }, "statuses": ["RUN_STATUS_AWAITING_HUMAN"] } });
    let mut watch = grpcurl.follow("agentloop.v1.AgentLoop/WatchRuns", &filter);
    watch.next_with("synced").await;
    grpcurl.call("agentloop.v1.Sessions/CreateSession", &json!({ "sessionId": "s-1" })).await;
    let mut session =
        grpcurl.follow("agentloop.v1.Sessions/SubscribeSession", &json!({ "sessionId": "s-1" }));
    session.next_with("synced").await;
    let input = json!({
        "runId": "r-1", "sessionId": "s-1", "prompt": "Send a fax", "labels": { "team": "blue" },
    });
    let parked = grpcurl.call("agentloop.v1.AgentLoop/Run", &json!({ "input": input })).await;
    assert_eq!(parked["result"]["status"], "RUN_STATUS_AWAITING_HUMAN");

    let request = event(&mut session, "humanRequested").await["request"].take();
    assert_eq!(request["tool"], "send_fax");
    let run = watch.next_with("run").await;
    assert_eq!((&run["runId"], &run["preview"]), (&json!("r-1"), &json!("Send a fax")));
    let found = grpcurl.call("agentloop.v1.AgentLoop/ListRuns", &filter).await;
    assert_eq!(found["runs"][0]["runId"], "r-1");
    let by_tool = json!({ "filter": { "tools": ["send_fax"], "text": "1234" } });
    let pending = grpcurl.call("agentloop.v1.AgentLoop/ListPending", &by_tool).await;
    assert_eq!(pending["requests"][0]["requestId"], request["requestId"]);

    grpcurl.call("agentloop.v1.AgentLoop/Abort", &json!({ "runId": "r-1" })).await;
    assert_eq!(watch.next_with("removed").await["runId"], "r-1");
    event(&mut session, "runFinished").await;
    grpcurl.call("agentloop.v1.Sessions/DeleteSession", &json!({ "sessionId": "s-1" })).await;
    session.next_with("deleted").await;
    session.ended().await;
    host.send(&json!({ "goodbye": { "reason": "done" } })).await;
}

/// A tool host: it says what it serves, and is welcome.
async fn connected(grpcurl: &Grpcurl) -> Streaming {
    let mut host = grpcurl.stream("agentloop.v1.ToolHost/Connect");
    let schema = r#"{"type":"object","properties":{"to":{"type":"string"}},"required":["to"]}"#;
    let tool = json!({
        "name": "send_fax", "description": "Sends a fax", "inputSchemaJson": schema,
        "effect": "EFFECT_CLASS_UNSAFE", "requiresApproval": true,
    });
    host.send(&json!({ "hello": {
        "protocolVersion": 1, "hostId": "hand", "capabilities": [{ "tool": tool }], "initialCredit": "1",
    } }))
    .await;
    let welcome = host.next_with("welcome").await;
    assert_eq!(welcome["capabilities"], json!([{ "name": "send_fax", "accepted": true }]));
    host
}

async fn answer_call(host: &mut Streaming) {
    let call = host.next_with("callRequest").await;
    assert_eq!(call["argumentsJson"], r#"{"to":"1234"}"#);
    let (id, attempt) = (&call["callId"], &call["attempt"]);
    host.send(&json!({ "callAccepted": { "callId": id, "attempt": attempt } })).await;
    let result = json!({
        "callId": id, "attempt": attempt, "leaseToken": call["leaseToken"], "output": "two pages",
    });
    host.send(&json!({ "callResult": result })).await;
    let ack = host.next_with("resultAck").await;
    assert_eq!(ack["verdict"], "RESULT_VERDICT_RECORDED");
}

async fn asked(run: &mut Streaming) -> Value {
    event(run, "humanRequested").await["request"].take()
}

async fn event(run: &mut Streaming, kind: &str) -> Value {
    loop {
        let mut event = run.next_with("event").await;
        if !event[kind].is_null() {
            return event[kind].take();
        }
    }
}

async fn check_entries(grpcurl: &Grpcurl) {
    let entries = grpcurl.call("agentloop.v1.Sessions/ListEntries", &json!({ "sessionId": "s-1" })).await;
    let entries = entries["entries"].as_array().expect("entries");
    let roles: Vec<&str> = entries.iter().filter_map(|entry| entry["message"]["role"].as_str()).collect();
    assert_eq!(roles, ["ROLE_USER", "ROLE_ASSISTANT", "ROLE_TOOL", "ROLE_ASSISTANT"]);
    assert_eq!(entries[3]["message"]["parts"], json!([{ "text": "Done: two pages." }]));
}
