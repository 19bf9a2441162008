//! The view of a run for people: deadlines, statuses, its position in the loop, its wait.

use agentloop_core::agent::RunSpec;
use agentloop_core::id::Attempt;
use agentloop_core::message::ToolStatus;
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::run::event::Ran;
use agentloop_core::run::human::Decision;
use agentloop_core::run::status::{RunErrorCode, RunStatus};
use agentloop_core::run::view::{LoopPhase, ProcessState, WaitKind, WaitingOn, loop_position};
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::EffectClass;

use crate::support::*;

#[track_caller]
fn waiting(script: &Script) -> WaitingOn {
    script.state().waiting_on().expect("a live run waits for something")
}

#[track_caller]
fn assert_waits(script: &Script, kind: WaitKind, what: &str, since: u64, next: Option<u64>) {
    let waiting = waiting(script);
    assert_eq!((waiting.kind, waiting.what.as_str()), (kind, what));
    assert_eq!(waiting.since, T0.after(Millis(since)), "since");
    assert_eq!(waiting.next_at, next.map(|at| T0.after(Millis(at))), "next");
}

// ---- deadlines

#[test]
fn the_deadline_is_the_earliest_of_all() {
    let mut spec = RunSpec {
        approval_timeout: Some(Millis::secs(40)),
        in_doubt_timeout: Some(Millis::secs(30)),
        ..parallel(4)
    };
    spec.limits.max_run_duration = Some(Millis::secs(100));
    let mut script = given(spec);
    let due = |script: &Script| script.machine.deadline().map(|at| at.since(T0).0 / 1_000);
    assert_eq!(due(&script), Some(100), "the run's own");
    script.asks([
        tool("a").approval(),
        tool("b"),
        tool("c").class(EffectClass::ReadOnly).within(Millis::secs(20)),
    ]);
    assert_eq!(due(&script), Some(40), "the question's");
    script.grants(B);
    assert_eq!(due(&script), Some(40), "a minute is longer");
    script.grants(C);
    assert_eq!(due(&script), Some(20), "a call's");
    script.loses(B, Ran::Maybe);
    script.wakes();
    assert_eq!(script.result(C).0, ToolStatus::TimedOut);
    assert_eq!(due(&script), Some(30), "the doubt's");
    script.wakes();
    assert_eq!(script.result(B).0, ToolStatus::OutcomeUnknown);
    assert_eq!(due(&script), Some(40));
    script.decides(A, Decision::Approve);
    assert_eq!(due(&script), Some(100), "what waits for a host is given up with the run");
}

#[test]
fn several_that_fall_due_together_are_done_together() {
    let spec = RunSpec { approval_timeout: Some(Millis::secs(60)), ..parallel(4) };
    let mut script = given_round(
        spec,
        [tool("a").approval(), tool("b").class(EffectClass::ReadOnly), tool("c").approval()],
    );
    script.grants(B);
    let transition = script.wakes();
    let events = "human_resolved call_settled human_resolved call_settled call_settled model_call_started";
    assert_eq!(kinds(&transition.records), events);
}

#[test]
fn a_wait_that_is_over_is_no_longer_due() {
    let mut script = given_round(parallel(1), [tool("look").class(EffectClass::ReadOnly), tool("b")]);
    script.grants(A);
    script.answers(A, passing(Ran::Yes, Millis::secs(5)));
    script.grants(B);
    assert_eq!(script.machine.deadline(), Some(T0.after(Millis::secs(5))));
    assert_eq!(kinds(&script.wakes().records), "");
    assert_eq!(script.machine.deadline(), Some(T0.after(Millis::secs(60))), "there is no room: B's is next");
}

#[test]
fn a_call_that_is_given_up_is_told_to_stop() {
    for (class, output) in [
        (EffectClass::ReadOnly, "no answer within 2 s"),
        (EffectClass::Unsafe, "no answer within 2 s; it may have taken effect all the same"),
    ] {
        let mut script =
            given_round(spec(), [tool("slow").class(class).deadline_is_outcome().within(Millis(1_500))]);
        script.grants(A);
        let transition = script.wakes();
        assert_eq!(kinds(&transition.records), "call_settled model_call_started");
        assert!(transition.effects.iter().any(|effect| {
            matches!(
                effect,
                agentloop_core::run::effect::Effect::CancelCall { slot: A, attempt: Attempt(1), .. }
            )
        }));
        assert_eq!(script.result(A), (ToolStatus::TimedOut, output.to_owned()));
    }
}

