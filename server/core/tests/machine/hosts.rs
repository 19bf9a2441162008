//! Hosts are lost, turn calls away, and fail at them.

use agentloop_core::id::Attempt;
use agentloop_core::limits::TOOL_ATTEMPTS_MAX;
use agentloop_core::message::ToolStatus;
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::{AfterAttempt, Event, Ran};
use agentloop_core::run::machine::Transition;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::CallState;
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Millis;
use agentloop_core::tool::EffectClass;

use crate::support::*;

const CLASSES: [EffectClass; 4] =
    [EffectClass::ReadOnly, EffectClass::Idempotent, EffectClass::Keyed, EffectClass::Unsafe];

fn after(script: &Script) -> Option<AfterAttempt> {
    script.journal.iter().rev().find_map(|record| match record.event {
        Event::CallAttemptFailed { then, .. } => Some(then),
        _ => None,
    })
}

// ---- a host is lost

#[test]
fn what_follows_a_loss_depends_on_the_class_and_on_what_is_known() {
    for class in CLASSES {
        for ran in [Ran::No, Ran::Maybe, Ran::Yes] {
            let mut script = given_to_host(class);
            let transition = script.loses(A, ran);
            let case = format!("{class:?} {ran:?}");
            if ran == Ran::No {
                assert_eq!(kinds(&transition.records), "call_attempt_failed", "{case}");
                let at = Some(T0.after(Millis(100)));
                assert_eq!(after(&script), Some(AfterAttempt::Retry { at }), "{case}: turned away");
            } else if class == EffectClass::Unsafe {
                assert_eq!(kinds(&transition.records), "call_attempt_failed human_requested", "{case}");
                assert_eq!(after(&script), Some(AfterAttempt::InDoubt), "{case}");
                assert_eq!(script.status(), RunStatus::AwaitingHuman, "{case}");
            } else {
                assert_eq!(after(&script), Some(AfterAttempt::Retry { at: None }), "{case}: at once");
                assert!(
                    transition.effects.contains(&Effect::SeekHost {
                        slot: A,
                        tool: "pay".to_owned(),
                        on: None
                    }),
                    "{case}"
                );
            }
        }
    }
}

#[test]
fn another_try_has_the_same_key_another_lease_and_the_checkpoint() {
    for class in [EffectClass::ReadOnly, EffectClass::Idempotent, EffectClass::Keyed] {
        let mut script = given_round(spec(), [tool("pay").class(class)]);
        let first = offer(&script.grants(A));
        script.saves(A, b"half");
        script.loses(A, Ran::Maybe);
        script.later(Millis::secs(3));
        let second = offer(&script.grants(A));
        assert_eq!((first.attempt, second.attempt), (Attempt(1), Attempt(2)));
        assert_eq!(first.idempotency_key, second.idempotency_key);
        assert_ne!(first.lease, second.lease);
        assert_eq!((first.checkpoint, second.checkpoint.as_deref()), (None, Some(&b"half"[..])));
        assert_eq!(second.deadline, T0.after(Millis::secs(63)), "each try has the whole time");
        script.loses(A, Ran::Maybe);
        assert_eq!(offer(&script.grants(A)).checkpoint.as_deref(), Some(&b"half"[..]), "the last one saved");
    }
}

#[test]
fn calls_have_keys_of_their_own() {
    let mut script = given_round(spec(), [tool("pay"), tool("pay")]);
    let (first, second) = (offer(&script.grants(A)), offer(&script.grants(B)));
    assert_ne!(first.idempotency_key, second.idempotency_key);
    assert_ne!(first.lease, second.lease);
}

#[test]
fn being_turned_away_is_tried_again_later_and_later() {
    let mut script = given_round(spec(), [tool("pay")]);
    let mut waits = Vec::new();
    for _ in 1..TOOL_ATTEMPTS_MAX {
        script.grants(A);
        script.loses(A, Ran::No);
        let CallState::Ready { not_before: Some(at), .. } = *script.call_state(A) else { panic!("it waits") };
        assert_eq!(script.refuses(granted(A)), Refusal::StaleAttempt, "not yet");
        waits.push(at.since(script.now).0);
        let transition = script.wakes();
        assert_eq!(transition.effects, [Effect::SeekHost { slot: A, tool: "pay".to_owned(), on: None }]);
    }
    assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 5_000]);
    script.grants(A);
    let transition = script.loses(A, Ran::No);
    assert_eq!(kinds(&transition.records), "call_attempt_failed call_settled model_call_started");
    assert_eq!(after(&script), Some(AfterAttempt::Settle));
    let told = "given up after 8 tries: the host is gone".to_owned();
    assert_eq!(script.result(A), (ToolStatus::Unavailable, told));
}

