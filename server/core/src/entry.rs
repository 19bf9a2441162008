//! What a session is made of: messages, and the places where its context was made smaller.
//!
//! Entries are journal format: they are stored as JSON inside events, so fields are only ever added, with a default.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::EntryNo;
use crate::message::SharedMessage;

/// One entry of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// Something was said.
    Message(SharedMessage),
    /// From here on, what came before is shown to the model as this says. It stays in the store as it is.
    Compaction(Arc<Compaction>),
}

impl Entry {
    /// The message, if it is one.
    #[must_use]
    pub fn message(&self) -> Option<&SharedMessage> {
        match self {
            Self::Message(message) => Some(message),
            Self::Compaction(_) => None,
        }
    }
}

/// Why a context is made smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionReason {
    /// [`crate::agent::ContextPolicy::max_messages`].
    Messages,
    /// [`crate::agent::ContextPolicy::max_tokens`].
    Tokens,
    /// The provider says that the context is too long.
    Overflow,
    /// The planner wants it.
    Planned,
}

impl CompactionReason {
    /// As stored and counted.
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

/// How the entries before it are shown from here on. The last one of a session counts; those before it do not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Compaction {
    /// How it was made: `truncate`, `summarize`, `extract`, `trim`, or a strategy of one's own.
    pub strategy: String,
    /// Entries up to this one are not shown. Never between a tool call and its result.
    pub up_to: EntryNo,
    /// Shown in their place, as a user message; empty for nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub summary: String,
    /// Whether system messages among those entries are shown all the same, before the summary.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_system: bool,
    /// Texts of entries up to an entry that are shown cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
}

/// Which texts are shown cut, and how short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// In entries up to this one.
    pub up_to: EntryNo,
    /// A tool's output that is longer is cut to this, in bytes.
    pub output_bytes: u32,
    /// Any other text that is longer is cut to this, in bytes; absent leaves them whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_bytes: Option<u32>,
}
