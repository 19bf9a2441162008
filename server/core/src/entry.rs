//! Entries of a session: messages and compactions.
//!
//! Entries are stored as JSON inside events. Fields are only ever added, with a default.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::EntryNo;
use crate::message::SharedMessage;

/// One entry of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// A message of the conversation.
    Message(SharedMessage),
    /// From here on, the model reads earlier entries in a compacted form. The entries themselves stay in the store.
    Compaction(Arc<Compaction>),
}

impl Entry {
    /// The message, unless the entry is a compaction.
    #[must_use]
    pub fn message(&self) -> Option<&SharedMessage> {
        match self {
            Self::Message(message) => Some(message),
            Self::Compaction(_) => None,
        }
    }
}

/// Reasons to compact a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionReason {
    /// The context has more messages than [`max_messages`](crate::agent::ContextPolicy::max_messages).
    Messages,
    /// The request has more tokens than [`max_tokens`](crate::agent::ContextPolicy::max_tokens).
    Tokens,
    /// The provider refused the request because the context is too long.
    Overflow,
    /// The planner requested it.
    Planned,
}

impl CompactionReason {
    /// The reason as it is stored, and as metrics label it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Tokens => "tokens",
            Self::Overflow => "overflow",
            Self::Planned => "planned",
        }
    }
}

/// A compacted view of the entries before this point. Only the last compaction of a session applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Compaction {
    /// Strategy that made it: `truncate`, `summarize`, `extract`, `trim`, or a registered one.
    pub strategy: String,
    /// Entries up to this one are hidden. Never between a tool call and its result.
    pub up_to: EntryNo,
    /// Shown in place of the hidden entries, as a user message. Empty shows nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub summary: String,
    /// True if system messages among the hidden entries are still shown, before the summary.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_system: bool,
    /// Cuts of long texts in entries that are still shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
}

/// Cuts of long texts in older entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// The last entry whose texts are cut.
    pub up_to: EntryNo,
    /// Longest tool output, in bytes. Longer output is cut to this.
    pub output_bytes: u32,
    /// Longest other text, in bytes; absent means no bound. Longer text is cut to this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_bytes: Option<u32>,
}
