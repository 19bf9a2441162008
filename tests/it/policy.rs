//! Rules say which tool calls run, which are asked about, and which do not run.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_invalid, assert_refused};
use agentloop_tests::events::results;
use agentloop_tests::host::Host;
use agentloop_tests::input::{named, prompt};
use agentloop_tests::log::Log;
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use tonic::Code;
use wire::decision::Decision;
use wire::{PolicyAction, RuleOrigin, RunStatus, ToolStatus};

/// Rules of the agent: nobody writes to eve, and writing to bob needs no leave.
const RULES: &str = r#"
[[agents.default.tool_policy.rules]]
name = "not to eve"
action = "deny"
tool = "mail"
arguments = { "/to" = "eve*" }
[[agents.default.tool_policy.rules]]
action = "allow"
tool = "m?il"
arguments = { "/to" = "bob" }
"#;

/// Requests may allow what the agent or a tool would have approved.
const MAY_ALLOW: &str = "[agents.default.tool_policy]\nrequests_may_allow = true\n";

fn rule(action: PolicyAction, tool: &str, arguments: &[(&str, &str)]) -> wire::PolicyRule {
    let pattern = |(pointer, pattern): &(&str, &str)| wire::ArgumentPattern {
        pointer: (*pointer).to_owned(),
        pattern: (*pattern).to_owned(),
    };
    wire::PolicyRule {
        name: String::new(),
        action: action.into(),
        tool: tool.to_owned(),
        arguments: arguments.iter().map(pattern).collect(),
        ..Default::default()
    }
}

fn ruled(rules: Vec<wire::PolicyRule>) -> Option<wire::ToolPolicy> {
    let rules = Some(wire::PolicyRules { rules });
    Some(wire::ToolPolicy { rules, max_parallel: Some(4), ..Default::default() })
}

async fn check(server: &TestServer, request: wire::CheckPolicyRequest) -> wire::CheckPolicyResponse {
    soon(server.tools().check_policy(request)).await.expect("checked").into_inner()
}

fn mail(to: &str) -> wire::CheckPolicyRequest {
    wire::CheckPolicyRequest {
        tool: "mail".to_owned(),
        arguments_json: json!({ "to": to }).to_string(),
        ..Default::default()
    }
}

#[tokio::test]
async fn the_agents_rules_decide() {
    let model = Model::start().await;
    let server = TestServer::with(&model, RULES).await;
    let host = Host::start(&server).await;
    model
        .asks_all(&[("mail", json!({ "to": "eve" })), ("mail", json!({ "to": "bob" }))])
        .asks("mail", json!({ "to": "zoe" }));
    let waits = server.run(named("r1", "write")).await;
    assert_eq!(waits.status(), RunStatus::AwaitingHuman, "of what no rule is about, the tool's word counts");
    assert_eq!(host.gate.calls(), [("mail".to_owned(), json!({ "to": "bob" }))]);
    let request = model.last_request();
    let read = request["messages"].as_array().expect("messages").iter();
    let read: Vec<&str> = read
        .filter(|message| message["role"] == "tool")
        .filter_map(|message| message["content"].as_str())
        .collect();
    assert!(read[0].contains("\"not to eve\""), "{read:?}");
    assert_eq!(read[1], "sent to bob");
    let mut events = server.subscribe("r1", 0).await;
    let both =
        [events.wait_for_name("tool_call_result").await, events.wait_for_name("tool_call_result").await];
    let statuses: Vec<ToolStatus> = results(&both).iter().map(wire::ToolResult::status).collect();
    assert_eq!(statuses, [ToolStatus::Rejected, ToolStatus::Succeeded]);
}

#[tokio::test]
async fn edited_arguments_pass_the_deny_rules_again() {
    let model = Model::start().await;
    let server = TestServer::with(&model, RULES).await;
    let host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "zoe" })).says("done");
    let waits = server.run(named("r1", "write")).await;
    let edits = |to: &str| {
        let arguments_json = json!({ "to": to }).to_string();
        Decision::ApproveWithEdits(wire::ApproveWithEdits { arguments_json })
    };
    let request = &waits.pending[0].request_id;
    let refused = server.decide(request, edits("eve@example.org")).await;
    assert!(refused.as_ref().is_err_and(|status| status.message().contains("\"not to eve\"")), "{refused:?}");
    assert_invalid(refused, &["decision.approve_with_edits.arguments_json"]);
    assert_eq!(server.pending().await, waits.pending, "nothing has changed");
    server.decide(request, edits("ann")).await.expect("decided");
    assert_eq!(server.run(named("r1", "write")).await.status(), RunStatus::Completed);
    assert_eq!(host.gate.calls(), [("mail".to_owned(), json!({ "to": "ann" }))]);
}

