//! Queries for runs and their journals.

use agentloop_core::id::{RunId, RunKey, Seq, SessionId, TenantId};
use agentloop_core::run::event::Record;
use agentloop_core::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Error, Postgres, QueryBuilder, Row as _};

use super::{EXAMINED_MAX, after, all, filter, one, rows};
use crate::store::codec;
use crate::store::number::int;
use crate::store::page::{self, Cursor};
use crate::store::postgres::reader_pool::ReaderPool;
use crate::store::postgres::scope::Scope;
use crate::store::sql::row::whole_journal;
use crate::store::{
    Page, PageRequest, RunFilter, RunRow, SessionRuns, StoreError, Stretch, StretchMax, TimeRange,
};

const UNFINISHED: &str = "
    SELECT r.tenant, r.run_id FROM run_states AS t
    JOIN runs AS r ON r.run_no = t.run_no
    WHERE t.goes_on AND ($1::bigint[] IS NULL OR t.shard = ANY ($1))
    ORDER BY t.run_no";

const DUE: &str = "
    SELECT r.tenant, r.run_id, t.wake_at FROM run_states AS t
    JOIN runs AS r ON r.run_no = t.run_no
    WHERE t.wake_at IS NOT NULL AND ($2::bigint[] IS NULL OR t.shard = ANY ($2))
    ORDER BY t.wake_at LIMIT $1";

/// Runs of a tenant, with the ids of their sessions.
const RUNS: &str = "
    SELECT r.*, s.session_id FROM run_rows AS r
    JOIN sessions AS s ON s.session_no = r.session_no
    WHERE r.tenant = ";

/// The row of a run, if there is one.
pub(in crate::store::postgres) async fn run(
    db: &ReaderPool,
    tenant: &TenantId,
    run: &RunId,
) -> Result<Option<RunRow>, StoreError> {
    let mut query = QueryBuilder::new(RUNS);
    query.push_bind(tenant.as_str().to_owned()).push(" AND r.run_id = ").push_bind(run.as_str().to_owned());
    one(db, query.build(), rows::run)
        .await
        .map_err(|error| rows::failure(format_args!("run {tenant}/{run}"), &error))
}

const RECORDS: &str = "
    SELECT e.seq, e.at, e.status, e.version, e.payload, e.checksum, p.digest AS spec_digest, p.spec
    FROM runs AS r
    JOIN run_events AS e ON e.run_no = r.run_no
    LEFT JOIN specs AS p ON e.seq = 1 AND p.digest = r.spec_digest
    WHERE r.tenant = $1 AND r.run_id = $2 AND e.seq > $3
    ORDER BY e.seq LIMIT $4";

/// Events of a run after a sequence number, at most `limit`.
pub(in crate::store::postgres) async fn records(
    db: &ReaderPool,
    tenant: &TenantId,
    run: &RunId,
    after: Seq,
    limit: u32,
) -> Result<Vec<Record>, StoreError> {
    let query = sqlx::query(RECORDS)
        .bind(tenant.as_str())
        .bind(run.as_str())
        .bind(int(after.0))
        .bind(i64::from(limit));
    all(db, query, rows::whole_event)
        .await
        .map_err(|error| rows::failure(format_args!("journal {tenant}/{run}"), &error))?
        .iter()
        .map(|event| codec::decode(tenant, run, event))
        .collect()
}

