//! Questions to a journal.

use agentloop_core::id::CallSlot;
use agentloop_core::message::{SharedMessage, ToolResult, ToolStatus};
use agentloop_core::run::event::{EntryContent, Event, Record};

/// The kinds of events, in order, in one line.
pub(crate) fn kinds(records: &[Record]) -> String {
    records.iter().map(|record| record.event.kind()).collect::<Vec<_>>().join(" ")
}

/// The entries of the session.
pub(crate) fn history(journal: &[Record]) -> Vec<SharedMessage> {
    let content = |record: &Record| record.event.content()?.message().cloned();
    let entered = |record: &Record| match record.event.entry()?.1 {
        EntryContent::Own => content(record),
        EntryContent::Held(held) => content(journal.iter().find(|other| other.seq == held)?),
    };
    journal.iter().filter_map(entered).collect()
}

/// Every tool result, in the order of recording.
pub(crate) fn results(journal: &[Record]) -> Vec<ToolResult> {
    journal
        .iter()
        .filter_map(|record| match &record.event {
            Event::CallSettled { message, .. } => Some(message.tool_result().expect("a result").clone()),
            _ => None,
        })
        .collect()
}

/// The end of a call, and the text for the model.
pub(crate) fn result(journal: &[Record], slot: CallSlot) -> Option<(ToolStatus, String)> {
    let result = results(journal).into_iter().find(|result| result.slot == slot)?;
    Some((result.status, result.output))
}
