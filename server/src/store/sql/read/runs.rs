//! Queries for runs and their journals.

use agentloop_core::id::{RunId, RunKey, Seq, SessionId, TenantId};
use agentloop_core::run::event::Record;
use agentloop_core::time::Timestamp;
use sqlx::Error;

use super::{EXAMINED_MAX, after, all, filter, one};
use crate::store::sql::column::{SqlRow, number, run_id, tenant_id, time};
use crate::store::sql::query::Query;
use crate::store::sql::reader::{Dialect, SqlReader};
use crate::store::sql::row::{self, whole_event, whole_journal};
use crate::store::support::codec;
use crate::store::support::number::int;
use crate::store::support::page::{self, Cursor};
use crate::store::{
    Page, PageRequest, RunFilter, RunRow, SESSION_RUNS_MAX, SessionRuns, StoreError, Stretch, StretchMax,
    TimeRange,
};

/// The row of a run, if there is one.
pub(in crate::store) async fn run<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    run: &RunId,
) -> Result<Option<RunRow>, StoreError> {
    let mut query = Query::new(R::Dialect::RUNS);
    query.bind(tenant.as_str()).push(" AND r.run_id = ").bind(run.as_str());
    one(db, query, row::run).await.map_err(|error| R::failure(format_args!("run {tenant}/{run}"), &error))
}

/// Events of a run after a sequence number, at most `limit`.
pub(in crate::store) async fn records<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    run: &RunId,
    after: Seq,
    limit: u32,
) -> Result<Vec<Record>, StoreError> {
    let query = Query::new(R::Dialect::RECORDS)
        .with(tenant.as_str())
        .with(run.as_str())
        .with(int(after.0))
        .with(limit);
    all(db, query, whole_event)
        .await
        .map_err(|error| R::failure(format_args!("journal {tenant}/{run}"), &error))?
        .iter()
        .map(|event| codec::decode(tenant, run, event))
        .collect()
}

/// Events of a run after a sequence number, within `max`.
pub(in crate::store) async fn stretch<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    run: &RunId,
    after: Seq,
    max: StretchMax,
) -> Result<Stretch, StoreError> {
    let query = Query::new(R::Dialect::STRETCH).with(tenant.as_str()).with(run.as_str());
    let query = query.with(int(after.0)).with(max.records).with(int(max.bytes as u64));
    let found = all(db, query, |row| Ok((whole_event(row)?, number(row, "upto")?)))
        .await
        .map_err(|error| R::failure(format_args!("journal {tenant}/{run}"), &error))?;
    let upto = found.last().map(|(_, upto)| *upto);
    let records = found.iter().map(|(event, _)| codec::decode(tenant, run, event));
    let records = records.collect::<Result<Vec<_>, _>>()?;
    let cut = records.last().map(|record| record.seq.0) < upto;
    Ok(Stretch { more: cut || records.len() == max.records as usize, records })
}

/// Events of a run without a checksum, which an older server wrote.
pub(in crate::store) const UNVERIFIED: &str = "
    SELECT count(*) AS events
    FROM runs AS r
    JOIN run_events AS e ON e.run_no = r.run_no
    WHERE r.tenant = $1 AND r.run_id = $2 AND e.checksum IS NULL";

/// The number of a run's events that cannot be verified.
pub(in crate::store) async fn unverified<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    run: &RunId,
) -> Result<u64, StoreError> {
    let query = Query::new(UNVERIFIED).with(tenant.as_str()).with(run.as_str());
    one(db, query, |row| number(row, "events"))
        .await
        .map(Option::unwrap_or_default)
        .map_err(|error| R::failure(format_args!("journal {tenant}/{run}"), &error))
}

/// The journal of a run up to the last event that its row names.
///
/// # Errors
/// [`StoreError::Corrupt`] if it has gaps or ends early.
pub(in crate::store) async fn journal<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    row: &RunRow,
) -> Result<Vec<Record>, StoreError> {
    let found = records(db, tenant, &row.run, Seq(0), u32::MAX).await?;
    whole_journal(tenant, row, found)
}

/// A page of runs.
pub(in crate::store) async fn runs<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    filter: &RunFilter,
    page: &PageRequest,
) -> Result<Page<RunRow>, StoreError> {
    let begin = page::begin(page, |id| RunId::parse(id))?;
    let size = page::size(page);
    let failure = |error: Error| R::failure(format_args!("runs of {tenant}"), &error);
    let floor = match filter.needs_rows() {
        true => runs_floor(db, tenant, filter, begin.as_ref()).await.map_err(failure)?,
        false => None,
    };
    let query = runs_query::<R::Dialect>(tenant, filter, begin, floor, size);
    let found = all(db, query, row::run).await.map_err(failure)?;
    let cursor = |row: &RunRow| Cursor { key: int(row.created_at.0), id: row.run.to_string() };
    let mut page = page::cut_at_floor(found, size, floor, cursor);
    page.rows.retain(|row| filter.matches_text(row));
    Ok(page)
}

/// The time of the last run that a page looks at; `None` if it looks at all that are left.
async fn runs_floor<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    filter: &RunFilter,
    begin: Option<&Cursor>,
) -> Result<Option<Timestamp>, Error> {
    one(db, runs_floor_query(tenant, filter, begin), |row| time(row, "created_at")).await
}