/// Events within a number of bytes. PostgreSQL knows the size of an event without reading it. `upto` is the last event that
/// the number of records admits.
const STRETCH: &str = "
    WITH sizes AS (
        SELECT e.seq, (octet_length(e.payload) + coalesce(octet_length(p.spec), 0))::bigint AS size
        FROM runs AS r
        JOIN run_events AS e ON e.run_no = r.run_no
        LEFT JOIN specs AS p ON e.seq = 1 AND p.digest = r.spec_digest
        WHERE r.tenant = $1 AND r.run_id = $2 AND e.seq > $3
        ORDER BY e.seq LIMIT $4),
    sums AS (SELECT seq, sum(size) OVER (ORDER BY seq) - size AS before FROM sizes)
    SELECT e.seq, e.at, e.status, e.version, e.payload, e.checksum, p.digest AS spec_digest, p.spec,
           (SELECT max(seq) FROM sizes) AS upto
    FROM runs AS r
    JOIN run_events AS e ON e.run_no = r.run_no
    LEFT JOIN specs AS p ON e.seq = 1 AND p.digest = r.spec_digest
    WHERE r.tenant = $1 AND r.run_id = $2 AND e.seq > $3
      AND e.seq <= (SELECT max(seq) FROM sums WHERE before < $5)
    ORDER BY e.seq";

/// Events of a run after a sequence number, within `max`.
pub(in crate::store::postgres) async fn stretch(
    db: &ReaderPool,
    tenant: &TenantId,
    run: &RunId,
    after: Seq,
    max: StretchMax,
) -> Result<Stretch, StoreError> {
    let query = sqlx::query(STRETCH).bind(tenant.as_str()).bind(run.as_str()).bind(int(after.0));
    let query = query.bind(i64::from(max.records)).bind(int(max.bytes as u64));
    let found = all(db, query, |row| Ok((rows::whole_event(row)?, rows::number(row, "upto")?)))
        .await
        .map_err(|error| rows::failure(format_args!("journal {tenant}/{run}"), &error))?;
    let upto = found.last().map(|(_, upto)| *upto);
    let records = found.iter().map(|(event, _)| codec::decode(tenant, run, event));
    let records = records.collect::<Result<Vec<_>, _>>()?;
    let cut = records.last().map(|record| record.seq.0) < upto;
    Ok(Stretch { more: cut || records.len() == max.records as usize, records })
}

/// Events of a run without a checksum, which an older server wrote.
const UNVERIFIED: &str = "
    SELECT count(*) AS events
    FROM runs AS r
    JOIN run_events AS e ON e.run_no = r.run_no
    WHERE r.tenant = $1 AND r.run_id = $2 AND e.checksum IS NULL";

/// The number of a run's events that cannot be verified.
pub(in crate::store::postgres) async fn unverified(
    db: &ReaderPool,
    tenant: &TenantId,
    run: &RunId,
) -> Result<u64, StoreError> {
    let query = sqlx::query(UNVERIFIED).bind(tenant.as_str()).bind(run.as_str());
    one(db, query, |row| rows::number(row, "events"))
        .await
        .map(Option::unwrap_or_default)
        .map_err(|error| rows::failure(format_args!("journal {tenant}/{run}"), &error))
}

/// The journal of a run up to the last event that its row names.
///
/// # Errors
/// [`StoreError::Corrupt`] if it has gaps or ends early.
pub(in crate::store::postgres) async fn journal(
    db: &ReaderPool,
    tenant: &TenantId,
    row: &RunRow,
) -> Result<Vec<Record>, StoreError> {
    let found = records(db, tenant, &row.run, Seq(0), u32::MAX).await?;
    whole_journal(tenant, row, found)
}

/// A page of runs.
pub(in crate::store::postgres) async fn runs(
    db: &ReaderPool,
    tenant: &TenantId,
    filter: &RunFilter,
    page: &PageRequest,
) -> Result<Page<RunRow>, StoreError> {
    let begin = page::begin(page, |id| RunId::parse(id))?;
    let size = page::size(page);
    let failure = |error: Error| rows::failure(format_args!("runs of {tenant}"), &error);
    let floor = match filter.looks_at_rows() {
        true => runs_floor(db, tenant, filter, begin.as_ref()).await.map_err(failure)?,
        false => None,
    };
    let mut query = runs_query(tenant, filter, begin, floor, size);
    let found = all(db, query.build(), rows::run).await.map_err(failure)?;
    let cursor = |row: &RunRow| Cursor { key: int(row.created_at.0), id: row.run.to_string() };
    let mut page = page::cut_at_floor(found, size, floor, cursor);
    page.rows.retain(|row| filter.matches_text(row));
    Ok(page)
}

