//! Queries for sessions and their entries.

use std::collections::BTreeMap;

use agentloop_core::id::{EntryNo, SessionId, TenantId};
use agentloop_core::time::Timestamp;
use agentloop_core::todo::TodoItem;
use sqlx::postgres::PgRow;
use sqlx::{Error, Postgres, QueryBuilder};

use super::{EXAMINED_MAX, after, all, filter, one, rows};
use crate::store::number::int;
use crate::store::page::{self, Cursor};
use crate::store::postgres::reader_pool::ReaderPool;
use crate::store::sql::entry::{StoredEntries, stored_entry_upto};
use crate::store::{
    IdleSession, PROJECT_LABEL, Page, PageRequest, SessionFilter, SessionRow, StoreError, StretchMax,
    TimeRange, USER_LABEL,
};

/// Entries within a number of bytes. The event of an entry is in a journal, or among the kept events if the journal was
/// deleted. PostgreSQL knows the size of an event without reading it. `upto` is the last entry that exists, at most one more
/// than the number of records admits.
const ENTRIES: &str = "
    WITH sizes AS (
        SELECT i.entry_no, coalesce(octet_length(e.payload), octet_length(k.payload), 0)::bigint AS size
        FROM session_entries AS i
        LEFT JOIN run_events AS e ON i.keep IS NULL AND e.run_no = i.run_no AND e.seq = i.seq
        LEFT JOIN kept_events AS k ON k.keep = i.keep AND k.run_no = i.run_no AND k.seq = i.seq
        WHERE i.session_no = (SELECT session_no FROM sessions WHERE tenant = $1 AND session_id = $2)
          AND i.entry_no > $3
        ORDER BY i.entry_no LIMIT $4 + 1),
    sums AS (SELECT entry_no, sum(size) OVER (ORDER BY entry_no) - size AS before FROM sizes)
    SELECT i.entry_no, coalesce(r.run_id, k.run_id) AS run_id, i.seq, coalesce(e.at, k.at) AS at,
           coalesce(e.status, k.status) AS status, coalesce(e.version, k.version) AS version,
           coalesce(e.payload, k.payload) AS payload, CASE WHEN i.keep IS NULL THEN e.checksum ELSE k.checksum END AS checksum,
           coalesce(r.model, k.model) AS model, (SELECT max(entry_no) FROM sizes) AS upto
    FROM session_entries AS i
    LEFT JOIN runs AS r ON i.keep IS NULL AND r.run_no = i.run_no
    LEFT JOIN run_events AS e ON i.keep IS NULL AND e.run_no = i.run_no AND e.seq = i.seq
    LEFT JOIN kept_events AS k ON k.keep = i.keep AND k.run_no = i.run_no AND k.seq = i.seq
    WHERE i.session_no = (SELECT session_no FROM sessions WHERE tenant = $1 AND session_id = $2)
      AND i.entry_no > $3 AND i.entry_no <= (SELECT max(entry_no) FROM sums WHERE before < $5)
    ORDER BY i.entry_no LIMIT $4";

/// Sessions of a tenant, with the ids of their live runs.
const SESSIONS: &str = "
    SELECT s.*, live.run_id AS live_run, last.status AS last_status, last.agent AS last_agent,
           last.model AS last_model, shown.preview AS shown_preview
    FROM sessions AS s
    LEFT JOIN runs AS live ON live.run_no = s.live_run_no
    LEFT JOIN run_rows AS last ON last.run_no = coalesce(s.live_run_no, (
        SELECT r.run_no FROM runs AS r WHERE r.session_no = s.session_no
        ORDER BY r.created_at DESC, r.run_no DESC LIMIT 1))
    CROSS JOIN LATERAL (
        SELECT CASE WHEN s.preview <> '' THEN s.preview ELSE coalesce((
            SELECT f.preview FROM (
                SELECT r.preview FROM runs AS r WHERE r.session_no = s.session_no ORDER BY r.created_at LIMIT 8) AS f
            WHERE f.preview <> '' LIMIT 1), '') END AS preview) AS shown
    WHERE s.tenant = ";

