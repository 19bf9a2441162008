//! The view of a run for people: its position in the two loops, and the thing that it waits for.

use serde::{Deserialize, Serialize};

use crate::id::{Attempt, SessionId};
use crate::run::event::Event;
use crate::run::human::Question;
use crate::run::state::{CallState, Phase, RoundCall, RunState};
use crate::run::status::{RunError, RunStatus};
use crate::time::Timestamp;

/// Phases of the outer loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LoopPhase {
    /// The run starts, or is queued.
    Init,
    /// The next instruction is being decided.
    Planning,
    /// An instruction is being carried out.
    Executing,
    /// The result of an instruction has arrived.
    Observing,
    /// The context is being compacted.
    Compacting,
    /// The run has completed.
    Completed,
    /// The run has failed or was aborted.
    Failed,
}

/// States of the inner loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessState {
    /// Nothing is under way.
    Idle,
    /// The model was called.
    Calling,
    /// The model's response is arriving.
    Streaming,
    /// Tool calls run, or wait for approval.
    ToolExecuting,
    /// A failed model call waits for its next attempt.
    Retrying,
    /// The response, or the compacted context, is complete.
    Success,
    /// The model call has failed for good, or the run did not complete.
    Error,
}

/// The run's position in both loops at an event that leaves it in `status`.
#[must_use]
pub fn loop_position(event: &Event, status: RunStatus) -> (LoopPhase, ProcessState) {
    match event {
        Event::Started { .. } => (LoopPhase::Init, ProcessState::Idle),
        Event::SessionEntered { .. }
        | Event::MessageAdded { .. }
        | Event::Imported { .. }
        | Event::MessageEntered { .. }
        | Event::ContextAdded { .. }
        | Event::ExtensionApplied { slot: None, .. }
        | Event::Planned { .. } => (LoopPhase::Planning, ProcessState::Idle),
        Event::Compacted { .. } => (LoopPhase::Compacting, ProcessState::Success),
        Event::AssistantMessage { .. } => (LoopPhase::Observing, ProcessState::Success),
        Event::ModelCallFailed { retry_at: None, .. } => (LoopPhase::Observing, ProcessState::Error),
        Event::CallSettled { .. } => (LoopPhase::Observing, ProcessState::ToolExecuting),
        Event::Paused { .. } => (LoopPhase::Executing, ProcessState::Retrying),
        Event::ModelCallStarted { .. }
        | Event::ModelCallFailed { .. }
        | Event::MessageHeld { .. }
        | Event::ExtensionApplied { slot: Some(_), .. }
        | Event::CompactionStarted { .. }
        | Event::CompactionFailed { .. }
        | Event::CallProposed { .. }
        | Event::CallOffered { .. }
        | Event::CallAccepted { .. }
        | Event::CallCheckpoint { .. }
        | Event::CallAttemptFailed { .. }
        | Event::TodosUpdated { .. }
        | Event::HumanRequested { .. }
        | Event::HumanApproved { .. }
        | Event::HumanResolved { .. }
        | Event::Resumed { .. }
        | Event::Finished { .. } => position_of_status(status),
    }
}

fn position_of_status(status: RunStatus) -> (LoopPhase, ProcessState) {
    match status {
        RunStatus::Queued => (LoopPhase::Init, ProcessState::Idle),
        RunStatus::Preparing => (LoopPhase::Planning, ProcessState::Idle),
        RunStatus::ModelRunning => (LoopPhase::Executing, ProcessState::Calling),
        RunStatus::ToolRunning | RunStatus::AwaitingHuman => {
            (LoopPhase::Executing, ProcessState::ToolExecuting)
        }
        RunStatus::BackingOff => (LoopPhase::Executing, ProcessState::Retrying),
        RunStatus::Paused => (LoopPhase::Planning, ProcessState::Idle),
        RunStatus::Compacting => (LoopPhase::Compacting, ProcessState::Idle),
        RunStatus::Completed => (LoopPhase::Completed, ProcessState::Success),
        RunStatus::Failed | RunStatus::Aborted => (LoopPhase::Failed, ProcessState::Error),
    }
}

