//! Creating, forking and deleting sessions.
//!
//! **Invariant:** an event is stored once. A fork's entries refer to the journals of its source. When the source is
//! deleted, the events that forks refer to move to `kept_events`. They go with the last of those forks.

use std::collections::BTreeMap;

use agentloop_core::id::{EntryNo, RunId, SessionId, TenantId};
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Error, Row as _, Sqlite, SqliteConnection};

use crate::store::codec::text;
use crate::store::number::int;
use crate::store::sql::read::{session_of_user_query, session_query};
use crate::store::sqlite::read::{SqliteDialect, keep_usage_query, prepared};
use crate::store::sqlite::rows;
use crate::store::write::{NewFork, NewNotes, NewSession, NewUpdate};
use crate::store::{SessionRow, StoreError};

pub(in crate::store::sqlite) const SET_NOTES: &str = "
    UPDATE sessions
    SET made_title = iif(title = '' AND made_title = '', coalesce(?3, ''), made_title),
        summary = iif(?5 > summary_upto, ?4, summary),
        summary_upto = max(?5, summary_upto)
    WHERE tenant = ?1 AND session_id = ?2";

/// Keeps what the session was created with, for a repetition of its creation.
pub(in crate::store::sqlite) const UPDATE: &str = "
    UPDATE sessions
    SET created_as = coalesce(created_as, ?3), title = ?4, labels = ?5
    WHERE tenant = ?1 AND session_id = ?2";

const INSERT_FORK: &str = "
    INSERT INTO sessions (tenant, session_id, title, made_title, labels, created_at, updated_at, last_entry,
                          forked_from, forked_at, forked_asked, summary, summary_upto, created_by,
                          preview)
    SELECT tenant, ?3, title, made_title, labels, ?4, ?4, ?5, session_id, ?5, ?6,
           iif(summary_upto <= ?5, summary, ''), iif(summary_upto <= ?5, summary_upto, 0), ?7, ?8
    FROM sessions WHERE tenant = ?1 AND session_id = ?2";

/// Shares entries of the session of number `?1`, up to entry `?3`, with the session of number `?2`.
pub(in crate::store::sqlite) const SHARE_ENTRIES: &str = "
    INSERT INTO session_entries (session_no, entry_no, run_no, seq, owner, keep, search_no)
    SELECT ?2, entry_no, run_no, seq, iif(keep IS NULL, coalesce(owner, session_no), NULL), keep, search_no
    FROM session_entries WHERE session_no = ?1 AND entry_no <= ?3";

/// Gives the session of number `?2` the to-do lists of the entries that it shares with the session of number `?1`.
pub(in crate::store::sqlite) const SHARE_TODOS: &str = "
    INSERT INTO session_todos (session_no, entry_no, items)
    SELECT ?2, entry_no, items FROM session_todos WHERE session_no = ?1 AND entry_no <= ?3";

/// Has the session of number `?2` refer to the blobs that the entries name which it shares with that of number `?1`.
pub(in crate::store::sqlite) const SHARE_BLOBS: &str = "
    INSERT INTO session_blobs (session_no, entry_no, digest)
    SELECT ?2, entry_no, digest FROM session_blobs WHERE session_no = ?1 AND entry_no <= ?3";

pub(in crate::store::sqlite) const FIRST_QUEUED: &str = "
    SELECT run_id FROM runs WHERE session_no = ?1 AND queue_no IS NOT NULL
    ORDER BY queue_no LIMIT 1";

/// Copies the events that forks share with the session of number `?1`. Two forks may share the same event.
pub(in crate::store::sqlite) const KEEP_EVENTS: &str = "
    INSERT INTO kept_events (keep, run_no, seq, run_id, at, status, version, payload, checksum, model)
    SELECT ?2, e.run_no, e.seq, r.run_id, e.at, e.status, e.version, e.payload, e.checksum, r.model
    FROM session_entries AS i
    JOIN runs AS r ON r.run_no = i.run_no
    JOIN run_events AS e ON e.run_no = i.run_no AND e.seq = i.seq
    WHERE i.owner = ?1
    ON CONFLICT (keep, run_no, seq) DO NOTHING";

pub(in crate::store::sqlite) const REFER_TO_KEPT: &str = "
    UPDATE session_entries INDEXED BY session_entries_lent
    SET owner = NULL, keep = ?2 WHERE owner = ?1";

/// Lists the documents of entries that the session of number `?1` shares with no other.
pub(in crate::store::sqlite) const DELETE_DOCUMENTS: &str = "
    INSERT INTO search_deleted (search_no)
    SELECT i.search_no FROM session_entries AS i
    WHERE i.session_no = ?1 AND i.search_no IS NOT NULL
      AND NOT EXISTS (
          SELECT 1 FROM session_entries AS o INDEXED BY session_entries_searched
          WHERE o.search_no = i.search_no AND o.session_no <> i.session_no)
    ON CONFLICT (search_no) DO NOTHING";

