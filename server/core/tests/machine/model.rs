//! The model answers, fails, is tried again, or is waited for by an operator.

use agentloop_core::agent::{RetryPolicy, RunSpec};
use agentloop_core::id::{Attempt, EntryNo};
use agentloop_core::message::FinishReason;
use agentloop_core::model::error::{ErrorClass, ModelErrorKind};
use agentloop_core::model::retry::chance;
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::{Event, Observation};
use agentloop_core::run::input::Input;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::Phase;
use agentloop_core::run::status::{RunErrorCode, RunStatus};
use agentloop_core::time::{Millis, Timestamp};

use crate::support::*;

fn retrying(retry: RetryPolicy) -> RunSpec {
    RunSpec { retry, ..spec() }
}

fn pausing(max_retries: u32) -> RunSpec {
    retrying(RetryPolicy { max_retries, jitter: false, pause_when_exhausted: true, ..RetryPolicy::default() })
}

/// When the next try is due, from now.
fn wait(script: &Script) -> Option<Millis> {
    match script.state().phase() {
        Phase::BackingOff { until, .. } => Some(until.since(script.now)),
        _ => None,
    }
}

#[test]
fn an_answer_ends_the_run() {
    let script = given(spec());
    check(&script, model_says(1, 1, "sunny"), Ok("assistant_message finished"));
    let mut script = script;
    script.says("sunny");
    assert_eq!((script.status(), script.end()), (RunStatus::Completed, None));
    assert_eq!(script.state().last_message().as_ref().map(|m| m.plain_text()), Some("sunny".to_owned()));
    assert_eq!(script.state().usage().input_tokens, 100);
}

#[test]
fn a_start_takes_the_messages_in_and_calls_the_model() {
    let mut script = unstarted();
    let transition = script.does(start(spec()));
    assert_eq!(kinds(&transition.records), "started input_added model_call_started");
    let reads = EntryNo(1);
    assert_eq!(
        transition.effects,
        [Effect::CallModel { model_call: 1, attempt: Attempt(1), last_entry: reads, checked: true }]
    );
    let statuses: Vec<RunStatus> = transition.records.iter().map(|record| record.status).collect();
    assert_eq!(statuses, [RunStatus::Preparing, RunStatus::Preparing, RunStatus::ModelRunning]);
    assert_eq!(script.state().started_at(), T0);
    assert_eq!(script.state().session(), Some(&session_id()));
}

#[test]
fn the_next_call_reads_the_results() {
    let mut script = given_round(spec(), [tool("a"), tool("b")]);
    script.runs(A, "1");
    let transition = script.runs(B, "2");
    assert_eq!(kinds(&transition.records), "call_settled model_call_started");
    // The question, the model's message, and two results.
    assert!(transition.effects.contains(&Effect::CallModel {
        model_call: 2,
        attempt: Attempt(1),
        last_entry: EntryNo(4),
        checked: true
    }));
}

#[test]
fn the_decision_is_told_with_the_message() {
    let decision = |script: &Script| {
        script.journal.iter().rev().find_map(|record| match record.event {
            Event::AssistantMessage { decision, .. } => Some(decision),
            _ => None,
        })
    };
    let mut script = given_round(spec(), [tool("a")]);
    assert_eq!(decision(&script), Some(Observation::Continue));
    script.runs(A, "1");
    script.says("sunny");
    assert_eq!(decision(&script), Some(Observation::Stop));
}

#[test]
fn a_message_that_was_declined_or_cut_fails_the_run_and_runs_nothing() {
    for (finish, code) in [
        (FinishReason::Refusal, RunErrorCode::ModelRefused),
        (FinishReason::ContentFilter, RunErrorCode::ContentFiltered),
    ] {
        let mut script = given(spec());
        let transition = script.does(model_asks(1, 1, &[tool("pay"), tool("pay")], finish.clone()));
        assert_eq!(kinds(&transition.records), "assistant_message call_settled call_settled finished");
        assert_eq!(script.end().map(|error| error.code), Some(code));
        assert_eq!(results(&script.journal).len(), 2, "{finish:?}");
    }
}

#[test]
fn other_ends_of_a_message_do_not_fail_the_run() {
    for finish in [FinishReason::Length, FinishReason::Stop, FinishReason::Other("pause_turn".into())] {
        let mut script = given(spec());
        script.does(model_asks(1, 1, &[tool("a")], finish.clone()));
        assert_eq!(script.status(), RunStatus::ToolRunning, "{finish:?}: what it asked for is run");
    }
}

