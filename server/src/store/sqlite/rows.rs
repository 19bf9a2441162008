//! Conversions: rows to the store's types, and errors of SQL to the store's errors.

use agentloop_core::id::{EntryNo, IdError, RequestId, RunId, Seq, SessionId, TenantId};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;
use serde::de::DeserializeOwned;
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Error, Row as _, Sqlite, Type};

use crate::store::codec::{self, StoredEvent, StoredSpec};
use crate::store::{Job, JobId, JobKind, LastRun, RunRow, RunSummary, SessionRow, StoreError};

/// `SQLITE_CONSTRAINT`. Appends are checked before they are written, so this error means that tables contradict each
/// other.
pub(in crate::store::sqlite) const CONSTRAINT: i32 = 19;
/// Result codes of a damaged database: `SQLITE_CORRUPT`, `SQLITE_CONSTRAINT` and `SQLITE_NOTADB`.
const DAMAGED: [i32; 3] = [11, CONSTRAINT, 26];

/// SQLite's primary result code. `None` for errors that are not SQLite's.
pub(in crate::store::sqlite) fn primary_code(error: &Error) -> Option<i32> {
    let code = error.as_database_error()?.code()?.parse::<i32>().ok()?;
    Some(code & 0xff)
}

/// An error of SQL as an error of the store. `what` names the row or list that was read or written.
pub(in crate::store::sqlite) fn failure(what: impl std::fmt::Display, error: &Error) -> StoreError {
    let damaged = matches!(error, Error::ColumnDecode { .. } | Error::Decode(_))
        || primary_code(error).is_some_and(|code| DAMAGED.contains(&code));
    let what = format!("{what}: {error}");
    if damaged { StoreError::Corrupt { what } } else { StoreError::Unavailable { what } }
}

/// A column with a number that is never negative.
pub(in crate::store::sqlite) fn number(row: &SqliteRow, column: &str) -> Result<u64, Error> {
    row.try_get(column)
}

pub(in crate::store::sqlite) fn time(row: &SqliteRow, column: &str) -> Result<Timestamp, Error> {
    number(row, column).map(Timestamp)
}

pub(in crate::store::sqlite) fn seq(row: &SqliteRow, column: &str) -> Result<Seq, Error> {
    number(row, column).map(Seq)
}

pub(in crate::store::sqlite) fn tenant_id(row: &SqliteRow, column: &str) -> Result<TenantId, Error> {
    parsed(row, column, |text: &str| TenantId::parse(text))
}

pub(in crate::store::sqlite) fn run_id(row: &SqliteRow, column: &str) -> Result<RunId, Error> {
    parsed(row, column, |text: &str| RunId::parse(text))
}

/// Id of a question of this run: its column `question` has the rest.
pub(in crate::store::sqlite) fn request_id(run: &RunId, row: &SqliteRow) -> Result<RequestId, Error> {
    parsed(row, "question", |rest: &str| RequestId::parse(format!("{run}:{rest}")))
}

pub(in crate::store::sqlite) fn session_id(row: &SqliteRow, column: &str) -> Result<SessionId, Error> {
    parsed(row, column, |text: &str| SessionId::parse(text))
}

pub(in crate::store::sqlite) fn optional_session_id(
    row: &SqliteRow,
    column: &str,
) -> Result<Option<SessionId>, Error> {
    let parse = |text: Option<&str>| text.map(SessionId::parse).transpose();
    parsed::<Option<&str>, _, IdError>(row, column, parse)
}

pub(in crate::store::sqlite) fn live_run(row: &SqliteRow) -> Result<Option<RunId>, Error> {
    let parse = |text: Option<&str>| text.map(RunId::parse).transpose();
    parsed::<Option<&str>, _, IdError>(row, "live_run", parse)
}

fn forked_from(row: &SqliteRow) -> Result<Option<(SessionId, EntryNo)>, Error> {
    let parse = |text: Option<&str>| text.map(SessionId::parse).transpose();
    let Some(source) = parsed::<Option<&str>, _, IdError>(row, "forked_from", parse)? else {
        return Ok(None);
    };
    Ok(Some((source, EntryNo(number(row, "forked_at")?))))
}

pub(in crate::store::sqlite) fn digest(row: &SqliteRow, column: &str) -> Result<Digest, Error> {
    parsed(row, column, |text: &str| serde_json::from_value(serde_json::Value::from(text)))
}

/// A column with JSON of this type.
pub(in crate::store::sqlite) fn json<T: DeserializeOwned>(row: &SqliteRow, column: &str) -> Result<T, Error> {
    parsed(row, column, |text: &str| serde_json::from_str(text))
}

/// A column with JSON of this type, or NULL.
pub(in crate::store::sqlite) fn json_if_any<T: DeserializeOwned>(
    row: &SqliteRow,
    column: &str,
) -> Result<Option<T>, Error> {
    let parse = |text: Option<&str>| text.map(serde_json::from_str).transpose();
    parsed::<Option<&str>, _, serde_json::Error>(row, column, parse)
}

