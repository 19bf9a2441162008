//! A call leaves a state that its next attempt goes on from: with a question, or by itself.

use agentloop_core::agent::RunSpec;
use agentloop_core::id::Attempt;
use agentloop_core::limits::{ANSWER_BYTES_MAX, INPUT_ANSWERS_PER_CALL_BYTES_MAX, TOOL_ATTEMPTS_MAX};
use agentloop_core::message::ToolStatus;
use agentloop_core::question::{InputAnswer, InputReply};
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::Ran;
use agentloop_core::run::human::{BadAnswer, Decision, QuestionKind};
use agentloop_core::run::input::CallOutcome;
use agentloop_core::run::machine::Transition;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::CallState;
use agentloop_core::run::status::RunStatus;
use agentloop_core::run::view::WaitKind;
use agentloop_core::time::Millis;
use agentloop_core::tool::EffectClass;

use crate::support::*;

fn text(text: &str) -> Decision {
    Decision::Text { text: text.to_owned() }
}

fn reply(input: &str, text: &str) -> InputReply {
    InputReply { input: input.to_owned(), answer: InputAnswer::Text(text.to_owned()) }
}

/// An UNSAFE call has asked, and its host was released.
fn suspended() -> Script {
    let mut script = given_to_host(EffectClass::Unsafe);
    let transition = script.does(leaves(A, 1, "seat", b"booked"));
    assert_eq!(kinds(&transition.records), "human_requested", "question and state are one commit");
    assert_eq!(transition.effects, [Effect::ReleaseCall { slot: A, attempt: Attempt(1) }]);
    script
}

/// The states that a step acknowledges.
fn acknowledged(transition: &Transition) -> Vec<u64> {
    let number = |effect: &Effect| match effect {
        Effect::AckResumeState { resume_no, .. } => Some(*resume_no),
        _ => None,
    };
    transition.effects.iter().filter_map(number).collect()
}

#[test]
fn the_answer_comes_with_a_new_attempt_that_goes_on() {
    let mut script = suspended();
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
    assert_eq!(script.state().waiting_on().map(|on| on.kind), Some(WaitKind::Human));
    assert!(!script.state().has_calls_in_flight(), "nothing holds the run in memory");
    assert_eq!(script.machine.deadline(), None, "it may wait for years");
    let key = script.state().idempotency_key(A);
    script.restarts();
    let transition = script.decides(A, text("12A"));
    assert_eq!(kinds(&transition.records), "human_resolved");
    assert!(matches!(transition.effects[..], [Effect::SeekHost { slot: A, .. }]), "{:?}", transition.effects);
    let offer = offer(&script.does(granted_by(A, "host-2")));
    assert_eq!((offer.attempt, offer.resume_state.as_deref()), (Attempt(2), Some(&b"booked"[..])));
    assert_eq!(offer.answers, [reply("seat", "12A")]);
    assert_eq!(offer.idempotency_key, key);
    assert_eq!(script.call(A).tries(), 1, "the attempt that asked was no try");
    script.finishes(A, "done");
    assert_eq!(script.result(A), (ToolStatus::Succeeded, "done".to_owned()));
}

#[test]
fn a_host_that_is_lost_meanwhile_is_no_doubt() {
    let mut script = suspended();
    for ran in [Ran::No, Ran::Maybe, Ran::Yes] {
        check(&script, lost(A, 1, ran), Err(Refusal::StaleAttempt));
    }
    let failed = script.finished(A, 1, lasting(Ran::Maybe));
    check(&script, failed.clone(), Err(Refusal::StaleAttempt));
    script.decides(A, text("12A"));
    check(&script, failed, Err(Refusal::StaleAttempt));
    check(&script, script.stopped(A, 1, true), Err(Refusal::StaleAttempt));
}

#[test]
fn a_result_that_comes_all_the_same_counts() {
    let mut script = suspended();
    let transition = script.finishes(A, "sold out");
    assert_eq!(kinds(&transition.records), "human_resolved call_settled model_call_started");
    assert_eq!(script.result(A), (ToolStatus::Succeeded, "sold out".to_owned()));
}

