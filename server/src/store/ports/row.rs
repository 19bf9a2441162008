//! Runs and questions as stored.

use std::collections::BTreeMap;

use agentloop_core::id::{Attempt, RunId, Seq, SessionId};
use agentloop_core::message::Usage;
use agentloop_core::run::human::{Answer, PartialApproval, Question};
use agentloop_core::run::state::CallCounts;
use agentloop_core::run::status::{RunError, RunStatus};
use agentloop_core::run::view::{WaitKind, WaitingOn};
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;
use serde::{Deserialize, Serialize};

/// The part of a run's row that lists show. It follows from the journal and is stored beside it.
///
/// Replicas tell it to each other, as they do the [`RunRow`]: a field that is added needs a default, for replicas of earlier versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Status after the last event.
    pub status: RunStatus,
    /// Time at which a parked run is to be woken. Absent if it waits for something else, or does not wait.
    pub wake_at: Option<Timestamp>,
    /// True if hosts have calls of the run. It then goes on by itself, whatever its status.
    pub at_hosts: bool,
    /// The reason why it failed, was aborted or is paused.
    pub error: Option<RunError>,
    /// Tokens and cost of all its model calls together.
    pub usage: Usage,
    /// Number of its model calls.
    pub iterations: u32,
    /// Number of its tool calls.
    pub tool_calls: u32,
    /// Calls that ended, for the account of what was used.
    pub calls: CallCounts,
}

impl RunSummary {
    /// True if a start of the server has to continue the run, unless the run is queued.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        let rests = self.status.is_terminal() || self.status.is_interrupted();
        (self.at_hosts || !rests) && self.wake_at.is_none()
    }
}

/// A run as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    /// Id of the run, unique within its tenant.
    pub run: RunId,
    /// The session that the run adds entries to.
    pub session: SessionId,
    /// Digest of the request that started it.
    pub request_digest: Digest,
    /// Name of the configured agent.
    pub agent: String,
    /// The model, as `provider/model`.
    pub model: String,
    /// Labels that the caller gave it.
    pub labels: BTreeMap<String, String>,
    /// Beginning of the caller's first message, on one line.
    pub preview: String,
    /// Name of the caller that started it; `None` without authentication.
    pub created_by: Option<String>,
    /// Time of its first event.
    pub created_at: Timestamp,
    /// Time of its last event.
    pub updated_at: Timestamp,
    /// Sequence number of its last event.
    pub last_seq: Seq,
    /// Its place in its session's queue, lower first, as long as it waits there.
    pub queue_no: Option<u64>,
    /// Columns that every append rewrites.
    pub summary: RunSummary,
}

impl RunRow {
    /// The thing that the run waits for, as far as its row tells. Without the names of calls, hosts and extensions.
    #[must_use]
    pub fn waiting_on(&self) -> Option<WaitingOn> {
        let (kind, what) = match self.summary.status {
            RunStatus::Queued => (WaitKind::Session, self.session.to_string()),
            RunStatus::ModelRunning | RunStatus::Compacting => (WaitKind::Model, self.model.clone()),
            RunStatus::BackingOff => (WaitKind::Backoff, self.model.clone()),
            RunStatus::ToolRunning => (WaitKind::Tool, String::new()),
            RunStatus::AwaitingHuman => (WaitKind::Human, String::new()),
            // Only a failed model call needs an operator.
            RunStatus::Paused if self.summary.error.is_some() => (WaitKind::Operator, "ResumeRun".to_owned()),
            RunStatus::Paused => (WaitKind::Step, "Step".to_owned()),
            RunStatus::Preparing | RunStatus::Completed | RunStatus::Failed | RunStatus::Aborted => {
                return None;
            }
        };
        let last_error = self.summary.error.clone();
        Some(WaitingOn {
            kind,
            since: self.updated_at,
            what,
            attempt: Attempt::NONE,
            next_at: self.summary.wake_at,
            last_error,
        })
    }
}

/// A question as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRow {
    /// The run that waits for the answer.
    pub run: RunId,
    /// The session of the run.
    pub session: SessionId,
    /// The question, with the call that it is about.
    pub question: Question,
    /// The answer, once there is one.
    pub answer: Option<Answer>,
    /// Approvals before the answer, of a question that needs several.
    pub approvals: Vec<PartialApproval>,
}