/// Remembers the highest number of a deleted document. No number is given out twice: an index that is older than the
/// database would confuse the two documents.
const KEEP_LAST_DOCUMENT: &str = "
    INSERT INTO meta (key, value)
    SELECT 'last_document', max(search_no) FROM search_deleted HAVING count(*) > 0
    ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)";

/// Remembers the highest numbers of rows that a deletion may take, and counts it, for `files::last_state`.
const KEEP_LAST_NUMBERS: &str = "
    INSERT INTO meta (key, value)
    SELECT column1, column2 FROM (VALUES
        ('last_run', (SELECT coalesce(max(run_no), 0) FROM runs)),
        ('last_session', (SELECT coalesce(max(session_no), 0) FROM sessions)),
        ('last_event', (SELECT coalesce(max(event_no), 0) FROM run_events)),
        ('deletions', 1 + coalesce((SELECT value FROM meta WHERE key = 'deletions'), 0)))
    WHERE true
    ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)";

/// Deletes the kept events that the session of number `?1` shares with no other.
pub(in crate::store::sqlite) const DROP_KEPT: &str = "
    DELETE FROM kept_events
    WHERE (keep, run_no, seq) IN (
        SELECT i.keep, i.run_no, i.seq FROM session_entries AS i
        WHERE i.session_no = ?1 AND i.keep IS NOT NULL
          AND NOT EXISTS (
              SELECT 1 FROM session_entries AS o
              WHERE o.keep = i.keep AND o.run_no = i.run_no AND o.seq = i.seq
                AND o.keep IS NOT NULL AND o.session_no <> i.session_no))";

/// Deletes the specs that only runs of the session of number `?1` have.
pub(in crate::store::sqlite) const DROP_SPECS: &str = "
    DELETE FROM specs
    WHERE spec_no IN (SELECT spec_no FROM runs WHERE session_no = ?1 AND spec_no IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM runs AS o WHERE o.spec_no = specs.spec_no AND o.session_no <> ?1)";

/// Creates a session, or confirms one with the same content.
pub(in crate::store::sqlite) async fn create(
    db: &mut SqliteConnection,
    new: &NewSession,
) -> Result<Result<SessionRow, StoreError>, Error> {
    let sql = "INSERT INTO sessions (tenant, session_id, title, labels, created_at, updated_at, created_by)
               VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6) ON CONFLICT (tenant, session_id) DO NOTHING";
    keyed(sql, &new.tenant, &new.session)
        .bind(new.title.as_str())
        .bind(text(&new.labels))
        .bind(int(new.now.0))
        .bind(new.by.as_deref())
        .execute(&mut *db)
        .await?;
    let (_, row) = found(db, &new.tenant, &new.session).await?.ok_or(Error::RowNotFound)?;
    let Given { now, created_as } = given(db, &new.tenant, &new.session).await?;
    let (title, labels) = created_as.unwrap_or(now);
    let same =
        labels == new.labels && title == new.title && row.forked_from.is_none() && row.created_by == new.by;
    Ok(same.then_some(row).ok_or(StoreError::SessionExists))
}

/// The session of a user and a project that was touched last, or a new one.
pub(in crate::store::sqlite) async fn get_or_create(
    db: &mut SqliteConnection,
    new: &NewSession,
) -> Result<Result<SessionRow, StoreError>, Error> {
    let query = session_of_user_query::<SqliteDialect>(&new.tenant, &new.labels, new.by.as_deref());
    match prepared(query).fetch_optional(&mut *db).await? {
        Some(row) => Ok(Ok(rows::session(&row)?)),
        None => create(db, new).await,
    }
}

/// Changes a session's title and labels.
pub(in crate::store::sqlite) async fn update(
    db: &mut SqliteConnection,
    new: &NewUpdate,
) -> Result<Result<SessionRow, StoreError>, Error> {
    let Some((_, row)) = found(db, &new.tenant, &new.session).await? else {
        return Ok(Err(StoreError::NoSession));
    };
    let labels = match new.update.labels(&row.labels) {
        Ok(labels) => labels,
        Err(error) => return Ok(Err(error)),
    };
    let Given { now, .. } = given(db, &new.tenant, &new.session).await?;
    let title = new.update.title.as_ref().unwrap_or(&now.0);
    if (title, &labels) == (&now.0, &now.1) {
        return Ok(Ok(row));
    }
    keyed(UPDATE, &new.tenant, &new.session)
        .bind(text(&now))
        .bind(title)
        .bind(text(&labels))
        .execute(&mut *db)
        .await?;
    let (_, row) = found(db, &new.tenant, &new.session).await?.ok_or(Error::RowNotFound)?;
    Ok(Ok(row))
}

type TitleAndLabels = (String, BTreeMap<String, String>);

/// The fields that callers gave a session. A title that a model made is not among it.
struct Given {
    now: TitleAndLabels,
    /// The fields with which it was created, if they were changed since.
    created_as: Option<TitleAndLabels>,
}

async fn given(db: &mut SqliteConnection, tenant: &TenantId, session: &SessionId) -> Result<Given, Error> {
    let sql = "SELECT title, labels, created_as FROM sessions WHERE tenant = ?1 AND session_id = ?2";
    let row = keyed(sql, tenant, session).fetch_one(db).await?;
    Ok(Given {
        now: (row.try_get("title")?, rows::json(&row, "labels")?),
        created_as: rows::json_if_any(&row, "created_as")?,
    })
}