#[test]
fn a_run_without_limits_has_no_deadline() {
    assert_eq!(unstarted().machine.deadline(), None);
    assert_eq!(given(spec()).machine.deadline(), None);
    assert_eq!(given_round(spec(), [tool("a").approval(), tool("b")]).machine.deadline(), None);
}

#[test]
fn times_beyond_all_measure_do_not_overflow() {
    let mut spec = RunSpec { approval_timeout: Some(Millis(u64::MAX)), ..spec() };
    spec.limits.max_run_duration = Some(Millis(u64::MAX));
    let mut script = given_round(spec, [tool("a").approval(), tool("b").within(Millis(u64::MAX))]);
    script.grants(B);
    assert_eq!(script.machine.deadline(), Some(Timestamp(u64::MAX)));
    assert_eq!(kinds(&script.passes(Millis::secs(1)).records), "");
}

// ---- what it waits for

#[test]
fn before_and_after_it_waits_for_nothing() {
    assert_eq!(unstarted().state().waiting_on(), None);
    let mut script = given(spec());
    script.says("sunny");
    assert_eq!(script.state().waiting_on(), None);
}

#[test]
fn it_waits_for_the_model() {
    let mut script = given(spec());
    assert_waits(&script, WaitKind::Model, "fake/model", 0, None);
    assert_eq!(waiting(&script).attempt, Attempt(1));
    script.later(Millis(500));
    script.model_fails(ModelErrorKind::RateLimited);
    assert_waits(&script, WaitKind::Backoff, "fake/model", 500, Some(1_500));
    let error = waiting(&script).last_error.expect("why it waits");
    assert_eq!(error.code, RunErrorCode::Model(ModelErrorKind::RateLimited));
    script.wakes();
    assert_waits(&script, WaitKind::Model, "fake/model", 1_500, None);
    let waiting = waiting(&script);
    assert_eq!(
        (waiting.attempt, waiting.last_error.is_some()),
        (Attempt(2), true),
        "the last failure is still told"
    );
}

#[test]
fn it_waits_for_an_operator() {
    let mut spec = spec();
    spec.retry.max_retries = 0;
    spec.retry.pause_when_exhausted = true;
    let mut script = given(spec);
    script.later(Millis(7));
    script.model_fails(ModelErrorKind::Timeout);
    assert_waits(&script, WaitKind::Operator, "ResumeRun", 7, None);
}

#[test]
fn it_waits_for_hosts_and_tools() {
    let mut script = given_round(spec(), [tool("pay")]);
    assert_waits(&script, WaitKind::ToolHost, "run-1/1.0 (pay)", 0, None);
    assert_eq!(waiting(&script).attempt, Attempt(0), "nobody was given it");
    script.later(Millis(10));
    script.grants(A);
    assert_waits(&script, WaitKind::Tool, "run-1/1.0 (pay) on host-1", 10, Some(60_010));
    script.later(Millis(10));
    script.accepts(A);
    assert_waits(&script, WaitKind::Tool, "run-1/1.0 (pay) on host-1", 10, Some(60_010));
    script.loses(A, Ran::No);
    assert_waits(&script, WaitKind::ToolHost, "run-1/1.0 (pay)", 20, Some(120));
    assert_eq!(waiting(&script).attempt, Attempt(1));
}

#[test]
fn it_waits_for_the_call_that_runs_and_not_for_those_behind_it() {
    let mut script = given_round(parallel(1), [tool("a"), tool("b")]);
    script.later(Millis(10));
    script.grants(A);
    assert_waits(&script, WaitKind::Tool, "run-1/1.0 (a) on host-1", 10, Some(60_010));
}

#[test]
fn with_room_it_waits_for_the_host_that_is_missing() {
    let mut script = given_round(parallel(2), [tool("a"), tool("b")]);
    script.later(Millis(10));
    script.grants(A);
    assert_waits(&script, WaitKind::ToolHost, "run-1/1.1 (b)", 0, None);
}

