//! A running call asks a human.

use agentloop_core::limits::INPUTS_PER_CALL_MAX;
use agentloop_core::message::ToolStatus;
use agentloop_core::question::{InputAnswer, QuestionContent};
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::Ran;
use agentloop_core::run::human::{BadAnswer, Decision};
use agentloop_core::run::input::Input;
use agentloop_core::run::machine::Transition;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::CallState;
use agentloop_core::run::status::RunStatus;
use agentloop_core::run::view::WaitKind;
use agentloop_core::time::Millis;
use agentloop_core::tool::EffectClass;

use crate::support::*;

/// The replies to the host in this step: the question, and the reply.
fn heard<'a>(transition: &'a Transition) -> Vec<(&'a str, InputAnswer)> {
    let heard = |effect: &'a Effect| match effect {
        Effect::AnswerInput { input, answer, .. } => Some((input.as_str(), answer.clone())),
        _ => None,
    };
    transition.effects.iter().filter_map(heard).collect()
}

fn text(text: &str) -> Decision {
    Decision::Text { text: text.to_owned() }
}

fn said(text: &str) -> InputAnswer {
    InputAnswer::Text(text.to_owned())
}

/// Its call runs, and has a minute.
fn running() -> Script {
    given_to_host(EffectClass::Unsafe)
}

fn asking() -> Script {
    let mut script = running();
    assert_eq!(kinds(&script.does(needs(A, 1, "q")).records), "human_requested");
    script
}

#[test]
fn the_answer_goes_to_the_host_and_the_call_goes_on() {
    let mut script = asking();
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
    assert_eq!(script.state().waiting_on().map(|on| on.kind), Some(WaitKind::Human));
    let question = script.question(A).expect("it waits");
    assert_eq!(question.request.run(), Some(run_id()));
    let transition = script.decides(A, text("that"));
    assert_eq!(
        (kinds(&transition.records).as_str(), heard(&transition)),
        ("human_resolved", vec![("q", said("that"))])
    );
    assert_eq!(script.status(), RunStatus::ToolRunning);
    script.finishes(A, "done");
    assert_eq!(script.result(A), (ToolStatus::Succeeded, "done".to_owned()));
}

#[test]
fn an_empty_text_is_an_answer_only_where_the_question_allows_it() {
    let mut script = asking();
    let refusal = script.clone().refuses(script.decision(A, text("")));
    assert_eq!(refusal, Refusal::BadAnswer(BadAnswer::EmptyText));
    script.decides(A, text("that"));
    let Input::InputNeeded { slot, attempt, question, timeout, resume_state } = needs(A, 1, "p") else {
        unreachable!()
    };
    let question = QuestionContent { allow_empty: true, ..question };
    script.does(Input::InputNeeded { slot, attempt, question, timeout, resume_state });
    let transition = script.decides(A, text(""));
    assert_eq!(heard(&transition), [("p", said(""))]);
}

#[test]
fn a_host_reads_what_was_filled_in_visited_or_declined() {
    let asks = |change: &dyn Fn(&mut QuestionContent)| {
        let mut script = running();
        let Input::InputNeeded { slot, attempt, mut question, timeout, resume_state } = needs(A, 1, "q")
        else {
            unreachable!()
        };
        change(&mut question);
        script.does(Input::InputNeeded { slot, attempt, question, timeout, resume_state });
        script
    };
    let form = r#"{"type":"object","properties":{"seat":{"type":"string"}}}"#;
    let mut script = asks(&|question| question.form = Some(form.to_owned()));
    let fields = r#"{"seat":"12A"}"#.to_owned();
    let transition = script.decides(A, Decision::Filled { fields: fields.clone() });
    assert_eq!(heard(&transition), [("q", InputAnswer::Filled(fields))]);
    let mut script = asks(&|question| question.url = Some("https://pay.example".to_owned()));
    let transition = script.decides(A, Decision::Visited { done: true });
    assert_eq!(heard(&transition), [("q", InputAnswer::Visited(true))]);
    let mut script = asking();
    let transition = script.decides(A, Decision::Declined { message: "no".to_owned() });
    assert_eq!(heard(&transition), [("q", InputAnswer::Refused("declined: no".to_owned()))]);
    assert_eq!(script.status(), RunStatus::ToolRunning);
}

#[test]
fn what_was_asked_is_not_asked_again() {
    let mut script = asking();
    let again = script.does(needs(A, 1, "q"));
    assert_eq!((again.records.len(), heard(&again)), (0, vec![]));
    script.decides(A, text("that"));
    script.restarts();
    let again = script.does(needs(A, 1, "q"));
    assert_eq!((again.records.len(), heard(&again)), (0, vec![("q", said("that"))]));
    let other = script.does(needs(A, 1, "p"));
    assert_eq!(kinds(&other.records), "human_requested");
}

