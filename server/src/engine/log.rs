//! The built-in observer that writes runs to the log. It logs no prompts, responses or arguments.

use agentloop_core::agent::RunSpec;
use agentloop_core::entry::CompactionReason;
use agentloop_core::id::{Attempt, RunId, SessionId, TenantId};
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
                run.id = %run, attempt = attempt.0, code = ?error.code, http_status = error.http_status,
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
    /// Number of the model call, counted from 1 as the run's limit counts.
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

/// Counts model calls as the run's limit does: a call that was found too large before it was sent counts once, together with
/// the call that follows its compaction.
#[derive(Debug, Default)]
struct CountedCalls {
    counted: u32,
    /// The number of the last call.
    last: u32,
    /// True while the last call has neither a response nor a failure.
    is_running: bool,
    /// True if the last call was too large to be sent.
    was_unsent: bool,
}

impl CountedCalls {
    /// The number of the next call.
    fn next(&self) -> u32 {
        self.counted + u32::from(!self.was_unsent)
    }

    fn count(&mut self, event: &Event) {
        match event {
            Event::ModelCallStarted { model_call, .. } => {
                // Another attempt has the same number.
                if *model_call != self.last {
                    self.counted = self.next();
                }
                (self.last, self.is_running, self.was_unsent) = (*model_call, true, false);
            }
            Event::CompactionStarted { reason, .. } if self.is_running => {
                self.was_unsent = !matches!(reason, CompactionReason::Overflow | CompactionReason::Planned);
                self.is_running = false;
            }
            Event::AssistantMessage { .. } | Event::ModelCallFailed { .. } => self.is_running = false,
            _ => {}
        }
    }
}

/// The transitions of one run's loops, as its events tell them.
#[derive(Debug, Default)]
struct Transitions {
    iterations_max: u32,
    retries_max: u32,
    first_counted: Attempt,
    calls: CountedCalls,
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
        self.calls.count(&record.event);
        match record.event {
            Event::ModelCallStarted { attempt, first_counted, .. } => {
                self.first_counted = first_counted;
                place.iteration = self.calls.counted;
                place.retry = first_counted.further_until(attempt);
                if is_gap {
                    passed.push(LoopPlace {
                        phase: LoopPhase::Planning,
                        process: ProcessState::Idle,
                        ..place
                    });
                }
            }
            Event::ModelCallFailed { attempt, retry_at: Some(_), .. } => {
                place.retry = self.first_counted.further_until(attempt.next());
            }
            _ if phase == LoopPhase::Planning && plans_model_call(record) => {
                (place.iteration, place.retry) = (self.calls.next(), 0);
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

    use agentloop_core::id::{EntryNo, Seq};
    use agentloop_core::message::{Message, Role};
    use agentloop_core::model::error::ModelErrorKind;
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
            caller_groups: Vec::new(),
            hidden_seed: true,
        }
    }

    fn call(model_call: u32, attempt: u32) -> Event {
        Event::ModelCallStarted {
            model_call,
            attempt: Attempt(attempt),
            first_counted: Attempt(1),
            last_entry: EntryNo(1),
        }
    }

    fn prompted() -> Event {
        let message = Message { role: Role::User, parts: Vec::new() };
        Event::MessageAdded { entry: EntryNo(1), message: Arc::new(message) }
    }

    fn failed() -> Event {
        let error = RunError::new(RunErrorCode::Model(ModelErrorKind::Timeout), "too late");
        Event::ModelCallFailed { model_call: 1, attempt: Attempt(1), error, retry_at: Some(Timestamp(1)) }
    }

    /// The transitions that these events lead to, as `PHASE PROCESS iteration/max retry/max`.
    fn told(events: impl IntoIterator<Item = (Event, RunStatus)>) -> Vec<String> {
        let mut transitions = Transitions::default();
        let mut told = Vec::new();
        for (event, status) in events {
            let record = Record { seq: Seq(1), at: Timestamp(0), status, event };
            for place in transitions.after(&record) {
                let (phase, process) = (phase_name(place.phase), process_name(place.process));
                let rounds = format!("{}/{}", place.iteration, place.iterations_max);
                told.push(format!("{phase} {process} {rounds} {}/{}", place.retry, place.retries_max));
            }
        }
        told
    }

    #[test]
    fn each_transition_has_the_numbers_of_its_rounds() {
        let told = told([
            (started(), RunStatus::Preparing),
            (prompted(), RunStatus::Preparing),
            (call(1, 1), RunStatus::ModelRunning),
            (failed(), RunStatus::BackingOff),
            (call(1, 2), RunStatus::ModelRunning),
            (call(1, 2), RunStatus::ModelRunning),
            (call(2, 1), RunStatus::ModelRunning),
        ]);
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
    fn compaction(number: u32, reason: CompactionReason) -> Event {
        let strategy = "drop".to_owned();
        Event::CompactionStarted { number, strategy, reason, level: 0, tokens: 0 }
    }

    /// As `max_iterations` counts: `RunState::iterations`.
    #[test]
    fn a_call_that_was_too_large_to_be_sent_counts_with_the_next_one() {
        let told = told([
            (started(), RunStatus::Preparing),
            (prompted(), RunStatus::Preparing),
            (call(1, 1), RunStatus::ModelRunning),
            (compaction(1, CompactionReason::Tokens), RunStatus::Compacting),
            // The first strategy failed.
            (compaction(2, CompactionReason::Tokens), RunStatus::Compacting),
            (call(2, 1), RunStatus::ModelRunning),
            (compaction(3, CompactionReason::Overflow), RunStatus::Compacting),
            (call(3, 1), RunStatus::ModelRunning),
        ]);
        let expected = [
            "INIT IDLE 0/10 0/3",
            "PLANNING IDLE 1/10 0/3",
            "EXECUTING CALLING 1/10 0/3",
            "COMPACTING IDLE 1/10 0/3",
            "PLANNING IDLE 1/10 0/3",
            "EXECUTING CALLING 1/10 0/3",
            "COMPACTING IDLE 1/10 0/3",
            "PLANNING IDLE 2/10 0/3",
            "EXECUTING CALLING 2/10 0/3",
        ];
        assert_eq!(told, expected, "a provider was sent the second call, but not the first");
    }
}
