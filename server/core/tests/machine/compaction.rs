//! The context is made smaller: why, how often, and what follows.

use agentloop_core::agent::{ContextPolicy, LoopLimits, RunSpec};
use agentloop_core::context::compact::TRIM_LEVELS;
use agentloop_core::entry::CompactionReason;
use agentloop_core::id::{Attempt, EntryNo};
use agentloop_core::message::FinishReason;
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::run::effect::Effect;
use agentloop_core::run::event::{Event, Observation};
use agentloop_core::run::input::{Compacted, Input};
use agentloop_core::run::machine::Machine;
use agentloop_core::run::refusal::Refusal;
use agentloop_core::run::state::Phase;
use agentloop_core::run::status::{RunErrorCode, RunStatus};

use crate::support::*;

fn with_strategy(strategy: &str) -> RunSpec {
    RunSpec { context: ContextPolicy { strategy: strategy.to_owned(), ..ContextPolicy::default() }, ..spec() }
}

fn compact(number: u32, strategy: &str, reason: CompactionReason, level: u32, last: u64) -> Effect {
    Effect::Compact { number, strategy: strategy.to_owned(), reason, level, last_entry: EntryNo(last) }
}

#[test]
fn an_overflow_is_compacted_and_the_call_made_again() {
    let mut script = given(with_strategy("summarize"));
    let transition = script.model_fails(ModelErrorKind::ContextOverflow);
    assert_eq!(kinds(&transition.records), "model_call_failed compaction_started");
    assert_eq!(script.state().status(), Some(RunStatus::Compacting));
    assert_eq!(transition.effects.last(), Some(&compact(1, "summarize", CompactionReason::Overflow, 0, 1)));
    let transition = script.does(compacted(1));
    assert_eq!(kinds(&transition.records), "compacted model_call_started");
    let call =
        Effect::CallModel { model_call: 2, attempt: Attempt(1), last_entry: EntryNo(2), checked: false };
    assert_eq!(transition.effects.last(), Some(&call));
    script.says("it fits");
    assert_eq!(script.state().status(), Some(RunStatus::Completed));
}

#[test]
fn the_runs_own_bound_is_compacted_without_a_failure() {
    let mut script = given(with_strategy("truncate"));
    let transition = script.does(too_large(1, 1));
    assert_eq!(kinds(&transition.records), "compaction_started");
    let effects = [
        Effect::StopModel { model_call: 1, attempt: Attempt(1) },
        compact(1, "truncate", CompactionReason::Tokens, 0, 1),
    ];
    assert_eq!(transition.effects, effects);
    script.does(compacted(1));
    assert_eq!(script.model_call(), (2, 1));
}

#[test]
fn a_full_context_is_compacted_after_the_tools_and_before_the_next_call() {
    let mut script = given(with_strategy("extract"));
    let transition = script.does(full(model_asks(1, 1, &[tool("weather")], FinishReason::ToolCalls)));
    let decision = transition.records.iter().find_map(|record| match record.event {
        Event::AssistantMessage { decision, full, .. } => Some((decision, full)),
        _ => None,
    });
    assert_eq!(decision, Some((Observation::Compact, Some(CompactionReason::Tokens))));
    let transition = script.runs(A, "sunny");
    assert_eq!(kinds(&transition.records), "call_settled compaction_started");
    assert_eq!(transition.effects.last(), Some(&compact(1, "extract", CompactionReason::Tokens, 0, 3)));
    let transition = script.does(compacted(1));
    let call =
        Effect::CallModel { model_call: 2, attempt: Attempt(1), last_entry: EntryNo(4), checked: false };
    assert_eq!(transition.effects.last(), Some(&call));
    // Once the model has answered, the next call is held against the bounds again.
    script.asks([tool("weather")]);
    let transition = script.runs(agentloop_core::id::CallSlot::from((2, 0)), "sunny");
    let checked =
        Effect::CallModel { model_call: 3, attempt: Attempt(1), last_entry: EntryNo(6), checked: true };
    assert!(transition.effects.contains(&checked), "{:?}", transition.effects);
}

