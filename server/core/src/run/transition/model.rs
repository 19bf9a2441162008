//! The model answers, or fails to.

use crate::entry::CompactionReason;
use crate::error::{ErrorClass, ModelErrorKind, Refusal};
use crate::message::{FinishReason, Message, ToolCall, ToolStatus};
use crate::retry::{after_failure, chance};
use crate::run::apply::repeated;
use crate::run::event::{Event, Observation};
use crate::run::input::{CallFacts, Hooked, ModelFailure, ModelFinished};
use crate::run::machine::Turn;
use crate::run::state::{ModelCall, Phase};
use crate::run::status::{RunError, RunErrorCode};
use crate::run::transition::plan::plan;
use crate::run::transition::policy::{self, Ruling};
use crate::run::transition::{compact, finish, human, prepare, queue, tool};
use crate::time::Millis;
use crate::tool::EffectClass;

/// Calls the model, unless a limit says that it is enough.
pub(crate) fn next_call(turn: &mut Turn<'_>) {
    let (state, limits) = (&*turn.state, &turn.state.spec.limits);
    let tokens = state.usage.input_tokens.saturating_add(state.usage.output_tokens);
    let reached = if state.iterations >= limits.max_iterations && !state.unsent {
        Some((
            RunErrorCode::LimitIterations,
            format!("reached the limit of {} model calls", limits.max_iterations),
        ))
    } else if let Some(max) = limits.max_tokens.filter(|max| tokens >= *max) {
        Some((RunErrorCode::LimitTokens, format!("used {tokens} tokens of {max}")))
    } else if let Some(max) = limits.max_cost_micros.filter(|max| state.usage.cost_micros >= *max) {
        let message = format!("cost {} millionths of {max}", state.usage.cost_micros);
        Some((RunErrorCode::LimitCost, message))
    } else {
        limits
            .max_consecutive_failures
            .filter(|max| state.failures_in_a_row >= *max && *max > 0)
            .map(|max| (RunErrorCode::LimitConsecutiveFailures, format!("{max} tool calls in a row failed")))
    };
    match (reached, turn.state.compact_due) {
        (Some((code, message)), _) => finish::fail(turn, RunError::new(code, message)),
        (None, Some(reason)) => compact::begin(turn, None, reason, 0),
        (None, None) => call(turn, turn.state.model_calls + 1, 1, 1),
    }
}

fn call(turn: &mut Turn<'_>, model_call: u32, attempt: u32, first_counted: u32) {
    queue::let_in(turn);
    let last_entry = turn.state.last_entry;
    turn.emit(Event::ModelCallStarted { model_call, attempt, first_counted, last_entry });
}

/// The next try of a call that failed.
pub(crate) fn retry(turn: &mut Turn<'_>, failed: ModelCall) {
    call(turn, failed.number, failed.attempt + 1, failed.first_counted);
}

/// The next try, with a fresh set of retries.
fn call_afresh(turn: &mut Turn<'_>, before: ModelCall) {
    call(turn, before.number, before.attempt + 1, before.attempt + 1);
}

pub(crate) fn current(turn: &Turn<'_>, model_call: u32, attempt: u32) -> Result<ModelCall, Refusal> {
    match &turn.state.phase {
        Phase::ModelRunning(call) if (call.number, call.attempt) == (model_call, attempt) => Ok(*call),
        Phase::New
        | Phase::Queued
        | Phase::Preparing
        | Phase::ModelRunning(_)
        | Phase::BackingOff { .. }
        | Phase::Compacting(_)
        | Phase::Observed { .. }
        | Phase::Tools(_)
        | Phase::Paused { .. }
        | Phase::Finished { .. } => Err(Refusal::StaleModelCall),
    }
}