/// Writes a title if there is none, and a summary if it covers more than the one that is there. `false`: there is no such
/// session.
pub(in crate::store::sqlite) async fn set_notes(
    db: &mut SqliteConnection,
    new: &NewNotes,
) -> Result<bool, Error> {
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

/// Makes a session from another, or confirms the same fork.
pub(in crate::store::sqlite) async fn fork(
    db: &mut SqliteConnection,
    new: &NewFork,
) -> Result<Result<SessionRow, StoreError>, Error> {
    if let Some((_, row)) = found(db, &new.tenant, &new.session).await? {
        let same = row.created_by == new.by && is_this_fork(db, new).await?;
        return Ok(same.then_some(row).ok_or(StoreError::SessionExists));
    }
    let Some((source_no, source)) = found(db, &new.tenant, &new.source).await? else {
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
        .bind(new.by.as_deref())
        .bind(source.preview.as_str())
        .execute(&mut *db)
        .await?;
    let (no, row) = found(db, &new.tenant, &new.session).await?.ok_or(Error::RowNotFound)?;
    for sql in [SHARE_ENTRIES, SHARE_TODOS, SHARE_BLOBS] {
        sqlx::query(sql).bind(source_no).bind(no).bind(int(at.0)).execute(&mut *db).await?;
    }
    Ok(Ok(row))
}

/// True if the existing session was forked by the same request, or shares exactly as much as this one asks for.
async fn is_this_fork(db: &mut SqliteConnection, new: &NewFork) -> Result<bool, Error> {
    let sql = "SELECT forked_from IS ?3 AND ?4 IN (forked_asked, nullif(forked_at, 0)) IS TRUE AS same
               FROM sessions WHERE tenant = ?1 AND session_id = ?2";
    let query = keyed(sql, &new.tenant, &new.session).bind(new.source.as_str()).bind(int(new.at.0));
    query.fetch_one(db).await?.try_get("same")
}

/// Deletes a session that has neither a live run, other than the damaged one, nor a queue. Foreign keys delete everything
/// that belongs to it. If there is a search index, the numbers of the documents that it has to delete are kept for it.
pub(in crate::store::sqlite) async fn delete(
    db: &mut SqliteConnection,
    tenant: &TenantId,
    session: &SessionId,
    damaged: Option<&RunId>,
    indexed: bool,
) -> Result<Result<bool, StoreError>, Error> {
    let Some((no, row)) = found(db, tenant, session).await? else { return Ok(Ok(false)) };
    let live = row.live_run.filter(|run| Some(run) != damaged);
    if let Some(run) = live.or(first_queued(db, no).await?) {
        return Ok(Err(StoreError::SessionBusy { run }));
    }
    keep_what_is_shared(db, no).await?;
    prepared(keep_usage_query(no)).execute(&mut *db).await?;
    sqlx::query(KEEP_LAST_NUMBERS).execute(&mut *db).await?;
    if indexed {
        sqlx::query(DELETE_DOCUMENTS).bind(no).execute(&mut *db).await?;
        sqlx::query(KEEP_LAST_DOCUMENT).execute(&mut *db).await?;
    }
    for sql in [DROP_KEPT, DROP_SPECS, "DELETE FROM sessions WHERE session_no = ?1"] {
        sqlx::query(sql).bind(no).execute(&mut *db).await?;
    }
    Ok(Ok(true))
}

async fn first_queued(db: &mut SqliteConnection, no: i64) -> Result<Option<RunId>, Error> {
    let row = sqlx::query(FIRST_QUEUED).bind(no).fetch_optional(db).await?;
    row.map(|row| rows::run_id(&row, "run_id")).transpose()
}

async fn keep_what_is_shared(db: &mut SqliteConnection, no: i64) -> Result<(), Error> {
    let sql = "SELECT coalesce(max(keep), 0) + 1 AS keep FROM kept_events";
    let keep: i64 = sqlx::query(sql).fetch_one(&mut *db).await?.try_get("keep")?;
    for sql in [KEEP_EVENTS, REFER_TO_KEPT] {
        sqlx::query(sql).bind(no).bind(keep).execute(&mut *db).await?;
    }
    Ok(())
}

/// The number and the row of a session.
async fn found(
    db: &mut SqliteConnection,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Option<(i64, SessionRow)>, Error> {
    let query = prepared(session_query::<SqliteDialect>(tenant, session));
    let Some(row) = query.fetch_optional(db).await? else { return Ok(None) };
    Ok(Some((row.try_get("session_no")?, rows::session(&row)?)))
}

/// A query whose first two parameters are a session's key.
fn keyed<'q>(
    sql: &'static str,
    tenant: &'q TenantId,
    session: &'q SessionId,
) -> Query<'q, Sqlite, SqliteArguments> {
    sqlx::query(sql).bind(tenant.as_str()).bind(session.as_str())
}
