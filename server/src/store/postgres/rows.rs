//! Conversions: rows to the store's types, and errors of SQL to the store's errors.

use std::borrow::Cow;

use agentloop_core::id::{EntryNo, IdError, RequestId, RunId, Seq, SessionId, TenantId};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;
use serde::de::DeserializeOwned;
use sqlx::postgres::PgRow;
use sqlx::{Decode, Error, Postgres, Row as _, Type};

use crate::store::codec::{self, StoredEvent, StoredSpec};
use crate::store::{Job, JobId, JobKind, LastRun, RunRow, RunSummary, SessionRow, StoreError};

/// What the function `agentloop_must` raises.
pub(in crate::store::postgres) const DIFFERS: &str = "AL001";

/// PostgreSQL's code of an error. `None` for errors that are not the server's.
pub(in crate::store::postgres) fn code(error: &Error) -> Option<Cow<'_, str>> {
    error.as_database_error()?.code()
}

/// True if the connection is of no use any more, and nobody knows if its last statement was carried out.
pub(in crate::store::postgres) fn is_lost(error: &Error) -> bool {
    match error {
        // 57P: the database stops, starts or ended the connection. 08: the connection. 25P03: it waited too long. 25006: it
        // takes no writes any more, because another one has become the primary.
        Error::Database(found) => found.code().is_some_and(|code| {
            code.starts_with("57P") || code.starts_with("08") || code == "25P03" || code == "25006"
        }),
        Error::Io(_)
        | Error::Tls(_)
        | Error::Protocol(_)
        | Error::PoolTimedOut
        | Error::PoolClosed
        | Error::WorkerCrashed => true,
        _ => false,
    }
}

/// An error of SQL as an error of the store. `what` names the row or list that was read or written.
pub(in crate::store::postgres) fn failure(what: impl std::fmt::Display, error: &Error) -> StoreError {
    let damaged = matches!(error, Error::ColumnDecode { .. } | Error::Decode(_))
        // XX001 and XX002: a damaged table or index. 23: tables contradict each other.
        || code(error).is_some_and(|code| code.starts_with("XX0") || code.starts_with("23") || code == DIFFERS);
    let what = format!("{what}: {error}");
    if damaged { StoreError::Corrupt { what } } else { StoreError::Unavailable { what } }
}

/// A text as PostgreSQL takes it: it has no character with the number 0.
pub(in crate::store) fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

/// A column with a number that is never negative.
pub(in crate::store::postgres) fn number(row: &PgRow, column: &str) -> Result<u64, Error> {
    parsed(row, column, |number: i64| u64::try_from(number))
}

fn optional_number(row: &PgRow, column: &str) -> Result<Option<u64>, Error> {
    parsed(row, column, |number: Option<i64>| number.map(u64::try_from).transpose())
}

fn small(row: &PgRow, column: &str) -> Result<u32, Error> {
    parsed(row, column, |number: i64| u32::try_from(number))
}

pub(in crate::store::postgres) fn time(row: &PgRow, column: &str) -> Result<Timestamp, Error> {
    number(row, column).map(Timestamp)
}

pub(in crate::store::postgres) fn seq(row: &PgRow, column: &str) -> Result<Seq, Error> {
    number(row, column).map(Seq)
}

pub(in crate::store::postgres) fn tenant_id(row: &PgRow, column: &str) -> Result<TenantId, Error> {
    parsed(row, column, |text: &str| TenantId::parse(text))
}

pub(in crate::store::postgres) fn run_id(row: &PgRow, column: &str) -> Result<RunId, Error> {
    parsed(row, column, |text: &str| RunId::parse(text))
}

/// Id of a question of this run: its column `question` has the rest.
pub(in crate::store::postgres) fn request_id(run: &RunId, row: &PgRow) -> Result<RequestId, Error> {
    parsed(row, "question", |rest: &str| RequestId::parse(format!("{run}:{rest}")))
}

pub(in crate::store::postgres) fn session_id(row: &PgRow, column: &str) -> Result<SessionId, Error> {
    parsed(row, column, |text: &str| SessionId::parse(text))
}

pub(in crate::store::postgres) fn optional_session_id(
    row: &PgRow,
    column: &str,
) -> Result<Option<SessionId>, Error> {
    let parse = |text: Option<&str>| text.map(SessionId::parse).transpose();
    parsed::<Option<&str>, _, IdError>(row, column, parse)
}

pub(in crate::store::postgres) fn live_run(row: &PgRow) -> Result<Option<RunId>, Error> {
    let parse = |text: Option<&str>| text.map(RunId::parse).transpose();
    parsed::<Option<&str>, _, IdError>(row, "live_run", parse)
}

