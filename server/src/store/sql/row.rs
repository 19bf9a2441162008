//! Whole rows as values of the store: runs, sessions, jobs and events.

use agentloop_core::id::{EntryNo, Seq, SessionId, TenantId};
use agentloop_core::run::event::Record;
use agentloop_core::time::Timestamp;
use sqlx::Error;

use super::column::{
    SqlRow, count, digest, json, json_if_any, live_run, number, number_if_any, owned_text, owned_text_if_any,
    parsed, run_id, seq, session_id, session_id_if_any, status, status_if_any, tenant_id, time,
};
use crate::store::support::codec::{self, StoredEvent, StoredSpec};
use crate::store::{Job, JobId, JobKind, LastRun, RunRow, RunSummary, SessionRow, StoreError};

/// A run from its columns, with the id of its session.
pub(in crate::store) fn run(row: &impl SqlRow) -> Result<RunRow, Error> {
    Ok(RunRow {
        run: run_id(row, "run_id")?,
        session: session_id(row, "session_id")?,
        request_digest: digest(row, "request_digest")?,
        agent: owned_text(row, "agent")?,
        model: owned_text(row, "model")?,
        labels: json(row, "labels")?,
        preview: owned_text(row, "preview")?,
        created_by: owned_text_if_any(row, "created_by")?,
        created_at: time(row, "created_at")?,
        updated_at: time(row, "updated_at")?,
        last_seq: seq(row, "last_seq")?,
        queue_no: number_if_any(row, "queue_no")?,
        summary: summary(row)?,
    })
}

fn summary(row: &impl SqlRow) -> Result<RunSummary, Error> {
    let (usage, calls) = parsed(row, "usage", codec::usage)?;
    Ok(RunSummary {
        status: status(row, "status")?,
        wake_at: number_if_any(row, "wake_at")?.map(Timestamp),
        at_hosts: row.flag("at_hosts")?,
        error: json_if_any(row, "error")?,
        usage,
        iterations: count(row, "iterations")?,
        tool_calls: count(row, "tool_calls")?,
        calls,
    })
}

/// A session from the columns of `sessions`, with the id of its live run.
pub(in crate::store) fn session(row: &impl SqlRow) -> Result<SessionRow, Error> {
    Ok(SessionRow {
        session: session_id(row, "session_id")?,
        title: title(row)?,
        labels: json(row, "labels")?,
        created_at: time(row, "created_at")?,
        updated_at: time(row, "touched_at")?,
        last_entry: EntryNo(number(row, "last_entry")?),
        live_run: live_run(row)?,
        forked_from: forked_from(row)?,
        summary: owned_text(row, "summary")?,
        summary_upto: EntryNo(number(row, "summary_upto")?),
        created_by: owned_text_if_any(row, "created_by")?,
        preview: owned_text(row, "shown_preview")?,
        last_run: last_run(row)?,
    })
}

fn title(row: &impl SqlRow) -> Result<String, Error> {
    let given = row.text("title")?;
    if given.is_empty() { owned_text(row, "made_title") } else { Ok(given.to_owned()) }
}

fn forked_from(row: &impl SqlRow) -> Result<Option<(SessionId, EntryNo)>, Error> {
    let Some(source) = session_id_if_any(row, "forked_from")? else { return Ok(None) };
    Ok(Some((source, EntryNo(number(row, "forked_at")?))))
}

fn last_run(row: &impl SqlRow) -> Result<Option<LastRun>, Error> {
    let Some(status) = status_if_any(row, "last_status")? else { return Ok(None) };
    Ok(Some(LastRun { status, agent: owned_text(row, "last_agent")?, model: owned_text(row, "last_model")? }))
}

/// A job from the columns of `jobs`, with the ids of the run and its session.
pub(in crate::store) fn job(row: &impl SqlRow) -> Result<Job, Error> {
    let kind = |text: &str| JobKind::parse(text).ok_or("no such kind of job");
    Ok(Job {
        id: JobId {
            tenant: tenant_id(row, "tenant")?,
            run: run_id(row, "run_id")?,
            kind: parsed(row, "kind", kind)?,
        },
        session: session_id(row, "session_id")?,
        due_at: time(row, "due_at")?,
        attempts: count(row, "attempts")?,
        error: owned_text_if_any(row, "error")?,
    })
}

/// An event from the columns of `run_events` or `kept_events`.
pub(in crate::store) fn event(row: &impl SqlRow) -> Result<StoredEvent, Error> {
    Ok(StoredEvent {
        seq: row.integer("seq")?,
        at: row.integer("at")?,
        status: row.integer("status")?,
        version: row.integer("version")?,
        payload: owned_text(row, "payload")?,
        checksum: row.integer_if_any("checksum")?,
        spec: None,
    })
}

/// An event from the columns of `run_events`, with the columns `spec_digest` and `spec` of a first event.
pub(in crate::store) fn whole_event(row: &impl SqlRow) -> Result<StoredEvent, Error> {
    let spec = match owned_text_if_any(row, "spec")? {
        Some(text) => Some(StoredSpec { digest: digest(row, "spec_digest")?, text }),
        None => None,
    };
    Ok(StoredEvent { spec, ..event(row)? })
}

/// The journal of a run from all its records, up to the last one that its row names.
///
/// # Errors
/// [`StoreError::Corrupt`] if it has gaps or ends early.
pub(in crate::store) fn whole_journal(
    tenant: &TenantId,
    row: &RunRow,
    mut found: Vec<Record>,
) -> Result<Vec<Record>, StoreError> {
    found.retain(|record| record.seq <= row.last_seq);
    let dense = found.iter().zip(1..).all(|(record, seq)| record.seq == Seq(seq));
    if !dense || found.len() as u64 != row.last_seq.0 {
        let what = format!("journal {tenant}/{}: not dense up to {}", row.run, row.last_seq.0);
        return Err(StoreError::Corrupt { what });
    }
    Ok(found)
}
