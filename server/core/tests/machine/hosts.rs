//! Hosts fail, are lost, come back, and answer late or twice.

use agentloop_core::agent::RunSpec;
use agentloop_core::error::Refusal;
use agentloop_core::id::CallSlot;
use agentloop_core::limits::TOOL_ATTEMPTS_MAX;
use agentloop_core::message::ToolStatus;
use agentloop_core::run::effect::{Effect, Offer};
use agentloop_core::run::event::{AfterAttempt, Event, Ran};
use agentloop_core::run::human::{Decision, QuestionKind};
use agentloop_core::run::input::Input;
use agentloop_core::run::machine::Step;
use agentloop_core::run::state::CallState;
use agentloop_core::run::status::{RunErrorCode, RunStatus};
use agentloop_core::time::Millis;
use agentloop_core::tool::{Digest, EffectClass};

use crate::support::*;

const CLASSES: [EffectClass; 4] =
    [EffectClass::ReadOnly, EffectClass::Idempotent, EffectClass::Keyed, EffectClass::Unsafe];

/// A call of this class, given to a host.
fn given_to_host(class: EffectClass) -> Script {
    let mut script = given_round(spec(), [tool("pay").class(class)]);
    script.grants(A);
    script.accepts(A);
    script
}

/// An unsafe call whose host was lost.
fn in_doubt() -> Script {
    let mut script = given_to_host(EffectClass::Unsafe);
    script.loses(A, Ran::Maybe);
    script
}

#[track_caller]
fn offer(step: &Step) -> Offer {
    let mut offers = step.effects.iter().filter_map(|effect| match effect {
        Effect::OfferCall(offer) => Some(offer.clone()),
        _ => None,
    });
    offers.next_back().expect("an offer")
}

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
            let step = script.loses(A, ran);
            let case = format!("{class:?} {ran:?}");
            if ran == Ran::No {
                assert_eq!(kinds(&step.records), "call_attempt_failed", "{case}");
                let at = Some(T0.after(Millis(100)));
                assert_eq!(after(&script), Some(AfterAttempt::Retry { at }), "{case}: turned away");
            } else if class == EffectClass::Unsafe {
                assert_eq!(kinds(&step.records), "call_attempt_failed human_requested", "{case}");
                assert_eq!(after(&script), Some(AfterAttempt::InDoubt), "{case}");
                assert_eq!(script.status(), RunStatus::AwaitingHuman, "{case}");
            } else {
                assert_eq!(after(&script), Some(AfterAttempt::Retry { at: None }), "{case}: at once");
                assert!(
                    step.effects.contains(&Effect::SeekHost { slot: A, tool: "pay".to_owned() }),
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
        assert_eq!((first.attempt, second.attempt), (1, 2));
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
        let step = script.wakes();
        assert_eq!(step.effects, [Effect::SeekHost { slot: A, tool: "pay".to_owned() }]);
    }
    assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 5_000]);
    script.grants(A);
    let step = script.loses(A, Ran::No);
    assert_eq!(kinds(&step.records), "call_attempt_failed call_settled model_call_started");
    assert_eq!(after(&script), Some(AfterAttempt::Settle));
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
            let step = script.answers(A, lasting(ran));
            assert_eq!(kinds(&step.records), "call_attempt_failed call_settled model_call_started");
            assert_eq!(script.result(A), (ToolStatus::Failed, "no such city".to_owned()));
        }
    }
}

#[test]
fn a_host_may_ask_for_time_before_the_next_try() {
    let mut script = given_to_host(EffectClass::ReadOnly);
    let step = script.answers(A, passing(Ran::Yes, Millis::secs(7)));
    assert!(!step.effects.iter().any(|effect| matches!(effect, Effect::SeekHost { .. })));
    assert_eq!(script.machine.deadline(), Some(T0.after(Millis::secs(7))));
    assert_eq!(script.wakes().effects, [Effect::SeekHost { slot: A, tool: "pay".to_owned() }]);
}

#[test]
fn a_failure_told_twice_is_recorded_once_and_puts_nothing_off() {
    let mut script = given_to_host(EffectClass::ReadOnly);
    script.answers(A, passing(Ran::Yes, Millis::secs(7)));
    script.later(Millis::secs(5));
    let again = script.answers(A, passing(Ran::Yes, Millis::secs(7)));
    assert_eq!(again, Step::default());
    assert_eq!(script.machine.deadline(), Some(T0.after(Millis::secs(7))));
}

#[test]
fn a_host_that_takes_it_not_at_all_tells_the_model() {
    let mut script = given_to_host(EffectClass::Unsafe);
    let step = script.answers(A, turned_down());
    assert_eq!(kinds(&step.records), "call_settled model_call_started");
    assert_eq!(script.result(A).0, ToolStatus::Rejected);
}

// ---- in doubt

#[test]
fn a_call_in_doubt_is_asked_about() {
    let script = in_doubt();
    let question = script.question(A).expect("it is asked");
    assert_eq!(question.kind, QuestionKind::InDoubt);
    assert_eq!(question.request.as_str(), "run-1:1.0:1", "one question per try");
    assert_eq!(question.expires_at, None);
    assert_eq!(script.machine.deadline(), None, "it waits as long as it takes");
}

