//! Queries for sessions and their entries.

use std::collections::BTreeMap;

use agentloop_core::id::{EntryNo, SessionId, TenantId};
use agentloop_core::time::Timestamp;
use agentloop_core::todo::TodoItem;
use sqlx::Error;

use super::{EXAMINED_MAX, after, all, filter, one};
use crate::store::sql::column::{json, number, session_id, tenant_id, time};
use crate::store::sql::entry::{StoredEntries, stored_entry_upto};
use crate::store::sql::query::Query;
use crate::store::sql::reader::{Dialect, SqlReader};
use crate::store::sql::row;
use crate::store::support::number::int;
use crate::store::support::page::{self, Cursor};
use crate::store::{
    IdleSession, PROJECT_LABEL, Page, PageRequest, SessionFilter, SessionRow, StoreError, StretchMax,
    TimeRange, USER_LABEL,
};

/// The row of a session, if there is one.
pub(in crate::store) async fn session<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Option<SessionRow>, StoreError> {
    one(db, session_query::<R::Dialect>(tenant, session), row::session)
        .await
        .map_err(|error| R::failure(format_args!("session {tenant}/{session}"), &error))
}

pub(in crate::store) fn session_query<D: Dialect>(tenant: &TenantId, session: &SessionId) -> Query {
    let mut query = Query::new(D::SESSIONS);
    query.bind(tenant.as_str());
    query.push(" AND s.session_id = ").bind(session.as_str());
    query
}

/// The session of a user and a project that was touched last, if there is one.
pub(in crate::store) async fn session_of_user<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    labels: &BTreeMap<String, String>,
    by: Option<&str>,
) -> Result<Option<SessionRow>, StoreError> {
    one(db, session_of_user_query::<R::Dialect>(tenant, labels, by), row::session)
        .await
        .map_err(|error| R::failure(format_args!("session of a user of {tenant}"), &error))
}

/// The user's sessions are found by their index and sorted by hand: a run's commit must not have to write an index. They may be
/// many, so only the one that is wanted gets the columns of its runs. Without the sum, PostgreSQL would go through all sessions
/// of the tenant in the order of their updates to find that a user has none.
pub(in crate::store) fn session_of_user_query<D: Dialect>(
    tenant: &TenantId,
    labels: &BTreeMap<String, String>,
    by: Option<&str>,
) -> Query {
    let mut query = Query::new(D::SESSIONS);
    query.bind(tenant.as_str());
    query.push(" AND s.session_no = (SELECT s.session_no FROM sessions AS s WHERE s.tenant = ");
    query.bind(tenant.as_str());
    let label = |key: &str| labels.get(key).map(String::as_str);
    D::session_of(&mut query, label(USER_LABEL).unwrap_or_default(), label(PROJECT_LABEL));
    if let Some(by) = by {
        query.push(" AND s.created_by = ").bind(by);
    }
    query.push(&format!(" ORDER BY {} + 0 DESC, s.session_id DESC LIMIT 1)", D::TOUCHED_AT));
    query
}

pub(in crate::store) const TODOS: &str = "
    SELECT items FROM session_todos
    WHERE session_no = (SELECT session_no FROM sessions WHERE tenant = $1 AND session_id = $2)
    ORDER BY entry_no DESC LIMIT 1";

/// The to-do list of a session; empty without one.
pub(in crate::store) async fn todos<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Vec<TodoItem>, StoreError> {
    let query = Query::new(TODOS).with(tenant.as_str()).with(session.as_str());
    let found = one(db, query, |row| json(row, "items")).await;
    let found =
        found.map_err(|error| R::failure(format_args!("to-do list of {tenant}/{session}"), &error))?;
    Ok(found.unwrap_or_default())
}

/// Each step goes to the next tenant by the index, past all sessions of this one.
pub(in crate::store) const TENANTS: &str = "
    WITH RECURSIVE found (tenant) AS (
        SELECT min(tenant) FROM sessions
        UNION ALL
        SELECT (SELECT min(tenant) FROM sessions WHERE tenant > found.tenant) FROM found
        WHERE found.tenant IS NOT NULL)
    SELECT tenant FROM found WHERE tenant IS NOT NULL";

