//! Limits of runs: each one, its code, and the last thing that it allows.

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{Attempt, CallSlot};
use agentloop_core::message::ToolStatus;
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::run::event::Ran;
use agentloop_core::run::human::Decision;
use agentloop_core::run::input::Input;
use agentloop_core::run::status::{RunErrorCode, RunStatus};
use agentloop_core::time::Millis;

use crate::support::*;

#[track_caller]
fn assert_limit(script: &Script, code: RunErrorCode) {
    assert_eq!(script.status(), RunStatus::Failed);
    let error = script.end().expect("a reason");
    assert_eq!(error.code, code, "{}", error.message);
    assert!(!error.message.is_empty());
}

/// The model asks for a tool in another round, which is run.
#[track_caller]
fn round(script: &mut Script, arguments: &str) {
    script.asks([tool("a").with(arguments)]);
    if script.state().is_live() {
        let slot = CallSlot::from((script.state().iterations(), 0));
        script.runs(slot, "1");
    }
}

#[test]
fn model_calls() {
    let mut script = given(limited(|limits| limits.max_iterations = 2));
    round(&mut script, "1");
    assert_eq!(script.running().number, 2);
    round(&mut script, "2");
    assert_limit(&script, RunErrorCode::LimitIterations);
    assert_eq!(script.result(CallSlot::from((2, 0))).0, ToolStatus::Succeeded, "what ran is kept");
}

#[test]
fn the_last_model_call_may_answer() {
    let mut script = given(limited(|limits| limits.max_iterations = 1));
    script.says("sunny");
    assert_eq!(script.status(), RunStatus::Completed);
}

#[test]
fn retries_of_a_model_call_are_not_further_ones() {
    let mut script = given(limited(|limits| limits.max_iterations = 1));
    script.model_fails(ModelErrorKind::Timeout);
    script.wakes();
    script.restarts();
    assert_eq!((script.state().iterations(), script.running().attempt), (1, Attempt(3)));
}

#[test]
fn no_model_call_at_all() {
    let mut script = unstarted();
    let transition = script.does(start(limited(|limits| limits.max_iterations = 0)));
    assert_eq!(kinds(&transition.records), "started input_added finished");
    assert_limit(&script, RunErrorCode::LimitIterations);
}

#[test]
fn rounds_of_tool_calls() {
    let mut script = given(limited(|limits| limits.max_tool_rounds = Some(1)));
    round(&mut script, "1");
    let transition = script.asks([tool("a").with("2")]);
    assert_eq!(kinds(&transition.records), "assistant_message call_settled finished");
    assert_limit(&script, RunErrorCode::LimitToolRounds);
    let (status, output) = script.result(CallSlot::from((2, 0)));
    assert_eq!(status, ToolStatus::Aborted);
    assert!(output.contains("1 rounds"), "the model can read why: {output}");
}

#[test]
fn an_answer_after_the_last_round_completes() {
    let mut script = given(limited(|limits| limits.max_tool_rounds = Some(1)));
    round(&mut script, "1");
    script.says("sunny");
    assert_eq!(script.status(), RunStatus::Completed);
}

#[test]
fn tool_calls() {
    let spec = || {
        let mut spec = parallel(9);
        spec.tool_policy.max_calls_per_run = Some(3);
        spec
    };
    let mut script = given(spec());
    script.asks([tool("a"), tool("b"), tool("c")]);
    assert_eq!(script.status(), RunStatus::ToolRunning, "as many as allowed");
    let mut script = given(spec());
    script.asks([tool("a"), tool("b")]);
    script.runs(A, "1");
    script.runs(B, "2");
    script.asks([tool("c"), tool("d")]);
    assert_limit(&script, RunErrorCode::LimitToolCalls);
    assert_eq!(results(&script.journal).len(), 4, "none of the message's calls ran, each has a result");
    assert_eq!(script.state().tool_calls(), 2);
}

#[test]
fn duration() {
    let spec = || limited(|limits| limits.max_run_duration = Some(Millis::secs(10)));
    let ends = |mut script: Script| {
        assert_eq!(script.machine.deadline(), Some(T0.after(Millis::secs(10))));
        assert_eq!(kinds(&script.passes(Millis(9_999)).records), "");
        script.passes(Millis(1));
        assert_limit(&script, RunErrorCode::LimitDuration);
    };
    ends(given(spec()));
    ends(given_round(spec(), [tool("a").approval()]));
    let mut running = given_round(spec(), [tool("a")]);
    running.grants(A);
    ends(running);
    let mut doubtful = given_round(spec(), [tool("a")]);
    doubtful.grants(A);
    doubtful.loses(A, Ran::Maybe);
    ends(doubtful);
}

#[test]
fn duration_counts_while_paused_too() {
    let mut spec = limited(|limits| limits.max_run_duration = Some(Millis::secs(10)));
    spec.retry.max_retries = 0;
    spec.retry.pause_when_exhausted = true;
    let mut script = given(spec);
    script.model_fails(ModelErrorKind::Timeout);
    assert_eq!(script.status(), RunStatus::Paused);
    script.wakes();
    assert_limit(&script, RunErrorCode::LimitDuration);
}

#[test]
fn duration_goes_before_a_retry_that_is_due_as_well() {
    let mut script = given(limited(|limits| limits.max_run_duration = Some(Millis(1_000))));
    script.model_fails(ModelErrorKind::Timeout);
    script.passes(Millis(1_000));
    assert_limit(&script, RunErrorCode::LimitDuration);
}

