//! Conversion of runs: rows of lists, single runs, results, statuses and errors.

use agentloop_core::id::{HostId, RunId, SessionId};
use agentloop_core::limits::PAGE_BYTES_MAX;
use agentloop_core::model::error::ModelErrorKind;
use agentloop_core::run::state::{CallState, RoundCall, RunState};
use agentloop_core::run::status::{RunError, RunErrorCode, RunStatus};
use agentloop_core::run::view::{WaitKind, WaitingOn};
use agentloop_core::time::Millis;
use agentloop_proto::v1 as wire;
use prost::Message as _;

use super::message::{call_id, finish_reason, message, usage};
use super::{duration, timestamp};
use crate::engine::{RunView, WatchChange, WatchItem};
use crate::grpc::convert::people::human;
use crate::store::RunRow;

/// Converts a run for a list. Fields that need the journal stay empty.
#[must_use]
pub fn row(row: &RunRow) -> wire::Run {
    wire::Run {
        run_id: row.run.to_string(),
        session_id: row.session.to_string(),
        status: run_status(row.summary.status).into(),
        agent: row.agent.clone(),
        model: row.model.clone(),
        created_at: Some(timestamp(row.created_at)),
        updated_at: Some(timestamp(row.updated_at)),
        last_seq: row.last_seq.0,
        last_error: row.summary.error.as_ref().map(run_error),
        usage: Some(usage(row.summary.usage)),
        iterations: row.summary.iterations,
        tool_calls: row.summary.tool_calls,
        labels: row.labels.clone(),
        preview: row.preview.clone(),
        // A run that a caller started is the top of its tree.
        root_run_id: row.run.to_string(),
        parent_run_id: String::new(),
        start_at: None,
        final_assistant_message: None,
        waiting_on: None,
        pending: Vec::new(),
        tool_calls_open: Vec::new(),
        durations: None,
        queue_position: 0,
        finish_reason: wire::FinishReason::Unspecified.into(),
        created_by: row.created_by.clone().unwrap_or_default(),
    }
}

/// Converts a change of a watched list.
#[must_use]
pub fn watched(item: WatchItem) -> wire::WatchRunsResponse {
    use wire::watch_runs_response::Change;
    let change = match item.change {
        WatchChange::Reset { reason } => Change::Reset(wire::WatchReset { reason: reason.to_owned() }),
        WatchChange::Run { row: changed, waiting_on } => {
            Change::Run(wire::Run { waiting_on: waiting_on.as_ref().map(self::waiting_on), ..row(&changed) })
        }
        WatchChange::Removed { run, deleted } => {
            Change::Removed(wire::RunRemoved { run_id: run.to_string(), deleted })
        }
        WatchChange::Synced { runs } => Change::Synced(wire::WatchSynced { runs }),
    };
    wire::WatchRunsResponse { change: Some(change), resume_token: item.token }
}

/// Converts a single run with everything that its state tells.
#[must_use]
pub fn view(view: &RunView) -> wire::Run {
    let state = &view.state;
    let mut run = row(&view.row);
    if let Some(status) = state.status() {
        run.status = run_status(status).into();
    }
    run.last_seq = run.last_seq.max(state.seq().0);
    run.final_assistant_message = final_message(state);
    run.finish_reason = final_finish(state).into();
    run.waiting_on = state.waiting_on().map(|mut waiting| {
        if view.waits_for_memory {
            waiting.kind = WaitKind::Memory;
            waiting.what = "memory: live runs hold as much as they may".to_owned();
        }
        waiting_on(&waiting)
    });
    run.pending = pending(&view.row.session, &view.state);
    run.queue_position = view.queue_position;
    run.durations = Some(state_durations(state));
    run.tool_calls_open = state.round().iter().map(|call| open_call(state.run(), call)).collect();
    run
}

/// The result of `Run`: the end of the run, or the requests that it waits for.
#[must_use]
pub fn result(session: &SessionId, state: &RunState) -> wire::RunResult {
    let failed = state.status() != Some(RunStatus::Completed);
    wire::RunResult {
        session_id: session.to_string(),
        run_id: state.run().to_string(),
        status: state.status().map_or(wire::RunStatus::Unspecified, run_status).into(),
        final_assistant_message: final_message(state),
        last_error: state.last_error().filter(|_| failed).map(run_error),
        usage: Some(usage(state.usage())),
        pending: pending(session, state),
        last_seq: state.seq().0,
        durations: Some(state_durations(state)),
        finish_reason: final_finish(state).into(),
    }
}

