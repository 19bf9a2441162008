//! A part of a session's entries, and the titles of its tool calls.

use std::collections::BTreeMap;

use agentloop_core::id::{CallId, EntryNo};

use super::ListedEntry;

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

impl EntrySpan {
    /// The part between whose events the calls of these entries were proposed: from the first message with calls to the result
    /// of the last call. `None` if no entry has a call.
    #[must_use]
    pub fn of_calls(rows: &[ListedEntry]) -> Option<Self> {
        let with_calls: Vec<(u64, usize)> = rows
            .iter()
            .filter_map(|row| match row {
                ListedEntry::Whole(row) => Some((row.entry.0, row.content.message()?.tool_calls().count())),
                ListedEntry::Damaged { .. } => None,
            })
            .filter(|(_, calls)| *calls > 0)
            .collect();
        let (first, _) = with_calls.first()?;
        let (last, calls) = with_calls.last()?;
        let results = u64::try_from(*calls).unwrap_or(u64::MAX);
        Some(Self { after: EntryNo(first.saturating_sub(1)), upto: EntryNo(last.saturating_add(results)) })
    }
}