/// Finds the model calls of one run that no event of the phase PLANNING precedes. They follow on results of tools or on a
/// compaction: the decision of the built-in loop follows from these, so the journal has nothing in between.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlanningGaps {
    last: Option<LoopPhase>,
}

impl PlanningGaps {
    /// Takes the next event, which leaves the run in `status`. Returns true if the run plans right before it, unrecorded.
    pub fn precedes(&mut self, event: &Event, status: RunStatus) -> bool {
        let (phase, _) = loop_position(event, status);
        let before = self.last.replace(phase);
        matches!(event, Event::ModelCallStarted { attempt: Attempt(1), .. })
            && before != Some(LoopPhase::Planning)
    }
}

/// The thing that a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingOn {
    /// Kind of the thing.
    pub kind: WaitKind,
    /// The time at which the wait began.
    pub since: Timestamp,
    /// Name of the thing, for people.
    pub what: String,
    /// Attempt number, counted from 1.
    pub attempt: Attempt,
    /// The time of the next attempt, or at which the wait is given up.
    pub next_at: Option<Timestamp>,
    /// The last failure of the run, if nothing has succeeded since.
    pub last_error: Option<RunError>,
}

/// Kinds of things that a run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    /// The response of the model.
    Model,
    /// The time of the next attempt.
    Backoff,
    /// The result of a tool call.
    Tool,
    /// A host with room for a tool call.
    ToolHost,
    /// An answer of a person.
    Human,
    /// A call of `ResumeRun` by an operator.
    Operator,
    /// The session, which another run uses.
    Session,
    /// The caller's next `Step`.
    Step,
    /// An extension: the planner, hooks or context sources of the run.
    Extension,
    /// Memory: all live runs together hold as much as they may. The state does not know; who drives the machine does.
    Memory,
}

impl RunState {
    /// The thing that the run waits for; `None` if the run has ended or has not begun.
    #[must_use]
    pub fn waiting_on(&self) -> Option<WaitingOn> {
        let base = |kind, since, what: String, attempt, next_at| WaitingOn {
            kind,
            since,
            what,
            attempt,
            next_at,
            last_error: self.last_error().cloned(),
        };
        if self.situation().is_some() {
            return self.waiting_on_decision();
        }
        if let Some(question) = self.planned_question() {
            let (since, next_at) = (question.asked_at, question.expires_at);
            return Some(base(WaitKind::Human, since, question.request.to_string(), Attempt::NONE, next_at));
        }
        match self.phase() {
            Phase::Preparing if self.is_unprepared() => {
                let names = self.spec().hooks.iter().chain(&self.spec().context_sources);
                let what = names.map(String::as_str).collect::<Vec<_>>().join(", ");
                Some(base(WaitKind::Extension, self.updated_at(), what, Attempt::NONE, None))
            }
            Phase::New | Phase::Preparing | Phase::Observed { .. } | Phase::Finished { .. } => None,
            Phase::Queued => {
                let session = self.session().map(SessionId::to_string).unwrap_or_default();
                Some(base(WaitKind::Session, self.started_at(), session, Attempt::NONE, None))
            }
            Phase::ModelRunning(call) => {
                Some(base(WaitKind::Model, call.since, self.spec().model.clone(), call.attempt, None))
            }
            Phase::BackingOff { call, until } => {
                let what = self.spec().model.clone();
                Some(base(WaitKind::Backoff, self.updated_at(), what, call.attempt, Some(*until)))
            }
            Phase::Compacting(compaction) => {
                let what = format!("the context is made smaller ({})", compaction.strategy);
                Some(base(WaitKind::Model, compaction.since, what, Attempt(compaction.level + 1), None))
            }
            Phase::Paused { call, since } => {
                Some(base(WaitKind::Operator, *since, "ResumeRun".to_owned(), call.attempt, None))
            }
            Phase::Tools(calls) => {
                let (kind, since, call) = calls
                    .iter()
                    .filter_map(|call| self.wait_of(call).map(|(kind, since)| (kind, since, call)))
                    .min_by_key(|(kind, since, _)| (*kind == WaitKind::Human, *since))?;
                let (what, next_at) = self.describe(kind, call);
                Some(base(kind, since, what, call.attempt, next_at))
            }
        }
    }

