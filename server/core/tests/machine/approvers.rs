//! Rules say who must approve a call, and how many.

use agentloop_core::agent::RunSpec;
use agentloop_core::policy::{Approvers, PolicyAction, PolicyRule, RuleOrigin, Widening};
use agentloop_core::run::event::Event;
use agentloop_core::run::human::{
    BadAnswer, CannotRemember, Decision, NotAnApprover, Person, QuestionKind, RememberScope,
};
use agentloop_core::run::input::Input;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::CallState;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Millis;
use agentloop_core::tool::EffectClass;

use crate::support::*;

fn rule(origin: RuleOrigin, action: PolicyAction, any_of: &[&str], quorum: u32) -> PolicyRule {
    let any_of = any_of.iter().map(|&name| name.to_owned()).collect();
    PolicyRule {
        name: String::new(),
        action,
        tool: "pay".to_owned(),
        arguments: Vec::new(),
        origin,
        terms: None,
        approvers: Approvers { any_of, forbid_requester: false, quorum },
        made_under: None,
    }
}

fn ruled(rules: Vec<PolicyRule>) -> RunSpec {
    let mut spec = spec();
    spec.tool_policy.rules = rules;
    spec
}

fn asks(any_of: &[&str], quorum: u32) -> PolicyRule {
    rule(RuleOrigin::Agent, PolicyAction::Ask, any_of, quorum)
}

fn person(name: &str, groups: &[&str]) -> Person {
    let groups = groups.iter().map(|&group| group.to_owned()).collect();
    Person { name: name.to_owned(), groups, is_proved: true, is_requester: false }
}

fn by(script: &Script, decision: Decision, person: Person) -> Input {
    match script.decision(A, decision) {
        Input::Decided { request, decision, digest, remember, .. } => {
            Input::Decided { request, decision, digest, by: person, remember }
        }
        other => other,
    }
}