/// A host that gave credit and has no room after all says nothing about the call.
#[test]
fn a_busy_host_uses_up_no_try() {
    let mut script = given_round(spec(), [tool("pay")]);
    let mut waits = Vec::new();
    for attempt in 1..=12 {
        script.grants(A);
        script.does(busy(A, attempt));
        let CallState::Ready { not_before: Some(at), .. } = *script.call_state(A) else { panic!("it waits") };
        waits.push(at.since(script.now).0);
        script.wakes();
        if attempt == 6 {
            script.restarts();
        }
    }
    assert_eq!(waits[..9], [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600]);
    assert_eq!(waits[9..], [30_000; 3]);
    assert_eq!((script.call(A).attempt, script.call(A).tries()), (Attempt(12), 0));
    for _ in 1..TOOL_ATTEMPTS_MAX {
        script.grants(A);
        script.loses(A, Ran::No);
        script.wakes();
    }
    script.grants(A);
    script.loses(A, Ran::No);
    let told = "given up after 8 tries: the host is gone".to_owned();
    assert_eq!(script.result(A), (ToolStatus::Unavailable, told));
}

#[test]
fn tries_are_bounded_whatever_fails() {
    for outcome in [None, Some(passing(Ran::Maybe, Millis(0)))] {
        let mut script = given_round(spec(), [tool("look").class(EffectClass::ReadOnly)]);
        let mut tries = 0;
        while script.state().call(A).is_some() {
            script.grants(A);
            match outcome.clone() {
                None => script.loses(A, Ran::Maybe),
                Some(outcome) => script.answers(A, outcome),
            };
            tries += 1;
        }
        assert_eq!(tries, TOOL_ATTEMPTS_MAX);
    }
}

// ---- a host reports a failure

#[test]
fn a_failure_is_tried_again_where_that_may_help_and_is_safe() {
    for class in CLASSES {
        for ran in [Ran::No, Ran::Maybe, Ran::Yes] {
            let safe = ran == Ran::No || class != EffectClass::Unsafe;
            let mut script = given_to_host(class);
            script.answers(A, passing(ran, Millis(0)));
            let retried =
                matches!(script.state().call(A).map(|call| &call.state), Some(CallState::Ready { .. }));
            assert_eq!(retried, safe, "{class:?} {ran:?}");
            let mut script = given_to_host(class);
            let transition = script.answers(A, lasting(ran));
            assert_eq!(kinds(&transition.records), "call_attempt_failed call_settled model_call_started");
            assert_eq!(script.result(A), (ToolStatus::Failed, "no such city".to_owned()));
        }
    }
}

#[test]
fn a_host_may_ask_for_time_before_the_next_try() {
    let mut script = given_to_host(EffectClass::ReadOnly);
    let transition = script.answers(A, passing(Ran::Yes, Millis::secs(7)));
    assert!(!transition.effects.iter().any(|effect| matches!(effect, Effect::SeekHost { .. })));
    assert_eq!(script.machine.deadline(), Some(T0.after(Millis::secs(7))));
    assert_eq!(script.wakes().effects, [Effect::SeekHost { slot: A, tool: "pay".to_owned(), on: None }]);
}

#[test]
fn a_host_does_not_put_the_next_try_off_for_ever() {
    let hour = Some(T0.after(Millis::secs(3_600)));
    for asked in [Millis::secs(3_600), Millis::secs(3_601), Millis(u64::MAX)] {
        let mut script = given_to_host(EffectClass::ReadOnly);
        script.answers(A, passing(Ran::Yes, asked));
        assert_eq!(script.machine.deadline(), hour, "{asked:?}");
    }
}

#[test]
fn a_failure_told_twice_is_recorded_once_and_puts_nothing_off() {
    let mut script = given_to_host(EffectClass::ReadOnly);
    script.answers(A, passing(Ran::Yes, Millis::secs(7)));
    script.later(Millis::secs(5));
    let again = script.answers(A, passing(Ran::Yes, Millis::secs(7)));
    assert_eq!(again, Transition::default());
    assert_eq!(script.machine.deadline(), Some(T0.after(Millis::secs(7))));
}

#[test]
fn a_host_that_takes_it_not_at_all_tells_the_model() {
    let mut script = given_to_host(EffectClass::Unsafe);
    let transition = script.answers(A, turned_down());
    assert_eq!(kinds(&transition.records), "call_settled model_call_started");
    assert_eq!(script.result(A).0, ToolStatus::Rejected);
}
