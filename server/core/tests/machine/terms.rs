//! Hosts declare a tool anew between two offers of one call: the stricter terms count.

use std::sync::Arc;

use agentloop_core::message::ToolStatus;
use agentloop_core::policy::{Approvers, PolicyAction, PolicyRule, RuleOrigin, Widening};
use agentloop_core::run::event::{Event, Ran};
use agentloop_core::run::human::{Decision, QuestionKind, Remember, RememberScope};
use agentloop_core::run::input::Input;
use agentloop_core::run::state::CallState;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Millis;
use agentloop_core::tool::{EffectClass, ToolTerms};

use crate::support::*;

fn read_only() -> Arc<ToolTerms> {
    terms(EffectClass::ReadOnly, false, "1")
}

fn not_to_be_repeated() -> Arc<ToolTerms> {
    terms(EffectClass::Unsafe, false, "1")
}

fn with_approval() -> Arc<ToolTerms> {
    terms(EffectClass::Unsafe, true, "1")
}

/// A call of a tool under these terms that looks for a host.
fn proposed(under: &ToolTerms) -> Script {
    given_round(spec(), [tool("pay").under(under)])
}

impl Script {
    /// The kinds of events that a host with these terms and room leads to.
    #[track_caller]
    fn grants_under(&mut self, terms: &Arc<ToolTerms>) -> String {
        kinds(&self.does(granted_under(A, terms)).records)
    }

    #[track_caller]
    fn offered_class(&self) -> Option<EffectClass> {
        self.journal.iter().rev().find_map(|record| match record.event {
            Event::CallOffered { effect, .. } => effect,
            _ => None,
        })
    }

    #[track_caller]
    fn decides_and_remembers(&mut self, decision: Decision) {
        let remember = Some(Box::new(Remember { scope: RememberScope::Run, rule: None }));
        let Input::Decided { request, digest, by, .. } = self.decision(A, decision.clone()) else {
            unreachable!("it is a decision")
        };
        self.does(Input::Decided { request, decision, digest, by, remember });
    }
}

#[test]
fn the_stricter_class_counts() {
    for (at_proposal, at_offer, counts) in [
        (EffectClass::ReadOnly, EffectClass::Keyed, EffectClass::Keyed),
        (EffectClass::Keyed, EffectClass::ReadOnly, EffectClass::Keyed),
        (EffectClass::Idempotent, EffectClass::Unsafe, EffectClass::Unsafe),
        (EffectClass::Unsafe, EffectClass::ReadOnly, EffectClass::Unsafe),
    ] {
        let mut script = proposed(&terms(at_proposal, false, "1"));
        assert_eq!(script.grants_under(&terms(at_offer, false, "1")), "call_offered");
        assert_eq!((script.offered_class(), script.call(A).terms.effect), (Some(counts), counts));
    }
}

#[test]
fn a_call_that_becomes_unsafe_is_not_begun_again_unasked() {
    let mut script = proposed(&read_only());
    assert_eq!(script.grants_under(&not_to_be_repeated()), "call_offered");
    script.loses(A, Ran::Maybe);
    assert_eq!(script.question(A).map(|question| question.kind), Some(QuestionKind::InDoubt));
}

#[test]
fn an_earlier_try_that_may_have_run_is_in_doubt_before_an_unsafe_offer() {
    let mut script = proposed(&read_only());
    script.grants(A);
    script.loses(A, Ran::Maybe);
    script.grants(A);
    script.loses(A, Ran::No);
    script.passes(Millis::secs(1));
    assert_eq!(script.grants_under(&not_to_be_repeated()), "human_requested");
    let question = script.question(A).expect("it is asked");
    assert_eq!((question.kind, question.request.as_str()), (QuestionKind::InDoubt, "run-1:1.0:2"));
    assert_eq!(question.terms, Some(not_to_be_repeated().digest.clone()));
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
    script.restarts();
    script.decides(A, Decision::Approve);
    assert_eq!(script.grants_under(&not_to_be_repeated()), "call_offered", "one leave is one more try");
    script.loses(A, Ran::Maybe);
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
}

#[test]
fn tries_that_did_not_run_are_no_doubt() {
    let mut script = proposed(&read_only());
    script.grants(A);
    script.loses(A, Ran::No);
    script.passes(Millis::secs(1));
    assert_eq!(script.grants_under(&not_to_be_repeated()), "call_offered");
}

#[test]
fn a_late_word_that_it_did_not_run_settles_the_doubt() {
    let mut script = proposed(&read_only());
    script.grants(A);
    script.loses(A, Ran::Maybe);
    script.grants_under(&not_to_be_repeated());
    let transition = script.answers(A, passing(Ran::Maybe, Millis(0)));
    assert_eq!(kinds(&transition.records), "", "nothing new: the question stands");
    script.answers(A, passing(Ran::No, Millis(0)));
    assert_eq!(script.question(A), None);
    assert_eq!(script.grants_under(&not_to_be_repeated()), "call_offered");
}

