//! Decisions that are remembered: like calls are decided alike from then on.

use agentloop_core::error::Refusal;
use agentloop_core::limits::POLICY_RULES_MAX;
use agentloop_core::message::ToolStatus;
use agentloop_core::policy::{ArgumentPattern, PolicyAction, PolicyRule, RuleOrigin};
use agentloop_core::run::event::Event;
use agentloop_core::run::human::{CannotRemember, Decision, Remember, RememberScope};
use agentloop_core::run::input::Input;
use agentloop_core::run::machine::Machine;
use agentloop_core::run::state::CallState;
use agentloop_core::run::status::RunStatus;

use crate::support::*;

fn pay(amount: &str) -> Tool {
    tool("pay").with(&format!(r#"{{"amount":"{amount}"}}"#)).approval()
}

/// A rule as a caller writes it: its action and origin count for nothing.
fn rule(pattern: &str) -> PolicyRule {
    let pattern = ArgumentPattern { pointer: "/amount".to_owned(), pattern: pattern.to_owned() };
    PolicyRule {
        name: "small".to_owned(),
        action: PolicyAction::Ask,
        tool: "pay".to_owned(),
        arguments: vec![pattern],
        origin: RuleOrigin::Agent,
    }
}

fn remembering(input: Input, scope: RememberScope, rule: Option<PolicyRule>) -> Input {
    match input {
        Input::Decided { request, decision, digest, by, .. } => {
            let remember = Some(Box::new(Remember { scope, rule }));
            Input::Decided { request, decision, digest, by, remember }
        }
        other => other,
    }
}

#[track_caller]
fn decides(script: &mut Script, decision: Decision, rule: Option<PolicyRule>) -> String {
    let input = remembering(script.decision(A, decision), RememberScope::Run, rule);
    kinds(&script.does(input).records)
}

#[test]
fn the_same_call_runs_unasked_from_then_on() {
    let mut script = given_round(spec(), [pay("1")]);
    assert_eq!(decides(&mut script, Decision::Approve, None), "human_resolved");
    script.runs(A, "paid");
    script.asks([pay("1"), pay("2"), tool("pay").with(r#"{ "amount": "1" }"#).approval()]);
    let states: Vec<bool> =
        script.state().round().iter().map(|call| matches!(call.state, CallState::Ready { .. })).collect();
    assert_eq!(states, [true, false, true], "exactly these arguments, however they are written");
}

#[test]
fn a_denial_is_remembered_too() {
    let mut script = given_round(spec(), [pay("1")]);
    decides(&mut script, deny(), Some(rule("*")));
    script.asks([pay("7")]);
    let (status, output) = script.result(agentloop_core::id::CallSlot(2, 0));
    assert_eq!(status, ToolStatus::Denied);
    assert!(output.contains("the rule \"small\""), "{output}");
}

#[test]
fn what_waits_in_the_run_is_answered_with_it() {
    let mut script = given_round(spec(), [pay("1"), pay("2"), pay("30")]);
    assert_eq!(decides(&mut script, Decision::Approve, Some(rule("?"))), "human_resolved human_resolved");
    assert!(matches!(script.call_state(B), CallState::Ready { .. }));
    assert!(matches!(script.call_state(C), CallState::AwaitingApproval { .. }));
    let followed = script.journal.iter().rev().find_map(|record| match &record.event {
        Event::HumanResolved { slot, answer, .. } => Some((*slot, answer.clone())),
        _ => None,
    });
    let (slot, answer) = followed.expect("the last answer");
    assert_eq!((slot, answer.decision, answer.by.as_str()), (Some(B), Decision::Approve, "ann"));
    assert_eq!(answer.followed.map(|rule| rule.name), Some("small".to_owned()));
    assert_eq!(answer.remembered, None, "one decision is one rule");
}

#[test]
fn a_remembered_denial_settles_what_waits() {
    let mut script = given_round(spec(), [pay("1"), pay("2")]);
    decides(&mut script, deny(), Some(rule("*")));
    assert_eq!(script.result(B), (ToolStatus::Denied, "denied by a human: too dear".to_owned()));
    assert_eq!(script.status(), RunStatus::ModelRunning);
}

#[test]
fn a_deny_rule_stays_stronger() {
    let mut spec = spec();
    let no_gold = PolicyRule { action: PolicyAction::Deny, ..rule("gold") };
    spec.tool_policy.rules = vec![no_gold];
    let mut script = given_round(spec, [pay("1")]);
    decides(&mut script, Decision::Approve, Some(rule("*")));
    script.runs(A, "paid");
    script.asks([pay("gold"), pay("2")]);
    assert_eq!(script.result(agentloop_core::id::CallSlot(2, 0)).0, ToolStatus::Rejected);
}

#[test]
fn what_cannot_be_remembered_is_refused() {
    let script = given_round(spec(), [pay("1")]);
    let refuses = |decision, rule| {
        let mut script = script.clone();
        script.refuses(remembering(script.decision(A, decision), RememberScope::Session, rule))
    };
    for decision in [edits("{}"), deny_and_stop(), answer()] {
        assert_eq!(refuses(decision, None), Refusal::CannotRemember(CannotRemember::Kind));
    }
    let other = refuses(Decision::Approve, Some(rule("2")));
    assert_eq!(other, Refusal::CannotRemember(CannotRemember::OtherCall));
    let mut bad = rule("*");
    bad.arguments[0].pointer = "amount".to_owned();
    assert!(matches!(refuses(Decision::Approve, Some(bad)), Refusal::CannotRemember(CannotRemember::Bad(_))));
}

#[test]
fn arguments_that_are_too_long_for_a_rule_need_one() {
    let mut script = given_round(spec(), [pay(&"9".repeat(10_000))]);
    let question = script.question(A).expect("it is asked");
    assert_eq!(question.suggested_rule(), None);
    let plain = remembering(script.decision(A, Decision::Approve), RememberScope::Run, None);
    assert_eq!(script.refuses(plain), Refusal::CannotRemember(CannotRemember::NoSuggestion));
    decides(&mut script, Decision::Approve, Some(rule("9*")));
}

#[test]
fn the_same_answer_is_confirmed_and_another_memory_is_another_answer() {
    let mut script = given_round(spec(), [pay("1")]);
    let request = script.question(A).expect("it is asked").request;
    let plain = Input::Decided {
        request,
        decision: Decision::Approve,
        digest: None,
        by: "ann".to_owned(),
        remember: None,
    };
    let with = |scope| remembering(plain.clone(), scope, Some(rule("1")));
    script.does(with(RememberScope::Session));
    check(&script, with(RememberScope::Session), Ok(""));
    check(&script, plain.clone(), Ok(""));
    for other in [with(RememberScope::Run), remembering(plain.clone(), RememberScope::Session, None)] {
        assert!(matches!(script.clone().refuses(other), Refusal::AlreadyResolved(_)));
    }
}

#[test]
fn a_run_remembers_only_so_much() {
    let mut script = given(spec());
    for at in 0..POLICY_RULES_MAX {
        let amount = at.to_string();
        script.asks([pay(&amount)]);
        let slot = script.state().round()[0].slot;
        script.does(remembering(script.decision(slot, Decision::Approve), RememberScope::Run, None));
        script.runs(slot, "paid");
    }
    script.asks([pay("more")]);
    let slot = script.state().round()[0].slot;
    let one_more = remembering(script.decision(slot, Decision::Approve), RememberScope::Run, None);
    assert_eq!(script.refuses(one_more), Refusal::CannotRemember(CannotRemember::TooMany));
    script.decides(slot, Decision::Approve);
}

#[test]
fn a_replay_remembers_the_same() {
    let mut script = given_round(spec(), [pay("1")]);
    decides(&mut script, Decision::Approve, Some(rule("*")));
    let replayed = Machine::replay(run_id(), &script.journal);
    assert_eq!(replayed.state(), script.state());
    assert_eq!(replayed.state().remembered.len(), 1);
}