#[test]
fn an_answer_that_ends_the_run_is_not_compacted_after() {
    let mut script = given(with_strategy("truncate"));
    let transition = script.does(full(model_says(1, 1, "all of it")));
    assert_eq!(kinds(&transition.records), "assistant_message finished");
    let stopped = |event: &Event| {
        matches!(event, Event::AssistantMessage { decision: Observation::Stop, full: None, .. })
    };
    assert!(stopped(&transition.records[0].event));
}

#[test]
fn a_failed_strategy_is_followed_by_trimming() {
    let mut script = given(with_strategy("summarize"));
    script.model_fails(ModelErrorKind::ContextOverflow);
    let transition = script.does(compaction_failed(1));
    assert_eq!(kinds(&transition.records), "compaction_failed compaction_started");
    assert_eq!(transition.effects.last(), Some(&compact(2, "trim", CompactionReason::Overflow, 1, 1)));
    assert_eq!(script.state().last_error().as_ref().map(|error| error.message.as_str()), Some("no summary"));
    let transition = script.does(compacted(2));
    let call =
        Effect::CallModel { model_call: 2, attempt: Attempt(1), last_entry: EntryNo(2), checked: false };
    assert_eq!(transition.effects.last(), Some(&call));
    assert_eq!(script.state().last_error(), None);
}

#[test]
fn a_compaction_that_a_restart_cuts_begins_anew_as_strong_as_it_was() {
    let mut script = given(with_strategy("summarize"));
    script.model_fails(ModelErrorKind::ContextOverflow);
    let transition = script.restarts();
    assert_eq!(kinds(&transition.records), "compaction_started");
    assert_eq!(transition.effects, [compact(2, "summarize", CompactionReason::Overflow, 0, 1)]);
    assert_eq!(script.refuses(compacted(1)), Refusal::StaleModelCall);
    // The one after it is as strong as if there had been no restart.
    script.does(compaction_failed(2));
    let transition = script.restarts();
    assert_eq!(transition.effects, [compact(4, "trim", CompactionReason::Overflow, 1, 1)]);
    script.does(compacted(4));
    script.says("it fits");
    assert_eq!((script.status(), script.state().last_error()), (RunStatus::Completed, None));
}

#[test]
fn a_restart_leaves_the_words_of_the_provider() {
    let mut script = given(with_strategy("trim"));
    script.model_fails(ModelErrorKind::ContextOverflow);
    let words = script.state().last_error().cloned();
    assert!(words.is_some());
    script.restarts();
    assert_eq!(script.state().last_error().cloned(), words);
}

#[test]
fn restarts_use_up_no_compactions() {
    let mut script = given(with_strategy("trim"));
    script.model_fails(ModelErrorKind::ContextOverflow);
    for _ in 0..2 * TRIM_LEVELS {
        script.restarts();
    }
    script.does(compacted(1 + 2 * TRIM_LEVELS));
    let transition = script.model_fails(ModelErrorKind::ContextOverflow);
    let next = compact(2 + 2 * TRIM_LEVELS, "trim", CompactionReason::Overflow, 1, 2);
    assert_eq!(transition.effects.last(), Some(&next));
}

#[test]
fn what_cannot_be_trimmed_fails_the_run_and_says_so() {
    let mut script = given(with_strategy("trim"));
    script.model_fails(ModelErrorKind::ContextOverflow);
    let transition = script.does(compaction_failed(1));
    assert_eq!(kinds(&transition.records), "compaction_failed finished");
    let code = script.end().map(|error| error.code);
    assert_eq!(code, Some(RunErrorCode::Model(ModelErrorKind::ContextOverflow)));
}

