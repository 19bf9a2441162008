//! Sensitive arguments of tools: people see a mask, hosts get the true values.

use agentloop_client::{Client, v1 as wire};
use agentloop_core::tool::Digest;
use agentloop_tests::host::Host;
use agentloop_tests::input::named;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::{Value, json};
use wire::decision::Decision;

const SENSITIVE: &str = "[tools.mail]\nsensitive = [\"/to\"]\n";
const SECRET: &str = "bob@secret.example";

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[tokio::test]
async fn people_see_a_mask_and_the_host_gets_the_value() {
    let model = Model::start().await;
    let server = TestServer::with(&model, SENSITIVE).await;
    let host = Host::start(&server).await;
    let client = server.client_builder().build().expect("a client");
    model.asks("mail", json!({ "to": SECRET })).says("done");
    let waits = soon(client.run(named("r1", "write"))).await.expect("it asks");
    let asked = &waits.pending[0];
    assert_eq!(parsed(&asked.arguments_json), json!({ "to": "[masked]" }));
    assert!(asked.suggested_rule.is_none() && !asked.digest.is_empty(), "{asked:?}");
    // Edits keep what their editor did not see.
    let edits = wire::ApproveWithEdits { arguments_json: asked.arguments_json.clone() };
    let approval = wire::SubmitApprovalRequest {
        request_id: asked.request_id.clone(),
        decision: Some(wire::Decision { decision: Some(Decision::ApproveWithEdits(edits)) }),
        ..Default::default()
    };
    let answered = soon(client.submit_approval(approval)).await.expect("it is approved");
    let run = wire::RunInput { run_id: Some("r1".to_owned()), ..Default::default() };
    soon(client.run(run)).await.expect("it ends");
    assert_eq!(host.gate.calls(), [("mail".to_owned(), json!({ "to": SECRET }))]);

    let mut seen = vec![format!("{waits:?}"), format!("{answered:?}")];
    let mut events = Box::pin(soon(client.subscribe("r1", 0))).await.expect("it is followed");
    while let Some(event) = soon(events.next()).await {
        seen.push(format!("{:?}", event.expect("an event")));
    }
    let session = waits.session_id.clone();
    let entries = wire::ListEntriesRequest { session_id: session.clone(), ..Default::default() };
    seen.push(format!("{:?}", soon(client.list_entries(entries)).await.expect("listed")));
    seen.push(format!("{:?}", soon(client.get_run("r1")).await.expect("it is there")));
    seen.push(format!("{:?}", soon(client.list_pending(Default::default())).await.expect("listed")));
    let mut lines = soon(client.export_session(session)).await.expect("it is exported");
    while let Some(line) = soon(lines.next()).await.expect("it goes on") {
        seen.push(line);
    }
    for shown in &seen {
        // The result of a tool is not masked, and this tool repeats its arguments.
        let shown = shown.replace(&format!("sent to {SECRET}"), "");
        assert!(!shown.contains("secret.example"), "{shown}");
    }
    assert!(seen.iter().filter(|shown| shown.contains("[masked]")).count() >= 4, "{seen:?}");
    // The model is asked with what it said.
    assert!(model.last_request().to_string().contains(SECRET));
}

/// The open questions that a rule with this pattern for the address would match.
async fn matched(client: &Client, pattern: &str) -> usize {
    let pattern = wire::ArgumentPattern { pointer: "/to".to_owned(), pattern: pattern.to_owned() };
    let candidate = wire::PolicyRule {
        action: wire::PolicyAction::Deny.into(),
        tool: "mail".to_owned(),
        arguments: vec![pattern],
        ..Default::default()
    };
    let check = wire::CheckPolicyRequest {
        tool: "mail".to_owned(),
        arguments_json: r#"{"to":"x"}"#.to_owned(),
        candidate: Some(candidate),
        ..Default::default()
    };
    soon(client.check_policy(check)).await.expect("it is checked").matching_request_ids.len()
}

