//! Creating, changing, forking and deleting sessions.
//!
//! **Invariant:** an event is stored once. A fork's entries refer to the journals of its source. When the source is
//! deleted, the events that forks refer to move to `kept_events`. They go with the last of those forks.
//!
//! A fork and its source may be of different replicas, so there a fork and a deletion lock what they look at. The statements after
//! the lock see what the one before has left. A server alone needs none of these locks.
//!
//! - A deletion locks the row of its session, and a fork those of all sessions whose journals its entries refer to. So a
//!   deletion sees the forks that came before it, and a fork does not see a session that is being deleted.
//! - Deletions of sessions that share events lock what they share: the last of them finds that it is the last.

use std::collections::BTreeMap;

use agentloop_core::cluster::shard::shard_of;
use agentloop_core::id::{EntryNo, RunId, SessionId, TenantId};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{Error, PgConnection, Postgres, Row as _};

use crate::store::codec::text;
use crate::store::number::int;
use crate::store::postgres::owner::Hold;
use crate::store::postgres::read::{PostgresDialect, keep_usage, prepared};
use crate::store::postgres::rows;
use crate::store::postgres::write::commit::found_by;
use crate::store::sql::read::{session_of_user_query, session_query};
use crate::store::write::{NewFork, NewNotes, NewSession, NewUpdate};
use crate::store::{SessionRow, StoreError};

const INSERT: &str = "
    INSERT INTO sessions (tenant, session_id, session_no, shard, title, labels, label_user, label_project, created_at,
                          updated_at, created_by)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10)
    ON CONFLICT (tenant, session_id) DO NOTHING";

const SET_NOTES: &str = "
    UPDATE sessions
    SET made_title = CASE WHEN title = '' AND made_title = '' THEN coalesce($3, '') ELSE made_title END,
        summary = CASE WHEN $5 > summary_upto THEN $4 ELSE summary END,
        summary_upto = greatest($5, summary_upto)
    WHERE tenant = $1 AND session_id = $2";

/// Keeps what the session was created with, for a repetition of its creation.
const UPDATE: &str = "
    UPDATE sessions
    SET created_as = coalesce(created_as, $3), title = $4, labels = $5, label_user = $6, label_project = $7
    WHERE tenant = $1 AND session_id = $2";

const INSERT_FORK: &str = "
    INSERT INTO sessions (session_no, shard, tenant, session_id, title, made_title, labels, label_user, label_project,
                          created_at, updated_at, last_entry, forked_from, forked_at, forked_asked, summary,
                          summary_upto, created_by, preview)
    SELECT $9, $10, tenant, $3, title, made_title, labels, label_user, label_project, $4, $4, $5, session_id, $5, $6,
           CASE WHEN summary_upto <= $5 THEN summary ELSE '' END,
           CASE WHEN summary_upto <= $5 THEN summary_upto ELSE 0 END, $7, $8
    FROM sessions WHERE tenant = $1 AND session_id = $2";

/// Shares entries of the session of number `$1`, up to entry `$3`, with the session of number `$2`.
const SHARE_ENTRIES: &str = "
    INSERT INTO session_entries (session_no, entry_no, run_no, seq, owner, keep, search_no)
    SELECT $2, entry_no, run_no, seq, CASE WHEN keep IS NULL THEN coalesce(owner, session_no) END, keep, search_no
    FROM session_entries WHERE session_no = $1 AND entry_no <= $3";

/// Gives the session of number `$2` the to-do lists of the entries that it shares with the session of number `$1`.
const SHARE_TODOS: &str = "
    INSERT INTO session_todos (session_no, entry_no, items)
    SELECT $2, entry_no, items FROM session_todos WHERE session_no = $1 AND entry_no <= $3";

/// Has the session of number `$2` refer to the blobs that the entries name which it shares with that of number `$1`.
const SHARE_BLOBS: &str = "
    INSERT INTO session_blobs (session_no, entry_no, digest)
    SELECT $2, entry_no, digest FROM session_blobs WHERE session_no = $1 AND entry_no <= $3";

const FIRST_QUEUED: &str = "
    SELECT r.run_id FROM run_states AS t JOIN runs AS r ON r.run_no = t.run_no
    WHERE t.session_no = $1 AND t.queue_no IS NOT NULL
    ORDER BY t.queue_no LIMIT 1";

/// Copies the events that forks share with the session of number `$1`, by which they are kept. Two forks may share one.
const KEEP_EVENTS: &str = "
    INSERT INTO kept_events (keep, run_no, seq, run_id, at, status, version, payload, checksum, model)
    SELECT $1, e.run_no, e.seq, r.run_id, e.at, e.status, e.version, e.payload, e.checksum, r.model
    FROM session_entries AS i
    JOIN runs AS r ON r.run_no = i.run_no
    JOIN run_events AS e ON e.run_no = i.run_no AND e.seq = i.seq
    WHERE i.owner = $1
    ON CONFLICT (keep, run_no, seq) DO NOTHING";