#[test]
fn what_cannot_run_goes_back_to_the_model_in_the_same_step() {
    let mut script = given(spec());
    let transition = script.asks([bad_tool("wether"), bad_tool("pey")]);
    assert_eq!(kinds(&transition.records), "assistant_message call_settled call_settled model_call_started");
    assert_eq!(script.result(A).1, "no tool named wether");
    assert_eq!(script.state().tool_calls(), 0, "none was taken up");
}

#[test]
#[should_panic(expected = "the driver knows something of each call")]
fn facts_come_with_each_call() {
    let mut script = given(spec());
    let Input::ModelFinished(mut done) = model_asks(1, 1, &[tool("a")], FinishReason::Stop) else {
        panic!("an answer")
    };
    done.facts.clear();
    script.does(Input::ModelFinished(done));
}

// ---- retries

#[test]
fn waits_double_and_then_the_run_fails() {
    let mut script = given(retrying(RetryPolicy { jitter: false, ..RetryPolicy::default() }));
    for (attempt, seconds) in [(1, 1), (2, 2), (3, 4)] {
        assert_eq!(script.running().attempt, Attempt(attempt));
        let transition = script.model_fails(ModelErrorKind::Unavailable);
        assert_eq!(kinds(&transition.records), "model_call_failed");
        assert_eq!(script.status(), RunStatus::BackingOff);
        assert_eq!(wait(&script), Some(Millis::secs(seconds)));
        let again = script.wakes();
        assert_eq!(kinds(&again.records), "model_call_started");
        let next = Effect::CallModel {
            model_call: 1,
            attempt: Attempt(attempt + 1),
            last_entry: EntryNo(1),
            checked: true,
        };
        assert_eq!(again.effects, [next]);
    }
    let transition = script.model_fails(ModelErrorKind::Unavailable);
    assert_eq!(kinds(&transition.records), "model_call_failed finished");
    let error = script.end().expect("a reason");
    assert_eq!(error.code, RunErrorCode::Model(ModelErrorKind::Unavailable));
    assert_eq!(script.status(), RunStatus::Failed);
}

#[test]
fn only_passing_failures_are_tried_again() {
    use ModelErrorKind::*;
    for kind in [
        Connection,
        Timeout,
        RateLimited,
        Unavailable,
        Malformed,
        ContextOverflow,
        BadRequest,
        Unauthorised,
        TooLarge,
        NotConfigured,
    ] {
        let mut script = given(pausing(3));
        script.model_fails(kind);
        let expected = match kind.class() {
            ErrorClass::Retryable => RunStatus::BackingOff,
            ErrorClass::Overflow => RunStatus::Compacting,
            ErrorClass::Fatal if kind == NotConfigured => RunStatus::Paused,
            ErrorClass::Fatal => RunStatus::Failed,
        };
        assert_eq!(script.status(), expected, "{kind:?}");
    }
}

#[test]
fn the_provider_may_ask_for_a_longer_wait() {
    let asked = |seconds| {
        let mut script = given(retrying(RetryPolicy { jitter: false, ..RetryPolicy::default() }));
        let mut failure = failure(ModelErrorKind::RateLimited);
        failure.retry_after = Some(Millis::secs(seconds));
        failure.status = Some(429);
        script.model_fails_with(failure);
        let error = script.state().last_error().expect("it is kept");
        assert_eq!(error.http_status, Some(429));
        wait(&script)
    };
    assert_eq!(asked(0), Some(Millis::secs(1)));
    assert_eq!(asked(20), Some(Millis::secs(20)), "beyond our own cap");
    assert_eq!(asked(86_400), Some(Millis::secs(300)), "within reason");
}

#[test]
fn jitter_is_drawn_from_the_run_s_own_chance() {
    let policy = RetryPolicy { jitter: true, ..RetryPolicy::default() };
    let mut first = given(retrying(policy.clone()));
    let mut second = given(retrying(policy));
    for (attempt, bound) in [(1, 1_000), (2, 2_000), (3, 4_000)] {
        first.model_fails(ModelErrorKind::Timeout);
        second.model_fails(ModelErrorKind::Timeout);
        let drawn = wait(&first).expect("a wait");
        assert_eq!(drawn.0, chance(SEED, 1, Attempt(attempt)) % (bound + 1));
        assert_eq!(wait(&second), Some(drawn), "the same seed draws the same");
        first.wakes();
        second.wakes();
    }
}

#[test]
fn a_success_gives_the_next_call_fresh_retries() {
    let mut script = given(pausing(1));
    script.model_fails(ModelErrorKind::Timeout);
    script.wakes();
    script.asks([bad_tool("x")]);
    assert_eq!(script.state().last_error(), None, "what went wrong is over");
    assert_eq!((script.running().number, script.running().attempt), (2, Attempt(1)));
    script.model_fails(ModelErrorKind::Timeout);
    assert_eq!(wait(&script), Some(Millis::secs(1)));
}

