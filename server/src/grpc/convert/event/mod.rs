//! Conversion of a run's events, durable and transient, to the contract's `RunEvent`.

use agentloop_core::context::build::is_cut;
use agentloop_core::delta::Delta;
use agentloop_core::entry::CompactionReason;
use agentloop_core::id::{CallSlot, RunId, SessionId};
use agentloop_core::run::event::{AfterAttempt, Event, Observation, Outcome, Ran, Record, Totals};
use agentloop_core::run::status::{RunError, RunStatus};
use agentloop_core::run::view::{LoopPhase, ProcessState, loops};
use agentloop_core::tool::EffectClass;
use agentloop_proto::{EventFrame, v1 as wire};
use prost::Message as _;
use wire::run_event::Event as Wire;

use super::message::{call_id, finish_reason, message, tool_result, usage};
use super::run::{durations, run_error, run_status};
use super::session::compacted;
use super::{duration, timestamp};
use super::{extension, human, instruction};
use crate::engine::feed::{FeedItem, ModelAttempt, Progress, Transient};

/// Converts the events of one run to the contract's.
#[derive(Debug, Clone)]
pub struct EventConverter {
    run: RunId,
    session: SessionId,
}

impl EventConverter {
    /// A converter for the events of one run.
    #[must_use]
    pub fn new(run: RunId, session: SessionId) -> Self {
        Self { run, session }
    }

    /// The frame to send. Each item is converted and encoded once, for all subscribers of the run.
    #[must_use]
    pub fn frame(&self, shown: &FeedItem) -> EventFrame {
        EventFrame { event: shown.encoded(|shown| self.event(shown).encode_to_vec().into()) }
    }

    /// Converts an item of the feed.
    #[must_use]
    pub fn event(&self, shown: &FeedItem) -> wire::RunEvent {
        match shown {
            FeedItem::Durable(record) => self.durable(record),
            FeedItem::Transient(transient) => self.transient(transient),
        }
    }

    /// Converts a durable event.
    #[must_use]
    pub fn durable(&self, record: &Record) -> wire::RunEvent {
        let (phase, process) = loops(&record.event, record.status);
        wire::RunEvent {
            seq: record.seq.0,
            run_id: self.run.to_string(),
            session_id: self.session.to_string(),
            turn_id: turn_of(&record.event).map(|turn| self.turn_id(turn)).unwrap_or_default(),
            at: Some(timestamp(record.at)),
            status: run_status(record.status).into(),
            phase: loop_phase(phase).into(),
            process: process_state(process).into(),
            event: Some(self.to_wire(record)),
        }
    }

    fn turn_id(&self, turn: u32) -> String {
        format!("{}.{turn}", self.run)
    }

    fn call_id(&self, slot: CallSlot) -> String {
        call_id(&self.run, slot)
    }