#[test]
fn after_the_answer_a_lost_host_is_a_doubt_again() {
    let mut script = suspended();
    script.decides(A, text("12A"));
    script.grants(A);
    script.loses(A, Ran::Maybe);
    assert_eq!(script.question(A).map(|asked| asked.kind), Some(QuestionKind::InDoubt));
    script.decides(A, Decision::Approve);
    let offer = offer(&script.grants(A));
    assert_eq!((offer.attempt, offer.resume_state.as_deref()), (Attempt(3), Some(&b"booked"[..])));
    assert_eq!(offer.answers, [reply("seat", "12A")]);
}

#[test]
fn several_questions_are_answered_before_it_goes_on() {
    let mut script = given_to_host(EffectClass::Unsafe);
    script.does(needs(A, 1, "meal"));
    script.does(leaves(A, 1, "seat", b"booked"));
    check(&script, needs(A, 1, "more"), Err(Refusal::StaleAttempt));
    let asked: Vec<_> = script.state().open_questions().map(|question| question.request.clone()).collect();
    let [meal, seat] = &asked[..] else { panic!("two questions: {asked:?}") };
    let answer =
        |request: &agentloop_core::id::RequestId, words: &str| agentloop_core::run::input::Input::Decided {
            request: request.clone(),
            decision: text(words),
            digest: None,
            by: "ann".to_owned().into(),
            remember: None,
        };
    script.does(answer(seat, "12A"));
    assert!(matches!(script.call_state(A), CallState::Suspended { .. }));
    script.does(answer(meal, "soup"));
    let offer = offer(&script.grants(A));
    assert_eq!(offer.answers, [reply("meal", "soup"), reply("seat", "12A")], "in the order of the questions");
}

#[test]
fn a_tool_may_ask_again_and_again_as_long_as_a_person_answers() {
    let mut script = given_to_host(EffectClass::Unsafe);
    for attempt in 1..=2 * TOOL_ATTEMPTS_MAX {
        script.does(leaves(A, attempt, &format!("q{attempt}"), b"on"));
        script.decides(A, text("yes"));
        script.grants(A);
    }
    assert_eq!(script.call(A).tries(), 1);
    script.finishes(A, "done");
}

/// Answers of people are kept for the next attempts, and each of them gets all in one frame.
#[test]
fn the_answers_that_a_call_keeps_are_bounded() {
    let mut script = given_to_host(EffectClass::Unsafe);
    let long = "x".repeat(ANSWER_BYTES_MAX);
    let mut attempt = 1;
    loop {
        script.does(leaves(A, attempt, &format!("q{attempt}"), b"on"));
        let decision = script.decision(A, text(&long));
        if script.state().answered_bytes(script.call(A)) + long.len() > INPUT_ANSWERS_PER_CALL_BYTES_MAX {
            let refused = script.clone().refuses(decision);
            assert!(matches!(refused, Refusal::BadAnswer(BadAnswer::NoRoom { .. })), "{refused:?}");
            break;
        }
        script.does(decision);
        script.grants(A);
        attempt += 1;
    }
    assert_eq!(attempt, 4, "three long answers have room");
    let declined = script.clone().decides(A, Decision::Declined { message: "no".to_owned() });
    assert_eq!(kinds(&declined.records), "human_resolved", "to decline is always possible");
    script.decides(A, text("short"));
    let offer = offer(&script.grants(A));
    assert_eq!(offer.answers.len(), 4);
    let bytes: usize = offer.answers.iter().map(InputReply::size).sum();
    assert!(bytes <= INPUT_ANSWERS_PER_CALL_BYTES_MAX, "{bytes}");
}

#[test]
fn a_call_whose_answers_have_no_room_asks_no_more() {
    let mut script = given_to_host(EffectClass::Unsafe);
    let mut attempt = 1;
    let refused = loop {
        let input = format!("q{attempt}");
        let transition = script.does(leaves(A, attempt, &input, b"on"));
        if script.question(A).is_none() {
            break transition;
        }
        let empty = InputReply::size_of(&input, &InputAnswer::Text(String::new()));
        let taken = script.state().answered_bytes(script.call(A)) + empty;
        let room = INPUT_ANSWERS_PER_CALL_BYTES_MAX - taken;
        script.decides(A, text(&"x".repeat(room.min(ANSWER_BYTES_MAX))));
        script.grants(A);
        attempt += 1;
    };
    let told = refused.effects.iter().any(|effect| {
        matches!(effect, Effect::AnswerInput { answer: InputAnswer::Refused(why), .. } if why.contains("1048576"))
    });
    assert!(told && attempt == 5, "attempt {attempt}: {:?}", refused.effects);
    script.finishes(A, "done with what it has");
    assert_eq!(script.result(A).0, ToolStatus::Succeeded);
}

