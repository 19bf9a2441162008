//! Sessions are created, forked and deleted.
//!
//! **Invariant:** an event is stored once. A fork's entries refer to the journals of the session that it was made from;
//! when that one is deleted, what forks refer to moves to `kept_events`, and goes with the last of them.

use std::collections::BTreeMap;

use agentloop_core::id::{EntryNo, RunId, SessionId, TenantId};
use agentloop_core::time::Timestamp;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Error, Row as _, Sqlite, SqliteConnection};

use super::{rows, search};
use crate::store::codec::{int, text};
use crate::store::{SessionNotes, SessionRow, StoreError};

/// A session to be created.
#[derive(Debug)]
pub(super) struct NewSession {
    pub(super) tenant: TenantId,
    pub(super) session: SessionId,
    pub(super) title: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) now: Timestamp,
}

/// A session to be made from another.
#[derive(Debug)]
pub(super) struct NewFork {
    pub(super) tenant: TenantId,
    pub(super) source: SessionId,
    /// The last entry to share; 0 means all.
    pub(super) at: EntryNo,
    pub(super) session: SessionId,
    pub(super) now: Timestamp,
}

/// What is to be written on a session.
#[derive(Debug)]
pub(super) struct NewNotes {
    pub(super) tenant: TenantId,
    pub(super) session: SessionId,
    pub(super) notes: SessionNotes,
}

pub(super) const SET_NOTES: &str = "
    UPDATE sessions
    SET made_title = iif(title = '' AND made_title = '', coalesce(?3, ''), made_title),
        summary = iif(?5 > summary_upto, ?4, summary),
        summary_upto = max(?5, summary_upto)
    WHERE tenant = ?1 AND session_id = ?2";

const INSERT_FORK: &str = "
    INSERT INTO sessions (tenant, session_id, title, made_title, labels, created_at, updated_at, last_entry,
                          forked_from, forked_at, forked_asked, summary, summary_upto)
    SELECT tenant, ?3, title, made_title, labels, ?4, ?4, ?5, session_id, ?5, ?6,
           iif(summary_upto <= ?5, summary, ''), iif(summary_upto <= ?5, summary_upto, 0)
    FROM sessions WHERE tenant = ?1 AND session_id = ?2";

pub(super) const SHARE_ENTRIES: &str = "
    INSERT INTO session_entries (tenant, session_id, entry_no, run_id, seq, owner, keep, search_no)
    SELECT tenant, ?3, entry_no, run_id, seq, iif(keep IS NULL, coalesce(owner, session_id), NULL), keep, search_no
    FROM session_entries WHERE tenant = ?1 AND session_id = ?2 AND entry_no <= ?4";

pub(super) const FIRST_QUEUED: &str = "
    SELECT run_id FROM runs WHERE tenant = ?1 AND session_id = ?2 AND queue_no IS NOT NULL
    ORDER BY queue_no LIMIT 1";

/// Two forks may share the same event.
pub(super) const KEEP_EVENTS: &str = "
    INSERT INTO kept_events (tenant, keep, run_id, seq, at, kind, status, version, payload)
    SELECT e.tenant, ?3, e.run_id, e.seq, e.at, e.kind, e.status, e.version, e.payload
    FROM session_entries AS i
    JOIN run_events AS e ON e.tenant = i.tenant AND e.run_id = i.run_id AND e.seq = i.seq
    WHERE i.tenant = ?1 AND i.owner = ?2
    ON CONFLICT (tenant, keep, run_id, seq) DO NOTHING";

/// SQLite believes that a tenant has few entries, and must be told which index to take.
pub(super) const REFER_TO_KEPT: &str = "
    UPDATE session_entries INDEXED BY session_entries_lent
    SET owner = NULL, keep = ?3 WHERE tenant = ?1 AND owner = ?2";

/// What this session has and no other.
pub(super) const DROP_KEPT: &str = "
    DELETE FROM kept_events
    WHERE (tenant, keep, run_id, seq) IN (
        SELECT i.tenant, i.keep, i.run_id, i.seq FROM session_entries AS i
        WHERE i.tenant = ?1 AND i.session_id = ?2 AND i.keep IS NOT NULL
          AND NOT EXISTS (
              SELECT 1 FROM session_entries AS o
              WHERE o.tenant = i.tenant AND o.keep = i.keep AND o.run_id = i.run_id AND o.seq = i.seq
                AND o.keep IS NOT NULL AND o.session_id <> i.session_id))";

/// Creates a session, or finds it the same as it is to be.
pub(super) async fn create(
    db: &mut SqliteConnection,
    new: &NewSession,
) -> Result<Result<SessionRow, StoreError>, Error> {
    let sql = "INSERT INTO sessions (tenant, session_id, title, labels, created_at, updated_at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?5) ON CONFLICT (tenant, session_id) DO NOTHING";
    keyed(sql, &new.tenant, &new.session)
        .bind(new.title.as_str())
        .bind(text(&new.labels))
        .bind(int(new.now.0))
        .execute(&mut *db)
        .await?;
    let row = found(db, &new.tenant, &new.session).await?.ok_or(Error::RowNotFound)?;
    let same = row.labels == new.labels && row.forked_from.is_none() && is_titled(db, new).await?;
    Ok(same.then_some(row).ok_or(StoreError::SessionExists))
}

