//! Titles of the tool calls of listed entries. An entry has the call as the model requested it. The title is in the
//! event that proposed the call. It is read from there, so nothing more is written for it.

use agentloop_core::id::{CallId, RunId, TenantId};
use agentloop_core::run::event::Event;

use super::codec::{self, StoredEvent};
use crate::store::CallTitles;

/// Events behind the last entry of a span that are looked through. A call that has no result yet is usually proposed right
/// behind the message that requests it.
pub(in crate::store) const EVENTS_BEHIND: u32 = 32;

/// The titles that these events have. A damaged event costs no more than its title.
pub(in crate::store) fn titles(
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