#[test]
fn a_late_result_ends_a_question_about_the_next_try() {
    for asks in [not_to_be_repeated(), terms(EffectClass::ReadOnly, true, "1")] {
        let mut script = proposed(&read_only());
        script.grants(A);
        script.loses(A, Ran::Maybe);
        assert_eq!(script.grants_under(&asks), "human_requested");
        script.finishes(A, "paid");
        assert_eq!(script.result(A), (ToolStatus::Succeeded, "paid".to_owned()));
        assert_eq!(script.state().open_questions().count(), 0);
    }
}

#[test]
fn approval_is_asked_for_at_the_offer() {
    let mut script = proposed(&read_only());
    assert_eq!(script.grants_under(&with_approval()), "human_requested");
    let question = script.question(A).expect("it is asked");
    assert_eq!((question.kind, question.request.as_str()), (QuestionKind::Approve, "run-1:1.0:0"));
    assert_eq!(question.terms, Some(with_approval().digest.clone()));
    script.restarts();
    script.decides(A, Decision::Approve);
    assert_eq!(script.grants_under(&with_approval()), "call_offered", "the leave covers these terms");
    assert_eq!(script.offered_class(), Some(EffectClass::Unsafe));
}

#[test]
fn a_second_question_has_an_id_of_its_own() {
    let (first, second) = (with_approval(), terms(EffectClass::Unsafe, true, "2"));
    let mut script = proposed(&first);
    script.decides(A, Decision::Approve);
    assert_eq!(script.grants_under(&second), "human_requested");
    let question = script.question(A).expect("it is asked again");
    assert_eq!((question.request.as_str(), question.terms), ("run-1:1.0:0-2", Some(second.digest.clone())));
    script.decides(A, Decision::Approve);
    assert_eq!(script.grants_under(&terms(EffectClass::Unsafe, true, "3")), "human_requested");
    assert_eq!(script.question(A).expect("and again").request.as_str(), "run-1:1.0:0-3");
    script.decides(A, deny());
    assert_eq!(script.result(A).0, ToolStatus::Denied);
}

#[test]
fn each_leave_covers_its_terms_for_good() {
    let (first, second) = (with_approval(), terms(EffectClass::Unsafe, true, "2"));
    let mut script = proposed(&first);
    script.decides(A, Decision::Approve);
    script.grants_under(&second);
    script.decides(A, Decision::Approve);
    assert_eq!(script.grants_under(&first), "call_offered");
}

#[test]
fn leave_from_an_older_journal_covers_any_terms() {
    let mut script = given_round(spec(), [tool("pay").approval()]);
    assert_eq!(script.question(A).expect("it is asked").terms, None);
    script.decides(A, Decision::Approve);
    assert_eq!(script.grants_under(&with_approval()), "call_offered");
}

#[test]
fn a_remembered_leave_covers_its_terms_alone() {
    let (first, second) = (with_approval(), terms(EffectClass::Unsafe, true, "2"));
    let mut script = given_round(spec(), [tool("pay").under(&first)]);
    script.decides_and_remembers(Decision::Approve);
    assert_eq!(script.state().remembered_rules()[0].terms, Some(first.digest.clone()));
    script.grants_under(&first);
    script.finishes(A, "paid");
    let transition = script.asks([tool("pay").under(&first)]);
    assert_eq!(kinds(&transition.records), "assistant_message call_proposed", "the rule lets it run");
    let again = agentloop_core::id::CallSlot::from((2, 0));
    let transition = script.does(granted_under(again, &second));
    assert_eq!(kinds(&transition.records), "human_requested", "but not under other terms");
    assert_eq!(
        script.call_state(again),
        &CallState::AwaitingApproval { request: Some(script.question(again).expect("it is asked").request) }
    );
}

#[test]
fn a_remembered_denial_and_a_rule_for_several_tools_cover_any_terms() {
    let mut script = proposed(&with_approval());
    script.decides_and_remembers(deny());
    assert_eq!(script.state().remembered_rules()[0].terms, None);

    let mut spec = spec();
    spec.tool_policy.widening = Widening::UNLIMITED;
    let mut script = given_round(spec, [tool("pay").under(&with_approval())]);
    let rule = PolicyRule {
        name: String::new(),
        action: PolicyAction::Allow,
        tool: "p*".to_owned(),
        arguments: Vec::new(),
        origin: RuleOrigin::Run,
        terms: None,
        approvers: Approvers::default(),
        made_under: None,
    };
    let remember = Some(Box::new(Remember { scope: RememberScope::Run, rule: Some(rule) }));
    let Input::Decided { request, decision, digest, by, .. } = script.decision(A, Decision::Approve) else {
        unreachable!("it is a decision")
    };
    script.does(Input::Decided { request, decision, digest, by, remember });
    assert_eq!(script.state().remembered_rules()[0].terms, None);
}

#[test]
fn a_rule_of_the_agent_lets_calls_run_under_any_terms() {
    let mut spec = spec();
    spec.tool_policy.rules = vec![PolicyRule {
        name: String::new(),
        action: PolicyAction::Allow,
        tool: "pay".to_owned(),
        arguments: Vec::new(),
        origin: RuleOrigin::Agent,
        terms: None,
        approvers: Approvers::default(),
        made_under: None,
    }];
    let mut script = given_round(spec, [tool("pay").under(&read_only())]);
    assert_eq!(script.grants_under(&with_approval()), "call_offered");
}