#[tokio::test]
async fn the_requests_rules_come_after_the_agents() {
    let model = Model::start().await;
    let server = TestServer::with(&model, &format!("{MAY_ALLOW}{RULES}")).await;
    let host = Host::start(&server).await;
    model.asks_all(&[
        ("mail", json!({ "to": "eve" })),
        ("mail", json!({ "to": "bob" })),
        ("weather", json!({ "city": "Rome" })),
    ]);
    let rules = vec![rule(PolicyAction::Allow, "mail", &[]), rule(PolicyAction::Ask, "*", &[("/to", "bob")])];
    let waits = server.run(wire::RunInput { tool_policy: ruled(rules), ..prompt("write") }).await;
    let [question] = &waits.pending[..] else { panic!("one question: {waits:?}") };
    assert!(question.arguments_json.contains("bob"), "the last rule that matches counts");
    assert_eq!(host.gate.count("mail"), 0, "a deny wins over every later rule");
    assert_eq!(host.gate.count("weather"), 1);
}

#[tokio::test]
async fn a_request_loosens_nothing_that_its_agent_does_not_let_it() {
    let model = Model::start().await;
    let strict =
        "[agents.strict]\nmodel = \"fake/m\"\ntool_policy = { require_approval_by_default = true }\n";
    let server = TestServer::with(&model, strict).await;
    let host = Host::start(&server).await;
    let allow = rule(PolicyAction::Allow, "*", &[]);
    let refused = server
        .try_run(wire::RunInput { tool_policy: ruled(vec![allow.clone()]), ..named("r1", "write") })
        .await;
    let said = refused.as_ref().map_err(|status| status.message().to_owned());
    assert!(said.is_err_and(|said| said.contains("requests_may_allow")), "{refused:?}");
    assert_invalid(refused, &["input.tool_policy.rules.rules[0].action"]);
    let unapproved = wire::ToolPolicy { require_approval_by_default: Some(false), ..Default::default() };
    let refused = server.try_run(wire::RunInput {
        agent: Some("strict".to_owned()),
        tool_policy: Some(unapproved),
        ..named("r1", "write")
    });
    assert_invalid(refused.await, &["input.tool_policy.require_approval_by_default"]);
    // Asking about everything but the weather is stricter than the agent. A tool's own word still counts.
    model.asks_all(&[
        ("weather", json!({ "city": "Rome" })),
        ("mail", json!({ "to": "bob" })),
        ("hold", json!({ "x": "1" })),
    ]);
    let rules = ["weather", "mail"].map(|tool| rule(PolicyAction::Allow, tool, &[]));
    let rules = [vec![rule(PolicyAction::Ask, "", &[])], rules.to_vec()].concat();
    let input = wire::RunInput { tool_policy: ruled(rules.clone()), ..named("r1", "write") };
    let waits = server.run(input).await;
    let asked: Vec<&str> = waits.pending.iter().map(|question| question.tool.as_str()).collect();
    assert_eq!(asked, ["mail", "hold"]);
    assert_eq!(host.gate.calls(), [("weather".to_owned(), json!({ "city": "Rome" }))]);
    let checked = check(&server, wire::CheckPolicyRequest { tool_policy: ruled(rules), ..mail("bob") }).await;
    assert_eq!(checked.action(), PolicyAction::Ask);
    assert!(checked.reason.contains("requests_may_allow"), "{}", checked.reason);
}

#[tokio::test]
async fn rules_that_are_none_are_refused() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let rules = vec![
        rule(PolicyAction::Unspecified, "mail", &[]),
        rule(PolicyAction::Deny, "mail", &[("to", "*")]),
        rule(PolicyAction::Deny, &"x".repeat(5_000), &[]),
        wire::PolicyRule { action: 17, ..Default::default() },
    ];
    let refused = server.try_run(wire::RunInput { tool_policy: ruled(rules), ..prompt("write") }).await;
    const FIELD: &str = "input.tool_policy.rules.rules";
    assert_invalid(
        refused,
        &[
            &format!("{FIELD}[0].action"),
            &format!("{FIELD}[1].arguments[0].pointer"),
            &format!("{FIELD}[2].tool"),
            &format!("{FIELD}[3].action"),
        ],
    );
    let many = vec![rule(PolicyAction::Ask, "", &[]); 257];
    let refused = server.try_run(wire::RunInput { tool_policy: ruled(many), ..prompt("write") }).await;
    assert_invalid(refused, &[FIELD]);
}