#[test]
fn each_overflow_is_trimmed_harder_and_there_is_an_end_to_it() {
    let mut script = given(with_strategy("summarize"));
    let mut levels = Vec::new();
    while script.state().is_live() {
        script.model_fails(ModelErrorKind::ContextOverflow);
        if let Phase::Compacting(compaction) = &script.state().phase() {
            levels.push(compaction.level);
            let number = compaction.number;
            script.does(compacted(number));
        }
    }
    assert_eq!(levels, (0..=TRIM_LEVELS).collect::<Vec<_>>());
    let code = script.end().map(|error| error.code);
    assert_eq!(code, Some(RunErrorCode::Model(ModelErrorKind::ContextOverflow)));
}

#[test]
fn an_overflow_leaves_the_retries_as_they_were() {
    let mut script = given(with_strategy("truncate"));
    script.model_fails(ModelErrorKind::Timeout);
    script.wakes();
    script.model_fails(ModelErrorKind::ContextOverflow);
    script.does(compacted(1));
    for _ in 0..3 {
        script.model_fails(ModelErrorKind::Timeout);
        assert_eq!(script.state().status(), Some(RunStatus::BackingOff));
        script.wakes();
    }
    script.model_fails(ModelErrorKind::Timeout);
    assert_eq!(script.state().status(), Some(RunStatus::Failed));
}

#[test]
fn an_abort_stops_the_compaction() {
    let mut script = given(with_strategy("summarize"));
    script.model_fails(ModelErrorKind::ContextOverflow);
    let transition = script.aborts();
    assert_eq!(transition.effects, [Effect::StopCompacting { number: 1 }]);
    assert_eq!(script.step(compacted(1)), Err(Refusal::StaleModelCall));
}

#[test]
fn the_tokens_of_a_summary_count() {
    let mut script = given(with_strategy("summarize"));
    script.model_fails(ModelErrorKind::ContextOverflow);
    script.does(compacted(1));
    assert_eq!((script.state().usage().input_tokens, script.state().usage().output_tokens), (50, 5));
}

#[test]
fn the_cost_limit_ends_the_run_between_calls() {
    let limits = LoopLimits { max_cost_micros: Some(10), ..spec().limits };
    let mut script = given(RunSpec { limits, ..spec() });
    let mut asks = model_asks(1, 1, &[tool("weather")], FinishReason::ToolCalls);
    if let Input::ModelFinished(done) = &mut asks {
        done.usage.cost_micros = 10;
    }
    script.does(asks);
    script.runs(A, "sunny");
    assert_eq!(script.end().map(|error| error.code), Some(RunErrorCode::LimitCost));
}

#[test]
fn an_answer_that_the_context_cut_goes_on_in_a_smaller_one() {
    let mut script = given(with_strategy("truncate"));
    let mut says = model_says(1, 1, "first half");
    if let Input::ModelFinished(done) = &mut says {
        done.finish = FinishReason::ContextWindow;
    }
    let transition = script.does(says);
    assert_eq!(kinds(&transition.records), "assistant_message compaction_started");
    script.does(compacted(1));
    assert_eq!(script.model_call(), (2, 1));
    script.says("second half");
    assert_eq!(script.state().status(), Some(RunStatus::Completed));
}

/// A compaction after which the context has as many tokens as before.
fn in_vain(number: u32) -> Input {
    let Input::Compacted(done) = compacted(number) else { unreachable!() };
    Input::Compacted(Box::new(Compacted { tokens_after: done.tokens_before, ..*done }))
}

#[test]
fn an_overflow_that_nothing_helps_ends_the_run_at_once() {
    let mut script = given(with_strategy("summarize"));
    script.model_fails(ModelErrorKind::ContextOverflow);
    let transition = script.does(in_vain(1));
    assert_eq!(kinds(&transition.records), "compaction_failed finished");
    let code = script.end().map(|error| error.code);
    assert_eq!(code, Some(RunErrorCode::Model(ModelErrorKind::ContextOverflow)));
    let words = script.end().map(|error| error.message).unwrap_or_default();
    assert!(
        words.ends_with("cannot be made smaller: it failed: context too long"),
        "the provider's words: {words}"
    );
    assert_eq!(script.state().usage().output_tokens, 5, "what a summary took counts all the same");
    assert_eq!((script.state().iterations(), script.state().compactions()), (1, 1));
}

