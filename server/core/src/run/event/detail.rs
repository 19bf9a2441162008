//! Types of the fields of events.

use serde::{Deserialize, Serialize};

use crate::id::{EntryNo, RunId, Seq};
use crate::message::Usage;
use crate::time::{Millis, Timestamp};
use crate::tool::Digest;

/// The request that gave messages to a live run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steer {
    /// Id of the request, which makes it idempotent. A run of an idle session would have had this id.
    pub id: RunId,
    /// Digest of the whole request: the same digest means the same request.
    pub digest: Digest,
}

/// Location of the content of a new entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryContent {
    /// The event that adds the entry has the content.
    Own,
    /// The [`crate::run::event::Event::MessageHeld`] with this number has the content.
    Held(Seq),
}

/// Counters and times of a whole run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Tokens and cost of all model calls.
    pub usage: Usage,
    /// Model calls that count against the limit.
    pub iterations: u32,
    /// Tool calls that were proposed.
    pub tool_calls: u32,
    /// Time from the start of the run to its end.
    pub duration: Millis,
    /// The last entry of the session.
    pub last_entry: EntryNo,
    /// Time in model calls, each from request to end.
    #[serde(default, skip_serializing_if = "Millis::is_zero")]
    pub model_time: Millis,
    /// Time in tool calls, each from first offer to result. Parallel calls count in full.
    #[serde(default, skip_serializing_if = "Millis::is_zero")]
    pub tool_time: Millis,
    /// Entry of the model's last message, if it is not the last entry of the session; 0 if there is no such message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_entry: Option<EntryNo>,
}

/// The next activity of the loop after a response of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observation {
    /// The loop goes on: with tool calls, messages that wait, or the planner.
    Continue,
    /// The loop goes on, and compacts the context before the next model call.
    Compact,
    /// The loop does nothing more: the run ends.
    Stop,
}

/// The outcome of a run, as its last event says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The model's last message is the result of the run.
    Completed,
    /// An error or a limit ended the run.
    Failed,
    /// A caller or a person ended the run.
    Aborted,
}

/// The next state of a tool call after an attempt without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "then", rename_all = "snake_case")]
pub enum AfterAttempt {
    /// The call is offered again.
    Retry {
        /// The earliest time of the next attempt; absent means at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
    },
    /// The call is in doubt, until an answer, a late result or a timeout settles it.
    InDoubt,
    /// The next event settles the call.
    Settle,
}
