//! Decisions that are remembered: like calls are decided alike from then on.

use agentloop_core::id::CallSlot;
use agentloop_core::limits::POLICY_RULES_MAX;
use agentloop_core::message::ToolStatus;
use agentloop_core::policy::{Approvers, ArgumentPattern, PolicyAction, PolicyRule, RuleOrigin};
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::{Event, Ran};
use agentloop_core::run::human::{CannotRemember, Decision, RememberScope};
use agentloop_core::run::input::Input;
use agentloop_core::run::machine::Machine;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::CallState;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Millis;
use agentloop_core::tool::EffectClass;

use crate::support::*;

fn pay(amount: &str) -> Tool {
    tool("pay").with(&format!(r#"{{"amount":"{amount}"}}"#)).approval()
}

/// A rule as a caller writes it: its action and origin count for nothing.
fn rule(pattern: &str) -> PolicyRule {
    let pattern = ArgumentPattern { pointer: "/amount".to_owned(), pattern: pattern.to_owned() };
    PolicyRule {
        terms: None,
        name: "small".to_owned(),
        action: PolicyAction::Ask,
        tool: "pay".to_owned(),
        arguments: vec![pattern],
        origin: RuleOrigin::Agent,
        approvers: Approvers::default(),
        made_under: None,
    }
}

#[track_caller]
fn decides(script: &mut Script, slot: CallSlot, decision: Decision, rule: Option<PolicyRule>) -> String {
    let input = remembering(script.decision(slot, decision), RememberScope::Run, rule);
    kinds(&script.does(input).records)
}

#[test]
fn the_same_call_runs_unasked_from_then_on() {
    let mut script = given_round(spec(), [pay("1")]);
    assert_eq!(decides(&mut script, A, Decision::Approve, None), "human_resolved");
    script.runs(A, "paid");
    script.asks([pay("1"), pay("2"), tool("pay").with(r#"{ "amount": "1" }"#).approval()]);
    let states: Vec<bool> =
        script.state().round().iter().map(|call| matches!(call.state, CallState::Ready { .. })).collect();
    assert_eq!(states, [true, false, true], "exactly these arguments, however they are written");
}

#[test]
fn a_denial_is_remembered_too() {
    let mut script = given_round(spec(), [pay("1")]);
    decides(&mut script, A, deny(), Some(rule("*")));
    script.asks([pay("7")]);
    let (status, output) = script.result(CallSlot::from((2, 0)));
    assert_eq!(status, ToolStatus::Denied);
    assert!(output.contains("the rule \"small\""), "{output}");
}

#[test]
fn what_waits_in_the_run_is_answered_with_it() {
    let mut script = given_round(spec(), [pay("1"), pay("2"), pay("30")]);
    assert_eq!(decides(&mut script, A, Decision::Approve, Some(rule("?"))), "human_resolved human_resolved");
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
    decides(&mut script, A, deny(), Some(rule("*")));
    assert_eq!(script.result(B), (ToolStatus::Denied, "denied by a human: too dear".to_owned()));
    assert_eq!(script.status(), RunStatus::ModelRunning);
}

/// A tool that pays this amount without a question.
fn pays(amount: &str) -> Tool {
    tool("pay").with(&format!(r#"{{"amount":"{amount}"}}"#))
}

#[test]
fn a_remembered_denial_stops_what_waits_for_its_turn() {
    let mut script = given_round(parallel(1), [tool("look"), pay("5"), pays("6")]);
    script.grants(A);
    assert_eq!(decides(&mut script, B, deny(), Some(rule("*"))), "human_resolved call_settled call_settled");
    let (status, output) = script.result(C);
    assert_eq!(status, ToolStatus::Denied);
    assert_eq!(output, "denied by a human, for calls like this one: the rule \"small\"");
    script.finishes(A, "seen");
    assert_eq!(script.status(), RunStatus::ModelRunning);
}

#[test]
fn and_hosts_are_not_sought_for_it_any_more() {
    let mut script = given_round(spec(), [tool("look"), pay("5"), pays("6")]);
    assert_eq!(script.watch.owed(), [Owed::Seek(A), Owed::Seek(C)]);
    let denial = script.decision(B, deny());
    let transition = script.does(remembering(denial, RememberScope::Session, Some(rule("*"))));
    assert_eq!(transition.effects, [Effect::StopSeeking { slot: C }]);
    assert_eq!(script.refuses(granted(C)), Refusal::StaleAttempt, "a host that was found meanwhile");
}

#[test]
fn only_what_it_is_about_is_stopped() {
    let mut script = given_round(parallel(1), [pay("5"), pays("6"), pays("70")]);
    decides(&mut script, A, deny(), Some(rule("?")));
    assert_eq!(script.result(B).0, ToolStatus::Denied);
    script.runs(C, "paid");
    assert_eq!(script.result(C).0, ToolStatus::Succeeded);
}

#[test]
fn what_a_host_was_given_goes_on() {
    let mut script =
        given_round(spec(), [pays("4").class(EffectClass::ReadOnly), pays("6"), pay("5"), pays("7")]);
    script.grants(A);
    script.grants(B);
    script.answers(A, passing(Ran::Yes, Millis::secs(1)));
    let settled = decides(&mut script, C, deny(), Some(rule("*")));
    assert_eq!(settled, "human_resolved call_settled call_settled", "the one that no host was given");
    script.finishes(B, "paid");
    script.passes(Millis::secs(1));
    script.runs(A, "paid");
    assert_eq!([script.result(A).0, script.result(B).0], [ToolStatus::Succeeded; 2]);
}

/// A call that goes on from a state is half done, also while no host has it.
#[test]
fn what_waits_to_go_on_goes_on() {
    let mut script = given_round(spec(), [pays("4"), pay("5"), pays("6")]);
    script.grants(A);
    script.does(leaves(A, 1, "seat", b"booked"));
    script.decides(A, Decision::Text { text: "12A".to_owned() });
    let settled = decides(&mut script, B, deny(), Some(rule("*")));
    assert_eq!(settled, "human_resolved call_settled call_settled", "the one that no host was given");
    assert_eq!(offer(&script.grants(A)).resume_state.as_deref(), Some(&b"booked"[..]));
    script.finishes(A, "paid");
    assert_eq!(script.result(A).0, ToolStatus::Succeeded);
}

#[test]
fn what_a_human_let_run_by_itself_runs() {
    let mut script = given_round(parallel(1), [tool("look"), pay("5"), pay("6"), pay("70")]);
    script.grants(A);
    script.decides(B, Decision::Approve);
    script.decides(C, edits(r#"{"amount":"7"}"#));
    decides(&mut script, CallSlot::from((1, 3)), deny(), Some(rule("*")));
    script.finishes(A, "seen");
    for slot in [B, C] {
        script.runs(slot, "paid");
        assert_eq!(script.result(slot).0, ToolStatus::Succeeded);
    }
}

#[test]
fn what_a_remembered_rule_let_run_is_denied_all_the_same() {
    for spec in [parallel(1), stepped()] {
        let mut script = given(spec);
        if script.state().spec().stepped {
            script.steps("model");
        }
        script.asks([pay("5"), pay("6"), pay("70")]);
        if script.state().spec().stepped {
            script.steps("ask");
        }
        decides(&mut script, A, Decision::Approve, Some(rule("?")));
        let settled = decides(&mut script, C, deny(), Some(rule("*")));
        assert_eq!(settled, "human_resolved call_settled call_settled");
        assert_eq!(script.result(B).0, ToolStatus::Denied);
        assert!(!script.call(A).is_settled(), "of this one it was said");
    }
}

#[test]
fn a_deny_rule_stays_stronger() {
    let mut spec = spec();
    let no_gold = PolicyRule { action: PolicyAction::Deny, ..rule("gold") };
    spec.tool_policy.rules = vec![no_gold];
    let mut script = given_round(spec, [pay("1")]);
    decides(&mut script, A, Decision::Approve, Some(rule("*")));
    script.runs(A, "paid");
    script.asks([pay("gold"), pay("2")]);
    assert_eq!(script.result(CallSlot::from((2, 0))).0, ToolStatus::Rejected);
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
    decides(&mut script, A, Decision::Approve, Some(rule("9*")));
}

#[test]
fn the_same_answer_is_confirmed_and_another_memory_is_another_answer() {
    let mut script = given_round(spec(), [pay("1")]);
    let request = script.question(A).expect("it is asked").request;
    let plain = Input::Decided {
        request,
        decision: Decision::Approve,
        digest: None,
        by: "ann".to_owned().into(),
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
    decides(&mut script, A, Decision::Approve, Some(rule("*")));
    let replayed = Machine::replay(run_id(), &script.journal);
    assert_eq!(replayed.state(), script.state());
    assert_eq!(replayed.state().remembered_rules().len(), 1);
}