fn state_durations(state: &RunState) -> wire::RunDurations {
    durations(state.updated_at().since(state.started_at()), state.model_time(), state.tool_time())
}

/// Converts the run's total time and its shares of models and tools.
#[must_use]
pub fn durations(total: Millis, model: Millis, tools: Millis) -> wire::RunDurations {
    wire::RunDurations {
        total: Some(duration(total)),
        model: Some(duration(model)),
        tools: Some(duration(tools)),
    }
}

fn final_message(state: &RunState) -> Option<wire::Message> {
    let done = state.status() == Some(RunStatus::Completed);
    state.last_message().as_ref().filter(|_| done).map(|last| message(state.run(), last))
}

fn final_finish(state: &RunState) -> wire::FinishReason {
    let done = state.status() == Some(RunStatus::Completed);
    state.last_finish().filter(|_| done).map_or(wire::FinishReason::Unspecified, finish_reason)
}

/// The open questions, as many as fit into a message. `ListPending` has all of them.
fn pending(session: &SessionId, state: &RunState) -> Vec<wire::HumanRequest> {
    // Their ids are texts, of which `1.10` comes before `1.2`.
    let mut asked: Vec<_> = state.asked_and_open().collect();
    asked.sort_by_key(|asked| asked.question.slot);
    let requests = asked
        .into_iter()
        .map(|asked| human::request(state.run(), session, &asked.question, &asked.approvals, None));
    fitting(PAGE_BYTES_MAX, requests)
}

/// The first requests that together have at most so many bytes, and at least one.
fn fitting(bytes_max: usize, requests: impl Iterator<Item = wire::HumanRequest>) -> Vec<wire::HumanRequest> {
    let mut bytes = 0;
    let fits = |(at, request): &(usize, wire::HumanRequest)| {
        bytes += request.encoded_len();
        *at == 0 || bytes <= bytes_max
    };
    requests.enumerate().take_while(fits).map(|(_, request)| request).collect()
}

fn open_call(run: &RunId, call: &RoundCall) -> wire::ToolCallView {
    let state = match call.state {
        CallState::Proposed | CallState::AwaitingInstruction { .. } | CallState::Ready { .. } => {
            wire::ToolCallState::Ready
        }
        CallState::AwaitingApproval { .. } => wire::ToolCallState::AwaitingApproval,
        CallState::AwaitingInput { .. } | CallState::Suspended { .. } => wire::ToolCallState::AwaitingInput,
        CallState::Offered { .. } => wire::ToolCallState::Offered,
        CallState::Accepted { .. } => wire::ToolCallState::Accepted,
        CallState::InDoubt { .. } => wire::ToolCallState::InDoubt,
        CallState::Settled => wire::ToolCallState::Settled,
    };
    wire::ToolCallView {
        call_id: call_id(run, call.slot),
        tool: call.requested.name.clone(),
        state: state.into(),
        attempt: call.attempt.0,
        host_id: call.last.host.as_ref().map(HostId::to_string).unwrap_or_default(),
        started_at: call.first_offered.map(timestamp),
    }
}

fn waiting_on(waiting: &WaitingOn) -> wire::WaitingOn {
    let kind = match waiting.kind {
        WaitKind::Model => wire::WaitKind::Model,
        WaitKind::Backoff => wire::WaitKind::Backoff,
        WaitKind::Tool => wire::WaitKind::Tool,
        WaitKind::ToolHost => wire::WaitKind::ToolHost,
        WaitKind::Human => wire::WaitKind::Human,
        WaitKind::Operator => wire::WaitKind::Operator,
        WaitKind::Session => wire::WaitKind::Session,
        WaitKind::Step => wire::WaitKind::Step,
        WaitKind::Extension => wire::WaitKind::Extension,
        WaitKind::Memory => wire::WaitKind::Memory,
    };
    wire::WaitingOn {
        kind: kind.into(),
        since: Some(timestamp(waiting.since)),
        what: waiting.what.clone(),
        attempt: waiting.attempt.0,
        next_at: waiting.next_at.map(timestamp),
        last_error: waiting.last_error.as_ref().map(run_error),
    }
}