#[test]
fn leave_runs_it_once_more_with_the_same_key_and_another_lease() {
    let mut script = given_round(spec(), [tool("pay")]);
    let first = offer(&script.grants(A));
    script.saves(A, b"half");
    script.loses(A, Ran::Maybe);
    script.decides(A, Decision::Approve);
    let second = offer(&script.grants(A));
    assert_eq!((second.attempt, second.idempotency_key), (2, first.idempotency_key));
    assert_ne!(second.lease, first.lease);
    assert_eq!(second.checkpoint.as_deref(), Some(&b"half"[..]));
    script.loses(A, Ran::Yes);
    assert_eq!(
        script.question(A).map(|question| question.request.to_string()),
        Some("run-1:1.0:2".to_owned())
    );
}

#[test]
fn a_call_that_was_approved_once_asks_again_when_in_doubt() {
    let mut script = given_round(spec(), [tool("pay").approval()]);
    script.decides(A, Decision::Approve);
    script.grants(A);
    script.loses(A, Ran::Maybe);
    assert_eq!(script.state().open_questions().count(), 1);
    let first = script.state().call_id(A).request(0);
    let again =
        Input::Decided { request: first, decision: Decision::Approve, digest: None, by: "ann".into() };
    check(&script, again, Ok(""));
    assert_eq!(script.status(), RunStatus::AwaitingHuman, "the first leave is not leave to run it again");
}

#[test]
fn each_answer_to_a_doubt_settles_it() {
    let unknown =
        "outcome unknown: the tool's host was lost during the call, which may or may not have taken effect.";
    let cases = [
        (deny(), ToolStatus::OutcomeUnknown, format!("{unknown} too dear")),
        (Decision::Deny { message: String::new() }, ToolStatus::OutcomeUnknown, unknown.to_owned()),
        (answer(), ToolStatus::Answered, "say that it rains".to_owned()),
    ];
    for (decision, status, output) in cases {
        let mut script = in_doubt();
        let step = script.decides(A, decision);
        assert_eq!(kinds(&step.records), "human_resolved call_settled model_call_started");
        assert_eq!(script.result(A), (status, output));
    }
    let mut script = in_doubt();
    script.decides(A, deny_and_stop());
    assert_eq!(script.end().map(|error| error.code), Some(RunErrorCode::AbortedByDenial));
    let asked = script.state().questions.values().next().expect("it was asked");
    assert_eq!(asked.answer.as_ref().map(|answer| &answer.decision), Some(&deny_and_stop()));
}

#[test]
fn a_doubt_that_nobody_settles_ends_in_time_where_asked() {
    let spec = RunSpec { in_doubt_timeout: Some(Millis::secs(90)), ..spec() };
    let mut script = given_round(spec, [tool("pay")]);
    script.grants(A);
    script.loses(A, Ran::Maybe);
    assert_eq!(script.machine.deadline(), Some(T0.after(Millis::secs(90))));
    let step = script.wakes();
    assert_eq!(kinds(&step.records), "human_resolved call_settled model_call_started");
    assert_eq!(script.result(A).0, ToolStatus::OutcomeUnknown);
}

#[test]
fn a_late_result_settles_a_doubt_and_withdraws_the_question() {
    for (outcome, status, events) in [
        (ok("paid"), ToolStatus::Succeeded, "human_resolved call_settled model_call_started"),
        (turned_down(), ToolStatus::Rejected, "human_resolved call_settled model_call_started"),
        (
            lasting(Ran::Yes),
            ToolStatus::Failed,
            "human_resolved call_attempt_failed call_settled model_call_started",
        ),
        (
            passing(Ran::Maybe, Millis(0)),
            ToolStatus::Failed,
            "human_resolved call_attempt_failed call_settled model_call_started",
        ),
    ] {
        let mut script = in_doubt();
        let step = script.answers(A, outcome);
        assert_eq!(kinds(&step.records), events);
        assert_eq!(script.result(A).0, status);
        let refusal = script.refuses(script.decision(A, deny()));
        assert_eq!(refusal, Refusal::UnknownRequest, "that one was never asked");
        let request = script.state().call_id(A).request(1);
        let late = Input::Decided { request, decision: Decision::Approve, digest: None, by: "ann".into() };
        let refusal = script.refuses(late);
        assert!(
            matches!(refusal, Refusal::AlreadyResolved(answer) if answer.decision == Decision::Withdrawn)
        );
    }
}

#[test]
fn a_late_word_that_it_never_ran_allows_another_try() {
    let mut script = in_doubt();
    let step = script.answers(A, passing(Ran::No, Millis(0)));
    assert_eq!(kinds(&step.records), "human_resolved call_attempt_failed");
    assert_eq!(offer(&script.grants(A)).attempt, 2);
}