/// The row of a session, if there is one.
pub(in crate::store::postgres) async fn session(
    db: &ReaderPool,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Option<SessionRow>, StoreError> {
    one(db, session_query(tenant, session).build(), rows::session)
        .await
        .map_err(|error| rows::failure(format_args!("session {tenant}/{session}"), &error))
}

pub(in crate::store::postgres) fn session_query(
    tenant: &TenantId,
    session: &SessionId,
) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new(SESSIONS);
    query.push_bind(tenant.as_str().to_owned());
    query.push(" AND s.session_id = ").push_bind(session.as_str().to_owned());
    query
}

/// The session of a user and a project that was touched last, if there is one.
pub(in crate::store::postgres) async fn session_of_user(
    db: &ReaderPool,
    tenant: &TenantId,
    labels: &BTreeMap<String, String>,
    by: Option<&str>,
) -> Result<Option<SessionRow>, StoreError> {
    one(db, session_of_user_query(tenant, labels, by).build(), rows::session)
        .await
        .map_err(|error| rows::failure(format_args!("session of a user of {tenant}"), &error))
}

/// The rows of a user's sessions are few, and are sorted by hand: a run's commit must not have to write an index.
pub(in crate::store::postgres) fn session_of_user_query(
    tenant: &TenantId,
    labels: &BTreeMap<String, String>,
    by: Option<&str>,
) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new(SESSIONS);
    query.push_bind(tenant.as_str().to_owned());
    let user = labels.get(USER_LABEL).map_or("", String::as_str);
    filter::indexed_label(&mut query, "s.label_user", USER_LABEL, user);
    match labels.get(PROJECT_LABEL) {
        Some(project) => filter::indexed_label(&mut query, "s.label_project", PROJECT_LABEL, project),
        // A label that is empty is not one that is missing.
        None => drop(query.push(" AND s.label_project IS NULL")),
    }
    if let Some(by) = by {
        query.push(" AND s.created_by = ").push_bind(rows::clean(by).into_owned());
    }
    query.push(" ORDER BY s.updated_at DESC, s.session_id DESC LIMIT 1");
    query
}

const TODOS: &str = "
    SELECT items FROM session_todos
    WHERE session_no = (SELECT session_no FROM sessions WHERE tenant = $1 AND session_id = $2)
    ORDER BY entry_no DESC LIMIT 1";