/// The time of the last run that a page looks at; `None` if it looks at all that are left.
async fn runs_floor(
    db: &ReaderPool,
    tenant: &TenantId,
    filter: &RunFilter,
    begin: Option<&Cursor>,
) -> Result<Option<Timestamp>, Error> {
    let mut query = runs_floor_query(tenant, filter, begin);
    one(db, query.build(), |row| rows::time(row, "created_at")).await
}

/// Reads an index alone.
pub(in crate::store::postgres) fn runs_floor_query(
    tenant: &TenantId,
    filter: &RunFilter,
    begin: Option<&Cursor>,
) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new("SELECT r.created_at FROM runs AS r WHERE ");
    match &filter.session {
        Some(session) => of_session(&mut query, tenant, session),
        None => query.push("r.tenant = ").push_bind(tenant.as_str().to_owned()),
    };
    filter::times(&mut query, "r.created_at", &filter.created);
    if let Some(begin) = begin {
        query.push(if begin.is_at_floor() { " AND r.created_at < " } else { " AND r.created_at <= " });
        query.push_bind(begin.key);
    }
    query.push(" ORDER BY r.created_at DESC LIMIT 1 OFFSET ").push_bind(EXAMINED_MAX);
    query
}

/// Adds the condition that a run is of this session.
fn of_session<'q>(
    query: &'q mut QueryBuilder<Postgres>,
    tenant: &TenantId,
    session: &SessionId,
) -> &'q mut QueryBuilder<Postgres> {
    query
        .push("r.session_no = (SELECT session_no FROM sessions WHERE tenant = ")
        .push_bind(tenant.as_str().to_owned());
    query.push(" AND session_id = ").push_bind(session.as_str().to_owned()).push(")")
}

/// A query for a page of runs. Those before `floor` are not looked at.
pub(in crate::store::postgres) fn runs_query(
    tenant: &TenantId,
    filter: &RunFilter,
    begin: Option<Cursor>,
    floor: Option<Timestamp>,
    size: u32,
) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new(RUNS);
    query.push_bind(tenant.as_str().to_owned());
    if let Some(session) = &filter.session {
        of_session(query.push(" AND "), tenant, session);
    }
    filter::one_of(
        &mut query,
        "r.status",
        filter.statuses.iter().map(|status| i64::from(status.code())).collect(),
    );
    filter::one_of(&mut query, "r.agent", filter::texts(&filter.agents));
    filter::one_of(&mut query, "r.model", filter::texts(&filter.models));
    let from = filter.created.from.max(floor);
    filter::times(&mut query, "r.created_at", &TimeRange { from, ..filter.created });
    filter::labels(&mut query, "r.labels", &filter.labels);
    filter::text(&mut query, &["r.run_id", "r.preview"], &filter.text);
    if let Some(by) = &filter.created_by {
        query.push(" AND r.created_by = ").push_bind(rows::clean(by).into_owned());
    }
    if let Some(root) = &filter.root {
        query.push(" AND r.run_id = ").push_bind(root.as_str().to_owned());
    }
    after(&mut query, " AND (r.created_at, r.run_id) < (", begin);
    query.push(" ORDER BY r.created_at DESC, r.run_id DESC LIMIT ").push_bind(i64::from(size) + 1);
    query
}

