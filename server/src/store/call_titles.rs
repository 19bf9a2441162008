//! Titles of the tool calls of listed entries. An entry has the call as the model asked for it. The title is in the event that
//! proposed the call. It is read from there, so nothing more is written for it.

use agentloop_core::id::{CallId, EntryNo, RunId, TenantId};
use agentloop_core::run::event::Event;

use super::codec::{self, StoredEvent};
use super::{CallTitles, EntrySpan, ListedEntry};

/// Events behind the last entry of a span that are looked through. A call that has no result yet is usually proposed right
/// behind the message that asks for it.
pub(super) const EVENTS_BEHIND: u32 = 32;

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

/// The titles that these events have. A damaged event costs no more than its title.
pub(super) fn titles(
    tenant: &TenantId,
    events: impl IntoIterator<Item = (RunId, StoredEvent)>,
) -> CallTitles {
    let title = |(run, stored): (RunId, StoredEvent)| {
        let Event::CallProposed { slot, title, .. } = codec::decode(tenant, &run, &stored).ok()?.event else {
            return None;
        };
        (!title.is_empty()).then_some((CallId { run, slot }, title))
    };
    events.into_iter().filter_map(title).collect()
}