/// Every tenant that has a session.
pub(in crate::store) async fn tenants_with_sessions<R: SqlReader>(
    db: &R,
) -> Result<Vec<TenantId>, StoreError> {
    let found = all(db, Query::new(TENANTS), |row| tenant_id(row, "tenant")).await;
    found.map_err(|error| R::failure("tenants", &error))
}

pub(in crate::store) const SESSION_COUNT: &str =
    "SELECT count(*) AS sessions FROM sessions WHERE tenant = $1";

pub(in crate::store) const SESSION_COUNT_OF: &str =
    "SELECT count(*) AS sessions FROM sessions WHERE tenant = $1 AND created_by = $2";

/// The number of a tenant's sessions, or of those that a caller created.
pub(in crate::store) async fn session_count<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    by: Option<&str>,
) -> Result<u64, StoreError> {
    let query = match by {
        None => Query::new(SESSION_COUNT).with(tenant.as_str()),
        Some(by) => Query::new(SESSION_COUNT_OF).with(tenant.as_str()).with(by),
    };
    let found = one(db, query, |row| number(row, "sessions")).await;
    let found = found.map_err(|error| R::failure(format_args!("sessions of {tenant}"), &error))?;
    Ok(found.unwrap_or(0))
}

/// Bytes of events and blobs of a tenant, or of one of its callers.
pub(in crate::store) async fn stored_bytes<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    by: Option<&str>,
) -> Result<u64, StoreError> {
    let query = match by {
        None => Query::new(R::Dialect::STORED_BYTES).with(tenant.as_str()),
        Some(by) => Query::new(R::Dialect::STORED_BYTES_OF).with(tenant.as_str()).with(by),
    };
    let found = one(db, query, |row| number(row, "bytes")).await;
    let found = found.map_err(|error| R::failure(format_args!("bytes of {tenant}"), &error))?;
    Ok(found.unwrap_or(0))
}

pub(in crate::store) const IDLE_SESSIONS: &str = "
    SELECT session_id, updated_at FROM sessions
    WHERE tenant = $1 AND updated_at < $2 AND (updated_at, session_id) > ($3, $4) AND live_run_no IS NULL
    ORDER BY updated_at, session_id LIMIT $5";

/// Sessions without a live run that were last used before a time, the oldest first.
pub(in crate::store) async fn idle_sessions<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    before: Timestamp,
    after: Option<IdleSession>,
    limit: u32,
) -> Result<Vec<IdleSession>, StoreError> {
    let (from, id) =
        after.map_or((-1, String::new()), |after| (int(after.updated_at.0), after.session.to_string()));
    let query = Query::new(IDLE_SESSIONS).with(tenant.as_str()).with(int(before.0));
    let query = query.with(from).with(id).with(limit);
    let idle = |row: &R::Row| {
        let (updated_at, session) = (time(row, "updated_at")?, session_id(row, "session_id")?);
        Ok(IdleSession { updated_at, session })
    };
    all(db, query, idle).await.map_err(|error| R::failure(format_args!("idle sessions of {tenant}"), &error))
}

/// A page of sessions, in the order of the times that the index has.
pub(in crate::store) async fn sessions<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    filter: &SessionFilter,
    page: &PageRequest,
) -> Result<Page<SessionRow>, StoreError> {
    let begin = page::begin(page, |id| SessionId::parse(id))?;
    let size = page::size(page);
    let failure = |error: Error| R::failure(format_args!("sessions of {tenant}"), &error);
    let floor = if filter.needs_rows() && !filter.is_of_user() {
        let query = sessions_floor_query(tenant, filter, begin.as_ref());
        one(db, query, |row| time(row, "updated_at")).await.map_err(failure)?
    } else {
        None
    };
    let query = sessions_query::<R::Dialect>(tenant, filter, begin, floor, size);
    let listed = |row: &R::Row| Ok((time(row, "updated_at")?, row::session(row)?));
    let found = all(db, query, listed).await.map_err(failure)?;
    let cursor = |(at, row): &(Timestamp, SessionRow)| Cursor { key: int(at.0), id: row.session.to_string() };
    let Page { rows, next } = page::cut_at_floor(found, size, floor, cursor);
    let rows = rows.into_iter().map(|(_, row)| row).filter(|row| filter.matches_text(row)).collect();
    Ok(Page { rows, next })
}