#[tokio::test]
async fn neither_a_digest_nor_a_rule_tells_a_value_that_is_guessed() {
    let arguments = json!({ "to": SECRET });
    let guessed = Digest::of(&[b"mail", arguments.to_string().as_bytes()]);
    for (config, is_told) in [("", true), (SENSITIVE, false)] {
        let model = Model::start().await;
        let server = TestServer::with(&model, config).await;
        let host = Host::start(&server).await;
        let client = server.client_builder().build().expect("a client");
        model.asks("mail", arguments.clone()).says("done");
        let waits = soon(client.run(named("r1", "write"))).await.expect("it asks");
        let asked = &waits.pending[0];
        assert_eq!(asked.digest == guessed.as_str(), is_told, "{asked:?}");
        let found =
            [matched(&client, "bob@*").await, matched(&client, "ann@*").await, matched(&client, "*").await];
        assert_eq!(found, [usize::from(is_told), 0, 1]);

        // The digest is of this question: an answer that names it counts, and one that names another does not.
        let approval = |digest: &str| wire::SubmitApprovalRequest {
            request_id: asked.request_id.clone(),
            digest: digest.to_owned(),
            decision: Some(wire::Decision { decision: Some(Decision::Approve(wire::Approve {})) }),
            ..Default::default()
        };
        let other = Digest::of(&[b"another"]);
        soon(client.submit_approval(approval(other.as_str()))).await.expect_err("it is another's");
        soon(client.submit_approval(approval(&asked.digest))).await.expect("it is approved");
        let run = wire::RunInput { run_id: Some("r1".to_owned()), ..Default::default() };
        soon(client.run(run)).await.expect("it ends");
        assert_eq!(host.gate.calls(), [("mail".to_owned(), arguments.clone())]);
    }
}

#[tokio::test]
async fn a_remembered_rule_does_not_name_the_value() {
    let model = Model::start().await;
    let server = TestServer::with(&model, SENSITIVE).await;
    let _host = Host::start(&server).await;
    let client = server.client_builder().build().expect("a client");
    model.asks("mail", json!({ "to": SECRET })).says("done");
    let waits = soon(client.run(named("r1", "write"))).await.expect("it asks");
    let approval = wire::SubmitApprovalRequest {
        request_id: waits.pending[0].request_id.clone(),
        decision: Some(wire::Decision { decision: Some(Decision::Approve(wire::Approve {})) }),
        remember: wire::RememberScope::Rule.into(),
        ..Default::default()
    };
    let answered = soon(client.submit_approval(approval)).await.expect("it is approved");
    let rules = soon(client.list_rules("")).await.expect("listed");
    assert_eq!(rules.len(), 1);
    let shown = format!("{rules:?} {answered:?}");
    assert!(!shown.contains("secret.example") && shown.contains("[masked]"), "{shown}");
    // It matches the true value.
    model.asks("mail", json!({ "to": SECRET })).says("done");
    let again = soon(client.run(named("r2", "write again"))).await.expect("it runs");
    assert_eq!(again.status(), wire::RunStatus::Completed);
}

#[tokio::test]
async fn pieces_of_arguments_are_not_shown() {
    let model = Model::start().await;
    let server = TestServer::with(&model, SENSITIVE).await;
    let _host = Host::start(&server).await;
    model.asks("mail", json!({ "to": SECRET })).says("done");
    let client = server.client_builder().build().expect("a client");
    let mut events = Box::pin(soon(client.run_stream(named("r1", "write")))).await.expect("it runs");
    let mut shown = String::new();
    while let Some(event) = soon(events.next()).await {
        let event = event.expect("an event");
        shown += &format!("{event:?}\n");
        if matches!(event.event, Some(wire::run_event::Event::HumanRequested(_))) {
            break;
        }
    }
    assert!(!shown.contains("secret.example") && shown.contains("[masked]"), "{shown}");
}
