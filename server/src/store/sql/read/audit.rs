//! Queries for the audit log.

use agentloop_core::time::Timestamp;
use sqlx::Error;

use super::{EXAMINED_MAX, all, one};
use crate::audit::{AuditFilter, AuditRow};
use crate::store::sql::audit::audit;
use crate::store::sql::column::{number, number_if_any};
use crate::store::sql::query::Query;
use crate::store::sql::reader::{Dialect, SqlReader};
use crate::store::support::number::int;
use crate::store::support::page;
use crate::store::{Page, PageRequest, StoreError};

/// Rows that one query reads.
pub(in crate::store) const STRETCH: u32 = 1_000;
/// Rows after a number, oldest first.
pub(in crate::store) const AFTER: &str = "SELECT * FROM audit WHERE no > $1 ORDER BY no LIMIT $2";

/// Number of the last row; 0 without rows.
pub(in crate::store) async fn last<R: SqlReader>(db: &R) -> Result<u64, StoreError> {
    let query = Query::new("SELECT coalesce(max(no), 0) AS no FROM audit");
    let last = one(db, query, |row| number(row, "no")).await;
    Ok(last.map_err(|error| R::failure("the audit log", &error))?.unwrap_or(0))
}

/// A page of rows, newest first.
pub(in crate::store) async fn page<R: SqlReader>(
    db: &R,
    filter: &AuditFilter,
    page: &PageRequest,
) -> Result<Page<AuditRow>, StoreError> {
    let before = page.after.as_deref().map(number_of).transpose()?;
    let size = page::size(page);
    let failure = |error: Error| R::failure("the audit log", &error);
    let floor = match needs_rows(filter) {
        true => {
            one(db, floor_query(filter, before), |row| number_if_any(row, "no")).await.map_err(failure)?
        }
        false => None,
    };
    let floor = floor.flatten();
    let found = all(db, page_query::<R>(filter, before, floor, size + 1), audit).await;
    let mut found = found.map_err(failure)?;
    let more = found.len() > size as usize;
    found.truncate(size as usize);
    // The next page begins behind the row of this number.
    let next = found.last().filter(|_| more).map(|row| row.no).or(floor.map(|floor| floor + 1));
    Ok(Page { rows: found, next: next.map(|no| no.to_string()) })
}

/// True if rows of the tenant have to be read to find those that match.
fn needs_rows(filter: &AuditFilter) -> bool {
    let AuditFilter { tenant: _, who, what, run, session, from, before, denied } = filter;
    *denied || from.is_some() || before.is_some() || [who, what, run, session].iter().any(|of| !of.is_empty())
}

/// The tenants whose rows a filter is about. Rows of nobody are those of the tenant `local`.
fn tenants(filter: &AuditFilter) -> impl Iterator<Item = &str> {
    [filter.tenant.as_str()].into_iter().chain((filter.tenant == "local").then_some(""))
}

/// The number of the last row that a page does not look at; `None` if it looks at all that are left. Reads an index alone.
fn floor_query(filter: &AuditFilter, before: Option<u64>) -> Query {
    let mut query = Query::new("SELECT max(no) AS no FROM (");
    for (at, tenant) in tenants(filter).enumerate() {
        query.push(if at > 0 { " UNION ALL " } else { "" });
        query.push("SELECT * FROM (SELECT no FROM audit WHERE tenant = ").bind(tenant);
        if let Some(before) = before {
            query.push(" AND no < ").bind(int(before));
        }
        query.push(" ORDER BY no DESC LIMIT 1 OFFSET ").bind(EXAMINED_MAX);
        query.push(&format!(") AS t{at}"));
    }
    query.push(") AS floors");
    query
}

/// The number that a token is the text of.
fn number_of(token: &str) -> Result<u64, StoreError> {
    let number = token.parse::<u64>().ok().filter(|number| number.to_string() == token);
    number.ok_or(StoreError::BadPageToken)
}

/// Rows up to `floor` are not looked at.
fn page_query<R: SqlReader>(
    filter: &AuditFilter,
    before: Option<u64>,
    floor: Option<u64>,
    limit: u32,
) -> Query {
    let mut query = Query::new("SELECT * FROM audit WHERE ");
    for (at, tenant) in tenants(filter).enumerate() {
        query.push(if at == 0 { "(tenant = " } else { " OR tenant = " }).bind(tenant);
    }
    query.push(")");
    let equal = [("who", &filter.who), ("run_id", &filter.run), ("session_id", &filter.session)];
    for (column, value) in equal.into_iter().filter(|(_, value)| !value.is_empty()) {
        query.push(&format!(" AND {column} = ")).bind(value.as_str());
    }
    if !filter.what.is_empty() {
        query.push(&format!(" AND {}(lower(what), ", R::Dialect::POSITION));
        query.bind(filter.what.to_lowercase()).push(") > 0");
    }
    let bound = |time: Timestamp| int(time.0);
    if let Some(from) = filter.from {
        query.push(" AND at >= ").bind(bound(from));
    }
    if let Some(before) = filter.before {
        query.push(" AND at < ").bind(bound(before));
    }
    if filter.denied {
        query.push(" AND NOT allowed");
    }
    if let Some(before) = before {
        query.push(" AND no < ").bind(int(before));
    }
    if let Some(floor) = floor {
        query.push(" AND no > ").bind(int(floor));
    }
    query.push(" ORDER BY no DESC LIMIT ").bind(limit);
    query
}

/// Rows after a number, oldest first.
pub(in crate::store) async fn after<R: SqlReader>(db: &R, no: u64) -> Result<Vec<AuditRow>, StoreError> {
    let found = all(db, Query::new(AFTER).with(int(no)).with(STRETCH), audit).await;
    found.map_err(|error| R::failure("the audit log", &error))
}
