//! More is said while the run is under way.

use agentloop_core::id::{Attempt, EntryNo};
use agentloop_core::limits::WAITING_MESSAGES_MAX;
use agentloop_core::message::{FinishReason, Role};
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::{Event, Observation};
use agentloop_core::run::human::Decision;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::status::{RunErrorCode, RunStatus};

use crate::support::*;

fn roles(script: &Script) -> Vec<Role> {
    history(&script.journal).iter().map(|message| message.role).collect()
}

fn decision(script: &Script) -> Observation {
    let decided = script.journal.iter().rev().find_map(|record| match record.event {
        Event::AssistantMessage { decision, .. } => Some(decision),
        _ => None,
    });
    decided.expect("the model spoke")
}

#[test]
fn what_is_said_enters_before_the_next_model_call() {
    let mut script = given_round(spec(), [tool("weather"), tool("forecast")]);
    let transition = script.does(steer("more", "in Ulm"));
    assert_eq!(kinds(&transition.records), "input_held");
    assert_eq!(transition.effects, [], "what is under way is not disturbed");
    script.runs(A, "sunny");
    script.does(steer("most", "quickly"));
    script.grants(B);
    let transition = script.finishes(B, "cloudy");
    assert_eq!(kinds(&transition.records), "call_settled input_entered input_entered model_call_started");
    let call =
        Effect::CallModel { model_call: 2, attempt: Attempt(1), last_entry: EntryNo(6), checked: true };
    assert_eq!(transition.effects.last(), Some(&call));
    assert_eq!(roles(&script), [Role::User, Role::Assistant, Role::Tool, Role::Tool, Role::User, Role::User]);
}

#[test]
fn a_run_about_to_finish_asks_the_model_again() {
    let mut script = given(spec());
    script.does(steer("more", "in Ulm"));
    let transition = script.says("it is sunny");
    assert_eq!(kinds(&transition.records), "assistant_message input_entered model_call_started");
    assert_eq!(decision(&script), Observation::Continue);
    let transition = script.says("it is cloudy there");
    assert_eq!(kinds(&transition.records), "assistant_message finished");
    assert_eq!(decision(&script), Observation::Stop);
    assert_eq!(roles(&script), [Role::User, Role::Assistant, Role::User, Role::Assistant]);
}

#[test]
fn a_limit_still_ends_it_and_nothing_said_is_lost() {
    let mut script = given(limited(|limits| limits.max_iterations = 1));
    script.does(steer("more", "in Ulm"));
    let transition = script.says("it is sunny");
    assert_eq!(kinds(&transition.records), "assistant_message input_entered finished");
    assert_eq!(script.end().map(|error| error.code), Some(RunErrorCode::LimitIterations));
}

#[test]
fn an_end_of_any_kind_lets_it_in_after_the_open_results() {
    let mut script = given_round(spec(), [tool("pay").approval()]);
    script.does(steer("more", "in Ulm"));
    let transition = script.aborts();
    assert_eq!(kinds(&transition.records), "human_resolved call_settled input_entered finished");
    let mut script = given(spec());
    script.does(steer("more", "in Ulm"));
    let transition = script.model_fails(ModelErrorKind::BadRequest);
    assert_eq!(kinds(&transition.records), "model_call_failed input_entered finished");
    let mut script = given(spec());
    script.does(steer("more", "in Ulm"));
    let transition = script.does(model_asks(1, 1, &[tool("pay")], FinishReason::Refusal));
    assert_eq!(kinds(&transition.records), "assistant_message call_settled input_entered finished");
    assert_eq!(decision(&script), Observation::Stop);
}

#[test]
fn it_is_held_until_a_human_has_answered() {
    let mut script = given_round(spec(), [tool("pay").approval()]);
    script.does(steer("more", "in Ulm"));
    assert_eq!(script.status(), RunStatus::AwaitingHuman);
    let transition = script.decides(A, Decision::Deny { message: String::new() });
    assert_eq!(kinds(&transition.records), "human_resolved call_settled input_entered model_call_started");
}

#[test]
fn a_try_that_comes_later_reads_it_too() {
    let mut script = given(spec());
    script.model_fails(ModelErrorKind::Timeout);
    script.does(steer("more", "in Ulm"));
    let transition = script.wakes();
    assert_eq!(kinds(&transition.records), "input_entered model_call_started");
    let call =
        Effect::CallModel { model_call: 1, attempt: Attempt(2), last_entry: EntryNo(2), checked: true };
    assert_eq!(transition.effects, [call]);
}

#[test]
fn a_restart_forgets_neither_the_words_nor_the_request() {
    let mut script = given_round(spec(), [tool("weather")]);
    script.does(steer("more", "in Ulm"));
    script.restarts();
    assert_eq!(kinds(&script.does(steer("more", "in Ulm")).records), "");
    assert_eq!(script.refuses(steer("more", "in Bonn")), Refusal::IdReused);
    script.runs(A, "sunny");
    script.says("it is sunny");
    assert_eq!(kinds(&script.does(steer("more", "in Ulm")).records), "", "also when it is over");
    assert_eq!(script.refuses(steer("more", "in Bonn")), Refusal::IdReused);
    let over = script.refuses(steer("most", "quickly"));
    assert_eq!(over, Refusal::WrongPhase(Some(RunStatus::Completed)));
}

#[test]
fn no_more_is_held_than_there_is_room_for() {
    let mut script = given(spec());
    for at in 0..WAITING_MESSAGES_MAX {
        script.does(steer(&format!("more-{at}"), "and"));
    }
    assert_eq!(script.refuses(steer("most", "and")), Refusal::TooManyWaitingMessages);
    script.says("go on");
    script.does(steer("most", "and"));
}

#[test]
fn a_context_that_is_made_smaller_first_is_read_with_it() {
    let mut script = given(spec());
    script.does(steer("more", "in Ulm"));
    script.model_fails(ModelErrorKind::ContextOverflow);
    assert_eq!(script.status(), RunStatus::Compacting);
    script.does(steer("most", "quickly"));
    let transition = script.does(compacted(1));
    assert_eq!(kinds(&transition.records), "compacted input_entered input_entered model_call_started");
}