#[test]
fn a_late_result_counts_until_the_next_try_is_under_way() {
    let mut script = in_doubt();
    script.decides(A, Decision::Approve);
    check(&script, script.finished(A, 1, ok("paid")), Ok("call_settled model_call_started"));
    script.grants(A);
    assert_eq!(script.refuses(script.finished(A, 1, ok("paid"))), Refusal::StaleAttempt);
    script.finishes(A, "paid");
}

// ---- leases, duplicates

#[test]
fn a_result_needs_the_lease_of_its_try() {
    let mut script = given_to_host(EffectClass::ReadOnly);
    script.loses(A, Ran::Maybe);
    script.grants(A);
    let with = |lease: Digest, attempt| Input::CallFinished {
        slot: A,
        attempt,
        lease,
        host: host(),
        outcome: ok("found"),
    };
    let state = script.state().clone();
    for (lease, attempt) in [
        (state.lease(A, 1), 2),
        (state.lease(B, 2), 2),
        (state.lease(A, 3), 2),
        (Digest::of(&[b"guess"]), 2),
        (state.lease(A, 0), 0),
    ] {
        assert_eq!(script.refuses(with(lease, attempt)), Refusal::UnknownCall, "{attempt}");
    }
    assert_eq!(script.refuses(with(state.lease(A, 1), 1)), Refusal::StaleAttempt, "an older try");
    assert_eq!(script.refuses(with(state.lease(A, 3), 3)), Refusal::StaleAttempt, "a try to come");
    script.does(with(state.lease(A, 2), 2));
}

#[test]
fn leases_differ_between_runs() {
    let mut other = unstarted();
    let Input::Start(mut begin) = start(spec()) else { panic!("a start") };
    begin.seed = SEED + 1;
    other.does(Input::Start(begin));
    let script = given(spec());
    assert_ne!(script.state().lease(A, 1), other.state().lease(A, 1));
    assert_ne!(script.state().idempotency_key(A), other.state().idempotency_key(A));
}

#[test]
fn a_result_told_again_is_a_duplicate_for_ever() {
    let mut script = given_round(spec(), [tool("a"), tool("b")]);
    script.runs(A, "1");
    let again = |script: &Script| script.finished(A, 1, ok("1"));
    assert_eq!(script.refuses(again(&script)), Refusal::DuplicateResult, "while its round goes on");
    script.runs(B, "2");
    assert_eq!(script.refuses(again(&script)), Refusal::DuplicateResult, "after its round");
    script.restarts();
    assert_eq!(script.refuses(again(&script)), Refusal::DuplicateResult, "after a restart");
    script.says("done");
    assert_eq!(script.refuses(again(&script)), Refusal::DuplicateResult, "after the run");
    script.restarts();
    assert_eq!(script.refuses(again(&script)), Refusal::DuplicateResult, "after both");
}

/// A host is told the truth: its result was not the one that counted.
#[test]
fn a_result_of_a_call_that_was_settled_otherwise_is_stale() {
    let ends: [fn(&mut Script); 3] = [
        |script| {
            script.passes(Millis::secs(60));
        },
        |script| {
            script.aborts();
        },
        |script| {
            script.loses(A, Ran::Maybe);
            script.decides(A, answer());
        },
    ];
    for end in ends {
        let mut script = given_to_host(EffectClass::Unsafe);
        end(&mut script);
        assert_eq!(script.refuses(script.finished(A, 1, ok("paid"))), Refusal::StaleAttempt);
        script.restarts();
        assert_eq!(script.refuses(script.finished(A, 1, ok("paid"))), Refusal::StaleAttempt);
        assert_eq!(script.refuses(script.finished(A, 2, ok("paid"))), Refusal::StaleAttempt);
    }
    let mut script = given_round(spec(), [tool("a"), tool("b").approval()]);
    script.grants(A);
    script.passes(Millis::secs(60));
    assert_eq!(script.refuses(script.finished(A, 1, ok("paid"))), Refusal::StaleAttempt, "in the same round");
}

#[test]
fn news_of_calls_that_never_were_are_unknown() {
    let mut script = given_to_host(EffectClass::Unsafe);
    let never = CallSlot(7, 7);
    for input in [
        granted(never),
        denied(never),
        accepted(never, 1),
        checkpoint(never, 1, b"x"),
        lost(never, 1, Ran::No),
        script.finished(never, 1, ok("x")),
    ] {
        assert_eq!(script.refuses(input), Refusal::UnknownCall);
    }
}

#[test]
fn a_settled_call_says_who_answered_and_how_long_it_took() {
    let mut script = given_to_host(EffectClass::ReadOnly);
    script.later(Millis::secs(2));
    script.loses(A, Ran::Maybe);
    script.grants(A);
    script.later(Millis::secs(3));
    script.finishes(A, "found");
    let settled = script.journal.iter().find_map(|record| match &record.event {
        Event::CallSettled { attempt, host, duration, .. } => Some((*attempt, host.clone(), *duration)),
        _ => None,
    });
    assert_eq!(settled, Some((2, Some(host()), Millis::secs(5))), "from the first offer");
}