#[test]
fn without_retries_the_first_failure_counts() {
    let mut script = given(retrying(RetryPolicy { max_retries: 0, ..RetryPolicy::default() }));
    script.model_fails(ModelErrorKind::Timeout);
    assert_eq!(script.status(), RunStatus::Failed);
}

#[test]
fn a_backoff_ends_on_time_and_not_before() {
    let mut script = given(pausing(1));
    script.model_fails(ModelErrorKind::Timeout);
    assert_eq!(kinds(&script.passes(Millis(999)).records), "");
    assert_eq!(kinds(&script.passes(Millis(1)).records), "model_call_started");
    assert_eq!(kinds(&script.passes(Millis(0)).records), "");
}

#[test]
fn updates_of_an_earlier_try_are_stale() {
    let mut script = given(pausing(3));
    script.model_fails(ModelErrorKind::Timeout);
    script.wakes();
    for input in [
        model_says(1, 1, "late"),
        Input::ModelFailed { model_call: 1, attempt: Attempt(1), failure: failure(ModelErrorKind::Timeout) },
    ] {
        assert_eq!(script.refuses(input), Refusal::StaleModelCall);
    }
    check(&script, model_says(1, 2, "in time"), Ok("assistant_message finished"));
}

// ---- pause and resume

#[test]
fn an_unreachable_model_pauses_the_run_where_asked() {
    let mut script = given(pausing(1));
    script.model_fails(ModelErrorKind::Timeout);
    script.wakes();
    let transition = script.model_fails(ModelErrorKind::Timeout);
    assert_eq!(kinds(&transition.records), "model_call_failed paused");
    assert_eq!(script.status(), RunStatus::Paused);
    assert_eq!(script.machine.deadline(), None);
    assert_eq!(
        script.state().last_error().as_ref().map(|e| e.code),
        Some(RunErrorCode::Model(ModelErrorKind::Timeout))
    );
}

#[test]
fn a_failure_that_stays_does_not_pause() {
    let mut script = given(pausing(1));
    script.model_fails(ModelErrorKind::Unauthorised);
    assert_eq!(script.status(), RunStatus::Failed);
}

#[test]
fn resuming_is_idempotent_and_gives_fresh_retries() {
    let mut script = given(pausing(0));
    script.model_fails(ModelErrorKind::Timeout);
    let transition = script.resumes("r1");
    assert_eq!(kinds(&transition.records), "resumed model_call_started");
    assert_eq!((script.running().number, script.running().attempt), (1, Attempt(2)));
    assert_eq!(script.resumes("r1"), agentloop_core::run::machine::Transition::default());
    assert_eq!(script.refuses(resume("r2")), Refusal::WrongPhase(Some(RunStatus::ModelRunning)));
    script.model_fails(ModelErrorKind::Timeout);
    assert_eq!(script.status(), RunStatus::Paused, "no retry is allowed at all");
    assert_eq!(kinds(&script.resumes("r1").records), "", "it was carried out before");
    assert_eq!(script.status(), RunStatus::Paused);
    script.resumes("r2");
    script.restarts();
    assert_eq!(kinds(&script.resumes("r2").records), "", "also after a restart");
}

#[test]
fn a_resumed_run_counts_its_retries_anew() {
    let mut script = given(pausing(2));
    let exhaust = |script: &mut Script| {
        for seconds in [1, 2] {
            script.model_fails(ModelErrorKind::Timeout);
            assert_eq!(wait(script), Some(Millis::secs(seconds)));
            script.wakes();
        }
        script.model_fails(ModelErrorKind::Timeout);
        assert_eq!(script.status(), RunStatus::Paused);
    };
    exhaust(&mut script);
    script.resumes("r1");
    assert_eq!(script.running().attempt, Attempt(4));
    exhaust(&mut script);
}

#[test]
fn an_endless_backoff_does_not_overflow() {
    let mut script = given(retrying(RetryPolicy {
        max_retries: u32::MAX,
        initial_backoff: Millis(u64::MAX),
        max_backoff: Millis(u64::MAX),
        jitter: true,
        pause_when_exhausted: false,
    }));
    script.model_fails(ModelErrorKind::Timeout);
    assert!(script.machine.deadline() > Some(script.now));
    let mut script = given(retrying(RetryPolicy {
        initial_backoff: Millis(u64::MAX),
        max_backoff: Millis(u64::MAX),
        jitter: false,
        ..RetryPolicy::default()
    }));
    script.model_fails(ModelErrorKind::Timeout);
    assert_eq!(script.machine.deadline(), Some(Timestamp(u64::MAX)));
}