#[tokio::test]
async fn a_dry_run_says_what_would_become_of_a_call() {
    let model = Model::start().await;
    let server = TestServer::with(&model, RULES).await;
    let host = Host::start(&server).await;
    let denied = check(&server, mail("eve")).await;
    assert_eq!((denied.action(), denied.origin()), (PolicyAction::Deny, RuleOrigin::Agent));
    assert_eq!(denied.rule.map(|rule| rule.name), Some("not to eve".to_owned()));
    assert!(denied.reason.contains("\"not to eve\""), "{}", denied.reason);
    assert_eq!(check(&server, mail("bob")).await.action(), PolicyAction::Allow);
    let asked = check(&server, mail("zoe")).await;
    assert_eq!((asked.action(), asked.rule), (PolicyAction::Ask, None));
    assert!(asked.reason.contains("declares"), "{}", asked.reason);
    let weather = |arguments: &str| wire::CheckPolicyRequest {
        tool: "weather".to_owned(),
        arguments_json: arguments.to_owned(),
        ..Default::default()
    };
    assert_eq!(check(&server, weather(r#"{"city":"Rome"}"#)).await.action(), PolicyAction::Allow);
    assert_eq!(check(&server, weather("{}")).await.action(), PolicyAction::Deny, "a city is missing");
    let policy = wire::ToolPolicy { require_approval_by_default: Some(true), ..Default::default() };
    let strict = wire::CheckPolicyRequest { tool_policy: Some(policy), ..weather(r#"{"city":"Rome"}"#) };
    assert_eq!(check(&server, strict).await.action(), PolicyAction::Ask);
    let unknown = wire::CheckPolicyRequest { tool: "wether".to_owned(), ..Default::default() };
    let unknown = check(&server, unknown).await;
    assert_eq!(unknown.action(), PolicyAction::Deny);
    assert!(unknown.reason.contains("`weather`"), "{}", unknown.reason);
    assert_eq!(host.gate.calls(), [], "nothing was run");
}

#[tokio::test]
async fn a_candidate_is_tried_before_it_counts() {
    let model = Model::start().await;
    let server = TestServer::with(&model, RULES).await;
    let _host = Host::start(&server).await;
    let mut asked = Vec::new();
    for (run, to) in [("r1", "zoe"), ("r2", "ann"), ("r3", "zoe 2")] {
        model.asks("mail", json!({ "to": to }));
        asked.push(server.run(named(run, "write")).await.pending[0].request_id.clone());
    }
    let with = |action, request| wire::CheckPolicyRequest {
        candidate: Some(rule(action, "mail", &[("/to", "zoe*")])),
        ..request
    };
    let allowed = check(&server, with(PolicyAction::Allow, mail("zoe"))).await;
    assert_eq!((allowed.action(), allowed.origin()), (PolicyAction::Allow, RuleOrigin::Candidate));
    assert!(allowed.candidate_matches);
    assert_eq!(allowed.matching_request_ids, [asked[0].clone(), asked[2].clone()]);
    let other = check(&server, with(PolicyAction::Allow, mail("eve"))).await;
    assert_eq!((other.action(), other.candidate_matches), (PolicyAction::Deny, false));
    let of_run = wire::CheckPolicyRequest { run_id: "r3".to_owned(), ..mail("zoe") };
    let of_run = check(&server, with(PolicyAction::Deny, of_run)).await;
    assert_eq!((of_run.action(), of_run.matching_request_ids), (PolicyAction::Deny, vec![asked[2].clone()]));
    assert_eq!(server.pending().await.len(), 3, "nothing has changed");
}

#[tokio::test]
async fn a_dry_run_of_nonsense_is_refused() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let try_check = |request| {
        let mut tools = server.tools();
        async move { soon(tools.check_policy(request)).await }
    };
    let bad = wire::CheckPolicyRequest {
        arguments_json: "[".to_owned(),
        candidate: Some(wire::PolicyRule::default()),
        ..Default::default()
    };
    assert_invalid(try_check(bad).await, &["tool", "arguments_json", "candidate.action"]);
    let agent = wire::CheckPolicyRequest { agent: "nobody".to_owned(), ..mail("bob") };
    assert_refused(try_check(agent).await, Code::NotFound, "AGENT_NOT_FOUND");
    let run = wire::CheckPolicyRequest { run_id: "never".to_owned(), ..mail("bob") };
    assert_refused(try_check(run).await, Code::NotFound, "RUN_NOT_FOUND");
    let session = wire::CheckPolicyRequest { session_id: "never".to_owned(), ..mail("bob") };
    assert_refused(try_check(session).await, Code::NotFound, "SESSION_NOT_FOUND");
}

/// The names of the tools that a request to the model has.
fn offered(request: &serde_json::Value) -> Vec<String> {
    let tools = request["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["function"]["name"].as_str()).map(str::to_owned).collect()
}

fn started(events: &[wire::RunEvent]) -> &wire::RunStarted {
    match &events[0].event {
        Some(wire::run_event::Event::RunStarted(started)) => started,
        other => panic!("the first event: {other:?}"),
    }
}

#[tokio::test]
async fn a_tool_that_is_always_denied_is_not_offered() {
    let model = Model::start().await;
    let always =
        "[[agents.default.tool_policy.rules]]\nname = \"no mail\"\naction = \"deny\"\ntool = \"mai?\"\n";
    let server = TestServer::with(&model, always).await;
    let _host = Host::start(&server).await;
    model.asks("mail", json!({ "to": "bob" })).says("then not");
    let of_sum = vec![
        rule(PolicyAction::Deny, "weather", &[("", "*")]),
        rule(PolicyAction::Deny, "fail", &[("/x", "*")]),
    ];
    let input = wire::RunInput { tool_policy: ruled(of_sum), ..named("r1", "write") };
    let events = server.stream(input.clone()).await.rest().await;
    assert_eq!(started(&events).withdrawn_tools, ["mail", "weather"]);
    for request in model.requests() {
        let offered = offered(&request);
        assert!(!offered.iter().any(|tool| tool == "mail" || tool == "weather"), "{offered:?}");
        assert!(
            offered.iter().any(|tool| tool == "fail"),
            "a rule with a condition denies calls: {offered:?}"
        );
    }
    assert_eq!(results(&events)[0].status(), ToolStatus::Rejected, "a model that calls it all the same");
    let choice = Some(wire::tool_choice::Choice::Name("weather".to_owned()));
    let tool_choice = Some(wire::ToolChoice { choice });
    let model_options = Some(wire::ModelOptions { tool_choice, ..Default::default() });
    let forced = wire::RunInput { model_options, run_id: Some("r2".to_owned()), ..input };
    assert_invalid(server.try_run(forced).await, &["input.model_options.tool_choice.name"]);
}

#[tokio::test]
async fn what_is_denied_while_a_run_waits_is_withdrawn_when_it_enters() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    let in_session = |run: &str| wire::RunInput {
        on_busy_session: wire::BusySessionPolicy::Enqueue.into(),
        ..agentloop_tests::input::in_session("s1", run, "write")
    };
    model.asks("mail", json!({ "to": "bob" })).says("then not").says("nothing to do");
    let waits = server.run(in_session("r1")).await;
    let forced = |run: &str| {
        let choice = Some(wire::tool_choice::Choice::Name("mail".to_owned()));
        let tool_choice = Some(wire::ToolChoice { choice });
        let model_options = Some(wire::ModelOptions { tool_choice, ..Default::default() });
        wire::RunInput { model_options, ..in_session(run) }
    };
    let queued = server.stream(forced("r2")).await;
    let request_id = waits.pending[0].request_id.clone();
    let request = wire::SubmitApprovalRequest {
        request_id,
        decision: Some(wire::Decision { decision: Some(Decision::Deny(wire::Deny::default())) }),
        remember: wire::RememberScope::Session.into(),
        remember_rule: Some(wire::PolicyRule { tool: "mail".to_owned(), ..Default::default() }),
        ..Default::default()
    };
    soon(server.agent_loop().submit_approval(request)).await.expect("decided");
    let events = queued.rest().await;
    assert_eq!(started(&events).withdrawn_tools, [""; 0]);
    let entered = events.iter().find_map(|event| match &event.event {
        Some(wire::run_event::Event::SessionEntered(entered)) => Some(entered.withdrawn_tools.clone()),
        _ => None,
    });
    assert_eq!(entered, Some(vec!["mail".to_owned()]));
    let [first, second, last] = &model.requests()[..] else { panic!("three calls of the model") };
    assert_eq!(offered(first), offered(second), "within a run nothing changes");
    assert!(!offered(last).iter().any(|tool| tool == "mail"), "{last}");
    assert!(last["tool_choice"].is_null(), "a provider refuses a choice that it is not offered: {last}");
    assert_invalid(server.try_run(forced("r3")).await, &["input.model_options.tool_choice.name"]);
}

/// A model that had to call a tool in each answer would never end the run.
#[tokio::test]
async fn a_tool_that_the_model_must_call_is_called_once() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.asks("weather", json!({ "city": "Bergen" })).says("It rains.");
    let choice = Some(wire::tool_choice::Choice::Name("weather".to_owned()));
    let tool_choice = Some(wire::ToolChoice { choice });
    let model_options = Some(wire::ModelOptions { tool_choice, ..Default::default() });
    let done = server.run(wire::RunInput { model_options, ..prompt("How is Bergen?") }).await;
    assert_eq!(done.status(), RunStatus::Completed);
    let [first, second] = &model.requests()[..] else { panic!("two calls of the model") };
    assert_eq!(first["tool_choice"]["function"]["name"], "weather");
    assert!(second["tool_choice"].is_null(), "{second}");
}

#[tokio::test]
async fn a_call_against_the_choice_of_tools_does_not_run() {
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let choosing = |mode: wire::ToolChoiceMode| {
        let choice = Some(wire::tool_choice::Choice::Mode(mode.into()));
        let tool_choice = Some(wire::ToolChoice { choice });
        let model_options = Some(wire::ModelOptions { tool_choice, ..Default::default() });
        wire::RunInput { model_options, ..prompt("How is Bergen?") }
    };
    let required = server.try_run(choosing(wire::ToolChoiceMode::Required)).await;
    assert_invalid(required, &["input.model_options.tool_choice.mode"]);
    let _host = Host::start(&server).await;
    model.asks("weather", json!({ "city": "Bergen" })).says("I may not look.");
    let done = server.run(choosing(wire::ToolChoiceMode::None)).await;
    assert_eq!(done.status(), RunStatus::Completed);
    let told = model.last_request()["messages"].to_string();
    assert!(told.contains("no tools may be called"), "{told}");
}

#[tokio::test]
async fn misspelt_names_of_tools_are_told() {
    let (log, _logged) = Log::of_this_thread("warn");
    let model = Model::start().await;
    let server = TestServer::start(&model).await;
    let _host = Host::start(&server).await;
    model.says("hello");
    let names = vec!["weather".to_owned(), "wether".to_owned()];
    let input = wire::RunInput {
        allowed_tools: Some(wire::ToolNames { names }),
        tool_order: vec!["mial".to_owned(), "weather".to_owned()],
        ..named("r1", "write")
    };
    let events = server.stream(input).await.rest().await;
    assert_eq!(started(&events).unknown_tools, ["wether", "mial"]);
    let said = log.take();
    let warnings: Vec<&str> = said.lines().filter(|line| line.contains("check their spelling")).collect();
    let [warning] = warnings[..] else { panic!("one warning: {said}") };
    assert!(warning.contains(" WARN ") && warning.contains("run.id=r1"), "{warning}");
    assert!(warning.contains(r#"tools=["wether", "mial"] count=2"#), "{warning}");
    server
        .subscribe("r1", 0)
        .await
        .wait_for(|event| match &event.event {
            Some(wire::run_event::Event::RunStarted(started)) => started.unknown_tools.len() == 2,
            _ => false,
        })
        .await;

    model.says("hello");
    let names = vec!["weather".to_owned()];
    let right = wire::RunInput { allowed_tools: Some(wire::ToolNames { names }), ..named("r2", "write") };
    let events = server.stream(right).await.rest().await;
    assert_eq!(started(&events).unknown_tools, [""; 0]);
    let said = log.take();
    assert!(!said.contains("check their spelling"), "{said}");
}