/// The to-do list of a session; empty without one.
pub(in crate::store::postgres) async fn todos(
    db: &ReaderPool,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Vec<TodoItem>, StoreError> {
    let query = sqlx::query(TODOS).bind(tenant.as_str()).bind(session.as_str());
    let found = one(db, query, |row| rows::json(row, "items")).await;
    let found =
        found.map_err(|error| rows::failure(format_args!("to-do list of {tenant}/{session}"), &error))?;
    Ok(found.unwrap_or_default())
}

/// Each step goes to the next tenant by the index, past all sessions of this one.
const TENANTS: &str = "
    WITH RECURSIVE found (tenant) AS (
        SELECT min(tenant) FROM sessions
        UNION ALL
        SELECT (SELECT min(tenant) FROM sessions WHERE tenant > found.tenant) FROM found
        WHERE found.tenant IS NOT NULL)
    SELECT tenant FROM found WHERE tenant IS NOT NULL";

/// Every tenant that has a session.
pub(in crate::store::postgres) async fn tenants_with_sessions(
    db: &ReaderPool,
) -> Result<Vec<TenantId>, StoreError> {
    let found = all(db, sqlx::query(TENANTS), |row| rows::tenant_id(row, "tenant")).await;
    found.map_err(|error| rows::failure("tenants", &error))
}

const SESSION_COUNT: &str = "SELECT count(*) AS sessions FROM sessions WHERE tenant = $1";

const SESSION_COUNT_OF: &str =
    "SELECT count(*) AS sessions FROM sessions WHERE tenant = $1 AND created_by = $2";

/// The number of a tenant's sessions, or of those that a caller created.
pub(in crate::store::postgres) async fn session_count(
    db: &ReaderPool,
    tenant: &TenantId,
    by: Option<&str>,
) -> Result<u64, StoreError> {
    let query = match by {
        None => sqlx::query(SESSION_COUNT).bind(tenant.as_str()),
        Some(by) => sqlx::query(SESSION_COUNT_OF).bind(tenant.as_str()).bind(by),
    };
    let found = one(db, query, |row| rows::number(row, "sessions")).await;
    let found = found.map_err(|error| rows::failure(format_args!("sessions of {tenant}"), &error))?;
    Ok(found.unwrap_or(0))
}

/// Runs of earlier versions of the schema have no number: their events are added up.
const STORED_BYTES: &str = "
    SELECT (SELECT coalesce(sum(coalesce(t.bytes, (SELECT sum(octet_length(e.payload)) FROM run_events AS e
                                                   WHERE e.run_no = t.run_no))), 0)::bigint
            FROM runs AS r JOIN run_states AS t ON t.run_no = r.run_no WHERE r.tenant = $1)
         + (SELECT coalesce(sum(size_bytes), 0)::bigint FROM blobs WHERE tenant = $1) AS bytes";

const STORED_BYTES_OF: &str = "
    SELECT (SELECT coalesce(sum(coalesce(t.bytes, (SELECT sum(octet_length(e.payload)) FROM run_events AS e
                                                   WHERE e.run_no = t.run_no))), 0)::bigint
            FROM runs AS r JOIN run_states AS t ON t.run_no = r.run_no
            WHERE r.tenant = $1 AND r.created_by = $2)
         + (SELECT coalesce(sum(size_bytes), 0)::bigint FROM blobs WHERE tenant = $1 AND owner = $2) AS bytes";

/// Bytes of events and blobs of a tenant, or of one of its callers.
pub(in crate::store::postgres) async fn stored_bytes(
    db: &ReaderPool,
    tenant: &TenantId,
    by: Option<&str>,
) -> Result<u64, StoreError> {
    let query = match by {
        None => sqlx::query(STORED_BYTES).bind(tenant.as_str()),
        Some(by) => sqlx::query(STORED_BYTES_OF).bind(tenant.as_str()).bind(by),
    };
    let found = one(db, query, |row| rows::number(row, "bytes")).await;
    let found = found.map_err(|error| rows::failure(format_args!("bytes of {tenant}"), &error))?;
    Ok(found.unwrap_or(0))
}

const IDLE_SESSIONS: &str = "
    SELECT session_id, updated_at FROM sessions
    WHERE tenant = $1 AND updated_at < $2 AND (updated_at, session_id) > ($3, $4) AND live_run_no IS NULL
    ORDER BY updated_at, session_id LIMIT $5";

/// Sessions without a live run that were last used before a time, the oldest first.
pub(in crate::store::postgres) async fn idle_sessions(
    db: &ReaderPool,
    tenant: &TenantId,
    before: Timestamp,
    after: Option<IdleSession>,
    limit: u32,
) -> Result<Vec<IdleSession>, StoreError> {
    let (from, id) =
        after.map_or((-1, String::new()), |after| (int(after.updated_at.0), after.session.to_string()));
    let query = sqlx::query(IDLE_SESSIONS).bind(tenant.as_str()).bind(int(before.0));
    let query = query.bind(from).bind(id).bind(i64::from(limit));
    let idle = |row: &PgRow| {
        let (updated_at, session) = (rows::time(row, "updated_at")?, rows::session_id(row, "session_id")?);
        Ok(IdleSession { updated_at, session })
    };
    all(db, query, idle)
        .await
        .map_err(|error| rows::failure(format_args!("idle sessions of {tenant}"), &error))
}

/// A page of sessions.
pub(in crate::store::postgres) async fn sessions(
    db: &ReaderPool,
    tenant: &TenantId,
    filter: &SessionFilter,
    page: &PageRequest,
) -> Result<Page<SessionRow>, StoreError> {
    let begin = page::begin(page, |id| SessionId::parse(id))?;
    let size = page::size(page);
    let failure = |error: Error| rows::failure(format_args!("sessions of {tenant}"), &error);
    let floor = if filter.looks_at_rows() && !filter.is_of_user() {
        let mut query = sessions_floor_query(tenant, filter, begin.as_ref());
        one(db, query.build(), |row| rows::time(row, "updated_at")).await.map_err(failure)?
    } else {
        None
    };
    let mut query = sessions_query(tenant, filter, begin, floor, size);
    let found = all(db, query.build(), rows::session).await.map_err(failure)?;
    let cursor = |row: &SessionRow| Cursor { key: int(row.updated_at.0), id: row.session.to_string() };
    let mut page = page::cut_at_floor(found, size, floor, cursor);
    page.rows.retain(|row| filter.matches_text(row));
    Ok(page)
}

/// A query for the time of the last session that a page looks at. It reads an index alone, and finds nothing if the page
/// looks at all that are left.
pub(in crate::store::postgres) fn sessions_floor_query(
    tenant: &TenantId,
    filter: &SessionFilter,
    begin: Option<&Cursor>,
) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new("SELECT s.updated_at FROM sessions AS s WHERE s.tenant = ");
    query.push_bind(tenant.as_str().to_owned());
    created_by(&mut query, filter);
    filter::times(&mut query, "s.updated_at", &filter.updated);
    if let Some(begin) = begin {
        query.push(if begin.is_at_floor() { " AND s.updated_at < " } else { " AND s.updated_at <= " });
        query.push_bind(begin.key);
    }
    query.push(" ORDER BY s.updated_at DESC LIMIT 1 OFFSET ").push_bind(EXAMINED_MAX);
    query
}