/// The model finished its message: take up its tool calls, or end.
pub(crate) fn finished(turn: &mut Turn<'_>, done: ModelFinished) -> Result<(), Refusal> {
    current(turn, done.model_call, done.attempt)?;
    if done.finish == FinishReason::ContextWindow && says_nothing(&done.message) {
        return failed(turn, done.model_call, done.attempt, no_room());
    }
    let calls: Vec<ToolCall> = done.message.tool_calls().cloned().collect();
    assert_eq!(calls.len(), done.facts.len(), "the driver knows something of each call");
    let stopped = refused(&done.finish).or_else(|| round_limit(turn, &calls));
    // What a planner will want nobody knows yet.
    let cut = done.finish == FinishReason::ContextWindow;
    let go_on = stopped.is_none()
        && (!calls.is_empty() || cut || !turn.state.held.is_empty() || turn.state.spec.planner.is_some());
    let full = done.full.or(cut.then_some(CompactionReason::Overflow)).filter(|_| go_on);
    turn.emit(Event::AssistantMessage {
        model_call: done.model_call,
        attempt: done.attempt,
        entry: turn.state.last_entry.next(),
        message: done.message,
        finish: done.finish,
        usage: done.usage,
        first_token: done.first_token,
        duration: done.duration,
        tools: done.tools,
        decision: match (go_on, full) {
            (false, _) => Observation::Stop,
            (true, None) => Observation::Continue,
            (true, Some(_)) => Observation::Compact,
        },
        full,
    });
    if let Some(error) = stopped {
        finish::fail(turn, error);
        return Ok(());
    }
    let hooked = done.hooked.into_iter().chain(std::iter::repeat_with(Hooked::default));
    for ((call, facts), hooked) in calls.iter().zip(done.facts).zip(hooked) {
        prepare::record(turn, Some(call.slot), hooked.applied);
        take_up(turn, call, facts, hooked.arguments);
    }
    plan(turn);
    Ok(())
}

/// Whether there is neither text nor a call in a message.
fn says_nothing(message: &Message) -> bool {
    message.tool_calls().next().is_none() && message.plain_text().trim().is_empty()
}

/// The answer ended for want of room before it began.
fn no_room() -> ModelFailure {
    ModelFailure {
        kind: ModelErrorKind::ContextOverflow,
        message: "the context was full before the answer began".to_owned(),
        status: None,
        retry_after: None,
    }
}

/// A call that a human answers. A rule may deny it; to ask whether to ask would be one question too many.
fn ask_human(turn: &mut Turn<'_>, call: &ToolCall, arguments: Option<String>) {
    let asks_with = arguments.as_deref().unwrap_or(&call.arguments);
    if let Some(rule) = policy::denial(turn.state, &call.name, asks_with).cloned() {
        policy::refuse(turn, call.slot, &rule);
        return;
    }
    turn.emit(Event::CallProposed {
        slot: call.slot,
        tool: call.name.clone(),
        effect: EffectClass::ReadOnly,
        timeout: Millis(0),
        needs_approval: false,
        asks_human: true,
        arguments,
        needs_runtime: false,
        title: String::new(),
    });
    human::ask_input(turn, call.slot);
}

fn take_up(turn: &mut Turn<'_>, call: &ToolCall, facts: CallFacts, arguments: Option<String>) {
    match facts {
        CallFacts::Rejected { message } => {
            tool::settle(turn, call.slot, None, ToolStatus::Rejected, message, Vec::new());
        }
        CallFacts::AsksHuman => ask_human(turn, call, arguments),
        CallFacts::Ready { effect, requires_approval, timeout, requires_runtime, title } => {
            let runs_with = arguments.as_deref().unwrap_or(&call.arguments);
            let ruling = policy::ruling(turn.state, &call.name, runs_with, requires_approval);
            if let Ruling::Deny(rule) = ruling {
                policy::refuse(turn, call.slot, &rule);
                return;
            }
            let needs_approval = ruling == Ruling::Ask;
            turn.emit(Event::CallProposed {
                slot: call.slot,
                tool: call.name.clone(),
                effect,
                timeout,
                needs_approval,
                asks_human: false,
                arguments,
                needs_runtime: requires_runtime,
                title,
            });
            if needs_approval && !turn.state.spec.is_directed() {
                human::ask_approval(turn, call.slot);
            }
        }
    }
}

/// A message that the provider cut or the model declined is not an answer.
fn refused(finish: &FinishReason) -> Option<RunError> {
    match finish {
        FinishReason::Refusal => {
            Some(RunError::new(RunErrorCode::ModelRefused, "the model declined to answer"))
        }
        FinishReason::ContentFilter => {
            Some(RunError::new(RunErrorCode::ContentFiltered, "the provider's filter cut the answer"))
        }
        FinishReason::Stop
        | FinishReason::ToolCalls
        | FinishReason::Length
        | FinishReason::ContextWindow
        | FinishReason::Other(_) => None,
    }
}