const REFER_TO_KEPT: &str = "UPDATE session_entries SET owner = NULL, keep = $1 WHERE owner = $1";

/// Documents of entries that the session of number `$1` shares with no other.
const OWN_DOCUMENTS: &str = "
    SELECT i.search_no FROM session_entries AS i
    WHERE i.session_no = $1 AND i.search_no IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM session_entries AS o
                      WHERE o.search_no = i.search_no AND o.session_no <> i.session_no)";

/// Deletes the kept events that the session of number `$1` shares with no other.
const DROP_KEPT: &str = "
    DELETE FROM kept_events AS k
    USING session_entries AS i
    WHERE i.session_no = $1 AND i.keep = k.keep AND i.run_no = k.run_no AND i.seq = k.seq
      AND NOT EXISTS (
          SELECT 1 FROM session_entries AS o
          WHERE o.keep = i.keep AND o.run_no = i.run_no AND o.seq = i.seq AND o.session_no <> i.session_no)";

/// Locks a session against its deletion. Its owner goes on writing to it.
const LOCK_SOURCE: &str =
    "SELECT session_no FROM sessions WHERE tenant = $1 AND session_id = $2 FOR KEY SHARE";

/// Locks the other sessions whose journals have events of the session of number `$1`. If one of them has just been deleted,
/// these events are kept ones by now.
const LOCK_LENDERS: &str = "
    SELECT session_no FROM sessions
    WHERE session_no IN (SELECT owner FROM session_entries WHERE session_no = $1 AND owner IS NOT NULL)
    ORDER BY session_no FOR KEY SHARE";

/// Waits for the forks of a session that are under way, and keeps later ones from seeing it.
const LOCK_DELETED: &str = "SELECT 1 FROM sessions WHERE tenant = $1 AND session_id = $2 FOR UPDATE";

/// Locks what the session of number `$1` shares with others. Each set of events that are shared has the number of the session
/// that they come from, whether that is deleted or not, and so has each set of documents.
const LOCK_SHARED: &str = "
    WITH shared AS MATERIALIZED (
        SELECT coalesce(owner, keep) AS no FROM session_entries
        WHERE session_no = $1 AND (owner IS NOT NULL OR keep IS NOT NULL)
        UNION
        SELECT $1 WHERE EXISTS (SELECT 1 FROM session_entries WHERE owner = $1)
        ORDER BY no)
    SELECT pg_advisory_xact_lock(hashtextextended('agentloop shared ' || no || ' ' || current_schema(), 0)) FROM shared";

/// Locks the sessions of a user and a project, as far as they are looked for to make one where there is none.
const LOCK_USER: &str = "
    SELECT pg_advisory_xact_lock(hashtextextended(
        concat_ws(chr(1), 'agentloop session', $1::text, $2::text, $3::text, current_schema()), 0))";

/// Deletes the specs that only runs of the session of number `$1` have.
const DROP_SPECS: &str = "
    DELETE FROM specs AS p
    WHERE p.digest IN (SELECT spec_digest FROM runs WHERE session_no = $1 AND spec_digest IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM runs AS o WHERE o.spec_digest = p.digest AND o.session_no <> $1)";

/// The specs of the session of number `$1`.
const SPECS: &str =
    "SELECT DISTINCT spec_digest FROM runs WHERE session_no = $1 AND spec_digest IS NOT NULL ORDER BY 1";

/// Notes specs that may be unused from now on.
const NOTE_SPECS: &str =
    "INSERT INTO unused_specs (digest) SELECT * FROM unnest($1::text[]) ON CONFLICT (digest) DO NOTHING";

/// Everything that belongs to the session of number `$1`, the session last.
const DELETE: [&str; 11] = [
    "DELETE FROM run_events WHERE run_no IN (SELECT run_no FROM runs WHERE session_no = $1)",
    "DELETE FROM steers WHERE run_no IN (SELECT run_no FROM runs WHERE session_no = $1)",
    "DELETE FROM human_requests WHERE run_no IN (SELECT run_no FROM runs WHERE session_no = $1)",
    "DELETE FROM jobs WHERE run_no IN (SELECT run_no FROM runs WHERE session_no = $1)",
    "DELETE FROM run_states WHERE run_no IN (SELECT run_no FROM runs WHERE session_no = $1)",
    "DELETE FROM runs WHERE session_no = $1",
    "DELETE FROM session_entries WHERE session_no = $1",
    "DELETE FROM session_todos WHERE session_no = $1",
    "DELETE FROM session_blobs WHERE session_no = $1",
    "DELETE FROM remembered_rules AS r USING sessions AS s
     WHERE s.session_no = $1 AND r.tenant = s.tenant AND r.session_id = s.session_id",
    "DELETE FROM sessions WHERE session_no = $1",
];