/// A run from the columns of `runs`, with the id of its session.
pub(in crate::store::sqlite) fn run(row: &SqliteRow) -> Result<RunRow, Error> {
    Ok(RunRow {
        run: run_id(row, "run_id")?,
        session: session_id(row, "session_id")?,
        request_digest: digest(row, "request_digest")?,
        agent: row.try_get("agent")?,
        model: row.try_get("model")?,
        labels: json(row, "labels")?,
        preview: row.try_get("preview")?,
        created_by: row.try_get("created_by")?,
        created_at: time(row, "created_at")?,
        updated_at: time(row, "updated_at")?,
        last_seq: seq(row, "last_seq")?,
        queue_no: row.try_get("queue_no")?,
        summary: summary(row)?,
    })
}

fn summary(row: &SqliteRow) -> Result<RunSummary, Error> {
    let (usage, calls) = parsed(row, "usage", codec::usage)?;
    Ok(RunSummary {
        status: parsed(row, "status", |code: i64| RunStatus::of_code(code).ok_or("no such status"))?,
        wake_at: row.try_get::<Option<u64>, _>("wake_at")?.map(Timestamp),
        at_hosts: row.try_get("at_hosts")?,
        error: parsed(row, "error", |text: Option<&str>| text.map(serde_json::from_str).transpose())?,
        usage,
        iterations: row.try_get("iterations")?,
        tool_calls: row.try_get("tool_calls")?,
        calls,
    })
}

/// A session from the columns of `sessions`, with the id of its live run.
pub(in crate::store::sqlite) fn session(row: &SqliteRow) -> Result<SessionRow, Error> {
    Ok(SessionRow {
        session: session_id(row, "session_id")?,
        title: title(row)?,
        labels: json(row, "labels")?,
        created_at: time(row, "created_at")?,
        updated_at: time(row, "updated_at")?,
        last_entry: EntryNo(number(row, "last_entry")?),
        live_run: live_run(row)?,
        forked_from: forked_from(row)?,
        summary: row.try_get("summary")?,
        summary_upto: EntryNo(number(row, "summary_upto")?),
        created_by: row.try_get("created_by")?,
        preview: row.try_get("shown_preview")?,
        last_run: last_run(row)?,
    })
}

fn last_run(row: &SqliteRow) -> Result<Option<LastRun>, Error> {
    let parse = |code: Option<i64>| match code {
        Some(code) => RunStatus::of_code(code).map(Some).ok_or("no such status"),
        None => Ok(None),
    };
    let Some(status) = parsed(row, "last_status", parse)? else { return Ok(None) };
    Ok(Some(LastRun { status, agent: row.try_get("last_agent")?, model: row.try_get("last_model")? }))
}

fn title(row: &SqliteRow) -> Result<String, Error> {
    let given: String = row.try_get("title")?;
    if given.is_empty() { row.try_get("made_title") } else { Ok(given) }
}

/// A job from the columns of `jobs`, with the ids of the run and its session.
pub(in crate::store::sqlite) fn job(row: &SqliteRow) -> Result<Job, Error> {
    let kind = |text: &str| JobKind::parse(text).ok_or("no such kind of job");
    Ok(Job {
        id: JobId {
            tenant: tenant_id(row, "tenant")?,
            run: run_id(row, "run_id")?,
            kind: parsed(row, "kind", kind)?,
        },
        session: session_id(row, "session_id")?,
        due_at: time(row, "due_at")?,
        attempts: row.try_get("attempts")?,
        error: row.try_get("error")?,
    })
}

/// An event from the columns of `run_events` or `kept_events`.
pub(in crate::store::sqlite) fn event(row: &SqliteRow) -> Result<StoredEvent, Error> {
    Ok(StoredEvent {
        seq: row.try_get("seq")?,
        at: row.try_get("at")?,
        status: row.try_get("status")?,
        version: row.try_get("version")?,
        payload: row.try_get("payload")?,
        checksum: row.try_get("checksum")?,
        spec: None,
    })
}

/// An event from the columns of `run_events`, with the columns `spec_digest` and `spec` of a first event.
pub(in crate::store::sqlite) fn whole_event(row: &SqliteRow) -> Result<StoredEvent, Error> {
    let spec = match row.try_get::<Option<String>, _>("spec")? {
        Some(text) => Some(StoredSpec { digest: digest(row, "spec_digest")?, text }),
        None => None,
    };
    Ok(StoredEvent { spec, ..event(row)? })
}

pub(in crate::store::sqlite) fn parsed<'r, C, T, E>(
    row: &'r SqliteRow,
    column: &str,
    parse: impl FnOnce(C) -> Result<T, E>,
) -> Result<T, Error>
where
    C: Decode<'r, Sqlite> + Type<Sqlite>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    parse(row.try_get(column)?)
        .map_err(|source| Error::ColumnDecode { index: format!("{column:?}"), source: source.into() })
}