/// A call that two of a group must approve.
fn two_of_sre() -> Script {
    given_round(ruled(vec![asks(&["group:sre"], 2)]), [tool("pay").with(r#"{"amount":1}"#)])
}

#[test]
fn a_call_runs_when_as_many_different_people_approved_it() {
    let mut script = two_of_sre();
    let (ann, bob) = (person("ann", &["sre"]), person("bob", &["sre"]));
    let first = by(&script, Decision::Approve, ann);
    assert_eq!(kinds(&script.does(first.clone()).records), "human_approved");
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
    check(&script, first.clone(), Ok(""));
    script.restarts();
    check(&script, first, Ok(""));
    let asked = script.state().asked_and_open().next().expect("it is open");
    assert_eq!(asked.approvals.iter().map(|one| one.by.as_str()).collect::<Vec<_>>(), ["ann"]);
    let second = by(&script, Decision::Approve, bob);
    assert_eq!(kinds(&script.does(second).records), "human_resolved");
    assert!(matches!(script.call_state(A), CallState::Ready { .. }));
    check(&script, by(&script, Decision::Approve, person("cat", &["sre"])), Ok(""));
}

#[test]
fn one_denial_denies() {
    for decision in [deny(), deny_and_stop(), answer()] {
        let mut script = two_of_sre();
        script.does(by(&script, Decision::Approve, person("ann", &["sre"])));
        let transition = script.does(by(&script, decision.clone(), person("ann", &["sre"])));
        assert!(kinds(&transition.records).starts_with("human_resolved call_settled"), "{decision:?}");
    }
}

#[test]
fn others_are_refused_and_change_nothing() {
    let forbids = |rule: PolicyRule| {
        let approvers = Approvers { forbid_requester: true, ..rule.approvers.clone() };
        PolicyRule { approvers, ..rule }
    };
    let requester = |person: Person| Person { is_requester: true, ..person };
    let not_named = || NotAnApprover::NotNamed(vec!["group:sre".to_owned(), "ann".to_owned()]);
    let named = || asks(&["group:sre", "ann"], 0);
    for (rule, who, refused) in [
        (named(), person("bob", &["ops"]), Some(not_named())),
        (named(), person("bob", &[]), Some(not_named())),
        (named(), Person::from("ann".to_owned()), Some(NotAnApprover::Unproved)),
        (named(), requester(person("ann", &[])), None),
        (named(), person("bob", &["sre"]), None),
        (forbids(named()), requester(person("ann", &[])), Some(NotAnApprover::Requester)),
        (forbids(asks(&[], 0)), requester(person("bob", &[])), Some(NotAnApprover::Requester)),
        (forbids(asks(&[], 0)), person("bob", &[]), None),
        (asks(&[], 2), Person::from("ann".to_owned()), Some(NotAnApprover::Unproved)),
        (asks(&[], 0), Person::from(String::new()), None),
    ] {
        for decision in [Decision::Approve, deny(), answer(), edits(r#"{"amount":2}"#)] {
            let script = given_round(ruled(vec![rule.clone()]), [tool("pay")]);
            let input = by(&script, decision, who.clone());
            match &refused {
                Some(why) => assert_eq!(script.clone().refuses(input), Refusal::NotAnApprover(why.clone())),
                None => assert!(script.clone().step(input).is_ok(), "{who:?} {rule:?}"),
            }
        }
    }
}

#[test]
fn a_refusal_names_as_many_as_have_room() {
    let names: Vec<String> = (0..256).map(|number| format!("group:{number:0>256}")).collect();
    let shown = NotAnApprover::NotNamed(names.clone()).to_string();
    assert!(shown.len() < 2_048 && shown.contains(&names[2]) && shown.ends_with(" and 253 more"), "{shown}");
    let few = NotAnApprover::NotNamed(vec!["ann".to_owned(), "group:sre".to_owned()]);
    assert_eq!(few.to_string(), "the question is for ann, group:sre");
}

#[test]
fn what_several_approve_is_one_thing() {
    let mut script = two_of_sre();
    let edited = by(&script, edits(r#"{"amount":2}"#), person("ann", &["sre"]));
    assert_eq!(script.clone().refuses(edited), Refusal::BadAnswer(BadAnswer::NoEdits(2)));
    let kept = by(&script, Decision::Approve, person("ann", &["sre"]));
    let kept = remembering(kept, RememberScope::Run, None);
    assert_eq!(script.refuses(kept), Refusal::CannotRemember(CannotRemember::Quorum(2)));
}

#[test]
fn edited_arguments_need_those_who_must_approve_them() {
    let mut large = asks(&["group:boss"], 0);
    large.arguments = vec![agentloop_core::policy::ArgumentPattern {
        pointer: "/amount".to_owned(),
        pattern: "1000".to_owned(),
    }];
    let spec = ruled(vec![asks(&["group:sre"], 0), large]);
    let script = given_round(spec, [tool("pay").with(r#"{"amount":1}"#)]);
    let edited = |person| by(&script, edits(r#"{"amount":1000}"#), person);
    assert!(matches!(
        script.clone().refuses(edited(person("ann", &["sre"]))),
        Refusal::NotAnApprover(NotAnApprover::NotNamed(_))
    ));
    check(&script, edited(person("bea", &["sre", "boss"])), Ok("human_resolved"));
}

#[test]
fn a_call_in_doubt_is_for_the_same_people() {
    let pay = tool("pay").class(EffectClass::Unsafe).within(Millis::secs(20));
    let mut script = given_round(ruled(vec![asks(&["group:sre"], 2)]), [pay]);
    for name in ["ann", "bob"] {
        script.does(by(&script, Decision::Approve, person(name, &["sre"])));
    }
    script.grants(A);
    script.loses(A, agentloop_core::run::event::Ran::Maybe);
    let question = script.question(A).expect("it is asked");
    assert_eq!((question.kind, question.approvers.people()), (QuestionKind::InDoubt, 2));
    let stranger = by(&script, answer(), person("cat", &[]));
    assert!(matches!(script.clone().refuses(stranger), Refusal::NotAnApprover(_)));
    check(
        &script,
        by(&script, answer(), person("cat", &["sre"])),
        Ok("human_resolved call_settled model_call_started"),
    );
    script.does(by(&script, Decision::Approve, person("cat", &["sre"])));
    let transition = script.does(by(&script, Decision::Approve, person("dan", &["sre"])));
    assert_eq!(kinds(&transition.records), "human_resolved");
}

#[test]
fn a_request_adds_approvers_and_takes_none_away() {
    let request = |action, any_of: &[&str], quorum| rule(RuleOrigin::Request, action, any_of, quorum);
    let (ask, allow) = (PolicyAction::Ask, PolicyAction::Allow);
    for (rules, expected) in [
        (vec![asks(&["ann"], 2), request(ask, &[], 0)], (&["ann"][..], 2)),
        (vec![asks(&["ann"], 0), request(ask, &["bob"], 3)], (&["ann & bob"], 3)),
        (vec![asks(&["ann"], 0), request(ask, &["bob"], 3), request(allow, &[], 0)], (&["ann"], 0)),
        (vec![request(ask, &["bob"], 2)], (&["bob"], 2)),
        (vec![asks(&[], 0), request(ask, &["bob"], 0)], (&["bob"], 0)),
    ] {
        for widening in [Widening::default(), Widening::UNLIMITED] {
            let mut spec = ruled(rules.clone());
            spec.tool_policy.widening = widening;
            let script = given_round(spec, [tool("pay")]);
            let approvers = script.question(A).expect("it is asked").approvers;
            let any_of: Vec<_> = approvers.any_of.iter().map(String::as_str).collect();
            assert_eq!((&any_of[..], approvers.quorum), expected, "{rules:?}");
        }
    }
}

#[test]
fn a_remembered_approval_counts_for_the_same_approvers_alone() {
    let spec = ruled(vec![asks(&["group:sre"], 0)]);
    let mut script = given_round(spec, [tool("pay")]);
    let kept = by(&script, Decision::Approve, person("ann", &["sre"]));
    script.does(remembering(kept, RememberScope::Session, None));
    let made = script.state().remembered_rules()[0].clone();
    assert_eq!(made.made_under, Some(asks(&["group:sre"], 0).approvers.digest()));
    for (rules, asked) in [
        (vec![asks(&["group:sre"], 0)], false),
        (vec![asks(&[], 0)], false),
        (vec![asks(&["group:boss"], 0)], true),
        (vec![asks(&["group:sre"], 2)], true),
    ] {
        let rules: Vec<_> = rules.into_iter().chain([made.clone()]).collect();
        let script = given_round(ruled(rules.clone()), [tool("pay")]);
        assert_eq!(script.question(A).is_some(), asked, "{rules:?}");
    }
}

#[test]
fn who_may_start_runs_does_not_approve_them_for_good() {
    let rule = asks(&[], 0);
    let rule =
        PolicyRule { approvers: Approvers { forbid_requester: true, ..rule.approvers.clone() }, ..rule };
    let script = given_round(ruled(vec![rule]), [tool("pay")]);
    let approved = || by(&script, Decision::Approve, person("ann", &[]));
    for scope in [RememberScope::Session, RememberScope::Tenant] {
        let refused = script.clone().refuses(remembering(approved(), scope, None));
        assert_eq!(refused, Refusal::CannotRemember(CannotRemember::Requester));
    }
    check(&script, remembering(approved(), RememberScope::Run, None), Ok("human_resolved"));
}

#[test]
fn a_remembered_answer_leaves_questions_for_others_open() {
    let mut gold = asks(&["group:boss"], 0);
    gold.tool = "gold".to_owned();
    let mut script = given_round(ruled(vec![asks(&["group:sre"], 0), gold]), [tool("pay"), tool("gold")]);
    let denied = by(&script, deny(), person("ann", &["sre"]));
    let every = PolicyRule { tool: String::new(), ..asks(&[], 0) };
    script.does(remembering(denied, RememberScope::Run, Some(every)));
    assert_eq!(script.state().open_questions().count(), 1, "the boss is still asked about gold");
}

#[test]
fn a_step_is_no_second_approval() {
    let spec = RunSpec { stepped: true, ..ruled(vec![asks(&["ann", "bob"], 2)]) };
    let mut script = given(spec);
    script.does(step_on("s1"));
    script.asks([tool("pay")]);
    script.does(step_on("s2"));
    let question = script.question(A).expect("it is asked");
    let by_step = |name: &str| Input::Step {
        request: "s3".to_owned(),
        approve: Some(question.request.clone()),
        by: person(name, &[]),
    };
    assert_eq!(script.clone().refuses(by_step("ann")), Refusal::SeveralApprovals(2));
    assert!(matches!(script.clone().refuses(by_step("eve")), Refusal::NotAnApprover(_)));
    for name in ["ann", "bob"] {
        script.does(by(&script, Decision::Approve, person(name, &[])));
    }
    let last = script.does(step_on("s3"));
    assert_eq!(kinds(&last.records), "planned");
}

#[test]
fn an_approval_is_in_the_journal_with_its_number() {
    let mut script = given_round(ruled(vec![asks(&[], 3)]), [tool("pay")]);
    for name in ["ann", "bob"] {
        script.does(by(&script, Decision::Approve, person(name, &[])));
    }
    let counted: Vec<_> = script
        .journal
        .iter()
        .filter_map(|record| match &record.event {
            Event::HumanApproved { by, approvals, quorum, .. } => Some((by.as_str(), *approvals, *quorum)),
            _ => None,
        })
        .collect();
    assert_eq!(counted, [("ann", 1, 3), ("bob", 2, 3)]);
}