    /// The wait of a directed run for its next instruction.
    fn waiting_on_decision(&self) -> Option<WaitingOn> {
        let (kind, what) = match &self.spec().planner {
            _ if self.spec().stepped => (WaitKind::Step, "Step".to_owned()),
            Some(planner) => (WaitKind::Extension, planner.clone()),
            None => return None,
        };
        let last_error = self.last_error().cloned();
        Some(WaitingOn {
            kind,
            since: self.updated_at(),
            what,
            attempt: Attempt::NONE,
            next_at: None,
            last_error,
        })
    }

    fn describe(&self, kind: WaitKind, call: &RoundCall) -> (String, Option<Timestamp>) {
        let id = self.call_id(call.slot);
        let name = match call.terms.title.as_str() {
            "" => call.requested.name.clone(),
            title => format!("{}: {title}", call.requested.name),
        };
        if let Some(question) = self.asked_about(call).filter(|_| kind == WaitKind::Human) {
            return (format!("{} ({name})", question.request), question.expires_at);
        }
        match (&call.last.host, kind) {
            (Some(host), WaitKind::Tool) => (format!("{id} ({name}) on {host}"), call.deadline()),
            _ => (format!("{id} ({name})"), not_before(call)),
        }
    }

    /// The wait of one call. A call without a free slot waits for the calls before it, which are reported themselves.
    fn wait_of(&self, call: &RoundCall) -> Option<(WaitKind, Timestamp)> {
        match call.state {
            CallState::Proposed | CallState::AwaitingInstruction { .. } | CallState::Settled => None,
            CallState::AwaitingApproval { .. }
            | CallState::AwaitingInput { .. }
            | CallState::Suspended { .. }
            | CallState::InDoubt { .. } => Some((WaitKind::Human, self.asked_about(call)?.asked_at)),
            CallState::Ready { since, .. } => {
                (self.free_parallel_calls() > 0).then_some((WaitKind::ToolHost, since))
            }
            CallState::Offered { at } | CallState::Accepted { at } => {
                let asked = self.question_of(call).map(|question| (WaitKind::Human, question.asked_at));
                Some(asked.unwrap_or((WaitKind::Tool, at)))
            }
        }
    }

    /// The open question that a call waits for.
    fn asked_about(&self, call: &RoundCall) -> Option<&Question> {
        let asked = request_of(call).and_then(|request| self.question(request));
        asked.map(|asked| &asked.question).or_else(|| self.question_of(call))
    }
}

fn not_before(call: &RoundCall) -> Option<Timestamp> {
    match call.state {
        CallState::Ready { not_before, .. } => not_before,
        CallState::Proposed
        | CallState::AwaitingApproval { .. }
        | CallState::AwaitingInstruction { .. }
        | CallState::Offered { .. }
        | CallState::Accepted { .. }
        | CallState::InDoubt { .. }
        | CallState::AwaitingInput { .. }
        | CallState::Suspended { .. }
        | CallState::Settled => None,
    }
}

fn request_of(call: &RoundCall) -> Option<&crate::id::RequestId> {
    match &call.state {
        CallState::AwaitingApproval { request }
        | CallState::AwaitingInput { request }
        | CallState::InDoubt { request, .. } => request.as_ref(),
        CallState::Proposed
        | CallState::AwaitingInstruction { .. }
        | CallState::Ready { .. }
        | CallState::Offered { .. }
        | CallState::Accepted { .. }
        | CallState::Suspended { .. }
        | CallState::Settled => None,
    }
}
