//! Conversion of sessions, entries and search hits.

use agentloop_core::entry::Entry;
use agentloop_core::id::{CallId, RunId, SessionId};
use agentloop_proto::v1 as wire;

use super::compaction::compacted;
use super::event::{EventConverter, PlanningEvents, is_shown};
use super::message::{finish_reason, message, role, usage};
use super::run::run_status;
use super::{duration, timestamp};
use crate::engine::feed::FeedItem;
use crate::engine::{SessionItem, SessionStreamItem};
use crate::grpc::convert::people::masked;
use crate::mask::Masks;
use crate::store::{CallTitles, EntryRow, ListedEntry, SearchHit, SessionRow};

/// Converts the row of a session.
#[must_use]
pub fn session(row: &SessionRow) -> wire::Session {
    wire::Session {
        session_id: row.session.to_string(),
        title: row.title.clone(),
        created_at: Some(timestamp(row.created_at)),
        updated_at: Some(timestamp(row.updated_at)),
        entry_count: row.last_entry.0,
        live_run_id: row.live_run.as_ref().map(RunId::to_string).unwrap_or_default(),
        labels: row.labels.clone(),
        forked_from_session_id: row
            .forked_from
            .as_ref()
            .map(|(from, _)| from.to_string())
            .unwrap_or_default(),
        forked_at_entry_no: row.forked_from.as_ref().map(|(_, at)| at.0).unwrap_or_default(),
        summary: row.summary.clone(),
        summary_up_to_entry_no: row.summary_upto.0,
        preview: row.preview.clone(),
        status: row.last_run.as_ref().map_or(0, |run| run_status(run.status).into()),
        agent: row.last_run.as_ref().map(|run| run.agent.clone()).unwrap_or_default(),
        model: row.last_run.as_ref().map(|run| run.model.clone()).unwrap_or_default(),
        todos: Vec::new(),
        damaged_entry_nos: Vec::new(),
        created_by: row.created_by.clone().unwrap_or_default(),
    }
}

/// Converts an item of a subscription: what is shown before it, and the item itself. `planning` is `None` for a subscriber
/// that wants durable events alone.
#[must_use]
pub fn items(
    session: &SessionId,
    update: SessionStreamItem,
    planning: Option<&mut PlanningEvents>,
    masks: &Masks,
) -> [Option<wire::SubscribeSessionResponse>; 2] {
    use wire::subscribe_session_response::Item;
    let mut before = None;
    let item = match update.item {
        SessionItem::Event { event, .. }
            if !is_shown(&event) || (planning.is_none() && matches!(event, FeedItem::Transient(_))) =>
        {
            return [None, None];
        }
        SessionItem::Event { run, event } => {
            let converter = EventConverter::new(run, session.clone()).masking(masks.clone());
            before = planning.and_then(|planning| planning.before(&converter, &event));
            Item::Event(converter.event(&event))
        }
        SessionItem::Session(row) => Item::Session(self::session(&row)),
        SessionItem::Synced { last_entry, open } => Item::Synced(wire::SessionSynced {
            last_entry_no: last_entry.0,
            open_run_ids: open.iter().map(RunId::to_string).collect(),
        }),
        SessionItem::Deleted => Item::Deleted(wire::SessionDeleted {}),
    };
    let response = |item, resume_token| wire::SubscribeSessionResponse { item: Some(item), resume_token };
    let before = before.map(|event| response(Item::Event(event), String::new()));
    [before, Some(response(item, update.token))]
}

/// Converts one entry of a session.
#[must_use]
pub fn entry(row: &EntryRow) -> wire::Entry {
    let (message, compaction) = match &row.content {
        Entry::Message(stored) => (Some(self::message(&row.run, stored)), None),
        Entry::Compaction(compaction) => (None, Some(compacted(row.entry, compaction))),
    };
    wire::Entry {
        entry_no: row.entry.0,
        run_id: row.run.to_string(),
        seq: row.seq.0,
        at: Some(timestamp(row.at)),
        message,
        compaction,
        finish_reason: row.source.finish.as_ref().map_or(0, |reason| finish_reason(reason).into()),
        usage: row.source.usage.map(usage),
        duration: row.source.duration.map(duration),
        model: row.source.model.clone(),
        damaged: false,
    }
}

/// Converts one entry of a list, with the titles of its calls and without sensitive arguments.
#[must_use]
pub fn listed(row: &ListedEntry, titles: &CallTitles, masks: &Masks) -> wire::Entry {
    match row {
        ListedEntry::Whole(row) => {
            let mut entry = entry(row);
            masked::entry(masks, &mut entry);
            entry.message.iter_mut().for_each(|message| entitle(message, titles));
            entry
        }
        ListedEntry::Damaged { entry, run, seq } => wire::Entry {
            entry_no: entry.0,
            run_id: run.as_ref().map(RunId::to_string).unwrap_or_default(),
            seq: seq.0,
            damaged: true,
            ..wire::Entry::default()
        },
    }
}

/// Gives the calls of a message their titles.
fn entitle(message: &mut wire::Message, titles: &CallTitles) {
    for part in &mut message.parts {
        if let Some(wire::part::Content::ToolCall(call)) = &mut part.content
            && let Some(title) = CallId::parse(&call.call_id).and_then(|id| titles.get(&id))
        {
            call.title.clone_from(title);
        }
    }
}

/// Converts a search hit.
#[must_use]
pub fn hit(hit: &SearchHit) -> wire::EntryHit {
    wire::EntryHit {
        session_id: hit.session.to_string(),
        entry_no: hit.entry.0,
        run_id: hit.run.to_string(),
        at: Some(timestamp(hit.at)),
        role: role(hit.role).into(),
        snippet: hit.snippet.clone(),
        score: hit.score,
    }
}