#[test]
fn a_bound_of_the_runs_own_is_only_an_estimate() {
    let mut script = given(with_strategy("truncate"));
    script.does(too_large(1, 1));
    let transition = script.does(in_vain(1));
    assert_eq!(kinds(&transition.records), "compacted model_call_started", "the provider may take it");
    script.model_fails(ModelErrorKind::ContextOverflow);
    script.does(in_vain(2));
    assert_eq!(script.state().status(), Some(RunStatus::Failed));
}

#[test]
fn an_answer_that_ends_before_it_begins_is_an_overflow() {
    let empty = |number: u32| {
        let mut says = model_says(number, 1, "");
        if let Input::ModelFinished(done) = &mut says {
            done.finish = FinishReason::ContextWindow;
        }
        says
    };
    let mut script = given(with_strategy("truncate"));
    let transition = script.does(empty(1));
    assert_eq!(kinds(&transition.records), "model_call_failed compaction_started");
    script.does(compacted(1));
    script.does(empty(2));
    let transition = script.does(in_vain(2));
    assert_eq!(kinds(&transition.records), "compaction_failed finished");
    assert_eq!(script.state().last_message(), None, "nothing was said");
}

#[test]
fn calls_after_an_overflow_count_and_retries_do_not() {
    let limits = LoopLimits { max_iterations: 2, ..spec().limits };
    let mut script = given(RunSpec { limits, ..with_strategy("truncate") });
    script.model_fails(ModelErrorKind::Timeout);
    script.wakes();
    assert_eq!((script.model_call(), script.state().iterations()), ((1, 2), 1));
    script.model_fails(ModelErrorKind::ContextOverflow);
    script.does(compacted(1));
    assert_eq!((script.model_call(), script.state().iterations()), ((2, 1), 2));
    script.model_fails(ModelErrorKind::ContextOverflow);
    script.does(compacted(2));
    assert_eq!(script.end().map(|error| error.code), Some(RunErrorCode::LimitIterations));
}

#[test]
fn a_call_that_was_never_sent_counts_with_the_one_after_it() {
    let limits = LoopLimits { max_iterations: 1, ..spec().limits };
    let mut script = given(RunSpec { limits, ..with_strategy("truncate") });
    script.does(too_large(1, 1));
    script.does(compaction_failed(1));
    script.does(compacted(2));
    assert_eq!((script.model_call(), script.state().iterations()), ((2, 1), 1));
    script.restarts();
    assert_eq!((script.model_call(), script.state().iterations()), ((2, 2), 1));
    script.says("done");
    assert_eq!((script.state().status(), script.state().iterations()), (Some(RunStatus::Completed), 1));
}

/// In journals of earlier versions the call after a compaction is another try of the one before it.
#[test]
fn older_journals_count_as_they_did() {
    let refused = failure(ModelErrorKind::ContextOverflow);
    let refused = Input::ModelFailed { model_call: 1, attempt: Attempt(1), failure: refused };
    for cause in [too_large(1, 1), refused] {
        let mut script = given(with_strategy("truncate"));
        script.does(cause);
        script.does(compacted(1));
        let mut journal = script.journal.clone();
        let Some(Event::ModelCallStarted { model_call, attempt, first_counted, .. }) =
            journal.last_mut().map(|record| &mut record.event)
        else {
            panic!("a call follows")
        };
        (*model_call, *attempt, *first_counted) = (1, Attempt(2), Attempt(2));
        let mut machine = Machine::replay(run_id(), &journal);
        assert_eq!((machine.state().iterations(), machine.state().model_calls()), (1, 1));
        let asks = model_asks(1, 2, &[tool("ask_human")], FinishReason::ToolCalls);
        machine.handle(asks, script.now).expect("it goes on");
        assert_eq!(machine.state().iterations(), 1);
    }
}