#[test]
fn a_tool_that_nobody_answers_is_given_up() {
    let mut script = given_to_host(EffectClass::Unsafe);
    for attempt in 1.. {
        let agentloop_core::run::input::Input::InputNeeded { slot, question, resume_state, .. } =
            leaves(A, attempt, &format!("q{attempt}"), b"on")
        else {
            unreachable!("a question")
        };
        let timeout = Some(Millis::secs(1));
        script.does(agentloop_core::run::input::Input::InputNeeded {
            slot,
            attempt: Attempt(attempt),
            question,
            timeout,
            resume_state,
        });
        script.wakes();
        if script.status() == RunStatus::ModelRunning {
            assert_eq!(attempt, TOOL_ATTEMPTS_MAX);
            break;
        }
        let offer = offer(&script.grants(A));
        let refused = InputAnswer::Refused("nobody answered in time".to_owned());
        assert_eq!(offer.answers.last().map(|reply| &reply.answer), Some(&refused), "it may decide itself");
    }
    assert_eq!(script.result(A).0, ToolStatus::Unavailable);
}

#[test]
fn an_abort_withdraws_the_question_and_says_that_it_may_have_taken_effect() {
    let mut script = suspended();
    script.aborts();
    let (status, told) = script.result(A);
    assert_eq!(status, ToolStatus::Aborted);
    assert!(told.contains("may have taken effect"), "{told}");
}

/// The steps before the stored state must not be repeated, whatever settles the call.
#[test]
fn a_call_that_waits_to_go_on_may_have_taken_effect() {
    let answered = || {
        let mut script = suspended();
        script.decides(A, text("12A"));
        assert!(matches!(script.call_state(A), CallState::Ready { .. }));
        script
    };
    let mut aborted = answered();
    aborted.aborts();
    let mut denied_by_hosts = answered();
    denied_by_hosts.does(denied(A));
    for script in [aborted, denied_by_hosts] {
        let (_, told) = script.result(A);
        assert!(told.contains("may have taken effect"), "{told}");
    }
}

const WARNING: &str = "it may have taken effect all the same";

/// An UNSAFE call whose host offers it to no one unasked, by now: a person is asked about its second attempt.
fn to_be_approved(spec: RunSpec) -> Script {
    let mut script = given_round(spec, [tool("pay").class(EffectClass::Unsafe)]);
    script.grants(A);
    script.does(leaves(A, 1, "seat", b"booked"));
    script.decides(A, text("12A"));
    script.does(granted_under(A, &terms(EffectClass::Unsafe, true, "2")));
    assert_eq!(script.question(A).map(|asked| asked.kind), Some(QuestionKind::Approve));
    script
}

/// An UNSAFE call whose second attempt a host has.
fn going_on() -> Script {
    let mut script = suspended();
    script.decides(A, text("12A"));
    script.grants(A);
    script
}

#[test]
fn a_denial_of_a_call_that_has_begun_says_that_it_may_have_taken_effect() {
    for (message, told) in [("too dear", "denied by a human: too dear; "), ("", "denied by a human; ")] {
        let mut script = to_be_approved(spec());
        script.decides(A, Decision::Deny { message: message.to_owned() });
        assert_eq!(script.result(A), (ToolStatus::Denied, format!("{told}{WARNING}")));
    }
    let mut script = to_be_approved(RunSpec { approval_timeout: Some(Millis::secs(30)), ..spec() });
    script.wakes();
    let told = format!("denied: nobody answered in time; {WARNING}");
    assert_eq!(script.result(A), (ToolStatus::Denied, told));
    let mut script = to_be_approved(spec());
    script.decides(A, deny_and_stop());
    assert_eq!(
        script.result(A),
        (ToolStatus::Aborted, format!("not completed: the run was aborted; {WARNING}"))
    );
}

#[test]
fn an_answer_in_place_of_a_call_that_has_begun_is_the_result_as_it_is() {
    let mut script = to_be_approved(spec());
    script.decides(A, answer());
    assert_eq!(script.result(A), (ToolStatus::Answered, "say that it rains".to_owned()));
}

