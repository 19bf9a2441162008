//! Remembered decisions: a human is not asked again within the scope that the human chose.

use agentloop_client::v1 as wire;
use agentloop_tests::errors::{assert_invalid, assert_refused};
use agentloop_tests::host::Host;
use agentloop_tests::input::{in_session, named};
use agentloop_tests::model::Model;
use agentloop_tests::server::TestServer;
use agentloop_tests::soon;
use serde_json::json;
use tonic::{Code, Status};
use wire::decision::Decision;
use wire::run_event::Event;
use wire::{PolicyAction, RememberScope, RuleOrigin, RunStatus, ToolStatus};

fn approve() -> Decision {
    Decision::Approve(wire::Approve {})
}

fn deny() -> Decision {
    Decision::Deny(wire::Deny { message: "no".to_owned() })
}

/// Mail to whoever is called like this.
fn to(pattern: &str) -> Option<wire::PolicyRule> {
    let pattern = wire::ArgumentPattern { pointer: "/to".to_owned(), pattern: pattern.to_owned() };
    Some(wire::PolicyRule {
        name: "like that".to_owned(),
        tool: "mail".to_owned(),
        arguments: vec![pattern],
        ..Default::default()
    })
}

/// Every call of this tool.
fn every(tool: &str) -> Option<wire::PolicyRule> {
    Some(wire::PolicyRule { tool: tool.to_owned(), ..Default::default() })
}

/// The tool policy of a run whose calls of `weather` for this city are asked about, one at a time.
fn asks_of(city: &str) -> Option<wire::ToolPolicy> {
    let pattern = wire::ArgumentPattern { pointer: "/city".to_owned(), pattern: city.to_owned() };
    let rule = wire::PolicyRule {
        action: PolicyAction::Ask.into(),
        arguments: vec![pattern],
        ..every("weather").expect("a rule")
    };
    let rules = Some(wire::PolicyRules { rules: vec![rule] });
    Some(wire::ToolPolicy { rules, max_parallel: Some(1), ..Default::default() })
}

/// A run that waits until the others of session `s1` are over.
fn enqueued(run: &str) -> wire::RunInput {
    let on_busy_session = wire::BusySessionPolicy::Enqueue.into();
    wire::RunInput { on_busy_session, ..in_session("s1", run, "go on") }
}

struct Bench {
    model: Model,
    server: TestServer,
    host: Host,
}

impl Bench {
    async fn new() -> Self {
        Self::with("").await
    }

    /// With more sections of the configuration.
    async fn with(more: &str) -> Self {
        let model = Model::start().await;
        let server = TestServer::with(&model, more).await;
        let host = Host::start(&server).await;
        Self { model, server, host }
    }

    /// A run that writes to these, one after the other; as far as it comes by itself.
    async fn writes(&self, input: wire::RunInput, names: &[&str]) -> wire::RunResult {
        for name in names {
            self.model.asks("mail", json!({ "to": name }));
        }
        self.model.says("done");
        self.server.run(input).await
    }

    async fn remember(
        &self,
        question: &wire::HumanRequest,
        decision: Decision,
        scope: RememberScope,
        rule: Option<wire::PolicyRule>,
    ) -> Result<wire::HumanRequest, Status> {
        let request = wire::SubmitApprovalRequest {
            request_id: question.request_id.clone(),
            decision: Some(wire::Decision { decision: Some(decision) }),
            decided_by: "ada".to_owned(),
            remember: scope.into(),
            remember_rule: rule,
            ..Default::default()
        };
        let response = soon(self.server.agent_loop().submit_approval(request)).await?;
        Ok(response.into_inner().request.expect("the question"))
    }

    async fn rules(&self, session: &str) -> Vec<wire::RememberedRule> {
        let request = wire::ListRulesRequest { session_id: session.to_owned() };
        soon(self.server.tools().list_rules(request)).await.expect("listed").into_inner().rules
    }

    async fn forget(&self, rule: &str) -> bool {
        let request = wire::DeleteRuleRequest { rule_id: rule.to_owned() };
        soon(self.server.tools().delete_rule(request)).await.expect("forgotten").into_inner().existed
    }