/// Converts a run status.
#[must_use]
pub fn run_status(status: RunStatus) -> wire::RunStatus {
    match status {
        RunStatus::Queued => wire::RunStatus::Queued,
        RunStatus::Preparing => wire::RunStatus::Preparing,
        RunStatus::ModelRunning => wire::RunStatus::ModelRunning,
        RunStatus::ToolRunning => wire::RunStatus::ToolRunning,
        RunStatus::AwaitingHuman => wire::RunStatus::AwaitingHuman,
        RunStatus::BackingOff => wire::RunStatus::BackingOff,
        RunStatus::Compacting => wire::RunStatus::Compacting,
        RunStatus::Paused => wire::RunStatus::Paused,
        RunStatus::Completed => wire::RunStatus::Completed,
        RunStatus::Failed => wire::RunStatus::Failed,
        RunStatus::Aborted => wire::RunStatus::Aborted,
    }
}

/// Parses a run status from a request; `None` if it is unspecified or unknown.
#[must_use]
pub fn status_of(wire: i32) -> Option<RunStatus> {
    let wire = wire::RunStatus::try_from(wire).ok()?;
    RunStatus::ALL.into_iter().find(|status| run_status(*status) == wire)
}

/// Converts the error of a run or of a model call.
#[must_use]
pub fn run_error(error: &RunError) -> wire::RunError {
    wire::RunError {
        code: code(error.code).into(),
        message: error.message.clone(),
        http_status: error.http_status.map_or(0, u32::from),
    }
}

/// The name of an error's code in the contract, without its prefix.
pub fn error_name(error: RunErrorCode) -> String {
    code(error).as_str_name().trim_start_matches("RUN_ERROR_CODE_").to_owned()
}

fn code(code: RunErrorCode) -> wire::RunErrorCode {
    use wire::RunErrorCode as Wire;
    match code {
        RunErrorCode::Model(kind) => match kind {
            ModelErrorKind::Connection => Wire::ModelConnection,
            ModelErrorKind::Timeout => Wire::ModelTimeout,
            ModelErrorKind::RateLimited => Wire::ModelRateLimited,
            ModelErrorKind::Unavailable => Wire::ModelUnavailable,
            ModelErrorKind::Malformed => Wire::ModelMalformed,
            ModelErrorKind::ContextOverflow => Wire::ContextOverflow,
            ModelErrorKind::BadRequest => Wire::ModelBadRequest,
            ModelErrorKind::Unauthorised => Wire::ModelUnauthorized,
            ModelErrorKind::TooLarge => Wire::ModelTooLarge,
            ModelErrorKind::NotConfigured => Wire::ModelNotConfigured,
        },
        RunErrorCode::ModelRefused => Wire::ModelRefused,
        RunErrorCode::ContentFiltered => Wire::ContentFiltered,
        RunErrorCode::LimitIterations => Wire::LimitIterations,
        RunErrorCode::LimitToolRounds => Wire::LimitToolRounds,
        RunErrorCode::LimitToolCalls => Wire::LimitToolCalls,
        RunErrorCode::LimitDuration => Wire::LimitDuration,
        RunErrorCode::LimitTokens => Wire::LimitTokens,
        RunErrorCode::LimitCost => Wire::LimitCost,
        RunErrorCode::ExtensionFailed => Wire::ExtensionFailed,
        RunErrorCode::LimitConsecutiveFailures => Wire::LimitConsecutiveFailures,
        RunErrorCode::LimitRepeatedCalls => Wire::LimitRepeatedCalls,
        RunErrorCode::LimitMemory => Wire::LimitMemory,
        RunErrorCode::AbortedByCaller => Wire::AbortedByCaller,
        RunErrorCode::AbortedByDisconnect => Wire::AbortedByDisconnect,
        RunErrorCode::AbortedByDenial => Wire::AbortedByDenial,
        RunErrorCode::Internal => Wire::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_shown_as_far_as_they_fit() {
        let asked = |bytes: usize| wire::HumanRequest { question: "x".repeat(bytes), ..Default::default() };
        for (sizes, shown) in
            [(vec![], 0), (vec![2_000, 1], 1), (vec![400, 400, 400, 1], 2), (vec![10; 5], 5)]
        {
            assert_eq!(fitting(1_000, sizes.clone().into_iter().map(asked)).len(), shown, "{sizes:?}");
        }
    }
}