/// A query for the time of the last session that a page looks at. It reads an index alone, and finds nothing if the page
/// looks at all that are left.
pub(in crate::store) fn sessions_floor_query(
    tenant: &TenantId,
    filter: &SessionFilter,
    begin: Option<&Cursor>,
) -> Query {
    let mut query = Query::new("SELECT s.updated_at FROM sessions AS s WHERE s.tenant = ");
    query.bind(tenant.as_str());
    created_by(&mut query, filter);
    filter::times(&mut query, "s.updated_at", &filter.updated);
    if let Some(begin) = begin {
        query.push(if begin.is_at_floor() { " AND s.updated_at < " } else { " AND s.updated_at <= " });
        query.bind(begin.key);
    }
    query.push(" ORDER BY s.updated_at DESC LIMIT 1 OFFSET ").bind(EXAMINED_MAX);
    query
}

/// Adds the condition that a caller created the session, for which there is an index.
fn created_by(query: &mut Query, filter: &SessionFilter) {
    if let Some(by) = &filter.created_by {
        query.push(" AND s.created_by = ").bind(by.as_str());
    }
}

/// A query for a page of sessions. Those before `floor` are not looked at.
pub(in crate::store) fn sessions_query<D: Dialect>(
    tenant: &TenantId,
    filter: &SessionFilter,
    begin: Option<Cursor>,
    floor: Option<Timestamp>,
    size: u32,
) -> Query {
    let mut query = Query::new(D::SESSIONS);
    query.bind(tenant.as_str());
    let mut labels = filter.labels.clone();
    // The sessions of a user are few, and those of a project are bounded by the floor: they are found by the label and sorted
    // by hand. The sum keeps the database from going through all sessions in their order instead.
    let is_by_label = [USER_LABEL, PROJECT_LABEL].iter().any(|key| labels.contains_key(*key));
    let (time, begins, order) = if is_by_label {
        ("s.updated_at + 0", " AND (s.updated_at + 0, s.session_id) < (", " ORDER BY s.updated_at + 0 DESC")
    } else {
        ("s.updated_at", " AND (s.updated_at, s.session_id) < (", " ORDER BY s.updated_at DESC")
    };
    for key in [USER_LABEL, PROJECT_LABEL] {
        if let Some(value) = labels.remove(key) {
            D::session_label(&mut query, key, &value);
        }
    }
    created_by(&mut query, filter);
    D::labels(&mut query, "s.labels", &labels);
    let statuses = filter.statuses.iter().map(|status| i64::from(status.code()));
    filter::one_of(&mut query, "last.status", statuses);
    filter::one_of(&mut query, "last.agent", filter.agents.iter().map(String::as_str));
    filter::one_of(&mut query, "last.model", filter.models.iter().map(String::as_str));
    let from = filter.updated.from.max(floor);
    filter::times(&mut query, time, &TimeRange { from, ..filter.updated });
    if let Some(source) = &filter.forked_from {
        query.push(" AND s.forked_from = ").bind(source.as_str());
    }
    let title = "CASE WHEN s.title <> '' THEN s.title ELSE s.made_title END";
    filter::text(&mut query, D::LIKE, &["s.session_id", title, D::SHOWN_PREVIEW], &filter.text);
    after(&mut query, begins, begin);
    query.push(order).push(", s.session_id DESC LIMIT ").bind(size + 1);
    query
}

/// Entries of a session after a number, within `max`. Each is read from the journal that holds it.
pub(in crate::store) async fn stored_entries<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    session: &SessionId,
    after: EntryNo,
    max: StretchMax,
) -> Result<StoredEntries, StoreError> {
    let query = Query::new(R::Dialect::ENTRIES).with(tenant.as_str()).with(session.as_str());
    let query = query.with(int(after.0)).with(max.records).with(int(max.bytes as u64));
    let found = all(db, query, stored_entry_upto)
        .await
        .map_err(|error| R::failure(format_args!("entries of {tenant}/{session}"), &error))?;
    Ok(StoredEntries::new(found))
}
