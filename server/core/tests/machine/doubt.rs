//! A call that may or may not have run: a human, a late result or time settles it.

use agentloop_core::agent::RunSpec;
use agentloop_core::id::Attempt;
use agentloop_core::message::ToolStatus;
use agentloop_core::run::effect::{CancelCause, Effect};
use agentloop_core::run::event::Ran;
use agentloop_core::run::human::{Decision, QuestionKind};
use agentloop_core::run::input::Input;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::status::{RunErrorCode, RunStatus};
use agentloop_core::time::Millis;
use agentloop_core::tool::EffectClass;

use crate::support::*;

/// An unsafe call whose host was lost.
fn in_doubt() -> Script {
    let mut script = given_to_host(EffectClass::Unsafe);
    script.loses(A, Ran::Maybe);
    script
}

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
    assert_eq!((second.attempt, second.idempotency_key), (Attempt(2), first.idempotency_key));
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
    let first = script.state().call_id(A).request(Attempt(0));
    let again = Input::Decided {
        request: first,
        decision: Decision::Approve,
        digest: None,
        by: "ann".to_owned().into(),
        remember: None,
    };
    check(&script, again, Ok(""));
    assert_eq!(script.status(), RunStatus::AwaitingHuman, "the first leave is not leave to run it again");
}

#[test]
fn each_answer_to_a_doubt_settles_it() {
    let unknown = "outcome unknown: the host is gone; the call may or may not have taken effect.";
    let cases = [
        (deny(), ToolStatus::OutcomeUnknown, format!("{unknown} too dear")),
        (Decision::Deny { message: String::new() }, ToolStatus::OutcomeUnknown, unknown.to_owned()),
        (answer(), ToolStatus::Answered, "say that it rains".to_owned()),
    ];
    for (decision, status, output) in cases {
        let mut script = in_doubt();
        let transition = script.decides(A, decision);
        assert_eq!(kinds(&transition.records), "human_resolved call_settled model_call_started");
        assert_eq!(script.result(A), (status, output));
    }
    let mut script = in_doubt();
    script.decides(A, deny_and_stop());
    assert_eq!(script.end().map(|error| error.code), Some(RunErrorCode::AbortedByDenial));
    let asked = script.state().questions().values().next().expect("it was asked");
    assert_eq!(asked.answer.as_ref().map(|answer| &answer.decision), Some(&deny_and_stop()));
}

#[test]
fn a_doubt_that_nobody_settles_ends_in_time_where_asked() {
    let spec = RunSpec { in_doubt_timeout: Some(Millis::secs(90)), ..spec() };
    let mut script = given_round(spec, [tool("pay")]);
    script.grants(A);
    script.loses(A, Ran::Maybe);
    assert_eq!(script.machine.deadline(), Some(T0.after(Millis::secs(90))));
    let transition = script.wakes();
    assert_eq!(kinds(&transition.records), "human_resolved call_settled model_call_started");
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
        let transition = script.answers(A, outcome);
        assert_eq!(kinds(&transition.records), events);
        assert_eq!(script.result(A).0, status);
        let refusal = script.refuses(script.decision(A, deny()));
        assert_eq!(refusal, Refusal::UnknownRequest, "that one was never asked");
        let request = script.state().call_id(A).request(Attempt(1));
        let late = Input::Decided {
            request,
            decision: Decision::Approve,
            digest: None,
            by: "ann".to_owned().into(),
            remember: None,
        };
        let refusal = script.refuses(late);
        assert!(
            matches!(refusal, Refusal::AlreadyResolved(answer) if answer.decision == Decision::Withdrawn)
        );
    }
}

/// An unsafe call whose deadline passed: its host is told to stop, and has a while to say whether it began.
fn overdue() -> Script {
    let mut script = given_to_host(EffectClass::Unsafe);
    let transition = script.passes(Millis::secs(60));
    assert_eq!(kinds(&transition.records), "", "it is not settled yet");
    let reason = "the call's deadline passed".to_owned();
    let cancel = Effect::CancelCall { slot: A, attempt: Attempt(1), cause: CancelCause::Deadline, reason };
    assert_eq!(transition.effects, [cancel]);
    assert_eq!(script.machine.deadline(), Some(script.now.after(Millis::secs(5))));
    script
}

#[test]
fn an_unsafe_call_is_in_doubt_after_its_deadline_and_a_late_result_settles_it() {
    let mut script = overdue();
    let transition = script.wakes();
    assert_eq!(kinds(&transition.records), "call_attempt_failed human_requested");
    let question = script.question(A).expect("it is asked");
    assert_eq!((question.kind, question.why.as_str()), (QuestionKind::InDoubt, "no answer within 60 s"));
    script.restarts();
    script.finishes(A, "paid");
    assert_eq!(script.result(A), (ToolStatus::Succeeded, "paid".to_owned()));
}

#[test]
fn a_result_within_the_grace_of_the_cancel_counts() {
    let mut script = overdue();
    let transition = script.finishes(A, "paid");
    assert_eq!(kinds(&transition.records), "call_settled model_call_started");
    assert_eq!(script.result(A).0, ToolStatus::Succeeded);
}