#[test]
fn tokens() {
    // Each answer of the scripts costs 110 tokens.
    let mut script = given(limited(|limits| limits.max_tokens = Some(220)));
    round(&mut script, "1");
    assert_eq!(script.status(), RunStatus::ModelRunning);
    round(&mut script, "2");
    assert_limit(&script, RunErrorCode::LimitTokens);
    let mut script = given(limited(|limits| limits.max_tokens = Some(110)));
    script.says("sunny");
    assert_eq!(script.status(), RunStatus::Completed, "checked between model calls");
}

#[test]
fn failures_in_a_row() {
    let mut script = given(limited(|limits| limits.max_consecutive_failures = Some(3)));
    script.asks([bad_tool("x"), bad_tool("y")]);
    script.asks([tool("a"), bad_tool("z")]);
    script.runs(CallSlot::from((2, 0)), "a success starts the count again");
    assert_eq!((script.status(), script.state().failures_in_a_row()), (RunStatus::ModelRunning, 0));
    script.asks([bad_tool("x"), bad_tool("y"), bad_tool("z")]);
    assert_limit(&script, RunErrorCode::LimitConsecutiveFailures);
}

#[test]
fn what_a_human_answered_is_no_failure() {
    let mut script = given(limited(|limits| limits.max_consecutive_failures = Some(1)));
    script.asks([tool("a").approval()]);
    script.decides(A, answer());
    assert_eq!(script.status(), RunStatus::ModelRunning);
}

#[test]
fn no_failures_are_counted_without_the_limit() {
    for none in [None, Some(0)] {
        let mut script = given(limited(|limits| limits.max_consecutive_failures = none));
        for _ in 0..9 {
            script.asks([bad_tool("x")]);
        }
        assert_eq!(script.status(), RunStatus::ModelRunning, "{none:?}");
    }
}

fn repeating(max: u32) -> RunSpec {
    let mut spec = parallel(9);
    spec.limits.max_repeated_calls = Some(max);
    spec
}

#[test]
fn the_same_call_again_and_again() {
    let mut script = given(repeating(2));
    round(&mut script, "1");
    round(&mut script, "1");
    assert_eq!(script.status(), RunStatus::ModelRunning, "as often as allowed");
    round(&mut script, "1");
    assert_limit(&script, RunErrorCode::LimitRepeatedCalls);
}

#[test]
fn the_same_call_again_and_again_in_one_message() {
    let mut script = given(repeating(2));
    script.asks([tool("a"), tool("a"), tool("a")]);
    assert_limit(&script, RunErrorCode::LimitRepeatedCalls);
}

#[test]
fn the_same_arguments_written_otherwise_are_the_same_call() {
    let mut script = given(repeating(2));
    script.asks([
        tool("a").with(r#"{"x":1,"y":2}"#),
        tool("a").with(r#"{ "y": 2, "x": 1 }"#),
        tool("a").with(r#"{"y":2,"x":1}"#),
    ]);
    assert_limit(&script, RunErrorCode::LimitRepeatedCalls);
}

#[test]
fn numbers_that_are_not_known_exactly_are_not_the_same() {
    let mut script = given(repeating(1));
    script.asks([tool("a").with("[18446744073709551616]"), tool("a").with("[18446744073709551617]")]);
    assert_eq!(script.status(), RunStatus::ToolRunning);
}

#[test]
fn other_arguments_or_another_tool_break_the_row() {
    let mut script = given(repeating(1));
    for _ in 0..3 {
        round(&mut script, "1");
        round(&mut script, "2");
    }
    script.asks([tool("a").with("1"), tool("b").with("1")]);
    assert_eq!(script.status(), RunStatus::ToolRunning);
}

#[test]
fn a_call_that_cannot_run_counts_as_said() {
    let mut script = given(repeating(2));
    for _ in 0..2 {
        script.asks([bad_tool("x")]);
    }
    script.asks([bad_tool("x")]);
    assert_limit(&script, RunErrorCode::LimitRepeatedCalls);
    let mut script = given(repeating(1));
    script.asks([tool("a"), bad_tool("x"), tool("a")]);
    assert_eq!(script.status(), RunStatus::ToolRunning, "another call stands between them");
    script.runs(A, "1");
    script.runs(C, "1");
    script.asks([bad_tool("x")]);
    assert_eq!(script.status(), RunStatus::ModelRunning, "and so across messages");
    script.asks([bad_tool("x")]);
    assert_limit(&script, RunErrorCode::LimitRepeatedCalls);
}

#[test]
fn the_count_of_repeats_survives_a_restart() {
    let mut script = given(repeating(1));
    round(&mut script, "1");
    script.restarts();
    round(&mut script, "1");
    assert_limit(&script, RunErrorCode::LimitRepeatedCalls);
}

#[test]
fn a_limit_withdraws_what_was_asked() {
    let mut script = given_round(
        limited(|limits| limits.max_run_duration = Some(Millis::secs(1))),
        [tool("a").approval()],
    );
    let transition = script.wakes();
    assert_eq!(kinds(&transition.records), "human_resolved call_settled finished");
    let asked = script.state().questions().values().next().expect("it was asked");
    assert_eq!(asked.answer.as_ref().map(|answer| &answer.decision), Some(&Decision::Withdrawn));
}

#[test]
fn deadlines_before_the_limit_are_only_looked_at() {
    let mut script = given(limited(|limits| limits.max_run_duration = Some(Millis::secs(10))));
    check(&script, Input::DeadlinePassed, Ok(""));
    script.later(Millis::secs(60));
    check(&script, Input::DeadlinePassed, Ok("finished"));
}
