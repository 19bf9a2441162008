//! The values that appends write into the rows of runs and sessions, the same for both databases.

use super::check::{RunHead, RunUpdate, SessionHead};
use crate::store::support::codec::{text, usage_text};
use crate::store::support::number::int;

/// A run's number, and the columns of its row that appends change.
pub(in crate::store) struct RunValues {
    pub(in crate::store) no: i64,
    pub(in crate::store) last_seq: i64,
    pub(in crate::store) status: i64,
    /// False for a run that waits in a queue: a start of the server does not continue it.
    pub(in crate::store) goes_on: bool,
    pub(in crate::store) at_hosts: bool,
    pub(in crate::store) wake_at: Option<i64>,
    pub(in crate::store) queue_no: Option<i64>,
    /// The last error of the run, as JSON.
    pub(in crate::store) error: Option<String>,
    /// Tokens and counts of calls, as JSON.
    pub(in crate::store) usage: String,
    pub(in crate::store) iterations: i64,
    pub(in crate::store) tool_calls: i64,
    pub(in crate::store) updated_at: i64,
    /// To be added to those that the row has.
    pub(in crate::store) bytes: i64,
}

impl RunValues {
    pub(in crate::store) fn of(run: &RunHead, update: &RunUpdate<'_>) -> Self {
        let summary = update.summary;
        Self {
            no: run.no,
            last_seq: int(run.last_seq.0),
            status: summary.status.code().into(),
            goes_on: summary.goes_on() && run.queue_no.is_none(),
            at_hosts: summary.at_hosts,
            wake_at: summary.wake_at.map(|at| int(at.0)),
            queue_no: run.queue_no.map(int),
            error: summary.error.as_ref().map(text),
            usage: usage_text(&summary.usage, &summary.calls),
            iterations: summary.iterations.into(),
            tool_calls: summary.tool_calls.into(),
            updated_at: int(update.updated_at.0),
            bytes: update.bytes,
        }
    }
}

/// A session's number, and the columns of its row that appends change.
pub(in crate::store) struct SessionValues {
    pub(in crate::store) no: i64,
    pub(in crate::store) last_entry: i64,
    /// Number of the live run.
    pub(in crate::store) live_run: Option<i64>,
    pub(in crate::store) last_queue_no: i64,
    pub(in crate::store) updated_at: i64,
}

impl SessionValues {
    pub(in crate::store) fn of(session: &SessionHead) -> Self {
        Self {
            no: session.no,
            last_entry: int(session.last_entry.0),
            live_run: session.live_run.as_ref().map(|live| live.no),
            last_queue_no: int(session.last_queue_no),
            updated_at: int(session.updated_at.0),
        }
    }
}
