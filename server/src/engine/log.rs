//! The built-in observer that writes runs to the log. It logs no prompts, answers or arguments.

use agentloop_core::agent::RunSpec;
use agentloop_core::id::{RunId, SessionId, TenantId};
use agentloop_core::run::event::{Event, Outcome, Record};
use agentloop_core::run::plan::Instruction;
use agentloop_core::run::status::RunStatus;
use agentloop_core::run::view::{LoopPhase, PlanningGaps, ProcessState, loop_position};

use crate::engine::ports::{Observer, RunObserver};

/// Logs the start and end of each run and its failed model calls. At level debug it also logs other events, and a line for
/// each transition of the two loops.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogObserver;

impl Observer for LogObserver {
    fn event(&self, tenant: &TenantId, run: &RunId, session: &SessionId, record: &Record) {
        match &record.event {
            Event::Started { spec, queued, .. } => tracing::info!(
                run.id = %run, session.id = %session, %tenant, agent = spec.agent, model = spec.model, queued,
                "run started"
            ),
            Event::ModelCallFailed { attempt, error, retry_at, .. } => tracing::info!(
                run.id = %run, attempt, code = ?error.code, http_status = error.http_status,
                retried = retry_at.is_some(), "model call failed"
            ),
            Event::Finished { outcome, error, totals } => {
                let code = error.as_ref().map(|error| error.code);
                let (iterations, tool_calls) = (totals.iterations, totals.tool_calls);
                let (tokens_in, tokens_out) = (totals.usage.input_tokens, totals.usage.output_tokens);
                let milliseconds = totals.duration.0;
                match outcome {
                    Outcome::Completed | Outcome::Aborted => tracing::info!(
                        run.id = %run, ?outcome, ?code, iterations, tool_calls, tokens_in, tokens_out,
                        milliseconds, "run finished"
                    ),
                    Outcome::Failed => tracing::warn!(
                        run.id = %run, ?outcome, ?code, iterations, tool_calls, tokens_in, tokens_out,
                        milliseconds, "run finished"
                    ),
                }
            }
            other => tracing::debug!(run.id = %run, seq = record.seq.0, kind = other.kind(), "event"),
        }
    }

    fn follow(
        &self,
        _: &TenantId,
        run: &RunId,
        _: &SessionId,
        past: &[Record],
    ) -> Option<Box<dyn RunObserver>> {
        tracing::enabled!(tracing::Level::DEBUG).then(|| {
            let mut transitions = Transitions::default();
            past.iter().for_each(|record| drop(transitions.after(record)));
            Box::new(TransitionLog { run: run.clone(), transitions }) as Box<dyn RunObserver>
        })
    }
}

/// Writes a line for each transition of one run.
struct TransitionLog {
    run: RunId,
    transitions: Transitions,
}

impl RunObserver for TransitionLog {
    fn event(&mut self, record: &Record) {
        for place in self.transitions.after(record) {
            place.log(&self.run);
        }
    }
}

/// The place of a run in its two loops, with the numbers of their rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct LoopPlace {
    pub(in crate::engine) phase: LoopPhase,
    pub(in crate::engine) process: ProcessState,
    /// Number of the model call, counted from 1.
    pub(in crate::engine) iteration: u32,
    pub(in crate::engine) iterations_max: u32,
    /// Retries of the model call so far.
    pub(in crate::engine) retry: u32,
    pub(in crate::engine) retries_max: u32,
}

impl LoopPlace {
    /// Writes the line of this transition.
    pub(in crate::engine) fn log(self, run: &RunId) {
        let Self { iteration, iterations_max, retry, retries_max, .. } = self;
        tracing::debug!(
            run.id = %run,
            state = %phase_name(self.phase),
            process = %process_name(self.process),
            iteration = %format_args!("{iteration}/{iterations_max}"),
            retry = %format_args!("{retry}/{retries_max}"),
            "transition"
        );
    }
}

/// The transitions of one run's loops, as its events tell them.
#[derive(Debug, Default)]
struct Transitions {
    iterations_max: u32,
    retries_max: u32,
    first_counted: u32,
    /// Model calls that were begun.
    calls: u32,
    gaps: PlanningGaps,
    last: Option<LoopPlace>,
}

