//! Which calls are given to hosts, and when: in order, and no more at once than the run allows.

use agentloop_core::id::{Attempt, CallSlot};
use agentloop_core::message::ToolStatus;
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::Ran;
use agentloop_core::run::machine::Transition;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::CallState;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Millis;
use agentloop_core::tool::EffectClass;

use crate::support::*;

const D: CallSlot = CallSlot { model_call: 1, position: 3 };

/// The calls that a step seeks a host for, in order.
fn sought(transition: &Transition) -> Vec<CallSlot> {
    let seek = |effect: &Effect| match effect {
        Effect::SeekHost { slot, .. } => Some(*slot),
        _ => None,
    };
    transition.effects.iter().filter_map(seek).collect()
}

fn four(max_parallel: u32) -> (Script, Transition) {
    let mut script = given(parallel(max_parallel));
    let transition = script.asks([tool("a"), tool("b"), tool("c"), tool("d")]);
    (script, transition)
}

#[test]
fn one_at_a_time_keeps_the_model_s_order() {
    let (mut script, transition) = four(1);
    assert_eq!(sought(&transition), [A]);
    for (slot, next) in [(A, vec![B]), (B, vec![C]), (C, vec![D]), (D, vec![])] {
        assert_eq!(sought(&script.grants(slot)), []);
        let transition = script.finishes(slot, "done");
        assert_eq!(sought(&transition), next);
    }
    let order: Vec<CallSlot> = results(&script.journal).iter().map(|result| result.slot).collect();
    assert_eq!(order, [A, B, C, D]);
}

#[test]
fn nought_at_a_time_is_one() {
    let (mut script, transition) = four(0);
    assert_eq!(sought(&transition), [A]);
    script.grants(A);
    assert_eq!(script.refuses(granted(B)), Refusal::StaleAttempt);
}

#[test]
fn hosts_are_sought_for_as_many_as_there_is_room_for() {
    let (mut script, transition) = four(2);
    assert_eq!(sought(&transition), [A, B]);
    assert_eq!(sought(&script.grants(B)), [], "A is sought already");
    assert_eq!(sought(&script.grants(A)), [], "no room");
    assert_eq!(script.refuses(granted(C)), Refusal::StaleAttempt);
    assert_eq!(sought(&script.finishes(B, "2")), [C]);
    assert_eq!(sought(&script.finishes(A, "1")), [D]);
    let (_, transition) = four(9);
    assert_eq!(sought(&transition), [A, B, C, D]);
}

#[test]
fn a_grant_leads_to_the_offer_and_keeps_the_room() {
    let (mut script, _) = four(1);
    let transition = script.grants(A);
    assert_eq!(kinds(&transition.records), "call_offered");
    let [Effect::OfferCall(offer)] = transition.effects.as_slice() else {
        panic!("{:?}", transition.effects)
    };
    assert_eq!((offer.slot, offer.attempt, offer.host.clone()), (A, Attempt(1), host()));
    assert_eq!((offer.tool.as_str(), offer.arguments.as_str()), ("a", "{}"));
    assert_eq!(offer.deadline, T0.after(Millis::secs(60)));
    assert_eq!(offer.lease, script.state().lease(A, Attempt(1)));
    assert_eq!(offer.idempotency_key, script.state().idempotency_key(A));
    assert_eq!(offer.checkpoint, None);
}

#[test]
fn a_search_ends_when_another_call_takes_its_room() {
    let (mut script, _) = four(2);
    script.grants(A);
    // B is sought, and C, which nobody sought, gets a host first.
    let transition = script.grants(C);
    assert!(transition.effects.contains(&Effect::StopSeeking { slot: B }), "{:?}", transition.effects);
    assert_eq!(sought(&script.finishes(C, "3")), [B]);
}

#[test]
fn a_call_that_waits_for_leave_takes_no_room() {
    let mut script = given(parallel(1));
    let transition = script.asks([tool("a").approval(), tool("b"), tool("c")]);
    assert_eq!(sought(&transition), [B]);
    script.grants(B);
    let transition = script.decides(A, agentloop_core::run::human::Decision::Approve);
    assert_eq!(sought(&transition), [], "B has the room");
    assert_eq!(sought(&script.finishes(B, "2")), [A], "then the model's order again");
}

#[test]
fn a_call_in_doubt_takes_no_room() {
    let (mut script, _) = four(1);
    script.grants(A);
    assert_eq!(sought(&script.loses(A, Ran::Maybe)), [B]);
    assert_eq!(script.status(), RunStatus::ToolRunning);
}

#[test]
fn a_call_that_waits_for_its_next_try_lets_others_go_first() {
    let look = |name| tool(name).class(EffectClass::ReadOnly);
    let mut script = given_round(parallel(1), [look("a"), look("b")]);
    script.grants(A);
    let transition = script.answers(A, passing(Ran::Yes, Millis::secs(5)));
    assert_eq!(sought(&transition), [B]);
    let transition = script.passes(Millis::secs(5));
    assert_eq!(transition.effects[0], Effect::StopSeeking { slot: B });
    assert_eq!(sought(&transition), [A], "its turn comes first again");
}

#[test]
fn nobody_serves_it() {
    let (mut script, _) = four(2);
    let transition = script.does(denied(A));
    assert_eq!(kinds(&transition.records), "call_settled");
    assert_eq!(sought(&transition), [C]);
    assert_eq!(script.result(A), (ToolStatus::Unavailable, "nobody serves it".to_owned()));
    for slot in [B, C, D] {
        script.does(denied(slot));
    }
    assert_eq!(script.status(), RunStatus::ModelRunning, "the model is told, and the run goes on");
}

#[test]
fn accepting_and_saving_wait_for_company_and_nothing_else_does() {
    let (mut script, transition) = four(1);
    assert!(!transition.may_wait());
    assert!(!script.grants(A).may_wait());
    assert!(script.accepts(A).may_wait());
    assert!(script.saves(A, b"half").may_wait());
    let again = script.saves(A, b"half");
    assert_eq!(again.records, [], "the same again is nothing new");
    let mut all = script.saves(A, b"most");
    assert!(matches!(script.call_state(A), CallState::Accepted { .. }));
    all.merge(script.finishes(A, "done"));
    assert_eq!(kinds(&all.records), "call_checkpoint call_settled");
    assert!(!all.may_wait());
    assert_eq!(sought(&all), [B]);
}

#[test]
fn a_call_is_accepted_once() {
    let (mut script, _) = four(1);
    script.grants(A);
    assert_eq!(kinds(&script.accepts(A).records), "call_accepted");
    assert_eq!(kinds(&script.accepts(A).records), "");
}
