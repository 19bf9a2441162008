//! Humans are asked before a call runs.

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{Attempt, CallSlot};
use agentloop_core::message::ToolStatus;
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::Event;
use agentloop_core::run::human::{Decision, QuestionKind};
use agentloop_core::run::input::Input;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::CallState;
use agentloop_core::run::status::{RunErrorCode, RunStatus};
use agentloop_core::time::Millis;
use agentloop_core::tool::Digest;

use crate::support::*;

fn asked() -> Script {
    given_round(spec(), [tool("pay").with(r#"{"amount":1}"#).approval()])
}

fn expiring() -> Script {
    let spec = RunSpec { approval_timeout: Some(Millis::secs(30)), ..spec() };
    given_round(spec, [tool("pay").approval()])
}

/// The decision about a call, as it is kept.
#[track_caller]
fn kept(script: &Script, slot: CallSlot) -> (Decision, String) {
    let asked = script.state().questions().values().find(|asked| asked.question.slot == Some(slot));
    let answer = asked.expect("it was asked").answer.clone().expect("it is answered");
    (answer.decision, answer.by)
}

#[test]
fn a_question_names_what_it_is_about() {
    let mut script = given(spec());
    let transition = script.asks([tool("pay").with("{}").approval()]);
    assert_eq!(kinds(&transition.records), "assistant_message call_proposed human_requested");
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
    assert_eq!(
        transition.effects,
        [Effect::StopModel { model_call: 1, attempt: Attempt(1) }],
        "nothing is sought before leave"
    );
    let question = script.question(A).expect("it is asked");
    assert_eq!(question.request.as_str(), "run-1:1.0:0");
    assert_eq!(question.request.run(), Some(run_id()));
    assert_eq!((question.kind, question.tool.as_str()), (QuestionKind::Approve, "pay"));
    assert_eq!(question.digest, Digest::of(&[b"pay", b"{}"]));
    assert_eq!((question.asked_at, question.expires_at), (T0, None));
}

#[test]
fn a_policy_asks_about_every_call() {
    let mut spec = spec();
    spec.tool_policy.require_approval_by_default = true;
    let script = given_round(spec, [tool("look"), tool("pay").approval()]);
    assert_eq!(script.state().open_questions().count(), 2);
}

#[test]
fn each_decision_leads_where_it_says() {
    let cases = [
        (Decision::Approve, "human_resolved", None),
        (edits(r#"{"amount":2}"#), "human_resolved", None),
        (
            deny(),
            "human_resolved call_settled model_call_started",
            Some((ToolStatus::Denied, "denied by a human: too dear")),
        ),
        (
            Decision::Deny { message: String::new() },
            "human_resolved call_settled model_call_started",
            Some((ToolStatus::Denied, "denied by a human")),
        ),
        (
            answer(),
            "human_resolved call_settled model_call_started",
            Some((ToolStatus::Answered, "say that it rains")),
        ),
        (
            deny_and_stop(),
            "human_resolved call_settled finished",
            Some((ToolStatus::Aborted, "not completed: the run was aborted")),
        ),
    ];
    for (decision, events, outcome) in cases {
        let mut script = asked();
        let transition = script.decides(A, decision.clone());
        assert_eq!(kinds(&transition.records), events, "{decision:?}");
        let outcome = outcome.map(|(status, output)| (status, output.to_owned()));
        assert_eq!(result(&script.journal, A), outcome, "{decision:?}");
        assert_eq!(kept(&script, A), (decision, "ann".to_owned()));
    }
}

#[test]
fn leave_seeks_a_host() {
    let mut script = asked();
    let transition = script.decides(A, Decision::Approve);
    assert_eq!(transition.effects, [Effect::SeekHost { slot: A, tool: "pay".to_owned(), on: None }]);
    assert_eq!(script.status(), RunStatus::ToolRunning);
    script.runs(A, "paid");
    assert_eq!(script.result(A), (ToolStatus::Succeeded, "paid".to_owned()));
}

#[test]
fn denying_and_stopping_ends_the_run() {
    let mut script = given_round(spec(), [tool("pay").approval(), tool("mail").approval(), tool("look")]);
    script.grants(C);
    script.decides(A, deny_and_stop());
    assert_eq!(script.status(), RunStatus::Aborted);
    let error = script.end().expect("a reason");
    assert_eq!((error.code, error.message.as_str()), (RunErrorCode::AbortedByDenial, "stop it"));
    assert_eq!(kept(&script, A).0, deny_and_stop(), "what was said is what is kept");
    assert_eq!(kept(&script, B).0, Decision::Withdrawn);
    assert_eq!(results(&script.journal).len(), 3);
}

#[test]
fn the_same_answer_again_is_confirmed() {
    for decision in [Decision::Approve, edits("2"), deny(), deny_and_stop(), answer()] {
        let mut script = asked();
        script.decides(A, decision.clone());
        let mut again = script.decision(A, decision.clone());
        if let Input::Decided { by, .. } = &mut again {
            *by = "bob".to_owned().into();
        }
        check(&script, again.clone(), Ok(""));
        script.restarts();
        check(&script, again, Ok(""));
        assert_eq!(kept(&script, A).1, "ann", "{decision:?}");
    }
}

#[test]
fn another_answer_is_refused_and_names_the_first() {
    for first in [Decision::Approve, edits("2"), deny(), deny_and_stop(), answer()] {
        for second in [Decision::Approve, edits("3"), deny(), deny_and_stop(), answer()] {
            if first == second {
                continue;
            }
            let mut script = asked();
            script.decides(A, first.clone());
            let refusal = script.refuses(script.decision(A, second.clone()));
            let Refusal::AlreadyResolved(answer) = &refusal else { panic!("{refusal:?}") };
            assert_eq!((&answer.decision, answer.by.as_str()), (&first, "ann"));
            assert_eq!(refusal.to_string(), format!("answered before: {}", first.name()));
        }
    }
}

#[test]
fn an_answer_holds_for_what_was_shown() {
    let mut script = asked();
    let question = script.question(A).expect("it is asked");
    let with = |digest: Option<Digest>| Input::Decided {
        request: question.request.clone(),
        decision: Decision::Approve,
        digest,
        by: "ann".to_owned().into(),
        remember: None,
    };
    let other = Some(Digest::of(&[b"pay", br#"{"amount":1000}"#]));
    assert_eq!(script.refuses(with(other.clone())), Refusal::DigestMismatch);
    check(&script, with(None), Ok("human_resolved"));
    script.does(with(Some(question.digest.clone())));
    assert_eq!(script.refuses(with(other)), Refusal::DigestMismatch);
}

#[test]
fn nobody_decides_that_time_passed_or_that_it_is_withdrawn() {
    let mut script = asked();
    for decision in [Decision::Expired, Decision::Withdrawn] {
        assert_eq!(script.refuses(script.decision(A, decision)), Refusal::NotADecision);
    }
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
}

#[test]
fn a_question_that_expires_is_denied() {
    let mut script = expiring();
    assert_eq!(script.machine.deadline(), Some(T0.after(Millis::secs(30))));
    assert_eq!(kinds(&script.passes(Millis(29_999)).records), "");
    let transition = script.passes(Millis(1));
    assert_eq!(kinds(&transition.records), "human_resolved call_settled model_call_started");
    assert_eq!(script.result(A), (ToolStatus::Denied, "denied: nobody answered in time".to_owned()));
    assert_eq!(kept(&script, A), (Decision::Expired, String::new()));
    let refusal = script.refuses(script.decision(A, Decision::Approve));
    assert!(matches!(refusal, Refusal::AlreadyResolved(answer) if answer.decision == Decision::Expired));
}

#[test]
fn leave_that_comes_too_late_runs_nothing() {
    let mut script = expiring();
    script.later(Millis::secs(30));
    for decision in [Decision::Approve, edits("2"), answer(), deny()] {
        let refusal = script.refuses(script.decision(A, decision));
        assert!(matches!(refusal, Refusal::AlreadyResolved(answer) if answer.decision == Decision::Expired));
    }
    assert!(script.machine.deadline() <= Some(script.now), "its expiry is what comes next");
    script.wakes();
    assert_eq!(script.result(A).0, ToolStatus::Denied);
}

#[test]
fn leave_that_comes_too_late_for_a_run_that_was_away_runs_nothing() {
    let mut script = expiring();
    script.later(Millis::secs(3_600));
    script.restarts();
    let refusal = script.refuses(script.decision(A, Decision::Approve));
    assert!(matches!(refusal, Refusal::AlreadyResolved(_)), "{refusal:?}");
}

#[test]
fn an_answer_in_time_is_not_undone_by_the_expiry() {
    let mut script = expiring();
    script.later(Millis(29_999));
    script.decides(A, Decision::Approve);
    assert_eq!(kinds(&script.passes(Millis(1)).records), "");
    assert_eq!(kept(&script, A).0, Decision::Approve);
}

#[test]
fn several_questions_are_answered_in_any_order() {
    let three = [tool("a").approval(), tool("b").approval(), tool("c").approval()];
    let mut script = given_round(spec(), three);
    let open: Vec<CallSlot> = script.state().open_questions().filter_map(|question| question.slot).collect();
    assert_eq!(open, [A, B, C]);
    script.decides(C, deny());
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
    script.decides(A, Decision::Approve);
    assert_eq!(script.status(), RunStatus::ToolRunning, "one goes on");
    script.runs(A, "1");
    assert_eq!(script.status(), RunStatus::AwaitingHuman, "one is left");
    let transition = script.decides(B, answer());
    assert_eq!(kinds(&transition.records), "human_resolved call_settled model_call_started");
    let order: Vec<CallSlot> = results(&script.journal).iter().map(|result| result.slot).collect();
    assert_eq!(order, [C, A, B], "results stand as they came");
}

#[test]
fn others_run_while_one_waits() {
    let mut script = given_round(parallel(1), [tool("pay").approval(), tool("look"), tool("see")]);
    assert_eq!(script.status(), RunStatus::ToolRunning);
    script.runs(B, "1");
    script.runs(C, "2");
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
}

#[test]
fn edited_arguments_are_what_runs_and_the_model_is_told() {
    let mut script = asked();
    script.decides(A, edits(r#"{"amount":2}"#));
    let transition = script.grants(A);
    let [Effect::OfferCall(offer)] = transition.effects.as_slice() else {
        panic!("{:?}", transition.effects)
    };
    assert_eq!(offer.arguments, r#"{"amount":2}"#);
    script.finishes(A, "paid");
    let told = "[a human changed the arguments to {\"amount\":2}]\npaid";
    assert_eq!(script.result(A), (ToolStatus::Succeeded, told.to_owned()));
}

#[test]
fn of_long_edited_arguments_the_model_is_told_the_first() {
    let mut script = asked();
    // An umlaut lies across the end of what is quoted.
    let long = format!(r#"{{"to":"{}"}}"#, "ü".repeat(3_000));
    script.decides(A, edits(&long));
    script.runs(A, "paid");
    let told = format!(
        "[a human changed the arguments to {} [cut: the first 4095 of {} bytes]]\npaid",
        &long[..4_095],
        long.len()
    );
    assert_eq!(script.result(A).1, told);
}

#[test]
fn edits_that_change_nothing_are_not_mentioned() {
    let mut script = asked();
    script.decides(A, edits(r#"{"amount":1}"#));
    script.runs(A, "paid");
    assert_eq!(script.result(A).1, "paid");
}

#[test]
fn the_model_s_own_words_stay_in_the_history() {
    let mut script = asked();
    script.decides(A, edits(r#"{"amount":2}"#));
    script.restarts();
    assert_eq!(script.call(A).arguments, r#"{"amount":2}"#, "the edit survives");
    let said = history(&script.journal);
    let call = said.iter().flat_map(|message| message.tool_calls()).next().expect("it asked");
    assert_eq!(call.arguments, r#"{"amount":1}"#);
}

#[test]
fn a_question_waits_through_restarts() {
    let mut script = asked();
    for _ in 0..3 {
        script.later(Millis::secs(86_400));
        let transition = script.restarts();
        assert_eq!((transition.records.len(), transition.effects.len()), (0, 0), "it is asked once");
    }
    script.decides(A, Decision::Approve);
    assert!(matches!(script.call_state(A), CallState::Ready { .. }));
}

#[test]
fn what_is_asked_and_answered_is_in_the_journal() {
    let mut script = asked();
    script.decides(A, Decision::Approve);
    let resolved = script.journal.iter().rev().find_map(|record| match &record.event {
        Event::HumanResolved { request, slot, answer } => Some((request.as_str(), *slot, answer.at)),
        _ => None,
    });
    assert_eq!(resolved, Some(("run-1:1.0:0", Some(A), T0)));
}