    fn to_wire(&self, record: &Record) -> Wire {
        match &record.event {
            Event::Started { spec, queued, .. } => Wire::RunStarted(wire::RunStarted {
                agent: spec.agent.clone(),
                model: spec.model.clone(),
                max_iterations: spec.limits.max_iterations,
                labels: spec.labels.clone(),
                queued: *queued,
                planner: spec.planner.clone().unwrap_or_default(),
            }),
            Event::SessionEntered { last_entry, .. } => {
                Wire::SessionEntered(wire::SessionEntered { last_entry_no: last_entry.0 })
            }
            Event::InputAdded { entry, message: input } => Wire::InputMessage(wire::InputMessage {
                entry_no: entry.0,
                message: Some(message(&self.run, input)),
                steer_id: String::new(),
            }),
            Event::InputHeld { message: input, steer } => Wire::InputMessage(wire::InputMessage {
                entry_no: 0,
                message: Some(message(&self.run, input)),
                steer_id: steer.as_ref().map(|steer| steer.id.to_string()).unwrap_or_default(),
            }),
            Event::InputEntered { entry, held } => {
                Wire::InputEntered(wire::InputEntered { input_seq: held.0, entry_no: entry.0 })
            }
            Event::ContextAdded { source, entry, message: added } => Wire::ContextAdded(wire::ContextAdded {
                source: source.clone(),
                entry_no: entry.0,
                message: Some(message(&self.run, added)),
            }),
            Event::ExtensionApplied { slot, applied } => Wire::ExtensionApplied(wire::ExtensionApplied {
                name: applied.name.clone(),
                outcome: applied.outcome.clone(),
                error: applied.error.clone().unwrap_or_default(),
                kind: extension::kind(applied.extension).into(),
                call_id: slot.map(|slot| self.call_id(slot)).unwrap_or_default(),
                duration: Some(duration(applied.duration)),
            }),
            Event::CompactionStarted { strategy, reason, tokens, .. } => {
                Wire::CompactionStarted(wire::CompactionStarted {
                    strategy: strategy.clone(),
                    reason: compaction_reason(*reason).into(),
                    tokens_before: *tokens,
                })
            }
            Event::CompactionFailed { strategy, error, .. } => {
                Wire::CompactionFailed(wire::CompactionFailed {
                    strategy: strategy.clone(),
                    error: Some(run_error(error)),
                })
            }
            Event::Compacted { entry, compaction, usage: used, tokens_before, tokens_after } => {
                Wire::ContextCompacted(wire::ContextCompacted {
                    tokens_before: *tokens_before,
                    tokens_after: *tokens_after,
                    usage: Some(usage(*used)),
                    ..compacted(*entry, compaction)
                })
            }
            Event::ModelCallStarted { model_call, attempt, last_entry, .. } => {
                Wire::ModelCallStarted(wire::ModelCallStarted {
                    model_call: *model_call,
                    attempt: *attempt,
                    last_entry_no: last_entry.0,
                })
            }
            Event::ModelCallFailed { model_call, attempt, error, retry_at } => {
                Wire::ModelCallFailed(wire::ModelCallFailed {
                    model_call: *model_call,
                    attempt: *attempt,
                    error: Some(run_error(error)),
                    retry_at: retry_at.map(timestamp),
                })
            }
            Event::AssistantMessage { .. } => self.assistant(&record.event),
            Event::Planned { instruction: what, planner, step, .. } => {
                Wire::InstructionPlanned(wire::InstructionPlanned {
                    instruction: Some(instruction::to_wire(what)),
                    planner: planner.clone(),
                    step_request_id: step.clone().unwrap_or_default(),
                })
            }
            Event::CallProposed { slot, tool, effect, needs_approval, title, .. } => {
                Wire::ToolCallProposed(wire::ToolCallProposed {
                    call_id: self.call_id(*slot),
                    tool: tool.clone(),
                    effect: effect_class(*effect).into(),
                    requires_approval: *needs_approval,
                    title: title.clone(),
                })
            }
            Event::CallOffered { slot, tool, attempt, host } => {
                Wire::ToolCallOffered(wire::ToolCallOffered {
                    call_id: self.call_id(*slot),
                    tool: tool.clone(),
                    attempt: *attempt,
                    host_id: host.to_string(),
                    ..wire::ToolCallOffered::default()
                })
            }
            Event::CallAccepted { slot, attempt, host } => Wire::ToolCallAccepted(wire::ToolCallAccepted {
                call_id: self.call_id(*slot),
                attempt: *attempt,
                host_id: host.to_string(),
            }),
            Event::CallCheckpoint { slot, attempt, checkpoint } => {
                Wire::ToolCallCheckpoint(wire::ToolCallCheckpoint {
                    call_id: self.call_id(*slot),
                    attempt: *attempt,
                    checkpoint: checkpoint.clone(),
                })
            }
            Event::CallAttemptFailed { slot, attempt, message, ran, then } => {
                Wire::ToolCallAttemptFailed(wire::ToolCallAttemptFailed {
                    call_id: self.call_id(*slot),
                    attempt: *attempt,
                    message: message.clone(),
                    effect: attempt_effect(*ran).into(),
                    state: after_attempt(*then).into(),
                    retry_at: match then {
                        AfterAttempt::Retry { at } => at.map(timestamp),
                        AfterAttempt::InDoubt | AfterAttempt::Settle => None,
                    },
                })
            }
            Event::CallSettled { entry, attempt, host, message, duration: took, .. } => {
                Wire::ToolCallResult(wire::ToolCallResult {
                    entry_no: entry.0,
                    attempt: *attempt,
                    host_id: host.as_ref().map(ToString::to_string).unwrap_or_default(),
                    result: message.tool_result().map(|result| tool_result(&self.run, result)),
                    duration: Some(duration(*took)),
                    truncated: is_cut(message),
                })
            }
            Event::HumanRequested { question } => Wire::HumanRequested(wire::HumanRequested {
                request: Some(human::request(&self.run, &self.session, question, None)),
            }),
            Event::HumanResolved { request, slot, answer } => Wire::HumanResolved(wire::HumanResolved {
                request_id: request.to_string(),
                call_id: slot.map(|slot| self.call_id(slot)).unwrap_or_default(),
                answer: Some(human::answer(answer)),
            }),
            Event::Paused { error } => Wire::RunPaused(wire::RunPaused { error: Some(run_error(error)) }),
            Event::Resumed { by, .. } => Wire::RunResumed(wire::RunResumed { resumed_by: by.clone() }),
            Event::Finished { outcome, error, totals } => {
                Wire::RunFinished(finished(*outcome, error.as_ref(), totals))
            }
        }
    }

