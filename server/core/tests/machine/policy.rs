//! Rules decide which calls run, which are asked about, and which do not.

use agentloop_core::agent::RunSpec;
use agentloop_core::message::ToolStatus;
use agentloop_core::policy::{Approvers, ArgumentPattern, PolicyAction, PolicyRule, RuleOrigin};
use agentloop_core::run::human::Decision;
use agentloop_core::run::input::Input;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::CallState;
use agentloop_core::run::status::RunStatus;

use crate::support::*;

fn rule(action: PolicyAction, tool: &str, amount: &str) -> PolicyRule {
    let pattern = ArgumentPattern { pointer: "/amount".to_owned(), pattern: amount.to_owned() };
    PolicyRule {
        name: String::new(),
        action,
        tool: tool.to_owned(),
        arguments: if amount.is_empty() { Vec::new() } else { vec![pattern] },
        origin: RuleOrigin::Agent,
        terms: None,
        approvers: Approvers::default(),
        made_under: None,
    }
}

fn ruled(rules: impl IntoIterator<Item = PolicyRule>) -> RunSpec {
    let mut spec = spec();
    spec.tool_policy.rules = rules.into_iter().collect();
    spec
}

fn pay(amount: &str) -> Tool {
    tool("pay").with(&format!(r#"{{"amount":"{amount}"}}"#))
}

#[test]
fn a_denied_call_does_not_run_and_the_model_reads_which_rule() {
    let named = PolicyRule { name: "no gold".to_owned(), ..rule(PolicyAction::Deny, "pay", "gold") };
    let script = given_round(ruled([named]), [pay("gold").approval(), pay("tin")]);
    let (status, output) = script.result(A);
    assert_eq!(status, ToolStatus::Rejected);
    assert!(output.contains("\"no gold\""), "{output}");
    assert_eq!(script.state().open_questions().count(), 0, "nobody is asked about what cannot run");
    assert!(matches!(script.call_state(B), CallState::Ready { .. }));
}

#[test]
fn a_rule_that_a_human_made_denies_as_the_human_did() {
    let made = PolicyRule { origin: RuleOrigin::Session, ..rule(PolicyAction::Deny, "pay", "") };
    let script = given_round(ruled([made]), [pay("1")]);
    assert_eq!(script.result(A).0, ToolStatus::Denied);
}

#[test]
fn an_allowed_call_runs_unasked_whatever_else_asks() {
    let mut spec = ruled([rule(PolicyAction::Allow, "pay", "1")]);
    spec.tool_policy.require_approval_by_default = true;
    let script = given_round(spec, [pay("1").approval(), pay("2")]);
    assert!(matches!(script.call_state(A), CallState::Ready { .. }));
    assert!(matches!(script.call_state(B), CallState::AwaitingApproval { .. }));
}

#[test]
fn a_rule_asks_where_nothing_else_does() {
    let rules = [rule(PolicyAction::Allow, "", ""), rule(PolicyAction::Ask, "pay", "")];
    let script = given_round(ruled(rules), [pay("1")]);
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
}

#[test]
fn edited_arguments_pass_the_deny_rules_again() {
    let named = PolicyRule { name: "no gold".to_owned(), ..rule(PolicyAction::Deny, "pay", "gold") };
    let mut script = given_round(ruled([named]), [pay("1").approval()]);
    let refusal = script.refuses(script.decision(A, edits(r#"{"amount":"gold"}"#)));
    assert!(matches!(&refusal, Refusal::DeniedByRule(rule) if rule.name == "no gold"));
    assert_eq!(refusal.to_string(), "the rule \"no gold\" denies these arguments");
    script.decides(A, edits(r#"{"amount":"2"}"#));
    assert!(matches!(script.call_state(A), CallState::Ready { .. }));
}

#[test]
fn the_same_edits_again_are_confirmed() {
    let mut script = given_round(ruled([rule(PolicyAction::Deny, "pay", "gold")]), [pay("1").approval()]);
    let request = script.question(A).expect("it is asked").request;
    script.decides(A, edits("{}"));
    let again = |decision| Input::Decided {
        request: request.clone(),
        decision,
        digest: None,
        by: "bea".to_owned().into(),
        remember: None,
    };
    assert!(script.does(again(edits("{}"))).records.is_empty());
    let refusal = script.refuses(again(edits(r#"{"amount":"gold"}"#)));
    assert!(matches!(refusal, Refusal::AlreadyResolved(_)), "what was decided comes before what may be");
    assert!(matches!(script.refuses(again(Decision::Approve)), Refusal::AlreadyResolved(_)));
}