/// Creates a session of this number, or confirms one with the same content.
pub(in crate::store::postgres) async fn create(
    db: &mut PgConnection,
    no: i64,
    new: &NewSession,
) -> Result<Result<SessionRow, StoreError>, Error> {
    let [user, project] = found_by(&new.labels);
    keyed(INSERT, &new.tenant, &new.session)
        .bind(no)
        .bind(i64::from(shard_of(&new.tenant, &new.session).0))
        .bind(new.title.as_str())
        .bind(text(&new.labels))
        .bind(user)
        .bind(project)
        .bind(int(new.now.0))
        .bind(new.by.as_deref())
        .execute(&mut *db)
        .await?;
    let (_, row) = found(db, &new.tenant, &new.session).await?.ok_or(Error::RowNotFound)?;
    let Given { now, created_as } = given(db, &new.tenant, &new.session).await?;
    let (title, labels) = created_as.unwrap_or(now);
    // A copy of an SQLite database has the title as it was given there.
    let same = labels == new.labels
        && rows::clean(&title) == new.title
        && row.forked_from.is_none()
        && row.created_by == new.by;
    Ok(same.then_some(row).ok_or(StoreError::SessionExists))
}

/// The session of a user and a project that was touched last, or a new one of this number.
pub(in crate::store::postgres) async fn get_or_create(
    db: &mut PgConnection,
    hold: Hold,
    no: i64,
    new: &NewSession,
) -> Result<Result<SessionRow, StoreError>, Error> {
    if hold == Hold::Lease {
        // Another replica may be about to make one.
        let [user, project] = found_by(&new.labels).map(Option::unwrap_or_default);
        sqlx::query(LOCK_USER).bind(new.tenant.as_str()).bind(user).bind(project).execute(&mut *db).await?;
    }
    let query = session_of_user_query::<PostgresDialect>(&new.tenant, &new.labels, new.by.as_deref());
    match prepared(query).fetch_optional(&mut *db).await? {
        Some(row) => Ok(Ok(rows::session(&row)?)),
        None => create(db, no, new).await,
    }
}