    fn assistant(&self, event: &Event) -> Wire {
        let Event::AssistantMessage {
            model_call,
            attempt,
            entry,
            message: said,
            finish,
            usage: tokens,
            first_token,
            duration: took,
            tools,
            decision,
            full: _,
        } = event
        else {
            unreachable!("only called for this kind")
        };
        Wire::AssistantMessage(wire::AssistantMessage {
            model_call: *model_call,
            attempt: *attempt,
            entry_no: entry.0,
            message: Some(message(&self.run, said)),
            finish_reason: finish_reason(finish).into(),
            usage: Some(usage(*tokens)),
            time_to_first_token: Some(duration(*first_token)),
            duration: Some(duration(*took)),
            decision: match decision {
                Observation::Continue => wire::ObserveDecision::Continue,
                Observation::Compact => wire::ObserveDecision::Compact,
                Observation::Stop => wire::ObserveDecision::Stop,
            }
            .into(),
            tools_digest: tools.to_string(),
        })
    }

    fn transient(&self, transient: &Transient) -> wire::RunEvent {
        let (turn, status, process, event) = match &transient.what {
            Progress::Delta { call, delta_seq, delta } => (
                call.model_call,
                RunStatus::ModelRunning,
                ProcessState::Streaming,
                model_delta(*call, *delta_seq, delta),
            ),
            Progress::Partial { call, delta_seq, message: so_far } => {
                let partial = Wire::PartialMessage(wire::PartialMessage {
                    model_call: call.model_call,
                    attempt: call.attempt,
                    delta_seq: *delta_seq,
                    message: Some(message(&self.run, so_far)),
                });
                (call.model_call, RunStatus::ModelRunning, ProcessState::Streaming, partial)
            }
            Progress::Call { slot, attempt, message, fraction } => {
                let progress = Wire::ToolCallProgress(wire::ToolCallProgress {
                    call_id: self.call_id(*slot),
                    attempt: *attempt,
                    message: message.clone(),
                    fraction: *fraction,
                });
                (slot.0, RunStatus::ToolRunning, ProcessState::ToolExecuting, progress)
            }
            Progress::Output { slot, attempt, chunk_seq, stderr, data } => {
                let stream = if *stderr { wire::OutputStream::Stderr } else { wire::OutputStream::Stdout };
                let output = Wire::ToolCallOutput(wire::ToolCallOutput {
                    call_id: self.call_id(*slot),
                    attempt: *attempt,
                    chunk_seq: *chunk_seq,
                    stream: stream.into(),
                    data: data.clone(),
                });
                (slot.0, RunStatus::ToolRunning, ProcessState::ToolExecuting, output)
            }
        };
        wire::RunEvent {
            seq: 0,
            run_id: self.run.to_string(),
            session_id: self.session.to_string(),
            turn_id: self.turn_id(turn),
            at: Some(timestamp(transient.at)),
            status: run_status(status).into(),
            phase: wire::LoopPhase::Executing.into(),
            process: process_state(process).into(),
            event: Some(event),
        }
    }
}

/// True if callers see the item. Deltas that only the message assembler needs are hidden.
#[must_use]
pub fn is_shown(shown: &FeedItem) -> bool {
    match shown {
        FeedItem::Durable(_) => true,
        FeedItem::Transient(transient) => !matches!(
            transient.what,
            Progress::Delta {
                delta: Delta::Usage(_)
                    | Delta::Finish { .. }
                    | Delta::ReasoningEnd { .. }
                    | Delta::TextEnd { .. }
                    | Delta::ToolCallState { .. }
                    | Delta::Opaque(_),
                ..
            }
        ),
    }
}

/// True for the run's last event.
#[must_use]
pub fn is_last(shown: &FeedItem) -> bool {
    match shown {
        FeedItem::Durable(record) => matches!(record.event, Event::Finished { .. }),
        FeedItem::Transient(_) => false,
    }
}

fn turn_of(event: &Event) -> Option<u32> {
    match event {
        Event::ModelCallStarted { model_call, .. }
        | Event::ModelCallFailed { model_call, .. }
        | Event::AssistantMessage { model_call, .. } => Some(*model_call),
        Event::CallProposed { slot, .. }
        | Event::CallOffered { slot, .. }
        | Event::CallAccepted { slot, .. }
        | Event::CallCheckpoint { slot, .. }
        | Event::CallAttemptFailed { slot, .. }
        | Event::CallSettled { slot, .. } => Some(slot.0),
        Event::ExtensionApplied { slot, .. } | Event::HumanResolved { slot, .. } => slot.map(|slot| slot.0),
        Event::HumanRequested { question } => question.slot.map(|slot| slot.0),
        Event::Started { .. }
        | Event::InputAdded { .. }
        | Event::SessionEntered { .. }
        | Event::InputHeld { .. }
        | Event::InputEntered { .. }
        | Event::ContextAdded { .. }
        | Event::CompactionStarted { .. }
        | Event::CompactionFailed { .. }
        | Event::Compacted { .. }
        | Event::Planned { .. }
        | Event::Paused { .. }
        | Event::Resumed { .. }
        | Event::Finished { .. } => None,
    }
}