impl Transitions {
    /// The transitions that lead to this event: none, one, or two where a model call is planned and begun.
    fn after(&mut self, record: &Record) -> Vec<LoopPlace> {
        if let Event::Started { spec, .. } = &record.event {
            self.set_bounds(spec);
        }
        let (phase, process) = loop_position(&record.event, record.status);
        let last = self.last.unwrap_or(LoopPlace {
            phase,
            process,
            iteration: 0,
            iterations_max: self.iterations_max,
            retry: 0,
            retries_max: self.retries_max,
        });
        let mut place = LoopPlace { phase, process, ..last };
        let mut passed = Vec::new();
        let is_gap = self.gaps.precedes(&record.event, record.status);
        match record.event {
            Event::ModelCallStarted { model_call, attempt, first_counted, .. } => {
                (self.first_counted, self.calls) = (first_counted, model_call);
                place.iteration = model_call;
                place.retry = attempt.saturating_sub(first_counted);
                if is_gap {
                    passed.push(LoopPlace {
                        phase: LoopPhase::Planning,
                        process: ProcessState::Idle,
                        ..place
                    });
                }
            }
            Event::ModelCallFailed { attempt, retry_at: Some(_), .. } => {
                place.retry = (attempt + 1).saturating_sub(self.first_counted);
            }
            _ if phase == LoopPhase::Planning && plans_model_call(record) => {
                (place.iteration, place.retry) = (self.calls + 1, 0);
            }
            _ => {}
        }
        passed.push(place);
        passed.retain(|place| self.last.replace(*place) != Some(*place));
        passed
    }

    fn set_bounds(&mut self, spec: &RunSpec) {
        self.iterations_max = spec.limits.max_iterations;
        self.retries_max = spec.retry.max_retries;
    }
}

/// True if an event of the phase PLANNING is about the next model call. A planner may plan something else, and a stepped run
/// rests in this phase.
fn plans_model_call(record: &Record) -> bool {
    match &record.event {
        Event::Planned { instruction, .. } => matches!(instruction, Instruction::CallModel),
        _ => record.status != RunStatus::Paused,
    }
}

fn phase_name(phase: LoopPhase) -> &'static str {
    match phase {
        LoopPhase::Init => "INIT",
        LoopPhase::Planning => "PLANNING",
        LoopPhase::Executing => "EXECUTING",
        LoopPhase::Observing => "OBSERVING",
        LoopPhase::Compacting => "COMPACTING",
        LoopPhase::Completed => "COMPLETED",
        LoopPhase::Failed => "FAILED",
    }
}

fn process_name(process: ProcessState) -> &'static str {
    match process {
        ProcessState::Idle => "IDLE",
        ProcessState::Calling => "CALLING",
        ProcessState::Streaming => "STREAMING",
        ProcessState::ToolExecuting => "TOOL_EXECUTING",
        ProcessState::Retrying => "RETRYING",
        ProcessState::Success => "SUCCESS",
        ProcessState::Error => "ERROR",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agentloop_core::error::ModelErrorKind;
    use agentloop_core::id::{EntryNo, Seq};
    use agentloop_core::message::{Message, Role};
    use agentloop_core::run::status::{RunError, RunErrorCode};
    use agentloop_core::time::Timestamp;

    use super::*;

    fn started() -> Event {
        Event::Started {
            session: SessionId::parse("s").unwrap(),
            last_entry: EntryNo(0),
            spec: Arc::default(),
            seed: 0,
            queued: false,
            traceparent: None,
            unknown_tools: Vec::new(),
            withdrawn_tools: Vec::new(),
        }
    }

    fn call(model_call: u32, attempt: u32) -> Event {
        Event::ModelCallStarted { model_call, attempt, first_counted: 1, last_entry: EntryNo(1) }
    }

    fn prompted() -> Event {
        let message = Message { role: Role::User, parts: Vec::new() };
        Event::InputAdded { entry: EntryNo(1), message: Arc::new(message) }
    }

    fn failed() -> Event {
        let error = RunError::new(RunErrorCode::Model(ModelErrorKind::Timeout), "too late");
        Event::ModelCallFailed { model_call: 1, attempt: 1, error, retry_at: Some(Timestamp(1)) }
    }

    #[test]
    fn each_transition_has_the_numbers_of_its_rounds() {
        let mut transitions = Transitions::default();
        let mut told = Vec::new();
        for (event, status) in [
            (started(), RunStatus::Preparing),
            (prompted(), RunStatus::Preparing),
            (call(1, 1), RunStatus::ModelRunning),
            (failed(), RunStatus::BackingOff),
            (call(1, 2), RunStatus::ModelRunning),
            (call(1, 2), RunStatus::ModelRunning),
            (call(2, 1), RunStatus::ModelRunning),
        ] {
            let record = Record { seq: Seq(1), at: Timestamp(0), status, event };
            for place in transitions.after(&record) {
                let (phase, process) = (phase_name(place.phase), process_name(place.process));
                let rounds = format!("{}/{}", place.iteration, place.iterations_max);
                told.push(format!("{phase} {process} {rounds} {}/{}", place.retry, place.retries_max));
            }
        }
        let expected = [
            "INIT IDLE 0/10 0/3",
            "PLANNING IDLE 1/10 0/3",
            "EXECUTING CALLING 1/10 0/3",
            "EXECUTING RETRYING 1/10 1/3",
            "EXECUTING CALLING 1/10 1/3",
            "PLANNING IDLE 2/10 0/3",
            "EXECUTING CALLING 2/10 0/3",
        ];
        assert_eq!(told, expected, "a place that stays the same is not told again");
    }
}
