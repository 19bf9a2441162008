//! The run's own limits on model calls, tool calls, tokens and cost.

use crate::message::ToolCall;
use crate::run::state::{Repetition, RunState};
use crate::run::status::{RunError, RunErrorCode};

/// The limit that forbids the next model call, if one is reached.
pub(in crate::run::transition) fn on_model_call(state: &RunState) -> Option<RunError> {
    let limits = &state.spec().limits;
    let usage = state.usage();
    let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
    if state.iterations() >= limits.max_iterations && !state.last_call_was_unsent() {
        let message = format!("reached the limit of {} model calls", limits.max_iterations);
        return Some(RunError::new(RunErrorCode::LimitIterations, message));
    }
    if let Some(max) = limits.max_tokens.filter(|max| tokens >= *max) {
        return Some(RunError::new(RunErrorCode::LimitTokens, format!("used {tokens} tokens of {max}")));
    }
    if let Some(max) = limits.max_cost_micros.filter(|max| usage.cost_micros >= *max) {
        let message = format!("cost {} millionths of {max}", usage.cost_micros);
        return Some(RunError::new(RunErrorCode::LimitCost, message));
    }
    let max = limits.max_consecutive_failures.filter(|max| state.failures_in_a_row() >= *max && *max > 0)?;
    let message = format!("{max} tool calls in a row failed");
    Some(RunError::new(RunErrorCode::LimitConsecutiveFailures, message))
}

/// The limit that forbids a round of these calls, if one is reached.
pub(in crate::run::transition) fn on_round(state: &RunState, calls: &[ToolCall]) -> Option<RunError> {
    let spec = state.spec();
    if calls.is_empty() {
        return None;
    }
    if let Some(max) = spec.limits.max_tool_rounds.filter(|max| state.tool_rounds() >= *max) {
        let message = format!("reached the limit of {max} rounds of tool calls");
        return Some(RunError::new(RunErrorCode::LimitToolRounds, message));
    }
    let more = u32::try_from(calls.len()).unwrap_or(u32::MAX);
    if let Some(max) = spec.tool_policy.max_calls_per_run
        && state.tool_calls().saturating_add(more) > max
    {
        let message = format!("{more} more tool calls would pass the limit of {max}");
        return Some(RunError::new(RunErrorCode::LimitToolCalls, message));
    }
    let max = spec.limits.max_repeated_calls.filter(|max| *max > 0)?;
    let repeated = first_repeated(state.repetition(), calls, max)?;
    let message =
        format!("{} was called more than {max} times in a row with the same arguments", repeated.name);
    Some(RunError::new(RunErrorCode::LimitRepeatedCalls, message))
}

/// The first call that comes more than `max` times in a row.
fn first_repeated<'c>(before: Option<&Repetition>, calls: &'c [ToolCall], max: u32) -> Option<&'c ToolCall> {
    let mut last = before.cloned();
    calls.iter().find(|call| {
        let repetition = Repetition::next(last.as_ref(), call);
        let too_often = repetition.times() > max;
        last = Some(repetition);
        too_often
    })
}