pub(in crate::store::postgres) fn queue_no(row: &PgRow) -> Result<Option<u64>, Error> {
    optional_number(row, "queue_no")
}

fn forked_from(row: &PgRow) -> Result<Option<(SessionId, EntryNo)>, Error> {
    let Some(source) = optional_session_id(row, "forked_from")? else { return Ok(None) };
    Ok(Some((source, EntryNo(number(row, "forked_at")?))))
}

pub(in crate::store::postgres) fn digest(row: &PgRow, column: &str) -> Result<Digest, Error> {
    parsed(row, column, |text: &str| serde_json::from_value(serde_json::Value::from(text)))
}

/// A column with JSON of this type.
pub(in crate::store::postgres) fn json<T: DeserializeOwned>(row: &PgRow, column: &str) -> Result<T, Error> {
    parsed(row, column, |text: &str| serde_json::from_str(text))
}

/// A column with JSON of this type, or NULL.
pub(in crate::store::postgres) fn json_if_any<T: DeserializeOwned>(
    row: &PgRow,
    column: &str,
) -> Result<Option<T>, Error> {
    let parse = |text: Option<&str>| text.map(serde_json::from_str).transpose();
    parsed::<Option<&str>, _, serde_json::Error>(row, column, parse)
}

/// A run from the columns of `run_rows`, with the id of its session.
pub(in crate::store::postgres) fn run(row: &PgRow) -> Result<RunRow, Error> {
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
        queue_no: queue_no(row)?,
        summary: summary(row)?,
    })
}

fn summary(row: &PgRow) -> Result<RunSummary, Error> {
    let (usage, calls) = parsed(row, "usage", codec::usage)?;
    Ok(RunSummary {
        status: parsed(row, "status", |code: i64| RunStatus::of_code(code).ok_or("no such status"))?,
        wake_at: optional_number(row, "wake_at")?.map(Timestamp),
        at_hosts: row.try_get("at_hosts")?,
        error: json_if_any(row, "error")?,
        usage,
        iterations: small(row, "iterations")?,
        tool_calls: small(row, "tool_calls")?,
        calls,
    })
}

/// A session from the columns of `sessions`, with the id of its live run.
pub(in crate::store::postgres) fn session(row: &PgRow) -> Result<SessionRow, Error> {
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

fn last_run(row: &PgRow) -> Result<Option<LastRun>, Error> {
    let parse = |code: Option<i64>| match code {
        Some(code) => RunStatus::of_code(code).map(Some).ok_or("no such status"),
        None => Ok(None),
    };
    let Some(status) = parsed(row, "last_status", parse)? else { return Ok(None) };
    Ok(Some(LastRun { status, agent: row.try_get("last_agent")?, model: row.try_get("last_model")? }))
}

fn title(row: &PgRow) -> Result<String, Error> {
    let given: String = row.try_get("title")?;
    if given.is_empty() { row.try_get("made_title") } else { Ok(given) }
}

/// A job from the columns of `jobs`, with the ids of the run and its session.
pub(in crate::store::postgres) fn job(row: &PgRow) -> Result<Job, Error> {
    let kind = |text: &str| JobKind::parse(text).ok_or("no such kind of job");
    Ok(Job {
        id: JobId {
            tenant: tenant_id(row, "tenant")?,
            run: run_id(row, "run_id")?,
            kind: parsed(row, "kind", kind)?,
        },
        session: session_id(row, "session_id")?,
        due_at: time(row, "due_at")?,
        attempts: small(row, "attempts")?,
        error: row.try_get("error")?,
    })
}

/// An event from the columns of `run_events` or `kept_events`.
pub(in crate::store::postgres) fn event(row: &PgRow) -> Result<StoredEvent, Error> {
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
pub(in crate::store::postgres) fn whole_event(row: &PgRow) -> Result<StoredEvent, Error> {
    let spec = match row.try_get::<Option<String>, _>("spec")? {
        Some(text) => Some(StoredSpec { digest: digest(row, "spec_digest")?, text }),
        None => None,
    };
    Ok(StoredEvent { spec, ..event(row)? })
}

pub(in crate::store::postgres) fn parsed<'r, C, T, E>(
    row: &'r PgRow,
    column: &str,
    parse: impl FnOnce(C) -> Result<T, E>,
) -> Result<T, Error>
where
    C: Decode<'r, Postgres> + Type<Postgres>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    parse(row.try_get(column)?)
        .map_err(|source| Error::ColumnDecode { index: format!("{column:?}"), source: source.into() })
}
