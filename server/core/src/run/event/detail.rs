//! What events say, where it takes more than a field.

use serde::{Deserialize, Serialize};

use crate::id::{EntryNo, RunId, Seq};
use crate::message::Usage;
use crate::time::{Millis, Timestamp};
use crate::tool::Digest;

/// The request that handed messages to a run that was under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steer {
    /// Its id, which makes it idempotent: the id that its run would have had on an idle session.
    pub id: RunId,
    /// Of everything that it asked for: the same digest is the same request.
    pub digest: Digest,
}

/// Where the content of a session's new entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// In the event that adds it.
    Own,
    /// In the event of this run that held it.
    Held(Seq),
}

/// What a run took in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Tokens.
    pub usage: Usage,
    /// Model calls.
    pub iterations: u32,
    /// Tool calls.
    pub tool_calls: u32,
    /// From start to end.
    pub duration: Millis,
    /// The session's last entry.
    pub last_entry: EntryNo,
    /// In model calls, from request to end.
    #[serde(default, skip_serializing_if = "Millis::is_zero")]
    pub model_time: Millis,
    /// In tool calls, from first offer to result; calls side by side count each.
    #[serde(default, skip_serializing_if = "Millis::is_zero")]
    pub tool_time: Millis,
    /// The entry of the model's last message, where that is not the session's last; 0 where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_entry: Option<EntryNo>,
}

/// What the loop does after it has looked at the model's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observation {
    /// Run tools, then ask the model again.
    Continue,
    /// Make the context smaller, then go on.
    Compact,
    /// The run is over.
    Stop,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With the model's final message.
    Completed,
    /// It went wrong.
    Failed,
    /// Someone ended it.
    Aborted,
}

/// What follows a try without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "then", rename_all = "snake_case")]
pub enum AfterAttempt {
    /// Another try.
    Retry {
        /// Not before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
    },
    /// A human, a late result or a timeout settles it.
    InDoubt,
    /// It is settled by the event that follows.
    Settle,
}
