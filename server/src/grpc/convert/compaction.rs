//! Converts compactions, which events and entries of a session have alike.

use agentloop_core::entry::Compaction;
use agentloop_core::id::EntryNo;
use agentloop_proto::v1 as wire;

/// Converts a compaction, without the token counts and usage that only its event has.
#[must_use]
pub(super) fn compacted(entry: EntryNo, compaction: &Compaction) -> wire::ContextCompacted {
    wire::ContextCompacted {
        strategy: compaction.strategy.clone(),
        up_to_entry_no: compaction.up_to.0,
        summary: compaction.summary.clone(),
        entry_no: entry.0,
        cut_up_to_entry_no: compaction.cut.as_ref().map_or(0, |cut| cut.up_to.0),
        ..wire::ContextCompacted::default()
    }
}