#[test]
fn the_time_of_a_call_stands_still_while_it_asks() {
    let mut script = asking();
    script.passes(Millis::secs(3_600));
    assert_eq!(script.machine.deadline(), None);
    script.decides(A, text("that"));
    let answered = script.now;
    assert_eq!(script.machine.deadline(), Some(answered.after(Millis::secs(60))));
    script.wakes();
    script.wakes();
    assert!(matches!(script.call_state(A), CallState::InDoubt { .. }));
}

#[test]
fn nobody_answers_in_time() {
    let mut script = running();
    let needed = match needs(A, 1, "q") {
        Input::InputNeeded { slot, attempt, question, .. } => {
            Input::InputNeeded { slot, attempt, question, timeout: Some(Millis::secs(5)), resume_state: None }
        }
        other => other,
    };
    script.does(needed);
    let transition = script.wakes();
    assert_eq!(heard(&transition), [("q", InputAnswer::Refused("nobody answered in time".to_owned()))]);
    assert_eq!(script.status(), RunStatus::ToolRunning);
}

#[test]
fn a_question_goes_with_its_call() {
    let mut finished = asking();
    let transition = finished.finishes(A, "done");
    assert_eq!(kinds(&transition.records), "human_resolved call_settled model_call_started");
    assert_eq!(heard(&transition), [], "nobody waits for it");
    let mut lost = asking();
    let transition = lost.loses(A, Ran::Maybe);
    assert_eq!(kinds(&transition.records), "human_resolved call_attempt_failed human_requested");
    let mut aborted = asking();
    let transition = aborted.aborts();
    assert_eq!(kinds(&transition.records), "human_resolved call_settled finished");
}

#[test]
fn what_a_human_said_to_an_earlier_try_counts() {
    let mut script = given_to_host(EffectClass::Idempotent);
    script.does(needs(A, 1, "q"));
    script.decides(A, text("that"));
    script.loses(A, Ran::Maybe);
    script.grants(A);
    let transition = script.does(needs(A, 2, "q"));
    assert_eq!((transition.records.len(), heard(&transition)), (0, vec![("q", said("that"))]));
    assert_eq!(script.refuses(needs(A, 1, "q")), Refusal::StaleAttempt);
}

#[test]
fn the_host_of_a_call_in_doubt_hears_what_there_is_and_nothing_new_is_asked() {
    let mut answered = asking();
    answered.decides(A, text("that"));
    answered.loses(A, Ran::Maybe);
    let step = answered.does(needs(A, 1, "q"));
    assert_eq!((step.records.len(), heard(&step)), (0, vec![("q", said("that"))]));
    let step = answered.does(needs(A, 1, "another"));
    assert!(matches!(&heard(&step)[..], [("another", InputAnswer::Refused(_))]), "{step:?}");
    assert_eq!(answered.refuses(needs(A, 2, "q")), Refusal::StaleAttempt);
    let mut withdrawn = asking();
    withdrawn.loses(A, Ran::Maybe);
    let step = withdrawn.does(needs(A, 1, "q"));
    assert!(matches!(&heard(&step)[..], [("q", InputAnswer::Refused(_))]), "{step:?}");
    assert_eq!(step.records.len(), 0);
    assert_eq!(withdrawn.state().open_questions().count(), 1, "the doubt alone");
    withdrawn.finishes(A, "done");
    assert_eq!(withdrawn.result(A), (ToolStatus::Succeeded, "done".to_owned()));
}

#[test]
fn questions_are_bounded() {
    let mut script = running();
    for number in 0..INPUTS_PER_CALL_MAX {
        script.does(needs(A, 1, &format!("q{number}")));
    }
    let transition = script.does(needs(A, 1, "more"));
    assert!(matches!(&heard(&transition)[..], [("more", InputAnswer::Refused(_))]), "{transition:?}");
    assert_eq!(script.state().open_questions().count(), INPUTS_PER_CALL_MAX);
}

#[test]
fn a_call_without_room_waits_with_the_one_that_asks() {
    let mut script = given_round(parallel(1), [tool("book"), tool("look")]);
    script.grants(A);
    assert_eq!(script.status(), RunStatus::ToolRunning);
    script.does(needs(A, 1, "q"));
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
    let mut side_by_side = given_round(parallel(2), [tool("book"), tool("look")]);
    side_by_side.grants(A);
    side_by_side.does(needs(A, 1, "q"));
    assert_eq!(side_by_side.status(), RunStatus::ToolRunning);
}

#[test]
fn a_restart_reclaims_a_call_that_asks() {
    let mut script = asking();
    let transition = script.restarts();
    assert!(
        matches!(&transition.effects[..], [Effect::ReclaimCall(offer)] if offer.slot == A),
        "{transition:?}"
    );
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
    let transition = script.decides(A, text("that"));
    assert_eq!(heard(&transition), [("q", said("that"))]);
}