#[test]
fn only_a_host_that_did_not_begin_the_call_makes_it_time_out() {
    let mut script = overdue();
    let transition = script.does(script.stopped(A, 1, false));
    assert_eq!(kinds(&transition.records), "call_attempt_failed call_settled model_call_started");
    let output = "no answer within 60 s; the call did not begin".to_owned();
    assert_eq!(script.result(A), (ToolStatus::TimedOut, output));
    let mut script = overdue();
    let transition = script.does(script.stopped(A, 1, true));
    assert_eq!(kinds(&transition.records), "call_attempt_failed human_requested", "a stop proves nothing");
    let transition = script.does(script.stopped(A, 1, false));
    let events = "human_resolved call_attempt_failed call_settled model_call_started";
    assert_eq!(kinds(&transition.records), events, "this does, later too");
    assert_eq!(script.result(A).0, ToolStatus::TimedOut);
}

#[test]
fn a_host_that_is_lost_after_the_deadline_leaves_the_same_doubt() {
    let mut script = overdue();
    script.loses(A, Ran::Maybe);
    assert!(script.question(A).is_some());
    let mut script = overdue();
    script.loses(A, Ran::No);
    assert_eq!(script.result(A).0, ToolStatus::TimedOut, "it did not begin");
}

#[test]
fn a_deadline_that_is_an_outcome_is_one_for_unsafe_calls_too() {
    let mut script = given_round(spec(), [tool("pay").deadline_is_outcome()]);
    script.grants(A);
    script.restarts();
    let transition = script.wakes();
    assert_eq!(kinds(&transition.records), "call_settled model_call_started");
    let output = "no answer within 60 s; it may have taken effect all the same".to_owned();
    assert_eq!(script.result(A), (ToolStatus::TimedOut, output));
}

#[test]
fn a_call_in_doubt_that_was_not_begun_has_another_try() {
    let mut script = in_doubt();
    let transition = script.does(script.stopped(A, 1, false));
    assert_eq!(kinds(&transition.records), "human_resolved call_attempt_failed");
    script.wakes();
    assert_eq!(offer(&script.grants(A)).attempt, Attempt(2));
}

#[test]
fn a_restart_is_named_as_the_reason_of_a_doubt() {
    let mut script = given_to_host(EffectClass::Unsafe);
    script.restarts();
    script.loses(A, Ran::Maybe);
    let why = script.question(A).expect("it is asked").why;
    assert_eq!(why, "the server restarted during the call: the host is gone");
}

/// A parked run is taken over as after a restart, and the answer that woke it has the same millisecond.
#[test]
fn a_takeover_before_the_offer_is_not_named_as_the_reason_of_a_doubt() {
    let mut script = given_to_host(EffectClass::Unsafe);
    script.does(leaves(A, 1, "seat", b"booked"));
    script.restarts();
    script.decides(A, Decision::Text { text: "12A".to_owned() });
    script.grants(A);
    script.loses(A, Ran::Maybe);
    assert_eq!(script.question(A).expect("it is asked").why, "the host is gone");
}

#[test]
fn a_takeover_before_the_last_answer_is_not_named_either() {
    let mut script = given_to_host(EffectClass::Unsafe);
    script.does(needs(A, 1, "seat"));
    script.restarts();
    script.decides(A, Decision::Text { text: "12A".to_owned() });
    script.loses(A, Ran::Maybe);
    assert_eq!(script.question(A).expect("it is asked").why, "the host is gone");
}

#[test]
fn a_late_word_that_it_never_ran_allows_another_try() {
    let mut script = in_doubt();
    let transition = script.answers(A, passing(Ran::No, Millis(0)));
    assert_eq!(kinds(&transition.records), "human_resolved call_attempt_failed");
    assert_eq!(offer(&script.grants(A)).attempt, Attempt(2));
}

#[test]
fn a_late_confirmation_settles_no_doubt() {
    let mut script = in_doubt();
    let asked = script.question(A);
    assert!(asked.is_some());
    assert_eq!(script.refuses(accepted(A, 1)), Refusal::StaleAttempt);
    assert_eq!(script.question(A), asked);
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
    script.finishes(A, "paid");
    assert_eq!(script.result(A), (ToolStatus::Succeeded, "paid".to_owned()));
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

const WARNING: &str = "it may have taken effect all the same";

/// A person had the call run again, and no host runs it.
#[test]
fn an_attempt_that_does_not_run_does_not_undo_a_doubtful_one() {
    let repeated = || {
        let mut script = in_doubt();
        script.decides(A, Decision::Approve);
        script
    };
    let mut script = repeated();
    script.does(denied(A));
    let (_, told) = script.result(A);
    assert!(told.ends_with(WARNING), "{told}");
    let mut script = repeated();
    script.grants(A);
    script.answers(A, turned_down());
    assert_eq!(script.result(A), (ToolStatus::Rejected, format!("too large for this host; {WARNING}")));
    let mut script = repeated();
    script.grants(A);
    script.answers(A, ok("paid"));
    assert_eq!(script.result(A), (ToolStatus::Succeeded, "paid".to_owned()), "this speaks for all attempts");
}
