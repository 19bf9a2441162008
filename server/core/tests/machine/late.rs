//! Leases, and results that come late, twice, or from nowhere.

use agentloop_core::id::{Attempt, CallSlot};
use agentloop_core::run::event::{Event, Ran};
use agentloop_core::run::input::{CallFinished, Input};
use agentloop_core::run::machine::Machine;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::replay::replay;
use agentloop_core::time::Millis;
use agentloop_core::tool::{Digest, EffectClass};

use crate::support::*;

#[test]
fn a_result_needs_the_lease_of_its_try() {
    let mut script = given_to_host(EffectClass::ReadOnly);
    script.loses(A, Ran::Maybe);
    script.grants(A);
    let with = |lease: Digest, attempt| {
        Input::CallFinished(Box::new(CallFinished {
            slot: A,
            attempt,
            lease,
            host: host(),
            outcome: ok("found"),
            sent: None,
            applied: Vec::new(),
        }))
    };
    let state = script.state().clone();
    for (lease, attempt) in [
        (state.lease(A, Attempt(1)), 2),
        (state.lease(B, Attempt(2)), 2),
        (state.lease(A, Attempt(3)), 2),
        (Digest::of(&[b"guess"]), 2),
        (state.lease(A, Attempt(0)), 0),
    ] {
        assert_eq!(script.refuses(with(lease, Attempt(attempt))), Refusal::UnknownCall, "{attempt}");
    }
    assert_eq!(
        script.refuses(with(state.lease(A, Attempt(1)), Attempt(1))),
        Refusal::StaleAttempt,
        "an older try"
    );
    assert_eq!(
        script.refuses(with(state.lease(A, Attempt(3)), Attempt(3))),
        Refusal::StaleAttempt,
        "a try to come"
    );
    script.does(with(state.lease(A, Attempt(2)), Attempt(2)));
}

#[test]
fn leases_differ_between_runs() {
    let mut other = unstarted();
    let Input::Start(mut begin) = start(spec()) else { panic!("a start") };
    begin.seed = SEED + 1;
    other.does(Input::Start(begin));
    let script = given(spec());
    assert_ne!(script.state().lease(A, Attempt(1)), other.state().lease(A, Attempt(1)));
    assert_ne!(script.state().idempotency_key(A), other.state().idempotency_key(A));
}

/// A host sees the keys of its own calls. With the seed it would know the leases of calls that other hosts were given.
#[test]
fn an_idempotency_key_does_not_show_the_seed() {
    let mut script = given_round(spec(), [tool("a"), tool("b")]);
    let (key, other) = (script.state().idempotency_key(A), script.state().idempotency_key(B));
    assert!(!key.contains(&format!("{SEED:x}")) && key != other, "{key} {other}");
    script.restarts();
    assert_eq!(script.state().idempotency_key(A), key);
}

/// Its calls may have taken effect under the keys that they had.
#[test]
fn a_run_of_an_earlier_version_keeps_its_keys() {
    let script = given_round(spec(), [tool("a")]);
    let mut journal = script.journal.clone();
    let Event::Started { hidden_seed, .. } = &mut journal[0].event else { panic!("it starts") };
    *hidden_seed = false;
    let earlier = replay(&run_id(), &journal, |_| Ok(())).state;
    assert_eq!(earlier.idempotency_key(A), format!("{SEED:016x}-{A}"));
    assert_eq!(earlier.lease(A, Attempt(1)), script.state().lease(A, Attempt(1)));
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

/// Only the recorded answer is a duplicate. A host that says something else later is told that it does not count.
#[test]
fn another_answer_after_the_recorded_one_is_stale_for_ever() {
    for (first, other) in [
        (ok("1"), ok("2")),
        (ok("1"), lasting(Ran::Yes)),
        (lasting(Ran::Yes), ok("1")),
        (lasting(Ran::Yes), lasting(Ran::Maybe)),
        (turned_down(), ok("1")),
    ] {
        let mut script = given_round(spec(), [tool("a"), tool("b")]);
        script.grants(A);
        script.answers(A, first.clone());
        let check = |script: &mut Script, when: &str| {
            let (same, other) = (script.finished(A, 1, first.clone()), script.finished(A, 1, other.clone()));
            assert_eq!(script.refuses(same), Refusal::DuplicateResult, "{when}");
            assert_eq!(script.refuses(other), Refusal::StaleAttempt, "{when}");
        };
        check(&mut script, "while its round goes on");
        script.runs(B, "2");
        check(&mut script, "after its round");
        script.restarts();
        check(&mut script, "after a restart");
    }
}

#[test]
fn any_answer_after_one_of_an_older_journal_is_a_duplicate() {
    let mut script = given_round(spec(), [tool("a"), tool("b")]);
    script.runs(A, "1");
    let mut journal = script.journal.clone();
    for record in &mut journal {
        if let Event::CallSettled { outcome, .. } = &mut record.event {
            assert!(outcome.take().is_some(), "journals have the digest from now on");
        }
    }
    let mut machine = Machine::replay(run_id(), &journal);
    machine.handle(Input::Recovered, script.now).expect("a new owner takes over");
    for again in [ok("1"), ok("2")] {
        let again = machine.handle(script.finished(A, 1, again), script.now);
        assert_eq!(again.expect_err("it is settled"), Refusal::DuplicateResult);
    }
}

/// A host is told the truth: its result was not the one that counted.
#[test]
fn a_result_of_a_call_that_was_settled_otherwise_is_stale() {
    let ends: [fn(&mut Script); 3] = [
        |script| {
            script.passes(Millis::secs(60));
            script.does(script.stopped(A, 1, false));
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
    script.does(script.stopped(A, 1, false));
    assert_eq!(script.refuses(script.finished(A, 1, ok("paid"))), Refusal::StaleAttempt, "in the same round");
}

#[test]
fn updates_of_calls_that_never_were_are_unknown() {
    let mut script = given_to_host(EffectClass::Unsafe);
    let never = CallSlot::from((7, 7));
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
    assert_eq!(settled, Some((Attempt(2), Some(host()), Millis::secs(5))), "from the first offer");
}