/// Whether the session was given this title, whatever the model made of it since.
async fn is_titled(db: &mut SqliteConnection, new: &NewSession) -> Result<bool, Error> {
    let sql = "SELECT title = ?3 AS same FROM sessions WHERE tenant = ?1 AND session_id = ?2";
    let query = keyed(sql, &new.tenant, &new.session).bind(new.title.as_str());
    query.fetch_one(db).await?.try_get("same")
}

/// Writes a title where there is none, and a summary that is further than the one that is there. `false`: no session.
pub(super) async fn set_notes(db: &mut SqliteConnection, new: &NewNotes) -> Result<bool, Error> {
    let (summary, upto) = match &new.notes.summary {
        Some((summary, upto)) => (summary.as_str(), *upto),
        None => ("", EntryNo(0)),
    };
    let query = keyed(SET_NOTES, &new.tenant, &new.session)
        .bind(new.notes.title.as_deref())
        .bind(summary)
        .bind(int(upto.0));
    Ok(query.execute(db).await?.rows_affected() > 0)
}

/// Makes a session from another, or finds it made so before.
pub(super) async fn fork(
    db: &mut SqliteConnection,
    new: &NewFork,
) -> Result<Result<SessionRow, StoreError>, Error> {
    if let Some(row) = found(db, &new.tenant, &new.session).await? {
        let same = is_this_fork(db, new).await?;
        return Ok(same.then_some(row).ok_or(StoreError::SessionExists));
    }
    let Some(source) = found(db, &new.tenant, &new.source).await? else {
        return Ok(Err(StoreError::NoSession));
    };
    let last = source.last_entry;
    if new.at > last {
        return Ok(Err(StoreError::EntryAhead { last }));
    }
    let at = if new.at == EntryNo(0) { last } else { new.at };
    keyed(INSERT_FORK, &new.tenant, &new.source)
        .bind(new.session.as_str())
        .bind(int(new.now.0))
        .bind(int(at.0))
        .bind(int(new.at.0))
        .execute(&mut *db)
        .await?;
    keyed(SHARE_ENTRIES, &new.tenant, &new.source)
        .bind(new.session.as_str())
        .bind(int(at.0))
        .execute(&mut *db)
        .await?;
    let row = found(db, &new.tenant, &new.session).await?.ok_or(Error::RowNotFound)?;
    Ok(Ok(row))
}

/// Whether the session that is there was made by the same request, or shares as much as it asks for.
async fn is_this_fork(db: &mut SqliteConnection, new: &NewFork) -> Result<bool, Error> {
    let sql = "SELECT forked_from IS ?3 AND ?4 IN (forked_asked, nullif(forked_at, 0)) IS TRUE AS same
               FROM sessions WHERE tenant = ?1 AND session_id = ?2";
    let query = keyed(sql, &new.tenant, &new.session).bind(new.source.as_str()).bind(int(new.at.0));
    query.fetch_one(db).await?.try_get("same")
}

/// Deletes a session that has neither a live run nor a queue, and by the foreign keys everything that belongs to it and is not shared.
pub(super) async fn delete(
    db: &mut SqliteConnection,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Result<bool, StoreError>, Error> {
    let Some(row) = found(db, tenant, session).await? else { return Ok(Ok(false)) };
    if let Some(run) = row.live_run.or(first_queued(db, tenant, session).await?) {
        return Ok(Err(StoreError::SessionBusy { run }));
    }
    keep_what_is_shared(db, tenant, session).await?;
    keyed(DROP_KEPT, tenant, session).execute(&mut *db).await?;
    keyed(search::DROP_DOCUMENTS, tenant, session).execute(&mut *db).await?;
    keyed("DELETE FROM sessions WHERE tenant = ?1 AND session_id = ?2", tenant, session).execute(db).await?;
    Ok(Ok(true))
}

async fn first_queued(
    db: &mut SqliteConnection,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Option<RunId>, Error> {
    let row = keyed(FIRST_QUEUED, tenant, session).fetch_optional(db).await?;
    row.map(|row| rows::run_id(&row, "run_id")).transpose()
}

async fn keep_what_is_shared(
    db: &mut SqliteConnection,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<(), Error> {
    let row = sqlx::query("SELECT coalesce(max(keep), 0) + 1 AS keep FROM kept_events WHERE tenant = ?1")
        .bind(tenant.as_str())
        .fetch_one(&mut *db)
        .await?;
    let keep: i64 = row.try_get("keep")?;
    keyed(KEEP_EVENTS, tenant, session).bind(keep).execute(&mut *db).await?;
    keyed(REFER_TO_KEPT, tenant, session).bind(keep).execute(db).await?;
    Ok(())
}

async fn found(
    db: &mut SqliteConnection,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Option<SessionRow>, Error> {
    let sql = "SELECT * FROM sessions WHERE tenant = ?1 AND session_id = ?2";
    keyed(sql, tenant, session).fetch_optional(db).await?.as_ref().map(rows::session).transpose()
}

/// With a session's key as its first two parameters.
fn keyed<'q>(
    sql: &'static str,
    tenant: &'q TenantId,
    session: &'q SessionId,
) -> Query<'q, Sqlite, SqliteArguments> {
    sqlx::query(sql).bind(tenant.as_str()).bind(session.as_str())
}
