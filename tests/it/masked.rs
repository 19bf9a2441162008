//! Sensitive arguments of tools: people see a mask, hosts get the true values.

use std::collections::BTreeSet;

use agentloop_client::{Client, v1 as wire};
use agentloop_core::tool::Digest;
use agentloop_tests::errors::assert_invalid;
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

#[tokio::test]
async fn the_inbox_is_not_searched_for_what_people_do_not_see() {
    let model = Model::start().await;
    let server = TestServer::with(&model, SENSITIVE).await;
    let _host = Host::start(&server).await;
    let client = server.client_builder().build().expect("a client");
    model.asks("mail", json!({ "to": SECRET }));
    soon(client.run(named("r1", "write"))).await.expect("it asks");
    for (text, found) in [("[masked]", 1), ("mail", 1), ("secret.example", 0), ("to\":\"b", 0)] {
        let filter = wire::PendingFilter { text: text.to_owned(), ..Default::default() };
        let request = wire::ListPendingRequest { filter: Some(filter), ..Default::default() };
        let listed = soon(client.list_pending(request)).await.expect("listed");
        assert_eq!(listed.requests.len(), found, "{text}");
    }
}

/// The open questions that a rule with this pattern for the address would match.
async fn matched(client: &Client, pattern: &str) -> usize {
    let candidate = about_address("mail", pattern);
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

fn about_address(tool: &str, pattern: &str) -> wire::PolicyRule {
    let pattern = wire::ArgumentPattern { pointer: "/to".to_owned(), pattern: pattern.to_owned() };
    wire::PolicyRule {
        action: wire::PolicyAction::Allow.into(),
        tool: tool.to_owned(),
        arguments: vec![pattern],
        ..Default::default()
    }
}

fn approval(request: &str, rule: Option<wire::PolicyRule>) -> wire::SubmitApprovalRequest {
    wire::SubmitApprovalRequest {
        request_id: request.to_owned(),
        decision: Some(wire::Decision { decision: Some(Decision::Approve(wire::Approve {})) }),
        remember: wire::RememberScope::Rule.into(),
        remember_rule: rule,
        ..Default::default()
    }
}

#[tokio::test]
async fn no_rule_is_remembered_over_a_value_that_people_do_not_see() {
    let model = Model::start().await;
    let server = TestServer::with(&model, SENSITIVE).await;
    let _host = Host::start(&server).await;
    let client = server.client_builder().build().expect("a client");
    model.asks("mail", json!({ "to": SECRET })).says("done");
    let waits = soon(client.run(named("r1", "write"))).await.expect("it asks");
    let request = waits.pending[0].request_id.as_str();
    let whole = wire::ArgumentPattern { pointer: String::new(), pattern: "*bob*".to_owned() };
    let whole = wire::PolicyRule { arguments: vec![whole], ..about_address("mail", "") };
    let mut told = BTreeSet::new();
    // A guess that is right, one that is wrong, and no guess are told apart by nothing.
    for rule in [
        Some(about_address("mail", "bob@*")),
        Some(about_address("mail", "ann@*")),
        Some(about_address("m?il", "*")),
        Some(about_address("", "bob@*")),
        Some(whole),
        None,
    ] {
        let refused = soon(client.submit_approval(approval(request, rule))).await.expect_err("it is refused");
        assert_eq!(refused.code(), Some(tonic::Code::InvalidArgument), "{refused}");
        told.insert(refused.to_string());
    }
    assert!(told.len() == 1 && told.iter().all(|told| told.contains("sensitive arguments")), "{told:?}");
    assert!(soon(client.list_rules("")).await.expect("listed").is_empty());
    let still = soon(client.get_run("r1")).await.expect("it is there");
    assert_eq!(still.pending.len(), 1, "nothing was decided");

    let any = wire::PolicyRule { arguments: Vec::new(), ..about_address("mail", "") };
    soon(client.submit_approval(approval(request, Some(any)))).await.expect("it looks at no argument");
    model.asks("mail", json!({ "to": "somebody else" })).says("done");
    let again = soon(client.run(named("r2", "write again"))).await.expect("it runs");
    assert_eq!(again.status(), wire::RunStatus::Completed);
}

#[tokio::test]
async fn a_call_without_the_value_is_remembered_as_it_is() {
    let model = Model::start().await;
    let server = TestServer::with(&model, "[tools.mail]\nsensitive = [\"/bcc\"]\n").await;
    let _host = Host::start(&server).await;
    let client = server.client_builder().build().expect("a client");
    model.asks("mail", json!({ "to": "ann" })).says("done");
    let waits = soon(client.run(named("r1", "write"))).await.expect("it asks");
    let asked = &waits.pending[0];
    let suggested = asked.suggested_rule.clone().expect("nothing of it is hidden");
    soon(client.submit_approval(approval(&asked.request_id, Some(suggested)))).await.expect("it is approved");
    model.asks("mail", json!({ "to": "ann" })).says("done");
    let again = soon(client.run(named("r2", "write again"))).await.expect("it runs");
    assert_eq!(again.status(), wire::RunStatus::Completed);
}

#[tokio::test]
async fn a_rule_of_before_counts_and_does_not_tell_the_value() {
    let model = Model::start().await;
    let mut server = TestServer::with(&model, "[tools.other]\nsensitive = [\"/to\"]\n").await;
    let host = Host::start(&server).await;
    let client = server.client_builder().build().expect("a client");
    model.asks("mail", json!({ "to": SECRET })).says("done");
    let waits = soon(client.run(named("r1", "write"))).await.expect("it asks");
    let rule = about_address("mail", SECRET);
    soon(client.submit_approval(approval(&waits.pending[0].request_id, Some(rule)))).await.expect("approved");
    soon(client.run(named("r1", "write"))).await.expect("it ends");
    host.leave().await;
    server.reconfigure("[tools.other]", "[tools.mail]").await;
    let _host = Host::start(&server).await;
    let client = server.client_builder().build().expect("a client");
    let shown = format!("{:?}", soon(client.list_rules("")).await.expect("listed"));
    assert!(!shown.contains("secret.example") && shown.contains("[masked]"), "{shown}");
    let mut answers = Vec::new();
    for guess in [SECRET, "ann@secret.example"] {
        let check = wire::CheckPolicyRequest {
            tool: "mail".to_owned(),
            arguments_json: json!({ "to": guess }).to_string(),
            ..Default::default()
        };
        answers.push(soon(client.check_policy(check)).await.expect("it is checked"));
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0].action(), wire::PolicyAction::Ask);
    model.asks("mail", json!({ "to": SECRET })).says("done");
    let again = soon(client.run(named("r2", "write again"))).await.expect("it runs");
    assert_eq!(again.status(), wire::RunStatus::Completed);
}

#[tokio::test]
async fn a_request_has_no_rule_about_a_value_that_its_caller_does_not_see() {
    let model = Model::start().await;
    let server = TestServer::with(&model, SENSITIVE).await;
    let rules = |rule| wire::ToolPolicy {
        rules: Some(wire::PolicyRules { rules: vec![rule] }),
        ..Default::default()
    };
    let input = |rule| wire::RunInput { tool_policy: Some(rules(rule)), ..named("r1", "write") };
    let denies = |tool: &str| wire::PolicyRule {
        action: wire::PolicyAction::Deny.into(),
        ..about_address(tool, "b*")
    };
    for rule in [denies("mail"), denies("m*")] {
        let refused = server.try_run(input(rule.clone())).await;
        assert_invalid(refused, &["input.tool_policy.rules.rules[0].arguments[0].pointer"]);
        let check = wire::CheckPolicyRequest {
            tool: "mail".to_owned(),
            tool_policy: Some(rules(rule)),
            ..Default::default()
        };
        let refused = server.tools().check_policy(check).await;
        assert_invalid(refused, &["tool_policy.rules.rules[0].arguments[0].pointer"]);
    }
    model.says("done");
    server.try_run(input(denies("weather"))).await.expect("this one hides nothing");
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