fn model_delta(call: ModelAttempt, delta_seq: u64, delta: &Delta) -> Wire {
    use wire::model_delta::Delta as Piece;
    let ModelAttempt { model_call, attempt } = call;
    let call = |index: u32, name: &str, fragment: &str| {
        Piece::ToolCall(wire::ToolCallDelta {
            index,
            name: name.to_owned(),
            arguments_fragment: fragment.to_owned(),
        })
    };
    let piece = match delta {
        Delta::Text { text } => Some(Piece::Text(text.clone())),
        Delta::Reasoning { text } => Some(Piece::Reasoning(text.clone())),
        Delta::ToolCallStart { index, name, .. } => Some(call(*index, name, "")),
        Delta::ToolCallArguments { index, fragment } => Some(call(*index, "", fragment)),
        Delta::ReasoningEnd { .. }
        | Delta::TextEnd { .. }
        | Delta::ToolCallState { .. }
        | Delta::Opaque(_)
        | Delta::Usage(_)
        | Delta::Finish { .. } => None,
    };
    Wire::ModelDelta(wire::ModelDelta { model_call, attempt, delta_seq, delta: piece })
}

fn finished(outcome: Outcome, error: Option<&RunError>, totals: &Totals) -> wire::RunFinished {
    let (status, final_entry_no) = match outcome {
        Outcome::Completed => (RunStatus::Completed, totals.final_entry.unwrap_or(totals.last_entry).0),
        Outcome::Failed => (RunStatus::Failed, 0),
        Outcome::Aborted => (RunStatus::Aborted, 0),
    };
    wire::RunFinished {
        status: run_status(status).into(),
        final_entry_no,
        error: error.map(run_error),
        usage: Some(usage(totals.usage)),
        iterations: totals.iterations,
        tool_calls: totals.tool_calls,
        duration: Some(duration(totals.duration)),
        durations: Some(durations(totals.duration, totals.model_time, totals.tool_time)),
    }
}

fn compaction_reason(reason: CompactionReason) -> wire::CompactionReason {
    match reason {
        CompactionReason::Messages => wire::CompactionReason::Messages,
        CompactionReason::Tokens => wire::CompactionReason::Tokens,
        CompactionReason::Overflow => wire::CompactionReason::Overflow,
        CompactionReason::Planned => wire::CompactionReason::Planned,
    }
}

fn after_attempt(then: AfterAttempt) -> wire::ToolCallState {
    match then {
        AfterAttempt::Retry { .. } => wire::ToolCallState::Ready,
        AfterAttempt::InDoubt => wire::ToolCallState::InDoubt,
        AfterAttempt::Settle => wire::ToolCallState::Settled,
    }
}

fn attempt_effect(ran: Ran) -> wire::AttemptEffect {
    match ran {
        Ran::No => wire::AttemptEffect::None,
        Ran::Maybe => wire::AttemptEffect::Maybe,
        Ran::Yes => wire::AttemptEffect::Done,
    }
}

/// Converts a tool's effect class.
#[must_use]
pub fn effect_class(class: EffectClass) -> wire::EffectClass {
    match class {
        EffectClass::ReadOnly => wire::EffectClass::ReadOnly,
        EffectClass::Idempotent => wire::EffectClass::Idempotent,
        EffectClass::Keyed => wire::EffectClass::Keyed,
        EffectClass::Unsafe => wire::EffectClass::Unsafe,
    }
}

fn loop_phase(phase: LoopPhase) -> wire::LoopPhase {
    match phase {
        LoopPhase::Init => wire::LoopPhase::Init,
        LoopPhase::Planning => wire::LoopPhase::Planning,
        LoopPhase::Executing => wire::LoopPhase::Executing,
        LoopPhase::Observing => wire::LoopPhase::Observing,
        LoopPhase::Compacting => wire::LoopPhase::Compacting,
        LoopPhase::Completed => wire::LoopPhase::Completed,
        LoopPhase::Failed => wire::LoopPhase::Failed,
    }
}

fn process_state(state: ProcessState) -> wire::ProcessState {
    match state {
        ProcessState::Idle => wire::ProcessState::Idle,
        ProcessState::Calling => wire::ProcessState::Calling,
        ProcessState::Streaming => wire::ProcessState::Streaming,
        ProcessState::ToolExecuting => wire::ProcessState::ToolExecuting,
        ProcessState::Retrying => wire::ProcessState::Retrying,
        ProcessState::Success => wire::ProcessState::Success,
        ProcessState::Error => wire::ProcessState::Error,
    }
}

#[cfg(test)]
mod tests;