#[test]
fn it_waits_for_a_human_only_when_nothing_else_moves() {
    let spec = RunSpec { approval_timeout: Some(Millis::secs(90)), ..spec() };
    let mut script = given(spec);
    script.later(Millis(5));
    script.asks([tool("pay").approval(), tool("look")]);
    assert_eq!(waiting(&script).kind, WaitKind::ToolHost);
    script.runs(B, "found");
    assert_waits(&script, WaitKind::Human, "run-1:1.0:0 (pay)", 5, Some(90_005));
}

#[test]
fn of_several_questions_the_oldest_is_named() {
    let mut script = given_round(spec(), [tool("pay"), tool("mail").approval()]);
    script.grants(A);
    script.later(Millis(10));
    script.loses(A, Ran::Maybe);
    assert_waits(&script, WaitKind::Human, "run-1:1.1:0 (mail)", 0, None);
    script.decides(B, deny());
    assert_waits(&script, WaitKind::Human, "run-1:1.0:1 (pay)", 10, None);
    assert_eq!(waiting(&script).attempt, Attempt(1));
}

// ---- statuses and loop_position

#[test]
fn each_event_says_where_the_run_stands_after_it() {
    let mut script = given_round(spec(), [tool("pay").approval(), bad_tool("x")]);
    script.decides(A, Decision::Approve);
    script.runs(A, "paid");
    script.model_fails(ModelErrorKind::Timeout);
    script.wakes();
    script.says("done");
    let told: Vec<(&str, RunStatus)> =
        script.journal.iter().map(|record| (record.event.kind(), record.status)).collect();
    assert_eq!(
        told,
        [
            ("started", RunStatus::Preparing),
            ("input_added", RunStatus::Preparing),
            ("model_call_started", RunStatus::ModelRunning),
            ("assistant_message", RunStatus::ToolRunning),
            ("call_proposed", RunStatus::ToolRunning),
            ("human_requested", RunStatus::ToolRunning),
            ("call_settled", RunStatus::AwaitingHuman),
            ("human_resolved", RunStatus::ToolRunning),
            ("call_offered", RunStatus::ToolRunning),
            ("call_accepted", RunStatus::ToolRunning),
            ("call_settled", RunStatus::ToolRunning),
            ("model_call_started", RunStatus::ModelRunning),
            ("model_call_failed", RunStatus::BackingOff),
            ("model_call_started", RunStatus::ModelRunning),
            ("assistant_message", RunStatus::ModelRunning),
            ("finished", RunStatus::Completed),
        ]
    );
}

#[test]
fn the_two_loops_are_told_with_each_event() {
    use LoopPhase::*;
    let mut script = given_round(spec(), [tool("pay")]);
    script.runs(A, "paid");
    script.model_fails(ModelErrorKind::Timeout);
    script.wakes();
    script.says("done");
    let told: Vec<(LoopPhase, ProcessState)> =
        script.journal.iter().map(|record| loop_position(&record.event, record.status)).collect();
    assert_eq!(
        told,
        [
            (Init, ProcessState::Idle),
            (Planning, ProcessState::Idle),
            (Executing, ProcessState::Calling),
            (Observing, ProcessState::Success),
            (Executing, ProcessState::ToolExecuting),
            (Executing, ProcessState::ToolExecuting),
            (Executing, ProcessState::ToolExecuting),
            (Observing, ProcessState::ToolExecuting),
            (Executing, ProcessState::Calling),
            (Executing, ProcessState::Retrying),
            (Executing, ProcessState::Calling),
            (Observing, ProcessState::Success),
            (Completed, ProcessState::Success),
        ]
    );
}

#[test]
fn the_loops_end_as_the_run_ends() {
    let last = |script: &Script| {
        let record = script.journal.last().expect("a journal");
        loop_position(&record.event, record.status)
    };
    let mut failed = given(spec());
    failed.model_fails(ModelErrorKind::BadRequest);
    assert_eq!(last(&failed), (LoopPhase::Failed, ProcessState::Error));
    let refused = &failed.journal[failed.journal.len() - 2];
    assert_eq!(loop_position(&refused.event, refused.status), (LoopPhase::Observing, ProcessState::Error));
    let mut aborted = given(spec());
    aborted.aborts();
    assert_eq!(last(&aborted), (LoopPhase::Failed, ProcessState::Error));
}