    fn written(&self) -> Vec<String> {
        let calls = self.host.gate.calls();
        calls.iter().map(|(_, arguments)| arguments["to"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

#[tokio::test]
async fn for_the_run_exactly_this_call() {
    let bench = Bench::new().await;
    let waits = bench.writes(named("r1", "go"), &["bob", "bob", "eve"]).await;
    let question = &waits.pending[0];
    let suggested = question.suggested_rule.clone().expect("a rule is suggested");
    assert_eq!((suggested.tool.as_str(), suggested.action()), ("mail", PolicyAction::Allow));
    let answered = bench.remember(question, approve(), RememberScope::Run, None).await.expect("decided");
    assert_eq!(answered.answer.and_then(|answer| answer.remembered_rule), Some(suggested));
    let waits = bench.server.run(named("r1", "go")).await;
    let [question] = &waits.pending[..] else { panic!("one question: {waits:?}") };
    assert!(question.arguments_json.contains("eve"), "bob was not asked about again");
    assert_eq!(bench.written(), ["bob", "bob"]);
    let check = wire::CheckPolicyRequest {
        run_id: "r1".to_owned(),
        tool: "mail".to_owned(),
        arguments_json: json!({ "to": "bob" }).to_string(),
        ..Default::default()
    };
    let checked = soon(bench.server.tools().check_policy(check)).await.expect("checked").into_inner();
    assert_eq!((checked.action(), checked.origin()), (PolicyAction::Allow, RuleOrigin::Run));
    assert_eq!(bench.rules("").await, [], "no other run knows of it");
}

/// A rule that denies must not open the tool.
#[tokio::test]
async fn an_approval_is_not_remembered_by_a_rule_that_denies() {
    let bench = Bench::new().await;
    let waits = bench.writes(named("r1", "go"), &["bob"]).await;
    let question = &waits.pending[0];
    for action in [PolicyAction::Deny, PolicyAction::Ask] {
        let rule = to("b*").map(|rule| wire::PolicyRule { action: action.into(), ..rule });
        let refused = bench.remember(question, approve(), RememberScope::Rule, rule).await;
        assert_invalid(refused, &["remember_rule.action"]);
    }
    assert_eq!(bench.rules("").await, []);
    let rule = to("b*").map(|rule| wire::PolicyRule { action: PolicyAction::Allow.into(), ..rule });
    bench.remember(question, approve(), RememberScope::Rule, rule).await.expect("decided");
}

#[tokio::test]
async fn for_the_session_also_after_a_restart() {
    let mut bench = Bench::new().await;
    let waits = bench.writes(in_session("s1", "r1", "go"), &["bob", "bea"]).await;
    let rule = to("b*");
    let question = waits.pending[0].clone();
    bench.remember(&question, approve(), RememberScope::Session, rule.clone()).await.expect("decided");
    let done = bench.server.run(in_session("s1", "r1", "go")).await;
    assert_eq!(done.status(), RunStatus::Completed, "the run itself knows it too");
    bench.server.restart().await;
    bench.host = Host::start(&bench.server).await;
    let rules = bench.rules("s1").await;
    let [kept] = &rules[..] else { panic!("one rule: {rules:?}") };
    let wanted = wire::PolicyRule { action: PolicyAction::Allow.into(), ..rule.expect("a rule") };
    assert_eq!(kept.rule.as_ref(), Some(&wanted));
    assert_eq!((kept.session_id.as_str(), kept.decided_by.as_str()), ("s1", "ada"));
    assert_eq!(kept.request_id, question.request_id);
    assert_eq!(bench.writes(in_session("s1", "r2", "go"), &["ben"]).await.status(), RunStatus::Completed);
    assert_eq!(bench.written(), ["ben"]);
    let elsewhere = bench.writes(in_session("s2", "r3", "go"), &["ben"]).await;
    assert_eq!(elsewhere.status(), RunStatus::AwaitingHuman, "another session asks");
}

#[tokio::test]
async fn as_a_rule_until_it_is_forgotten() {
    let bench = Bench::new().await;
    let waits = bench.writes(named("r1", "go"), &["bob"]).await;
    bench.remember(&waits.pending[0], deny(), RememberScope::Rule, to("b*")).await.expect("decided");
    let check = wire::CheckPolicyRequest {
        tool: "mail".to_owned(),
        arguments_json: json!({ "to": "ben" }).to_string(),
        ..Default::default()
    };
    let checked = soon(bench.server.tools().check_policy(check.clone())).await.expect("checked").into_inner();
    assert_eq!((checked.action(), checked.origin()), (PolicyAction::Deny, RuleOrigin::Rule));
    assert_eq!(bench.writes(named("r2", "go"), &["ben"]).await.status(), RunStatus::Completed);
    let events = bench.server.subscribe("r2", 0).await.rest().await;
    let results = agentloop_tests::events::results(&events);
    assert_eq!(results[0].status(), wire::ToolStatus::Denied);
    assert!(results[0].output.contains("\"like that\""), "{}", results[0].output);
    let rules = bench.rules("").await;
    assert_eq!((rules.len(), rules[0].session_id.as_str()), (1, ""));
    assert!(bench.forget(&rules[0].rule_id).await);
    assert!(!bench.forget(&rules[0].rule_id).await, "forgetting again is confirmed");
    assert_eq!(bench.rules("").await, []);
    let asked = bench.writes(named("r3", "go"), &["ben"]).await;
    assert_eq!(asked.status(), RunStatus::AwaitingHuman);
    assert_eq!(bench.written(), [] as [&str; 0]);
}

#[tokio::test]
async fn other_waiting_requests_of_the_run_are_answered_by_the_rule() {
    let bench = Bench::new().await;
    let calls = ["bob", "bea", "eve"].map(|name| ("mail", json!({ "to": name })));
    bench.model.asks_all(&calls).says("done");
    let policy = wire::ToolPolicy { max_parallel: Some(4), ..Default::default() };
    let input = wire::RunInput { tool_policy: Some(policy), ..named("r1", "go") };
    let waits = bench.server.run(input.clone()).await;
    assert_eq!(waits.pending.len(), 3);
    let other = bench.writes(named("r2", "go"), &["bea"]).await;
    bench.remember(&waits.pending[0], approve(), RememberScope::Run, to("b*")).await.expect("decided");
    let waits = bench.server.run(input).await;
    let [question] = &waits.pending[..] else { panic!("one question: {waits:?}") };
    assert!(question.arguments_json.contains("eve"));
    let events = bench.server.subscribe("r1", 0).await;
    let mut events = events;
    events.wait_for_name("human_resolved").await;
    let followed = events.wait_for_name("human_resolved").await;
    let Some(Event::HumanResolved(resolved)) = followed.event else { unreachable!("it was waited for") };
    let answer = resolved.answer.expect("an answer");
    assert_eq!((answer.decided_by.as_str(), answer.remembered_rule), ("ada", None));
    assert_eq!(answer.applied_rule.map(|rule| rule.name), Some("like that".to_owned()));
    assert_eq!(bench.server.get_run("r2").await.pending, other.pending, "another run still asks");
}

#[tokio::test]
async fn a_decision_that_cannot_be_remembered_changes_nothing() {
    let bench = Bench::new().await;
    let waits = bench.writes(named("r1", "go"), &["bob"]).await;
    let question = &waits.pending[0];
    let other = bench.remember(question, approve(), RememberScope::Run, to("eve")).await;
    assert_invalid(other, &["remember_rule"]);
    let answer = Decision::AnswerInPlace(wire::AnswerInPlace { output: "x".to_owned() });
    let kind = bench.remember(question, answer, RememberScope::Run, None).await;
    assert_invalid(kind, &["remember"]);
    let once = bench.remember(question, approve(), RememberScope::Once, to("bob")).await;
    assert_invalid(once, &["remember_rule"]);
    let mut bad = to("bob");
    bad.as_mut().expect("a rule").arguments[0].pointer = "to".to_owned();
    assert_invalid(bench.remember(question, approve(), RememberScope::Run, bad).await, &["remember_rule"]);
    assert_eq!(bench.server.pending().await, waits.pending);
    bench.remember(question, approve(), RememberScope::Rule, None).await.expect("decided");
    bench.remember(question, approve(), RememberScope::Rule, None).await.expect("confirmed");
    bench.remember(question, approve(), RememberScope::Once, None).await.expect("confirmed");
    let other = bench.remember(question, approve(), RememberScope::Run, None).await;
    assert_refused(other, Code::FailedPrecondition, "ALREADY_RESOLVED");
    assert_eq!(bench.rules("").await.len(), 1, "once is once");
}

#[tokio::test]
async fn an_approval_is_remembered_for_its_own_tool() {
    let bench = Bench::new().await;
    let waits = bench.writes(named("r1", "go"), &["bob"]).await;
    let question = &waits.pending[0];
    for tool in ["*", "", "m*", "m?il"] {
        for scope in [RememberScope::Run, RememberScope::Session, RememberScope::Rule] {
            let refused = bench.remember(question, approve(), scope, every(tool)).await;
            let said = refused.as_ref().map_err(|status| status.message().to_owned());
            assert!(said.is_err_and(|said| said.contains("remember_any_tool")), "{tool:?}: {refused:?}");
            assert_invalid(refused, &["remember_rule"]);
        }
    }
    assert_eq!(bench.server.pending().await, waits.pending, "the question is open");
    bench.remember(question, approve(), RememberScope::Rule, every("mail")).await.expect("decided");
    assert_eq!(bench.writes(named("r2", "go"), &["eve"]).await.status(), RunStatus::Completed);
}

#[tokio::test]
async fn an_approval_for_other_tools_counts_where_the_agent_lets_it() {
    let agents =
        "[agents.default.tool_policy]\nremember_any_tool = true\n[agents.strict]\nmodel = \"fake/m\"\n";
    let bench = Bench::with(agents).await;
    let waits = bench.writes(named("r1", "go"), &["bob"]).await;
    bench.remember(&waits.pending[0], approve(), RememberScope::Rule, every("*")).await.expect("decided");
    assert_eq!(bench.writes(named("r2", "go"), &["eve"]).await.status(), RunStatus::Completed);
    let strict = wire::RunInput { agent: Some("strict".to_owned()), ..named("r3", "go") };
    assert_eq!(bench.writes(strict, &["eve"]).await.status(), RunStatus::AwaitingHuman);
    let check = wire::CheckPolicyRequest {
        run_id: "r3".to_owned(),
        tool: "mail".to_owned(),
        arguments_json: json!({ "to": "eve" }).to_string(),
        ..Default::default()
    };
    let checked = soon(bench.server.tools().check_policy(check)).await.expect("checked").into_inner();
    assert_eq!(checked.action(), PolicyAction::Ask);
    assert!(checked.reason.contains("remember_any_tool"), "{}", checked.reason);
}

#[tokio::test]
async fn a_denial_stops_calls_of_the_run_that_have_not_begun() {
    for scope in [RememberScope::Run, RememberScope::Session, RememberScope::Rule] {
        let bench = Bench::new().await;
        let city = |name: &str| ("weather", json!({ "city": name }));
        let calls =
            [("hold", json!({ "x": "1" })), city("Rome"), city("Oslo"), ("mail", json!({ "to": "bob" }))];
        bench.model.asks_all(&calls).says("done");
        let input = wire::RunInput { tool_policy: asks_of("Rome"), ..named("r1", "go") };
        let events = bench.server.stream(input).await;
        // One call runs, a human is asked about the next, and the third waits for its turn.
        bench.host.gate.began(1).await;
        let pending = bench.server.get_run("r1").await.pending;
        let [rome, bob] = &pending[..] else { panic!("two questions: {pending:?}") };
        bench.remember(rome, deny(), scope, every("weather")).await.expect("decided");
        bench.remember(bob, approve(), RememberScope::Once, None).await.expect("decided");
        bench.host.gate.open(1);
        let results = agentloop_tests::events::results(&events.rest().await);
        let statuses: Vec<ToolStatus> = results.iter().map(wire::ToolResult::status).collect();
        let wanted = [ToolStatus::Denied, ToolStatus::Denied, ToolStatus::Succeeded, ToolStatus::Succeeded];
        assert_eq!(statuses, wanted, "{scope:?}");
        assert_eq!(results[1].output, "denied by a human, for calls like this one: a rule for weather");
        assert_eq!(bench.host.gate.count("weather"), 0, "{scope:?}");
    }
}

#[tokio::test]
async fn a_denial_holds_for_those_who_wait_for_the_session() {
    let bench = Bench::new().await;
    bench.model.asks("weather", json!({ "city": "Rome" })).says("well");
    let first = wire::RunInput { tool_policy: asks_of("Rome"), ..in_session("s1", "r1", "go") };
    let waits = bench.server.run(first).await;
    let second = bench.server.stream(enqueued("r2")).await;
    let check = wire::CheckPolicyRequest {
        run_id: "r2".to_owned(),
        tool: "weather".to_owned(),
        arguments_json: json!({ "city": "Oslo" }).to_string(),
        ..Default::default()
    };
    let ask = || async { soon(bench.server.tools().check_policy(check.clone())).await.expect("checked") };
    assert_eq!(ask().await.into_inner().action(), PolicyAction::Allow);
    bench.model.asks("weather", json!({ "city": "Oslo" })).says("done");
    bench
        .remember(&waits.pending[0], deny(), RememberScope::Session, every("weather"))
        .await
        .expect("decided");
    let results = agentloop_tests::events::results(&second.rest().await);
    assert_eq!(results[0].status(), ToolStatus::Denied);
    assert_eq!(bench.host.gate.count("weather"), 0);
    let checked = ask().await.into_inner();
    assert_eq!((checked.action(), checked.origin()), (PolicyAction::Deny, RuleOrigin::Session));
}

#[tokio::test]
async fn a_deleted_rule_does_not_apply_to_queued_runs() {
    let bench = Bench::new().await;
    let waits = bench.writes(in_session("s1", "r1", "go"), &["bob", "eve"]).await;
    bench.remember(&waits.pending[0], approve(), RememberScope::Rule, to("b*")).await.expect("decided");
    let waits = bench.server.run(in_session("s1", "r1", "go")).await;
    let [eve] = &waits.pending[..] else { panic!("one question: {waits:?}") };
    drop(bench.server.stream(enqueued("r2")).await);
    let rules = bench.rules("").await;
    assert!(bench.forget(&rules[0].rule_id).await);
    bench.model.asks("mail", json!({ "to": "bea" }));
    bench.remember(eve, approve(), RememberScope::Once, None).await.expect("decided");
    assert_eq!(bench.server.run(enqueued("r2")).await.status(), RunStatus::AwaitingHuman);
    assert_eq!(bench.written(), ["bob", "eve"]);
}

#[tokio::test]
async fn a_run_keeps_the_rules_from_when_it_entered_its_session() {
    let mut bench = Bench::new().await;
    let waits = bench.writes(in_session("s1", "r1", "go"), &["bob"]).await;
    drop(bench.server.stream(enqueued("r2")).await);
    for name in ["bea", "zoe", "ben"] {
        bench.model.asks("mail", json!({ "to": name }));
    }
    bench.model.says("done");
    bench.remember(&waits.pending[0], approve(), RememberScope::Session, to("b*")).await.expect("decided");
    let waits = bench.server.run(enqueued("r2")).await;
    let [zoe] = &waits.pending[..] else { panic!("one question: {waits:?}") };
    let rules = bench.rules("s1").await;
    assert!(bench.forget(&rules[0].rule_id).await);
    bench.server.restart().await;
    bench.host = Host::start(&bench.server).await;
    bench.remember(zoe, deny(), RememberScope::Once, None).await.expect("decided");
    assert_eq!(bench.server.run(enqueued("r2")).await.status(), RunStatus::Completed);
    assert_eq!(bench.written(), ["ben"], "by a rule that is forgotten since");
    let fresh = bench.writes(in_session("s1", "r3", "go"), &["ben"]).await;
    assert_eq!(fresh.status(), RunStatus::AwaitingHuman);
}