/// Adds the condition that a caller created the session, for which there is an index.
fn created_by(query: &mut QueryBuilder<Postgres>, filter: &SessionFilter) {
    if let Some(by) = &filter.created_by {
        query.push(" AND s.created_by = ").push_bind(rows::clean(by).into_owned());
    }
}

/// A query for a page of sessions. Those before `floor` are not looked at.
pub(in crate::store::postgres) fn sessions_query(
    tenant: &TenantId,
    filter: &SessionFilter,
    begin: Option<Cursor>,
    floor: Option<Timestamp>,
    size: u32,
) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new(SESSIONS);
    query.push_bind(tenant.as_str().to_owned());
    let mut labels = filter.labels.clone();
    // The sessions of a user are few, and those of a project are bounded by the floor: they are found by the label and sorted
    // by hand. The sum keeps PostgreSQL from going through all sessions in their order instead.
    let is_by_label = [USER_LABEL, PROJECT_LABEL].iter().any(|key| labels.contains_key(*key));
    let (time, begins, order) = if is_by_label {
        ("s.updated_at", " AND (s.updated_at, s.session_id) < (", " ORDER BY s.updated_at + 0 DESC")
    } else {
        ("s.updated_at", " AND (s.updated_at, s.session_id) < (", " ORDER BY s.updated_at DESC")
    };
    for (key, column) in [(USER_LABEL, "s.label_user"), (PROJECT_LABEL, "s.label_project")] {
        if let Some(value) = labels.remove(key) {
            filter::indexed_label(&mut query, column, key, &value);
        }
    }
    created_by(&mut query, filter);
    filter::labels(&mut query, "s.labels", &labels);
    let statuses = filter.statuses.iter().map(|status| i64::from(status.code())).collect();
    filter::one_of(&mut query, "last.status", statuses);
    filter::one_of(&mut query, "last.agent", filter::texts(&filter.agents));
    filter::one_of(&mut query, "last.model", filter::texts(&filter.models));
    let from = filter.updated.from.max(floor);
    filter::times(&mut query, time, &TimeRange { from, ..filter.updated });
    if let Some(source) = &filter.forked_from {
        query.push(" AND s.forked_from = ").push_bind(source.as_str().to_owned());
    }
    let title = "CASE WHEN s.title <> '' THEN s.title ELSE s.made_title END";
    filter::text(&mut query, &["s.session_id", title, "shown.preview"], &filter.text);
    after(&mut query, begins, begin);
    query.push(order).push(", s.session_id DESC LIMIT ").push_bind(i64::from(size) + 1);
    query
}

/// Entries of a session after a number, within `max`. Each is read from the journal that holds it.
pub(in crate::store::postgres) async fn stored_entries(
    db: &ReaderPool,
    tenant: &TenantId,
    session: &SessionId,
    after: EntryNo,
    max: StretchMax,
) -> Result<StoredEntries, StoreError> {
    let query = sqlx::query(ENTRIES).bind(tenant.as_str()).bind(session.as_str()).bind(int(after.0));
    let query = query.bind(i64::from(max.records)).bind(int(max.bytes as u64));
    let found = all(db, query, stored_entry_upto)
        .await
        .map_err(|error| rows::failure(format_args!("entries of {tenant}/{session}"), &error))?;
    Ok(StoredEntries::new(found))
}