/// Changes a session's title and labels.
pub(in crate::store::postgres) async fn update(
    db: &mut PgConnection,
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
    let [user, project] = found_by(&labels);
    keyed(UPDATE, &new.tenant, &new.session)
        .bind(text(&now))
        .bind(title)
        .bind(text(&labels))
        .bind(user)
        .bind(project)
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

async fn given(db: &mut PgConnection, tenant: &TenantId, session: &SessionId) -> Result<Given, Error> {
    let sql = "SELECT title, labels, created_as FROM sessions WHERE tenant = $1 AND session_id = $2";
    let row = keyed(sql, tenant, session).fetch_one(db).await?;
    Ok(Given {
        now: (row.try_get("title")?, rows::json(&row, "labels")?),
        created_as: rows::json_if_any(&row, "created_as")?,
    })
}

/// Writes a title if there is none, and a summary if it covers more than the one that is there. `false`: there is no such
/// session.
pub(in crate::store::postgres) async fn set_notes(
    db: &mut PgConnection,
    new: &NewNotes,
) -> Result<bool, Error> {
    let (summary, upto) = match &new.notes.summary {
        Some((summary, upto)) => (summary.as_str(), *upto),
        None => ("", EntryNo(0)),
    };
    let query = keyed(SET_NOTES, &new.tenant, &new.session)
        .bind(new.notes.title.as_deref().map(rows::clean))
        .bind(rows::clean(summary))
        .bind(int(upto.0));
    Ok(query.execute(db).await?.rows_affected() > 0)
}

/// Makes a session of this number from another, or confirms the same fork.
pub(in crate::store::postgres) async fn fork(
    db: &mut PgConnection,
    hold: Hold,
    no: i64,
    new: &NewFork,
) -> Result<Result<SessionRow, StoreError>, Error> {
    if let Some((_, row)) = found(db, &new.tenant, &new.session).await? {
        let same = row.created_by == new.by && is_this_fork(db, new).await?;
        return Ok(same.then_some(row).ok_or(StoreError::SessionExists));
    }
    if hold == Hold::Lease
        && let Some(locked) = keyed(LOCK_SOURCE, &new.tenant, &new.source).fetch_optional(&mut *db).await?
    {
        let no: i64 = locked.try_get("session_no")?;
        sqlx::query(LOCK_LENDERS).bind(no).execute(&mut *db).await?;
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
        .bind(no)
        .bind(i64::from(shard_of(&new.tenant, &new.session).0))
        .execute(&mut *db)
        .await?;
    let (no, row) = found(db, &new.tenant, &new.session).await?.ok_or(Error::RowNotFound)?;
    for sql in [SHARE_ENTRIES, SHARE_TODOS, SHARE_BLOBS] {
        sqlx::query(sql).bind(source_no).bind(no).bind(int(at.0)).execute(&mut *db).await?;
    }
    Ok(Ok(row))
}

/// True if the existing session was forked by the same request, or shares exactly as much as this one asks for.
async fn is_this_fork(db: &mut PgConnection, new: &NewFork) -> Result<bool, Error> {
    let sql = "SELECT forked_from IS NOT DISTINCT FROM $3
                      AND ($4 = forked_asked OR $4 = nullif(forked_at, 0)) IS TRUE AS same
               FROM sessions WHERE tenant = $1 AND session_id = $2";
    let query = keyed(sql, &new.tenant, &new.session).bind(new.source.as_str()).bind(int(new.at.0));
    query.fetch_one(db).await?.try_get("same")
}

/// Deletes a session that has neither a live run, other than the damaged one, nor a queue, with everything that belongs to it.
pub(in crate::store::postgres) async fn delete(
    db: &mut PgConnection,
    hold: Hold,
    tenant: &TenantId,
    session: &SessionId,
    damaged: Option<&RunId>,
) -> Result<Result<bool, StoreError>, Error> {
    if hold == Hold::Lease {
        keyed(LOCK_DELETED, tenant, session).execute(&mut *db).await?;
    }
    let Some((no, row)) = found(db, tenant, session).await? else { return Ok(Ok(false)) };
    let live = row.live_run.filter(|run| Some(run) != damaged);
    if let Some(run) = live.or(first_queued(db, no).await?) {
        return Ok(Err(StoreError::SessionBusy { run }));
    }
    if hold == Hold::Lease {
        sqlx::query(LOCK_SHARED).bind(no).execute(&mut *db).await?;
    }
    for sql in [KEEP_EVENTS, REFER_TO_KEPT] {
        sqlx::query(sql).bind(no).execute(&mut *db).await?;
    }
    keep_usage(db, no).await?;
    let documents = sqlx::query(OWN_DOCUMENTS).bind(no).fetch_all(&mut *db).await?;
    let documents = documents.iter().map(|row| row.try_get("search_no")).collect::<Result<Vec<i64>, _>>()?;
    let unused_specs = match hold {
        Hold::Lock => {
            sqlx::query(DROP_SPECS).bind(no).execute(&mut *db).await?;
            Vec::new()
        }
        Hold::Lease => {
            let specs = sqlx::query(SPECS).bind(no).fetch_all(&mut *db).await?;
            specs.iter().map(|row| row.try_get("spec_digest")).collect::<Result<Vec<String>, _>>()?
        }
    };
    for sql in [DROP_KEPT].into_iter().chain(DELETE) {
        sqlx::query(sql).bind(no).execute(&mut *db).await?;
    }
    // After the entries: whoever adds a document locks its entry first.
    let sql = "DELETE FROM search_documents WHERE search_no = ANY ($1)";
    sqlx::query(sql).bind(documents).execute(&mut *db).await?;
    if !unused_specs.is_empty() {
        // Last: another replica that notes one of them waits until this transaction ends.
        sqlx::query(NOTE_SPECS).bind(unused_specs).execute(&mut *db).await?;
    }
    Ok(Ok(true))
}

async fn first_queued(db: &mut PgConnection, no: i64) -> Result<Option<RunId>, Error> {
    let row = sqlx::query(FIRST_QUEUED).bind(no).fetch_optional(db).await?;
    row.map(|row| rows::run_id(&row, "run_id")).transpose()
}

/// The number and the row of a session.
async fn found(
    db: &mut PgConnection,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Option<(i64, SessionRow)>, Error> {
    let query = prepared(session_query::<PostgresDialect>(tenant, session));
    let Some(row) = query.fetch_optional(db).await? else { return Ok(None) };
    Ok(Some((row.try_get("session_no")?, rows::session(&row)?)))
}

/// A query whose first two parameters are a session's key.
fn keyed<'q>(
    sql: &'static str,
    tenant: &'q TenantId,
    session: &'q SessionId,
) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(sql).bind(tenant.as_str()).bind(session.as_str())
}