/// Whether the run may have another round of these calls.
fn round_limit(turn: &Turn<'_>, calls: &[ToolCall]) -> Option<RunError> {
    let (state, spec) = (&*turn.state, &turn.state.spec);
    if calls.is_empty() {
        return None;
    }
    if let Some(max) = spec.limits.max_tool_rounds.filter(|max| state.tool_rounds >= *max) {
        let message = format!("reached the limit of {max} rounds of tool calls");
        return Some(RunError::new(RunErrorCode::LimitToolRounds, message));
    }
    let asked = u32::try_from(calls.len()).unwrap_or(u32::MAX);
    if let Some(max) = spec.tool_policy.max_calls_per_run
        && state.tool_calls.saturating_add(asked) > max
    {
        let message = format!("{asked} more tool calls would pass the limit of {max}");
        return Some(RunError::new(RunErrorCode::LimitToolCalls, message));
    }
    let max = spec.limits.max_repeated_calls.filter(|max| *max > 0)?;
    let mut repetition = state.repetition.clone();
    for call in calls {
        let next = repeated(repetition, call);
        if next.1 > max {
            let message =
                format!("{} was called more than {max} times in a row with the same arguments", call.name);
            return Some(RunError::new(RunErrorCode::LimitRepeatedCalls, message));
        }
        repetition = Some(next);
    }
    None
}

/// The model call failed: try again, pause, or end.
pub(crate) fn failed(
    turn: &mut Turn<'_>,
    model_call: u32,
    attempt: u32,
    failure: ModelFailure,
) -> Result<(), Refusal> {
    let call = current(turn, model_call, attempt)?;
    let policy = &turn.state.spec.retry;
    let retryable = failure.kind.class() == ErrorClass::Retryable;
    let failures = attempt - call.first_counted + 1;
    let chance = chance(turn.state.seed, model_call, attempt);
    let wait = after_failure(policy, failure.kind.class(), failures, failure.retry_after, chance);
    let pauses = retryable && policy.pause_when_exhausted;
    let overflow = failure.kind.class() == ErrorClass::Overflow && compact::may_squeeze(turn);
    let error = error_of(failure);
    turn.emit(Event::ModelCallFailed {
        model_call,
        attempt,
        error: error.clone(),
        retry_at: wait.map(|wait| turn.now.after(wait)),
    });
    match wait {
        Some(_) => {}
        None if overflow => compact::squeeze(turn, CompactionReason::Overflow, 0),
        None if pauses => turn.emit(Event::Paused { error }),
        None => finish::fail(turn, error),
    }
    Ok(())
}

fn error_of(failure: ModelFailure) -> RunError {
    RunError {
        code: RunErrorCode::Model(failure.kind),
        message: failure.message,
        http_status: failure.status,
    }
}

/// An operator lets a paused run go on, with a fresh set of retries.
pub(crate) fn resume(turn: &mut Turn<'_>, request: String, by: String) -> Result<(), Refusal> {
    if turn.state.resumed.contains(&request) {
        return Ok(());
    }
    let Phase::Paused { call, .. } = turn.state.phase else {
        return Err(Refusal::WrongPhase(turn.state.status()));
    };
    turn.emit(Event::Resumed { by, request });
    call_afresh(turn, call);
    Ok(())
}

/// A model call that was cut by a restart is issued again. It does not count as a failure of the model.
pub(crate) fn recovered(turn: &mut Turn<'_>) -> Result<(), Refusal> {
    match turn.state.phase {
        Phase::New => Err(Refusal::WrongPhase(None)),
        Phase::ModelRunning(call) => {
            turn.emit(Event::ModelCallFailed {
                model_call: call.number,
                attempt: call.attempt,
                error: RunError::new(
                    RunErrorCode::Model(ModelErrorKind::Connection),
                    "the server stopped during the call",
                ),
                retry_at: Some(turn.now),
            });
            call_afresh(turn, call);
            Ok(())
        }
        Phase::Queued
        | Phase::Preparing
        | Phase::BackingOff { .. }
        | Phase::Compacting(_)
        | Phase::Observed { .. }
        | Phase::Tools(_)
        | Phase::Paused { .. }
        | Phase::Finished { .. } => Ok(()),
    }
}
