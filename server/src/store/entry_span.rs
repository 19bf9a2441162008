//! A part of a session's entries, and the titles of its tool calls.

use std::collections::BTreeMap;

use agentloop_core::id::{CallId, EntryNo};

/// Titles of tool calls, of those that have one.
pub type CallTitles = BTreeMap<CallId, String>;

/// A part of a session's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntrySpan {
    /// The entry before the first one.
    pub after: EntryNo,
    /// The last one, which may not exist yet.
    pub upto: EntryNo,
}