/// Reads an index alone.
pub(in crate::store) fn runs_floor_query(
    tenant: &TenantId,
    filter: &RunFilter,
    begin: Option<&Cursor>,
) -> Query {
    let mut query = Query::new("SELECT r.created_at FROM runs AS r WHERE ");
    match &filter.session {
        Some(session) => of_session(&mut query, tenant, session),
        None => query.push("r.tenant = ").bind(tenant.as_str()),
    };
    filter::times(&mut query, "r.created_at", &filter.created);
    if let Some(begin) = begin {
        query.push(if begin.is_at_floor() { " AND r.created_at < " } else { " AND r.created_at <= " });
        query.bind(begin.key);
    }
    query.push(" ORDER BY r.created_at DESC LIMIT 1 OFFSET ").bind(EXAMINED_MAX);
    query
}

/// Adds the condition that a run is of this session.
fn of_session<'q>(query: &'q mut Query, tenant: &TenantId, session: &SessionId) -> &'q mut Query {
    query.push("r.session_no = (SELECT session_no FROM sessions WHERE tenant = ").bind(tenant.as_str());
    query.push(" AND session_id = ").bind(session.as_str()).push(")")
}

/// A query for a page of runs. Those before `floor` are not looked at.
pub(in crate::store) fn runs_query<D: Dialect>(
    tenant: &TenantId,
    filter: &RunFilter,
    begin: Option<Cursor>,
    floor: Option<Timestamp>,
    size: u32,
) -> Query {
    let mut query = Query::new(D::RUNS);
    query.bind(tenant.as_str());
    if let Some(session) = &filter.session {
        of_session(query.push(" AND "), tenant, session);
    }
    filter::one_of(&mut query, "r.status", filter.statuses.iter().map(|status| i64::from(status.code())));
    filter::one_of(&mut query, "r.agent", filter.agents.iter().map(String::as_str));
    filter::one_of(&mut query, "r.model", filter.models.iter().map(String::as_str));
    let from = filter.created.from.max(floor);
    filter::times(&mut query, "r.created_at", &TimeRange { from, ..filter.created });
    D::labels(&mut query, "r.labels", &filter.labels);
    filter::text(&mut query, D::LIKE, &["r.run_id", "r.preview"], &filter.text);
    if let Some(by) = &filter.created_by {
        query.push(" AND r.created_by = ").bind(by.as_str());
    }
    if let Some(root) = &filter.root {
        query.push(" AND r.run_id = ").bind(root.as_str());
    }
    after(&mut query, " AND (r.created_at, r.run_id) < (", begin);
    query.push(" ORDER BY r.created_at DESC, r.run_id DESC LIMIT ").bind(size + 1);
    query
}

/// The runs of a session that have not ended, and those after a number.
pub(in crate::store) async fn session_runs<R: SqlReader>(
    db: &R,
    tenant: &TenantId,
    session: &SessionId,
    after: Option<u64>,
) -> Result<SessionRuns, StoreError> {
    let after = after.map_or(i64::MAX, int);
    let query = Query::new(R::Dialect::SESSION_RUNS)
        .with(tenant.as_str())
        .with(session.as_str())
        .with(after)
        .with(i64::from(SESSION_RUNS_MAX));
    let numbered = |row: &R::Row| {
        let run = match row.integer_if_any("run_no")? {
            Some(_) => Some((number(row, "run_no")?, row::run(row)?)),
            None => None,
        };
        Ok((number(row, "last_no")?, run))
    };
    let found = all(db, query, numbered).await;
    let found = found.map_err(|error| R::failure(format_args!("runs of {tenant}/{session}"), &error))?;
    let last_no = found.first().map_or(0, |(last_no, _)| *last_no);
    let mut runs: Vec<_> = found.into_iter().filter_map(|(_, run)| run).collect();
    runs.sort_by_key(|(no, _)| *no);
    Ok(SessionRuns { last_no, runs })
}

/// The runs that a start of the server has to continue.
pub(in crate::store) async fn unfinished<R: SqlReader>(db: &R) -> Result<Vec<RunKey>, StoreError> {
    let found = all(db, db.in_scope(Query::new(R::Dialect::UNFINISHED)), key).await;
    found.map_err(|error| R::failure("unfinished runs", &error))
}

/// Parked runs that are due, and the time at which the next one is.
pub(in crate::store) async fn due<R: SqlReader>(
    db: &R,
    now: Timestamp,
    limit: u32,
) -> Result<(Vec<RunKey>, Option<Timestamp>), StoreError> {
    let query = db.in_scope(Query::new(R::Dialect::DUE).with(i64::from(limit) + 1));
    let found = all(db, query, |row| Ok((time(row, "wake_at")?, key(row)?))).await;
    let mut waiting = found.map_err(|error| R::failure("due runs", &error))?;
    let due = waiting.iter().take_while(|(at, _)| *at <= now).count().min(limit as usize);
    let next = waiting.get(due).map(|(at, _)| *at);
    waiting.truncate(due);
    Ok((waiting.into_iter().map(|(_, run)| run).collect(), next))
}

pub(super) fn key(row: &impl SqlRow) -> Result<RunKey, Error> {
    Ok(RunKey::new(tenant_id(row, "tenant")?, run_id(row, "run_id")?))
}