#[test]
fn a_host_that_rejects_the_next_attempt_does_not_undo_the_one_before() {
    let mut script = going_on();
    script.answers(A, turned_down());
    assert_eq!(script.result(A), (ToolStatus::Rejected, format!("too large for this host; {WARNING}")));
    let mut script = going_on();
    script.answers(A, CallOutcome::Rejected { message: String::new() });
    assert_eq!(script.result(A).1, WARNING, "the host gave no reason");
    let mut script = going_on();
    script.answers(A, lasting(Ran::Maybe));
    assert!(!script.result(A).1.contains(WARNING), "whoever says that it failed speaks for all attempts");
    let mut script = given_to_host(EffectClass::Unsafe);
    script.answers(A, turned_down());
    assert_eq!(script.result(A).1, "too large for this host", "no attempt ran");
    let mut script = given_to_host(EffectClass::Keyed);
    script.does(leaves(A, 1, "seat", b"booked"));
    script.decides(A, text("12A"));
    script.grants(A);
    script.answers(A, turned_down());
    assert_eq!(script.result(A).1, "too large for this host", "it may be called once more");
}

#[test]
fn an_attempt_that_never_began_in_time_does_not_undo_the_one_before() {
    let overdue = |mut script: Script| {
        let attempt = script.call(A).attempt;
        script.passes(Millis::secs(60));
        script.does(script.stopped(A, attempt.0, false));
        script.result(A)
    };
    let told = format!("no answer within 60 s; the call did not go on; {WARNING}");
    assert_eq!(overdue(going_on()), (ToolStatus::TimedOut, told));
    let told = "no answer within 60 s; the call did not begin".to_owned();
    assert_eq!(overdue(given_to_host(EffectClass::Unsafe)), (ToolStatus::TimedOut, told));
}

#[test]
fn a_call_that_is_given_up_after_it_has_begun_warns_once() {
    let mut script = going_on();
    while script.status() != RunStatus::ModelRunning {
        script.loses(A, Ran::No);
        if script.status() != RunStatus::ModelRunning {
            script.wakes();
            script.grants(A);
        }
    }
    let told = format!("given up after {TOOL_ATTEMPTS_MAX} tries: the host is gone; {WARNING}");
    assert_eq!(script.result(A), (ToolStatus::Unavailable, told));
}

#[test]
fn a_recorded_state_lets_an_unsafe_call_go_on_without_its_host() {
    let mut script = given_to_host(EffectClass::Unsafe);
    let transition = script.does(resumable(A, 1, 1, b"one"));
    assert_eq!(
        (kinds(&transition.records).as_str(), acknowledged(&transition)),
        ("call_checkpoint", vec![1])
    );
    assert!(!transition.may_wait(), "the host waits for it");
    let transition = script.does(resumable(A, 1, 2, b"two"));
    assert_eq!(acknowledged(&transition), [2]);
    let again = script.does(resumable(A, 1, 1, b"one"));
    assert_eq!((again.records.len(), acknowledged(&again)), (0, vec![2]), "the greatest is confirmed");
    script.restarts();
    script.loses(A, Ran::Maybe);
    let offer = offer(&script.grants(A));
    assert_eq!((offer.attempt, offer.resume_state.as_deref()), (Attempt(2), Some(&b"two"[..])));
    assert_eq!(script.call(A).tries(), 2);
    script.loses(A, Ran::Maybe);
    assert!(matches!(script.call_state(A), CallState::Ready { .. }), "the promise holds for later attempts");
}

#[test]
fn an_overdue_call_is_doubted_whatever_it_left() {
    let mut script = given_to_host(EffectClass::Unsafe);
    script.does(resumable(A, 1, 1, b"one"));
    script.passes(Millis::secs(60));
    script.loses(A, Ran::Maybe);
    assert_eq!(script.question(A).map(|asked| asked.kind), Some(QuestionKind::InDoubt));
}

#[test]
fn a_call_without_a_state_is_doubted_as_before() {
    let mut script = given_to_host(EffectClass::Unsafe);
    script.does(needs(A, 1, "seat"));
    script.loses(A, Ran::Maybe);
    assert_eq!(script.question(A).map(|asked| asked.kind), Some(QuestionKind::InDoubt));
}
