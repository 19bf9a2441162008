//! Inputs of model calls: a response, a failure, and a call or a compaction that a restart cut off.

use std::sync::Arc;

use crate::entry::CompactionReason;
use crate::id::Attempt;
use crate::message::{FinishReason, Message, ToolCall, ToolStatus};
use crate::model::error::{ErrorClass, ModelErrorKind};
use crate::model::retry::{after_failure, chance};
use crate::policy::PolicyCall;
use crate::run::event::{Event, Observation};
use crate::run::input::{CallFacts, HookedCall, ModelFailure, ModelFinished, ReadyCall};
use crate::run::refusal::Refusal;
use crate::run::state::Phase;
use crate::run::status::{RunError, RunErrorCode};
use crate::run::transition::builder::TransitionBuilder;
use crate::run::transition::routine::policy::{self, Ruling};
use crate::run::transition::routine::{calls, compaction, extension, finish, limit, model_call, question};
use crate::run::update_todos;
use crate::time::Millis;
use crate::tool::EffectClass;

/// The response is complete: its tool calls are proposed, or the run ends.
pub(super) fn finished(builder: &mut TransitionBuilder<'_>, done: ModelFinished) -> Result<(), Refusal> {
    model_call::running(builder, done.model_call, done.attempt)?;
    if done.finish == FinishReason::ContextWindow && is_empty(&done.message) {
        return failed(builder, done.model_call, done.attempt, context_full());
    }
    let calls: Vec<ToolCall> = done.message.tool_calls().cloned().collect();
    assert_eq!(calls.len(), done.facts.len(), "the driver knows something of each call");
    let stopped = refused(&done.finish).or_else(|| limit::on_round(builder.state(), &calls));
    let cut = done.finish == FinishReason::ContextWindow;
    // Nobody knows yet what a planner will decide.
    let go_on = stopped.is_none()
        && (!calls.is_empty()
            || cut
            || builder.state().has_waiting_messages()
            || builder.state().spec().planner.is_some());
    let full = done.full.or(cut.then_some(CompactionReason::Overflow)).filter(|_| go_on);
    builder.emit(Event::AssistantMessage {
        model_call: done.model_call,
        attempt: done.attempt,
        entry: builder.state().last_entry().next(),
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
        finish::fail(builder, error);
        return Ok(());
    }
    let hooked = done.hooked.into_iter().chain(std::iter::repeat_with(HookedCall::default));
    for ((call, facts), hooked) in calls.iter().zip(done.facts).zip(hooked) {
        extension::record(builder, Some(call.slot), hooked.applied);
        propose(builder, call, facts, hooked.arguments);
    }
    Ok(())
}

/// True if a message has neither text nor a tool call.
fn is_empty(message: &Message) -> bool {
    message.tool_calls().next().is_none() && message.plain_text().trim().is_empty()
}

/// The failure of a call whose context left no room for a response.
fn context_full() -> ModelFailure {
    ModelFailure {
        kind: ModelErrorKind::ContextOverflow,
        message: "the context was full before the answer began".to_owned(),
        status: None,
        retry_after: None,
    }
}

/// Proposes a call, or settles it at once if it cannot run. `arguments` are those of a hook.
fn propose(
    builder: &mut TransitionBuilder<'_>,
    call: &ToolCall,
    facts: CallFacts,
    arguments: Option<String>,
) {
    match facts {
        CallFacts::Rejected { message } => {
            calls::settle(builder, call.slot, ToolStatus::Rejected, message);
        }
        CallFacts::AsksHuman => propose_question(builder, call, arguments),
        CallFacts::UpdatesTodos => update_todos(builder, call, arguments),
        CallFacts::Ready(ready) => propose_ready(builder, call, ready, arguments),
    }
}

/// Proposes a call that can run, unless a rule denies it.
fn propose_ready(
    builder: &mut TransitionBuilder<'_>,
    call: &ToolCall,
    ready: ReadyCall,
    arguments: Option<String>,
) {
    let ReadyCall { effect, requires_approval, timeout, requires_runtime, title, deadline_is_outcome, terms } =
        ready;
    let runs_with = arguments.as_deref().unwrap_or(&call.arguments);
    let policy_call = PolicyCall::new(&call.name, runs_with).under(terms.as_ref());
    let ruling = policy::ruling(builder.state(), &policy_call, requires_approval);
    if let Ruling::Deny(rule) = ruling {
        policy::refuse(builder, call.slot, &rule);
        return;
    }
    let needs_approval = ruling == Ruling::Ask;
    // A planner may have a human asked about any call.
    let may_be_asked = needs_approval || builder.state().spec().is_directed();
    builder.emit(Event::CallProposed {
        slot: call.slot,
        tool: call.name.clone(),
        effect,
        timeout,
        needs_approval,
        asks_human: false,
        arguments,
        needs_runtime: requires_runtime,
        title,
        deadline_is_outcome,
        terms: terms.filter(|_| may_be_asked),
    });
    if needs_approval && !builder.state().spec().is_directed() {
        question::ask_approval(builder, call.slot);
    }
}

/// Proposes a call whose result is a person's answer. A rule may deny it, but no approval is asked: that would be a
/// question about a question.
fn propose_question(builder: &mut TransitionBuilder<'_>, call: &ToolCall, arguments: Option<String>) {
    let asks_with = arguments.as_deref().unwrap_or(&call.arguments);
    if let Some(rule) = policy::denial(builder.state(), &call.name, asks_with).cloned() {
        policy::refuse(builder, call.slot, &rule);
        return;
    }
    builder.emit(Event::CallProposed {
        slot: call.slot,
        tool: call.name.clone(),
        effect: EffectClass::ReadOnly,
        timeout: Millis(0),
        needs_approval: false,
        asks_human: true,
        arguments,
        needs_runtime: false,
        title: String::new(),
        deadline_is_outcome: false,
        terms: None,
    });
    question::ask_input(builder, call.slot);
}

/// Writes the session's to-do list, and settles the call at once. A rule may deny it, but no approval is asked.
fn update_todos(builder: &mut TransitionBuilder<'_>, call: &ToolCall, arguments: Option<String>) {
    let writes = arguments.as_deref().unwrap_or(&call.arguments);
    if let Some(rule) = policy::denial(builder.state(), &call.name, writes).cloned() {
        policy::refuse(builder, call.slot, &rule);
        return;
    }
    let items = match update_todos::list(writes) {
        Ok(items) => items,
        Err(message) => {
            calls::settle(builder, call.slot, ToolStatus::Rejected, message);
            return;
        }
    };
    builder.emit(Event::CallProposed {
        slot: call.slot,
        tool: call.name.clone(),
        effect: EffectClass::Idempotent,
        timeout: Millis(0),
        needs_approval: false,
        asks_human: false,
        arguments,
        needs_runtime: false,
        title: String::new(),
        deadline_is_outcome: false,
        terms: None,
    });
    let told = update_todos::told(&items);
    let result = builder.state().last_entry().next();
    builder.emit(Event::TodosUpdated { slot: call.slot, result, items: Arc::new(items) });
    calls::settle(builder, call.slot, ToolStatus::Succeeded, told);
}

/// The error of a response that the model refused or the provider cut off; such a response is no result.
fn refused(finish: &FinishReason) -> Option<RunError> {
    match finish {
        FinishReason::Refusal => {
            Some(RunError::new(RunErrorCode::ModelRefused, "the model declined to respond"))
        }
        FinishReason::ContentFilter => {
            Some(RunError::new(RunErrorCode::ContentFiltered, "the provider's filter cut the response"))
        }
        FinishReason::Stop
        | FinishReason::ToolCalls
        | FinishReason::Length
        | FinishReason::ContextWindow
        | FinishReason::CutOff
        | FinishReason::Other(_) => None,
    }
}

/// The model call failed: it is tried again, the context is compacted, or the run pauses or fails.
pub(super) fn failed(
    builder: &mut TransitionBuilder<'_>,
    model_call: u32,
    attempt: Attempt,
    failure: ModelFailure,
) -> Result<(), Refusal> {
    let call = model_call::running(builder, model_call, attempt)?;
    let policy = &builder.state().spec().retry;
    let class = failure.kind.class();
    let failures = call.first_counted.further_until(attempt) + 1;
    let chance = chance(builder.state().seed(), model_call, attempt);
    let wait = after_failure(policy, class, failures, failure.retry_after, chance);
    let exhausted = class == ErrorClass::Retryable && policy.pause_when_exhausted;
    let pauses = exhausted || failure.kind == ModelErrorKind::NotConfigured;
    let compacts = class == ErrorClass::Overflow && compaction::may_compact_again(builder);
    let error = RunError {
        code: RunErrorCode::Model(failure.kind),
        message: failure.message,
        http_status: failure.status,
    };
    builder.emit(Event::ModelCallFailed {
        model_call,
        attempt,
        error: error.clone(),
        retry_at: wait.map(|wait| builder.now.after(wait)),
    });
    match wait {
        Some(_) => {}
        None if compacts => compaction::begin_stronger(builder, CompactionReason::Overflow, 0),
        None if pauses => builder.emit(Event::Paused { error }),
        None => finish::fail(builder, error),
    }
    Ok(())
}

/// A new owner took the run over: a model call that the restart cut off is tried again. It does not count as a failure
/// of the model.
pub(super) fn recovered(builder: &mut TransitionBuilder<'_>) -> Result<(), Refusal> {
    match builder.state().phase() {
        Phase::New => Err(Refusal::WrongPhase(None)),
        Phase::Compacting(cut) => {
            let cut = cut.clone();
            compaction::begin_anew(builder, cut);
            Ok(())
        }
        Phase::ModelRunning(call) => {
            let call = *call;
            builder.emit(Event::ModelCallFailed {
                model_call: call.number,
                attempt: call.attempt,
                error: RunError::new(
                    RunErrorCode::Model(ModelErrorKind::Connection),
                    "the server stopped during the call",
                ),
                retry_at: Some(builder.now),
            });
            model_call::retry_afresh(builder, call);
            Ok(())
        }
        Phase::Queued
        | Phase::Preparing
        | Phase::BackingOff { .. }
        | Phase::Observed { .. }
        | Phase::Tools(_)
        | Phase::Paused { .. }
        | Phase::Finished { .. } => Ok(()),
    }
}