/// A session's newest number, and its runs that are live, wait in its queue or come after a number.
const SESSION_RUNS: &str = "
    WITH of AS MATERIALIZED (
        SELECT session_no, live_run_no FROM sessions WHERE tenant = $1 AND session_id = $2),
    wanted AS MATERIALIZED (
        SELECT live_run_no AS run_no FROM of
        UNION
        SELECT q.run_no FROM run_states AS q
        WHERE q.session_no = (SELECT session_no FROM of) AND q.queue_no IS NOT NULL
        UNION
        SELECT n.run_no FROM runs AS n
        WHERE n.session_no = (SELECT session_no FROM of) AND n.run_no > $3)
    SELECT (SELECT coalesce(max(n.run_no), 0) FROM runs AS n
            WHERE n.session_no = (SELECT session_no FROM of)) AS last_no,
           r.*, $2 AS session_id
    FROM (SELECT 1) AS one
    LEFT JOIN (wanted AS w JOIN run_rows AS r ON r.run_no = w.run_no) ON true";

/// The runs of a session that have not ended, and those after a number.
pub(in crate::store::postgres) async fn session_runs(
    db: &ReaderPool,
    tenant: &TenantId,
    session: &SessionId,
    after: Option<u64>,
) -> Result<SessionRuns, StoreError> {
    let after = after.map_or(i64::MAX, int);
    let query = sqlx::query(SESSION_RUNS).bind(tenant.as_str()).bind(session.as_str()).bind(after);
    let numbered = |row: &PgRow| {
        let run = match row.try_get::<Option<i64>, _>("run_no")? {
            Some(_) => Some((rows::number(row, "run_no")?, rows::run(row)?)),
            None => None,
        };
        Ok((rows::number(row, "last_no")?, run))
    };
    let found = all(db, query, numbered).await;
    let found = found.map_err(|error| rows::failure(format_args!("runs of {tenant}/{session}"), &error))?;
    let last_no = found.first().map_or(0, |(last_no, _)| *last_no);
    let mut runs: Vec<_> = found.into_iter().filter_map(|(_, run)| run).collect();
    runs.sort_by_key(|(no, _)| *no);
    Ok(SessionRuns { last_no, runs })
}

/// One step of the index for each tenant.
const TENANTS: &str = "
    WITH RECURSIVE t (tenant) AS (
        SELECT min(tenant) FROM runs
        UNION ALL
        SELECT (SELECT min(tenant) FROM runs WHERE tenant > t.tenant) FROM t WHERE t.tenant IS NOT NULL)
    SELECT tenant FROM t WHERE tenant IS NOT NULL";

/// The tenants that have runs.
pub(in crate::store::postgres) async fn tenants(db: &ReaderPool) -> Result<Vec<TenantId>, StoreError> {
    let found = all(db, sqlx::query(TENANTS), |row| rows::tenant_id(row, "tenant")).await;
    found.map_err(|error| rows::failure("tenants", &error))
}

/// The runs that a start of the server has to continue.
pub(in crate::store::postgres) async fn unfinished(
    db: &ReaderPool,
    scope: &Scope,
) -> Result<Vec<RunKey>, StoreError> {
    let found = all(db, sqlx::query(UNFINISHED).bind(scope.listed()), key).await;
    found.map_err(|error| rows::failure("unfinished runs", &error))
}

/// Parked runs that are due, and the time at which the next one is.
pub(in crate::store::postgres) async fn due(
    db: &ReaderPool,
    scope: &Scope,
    now: Timestamp,
    limit: u32,
) -> Result<(Vec<RunKey>, Option<Timestamp>), StoreError> {
    let query = sqlx::query(DUE).bind(i64::from(limit) + 1).bind(scope.listed());
    let found = all(db, query, |row| Ok((rows::time(row, "wake_at")?, key(row)?))).await;
    let mut waiting = found.map_err(|error| rows::failure("due runs", &error))?;
    let due = waiting.iter().take_while(|(at, _)| *at <= now).count().min(limit as usize);
    let next = waiting.get(due).map(|(at, _)| *at);
    waiting.truncate(due);
    Ok((waiting.into_iter().map(|(_, run)| run).collect(), next))
}

pub(super) fn key(row: &PgRow) -> Result<RunKey, Error> {
    Ok(RunKey::new(rows::tenant_id(row, "tenant")?, rows::run_id(row, "run_id")?))
}
