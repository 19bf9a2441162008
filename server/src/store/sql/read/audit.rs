//! Queries for the audit log.

use agentloop_core::time::Timestamp;

use super::{all, one};
use crate::audit::{AuditFilter, AuditRow};
use crate::store::number::int;
use crate::store::sql::audit::audit;
use crate::store::sql::column::number;
use crate::store::sql::query::Query;
use crate::store::sql::reader::{Dialect, SqlReader};
use crate::store::{Page, PageRequest, StoreError, page};

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
    let found = all(db, page_query::<R>(filter, before, size + 1), audit).await;
    let mut found = found.map_err(|error| R::failure("the audit log", &error))?;
    let more = found.len() > size as usize;
    found.truncate(size as usize);
    let next = found.last().filter(|_| more).map(|row| row.no.to_string());
    Ok(Page { rows: found, next })
}

/// The number that a token is the text of.
fn number_of(token: &str) -> Result<u64, StoreError> {
    let number = token.parse::<u64>().ok().filter(|number| number.to_string() == token);
    number.ok_or(StoreError::BadPageToken)
}

fn page_query<R: SqlReader>(filter: &AuditFilter, before: Option<u64>, limit: u32) -> Query {
    let mut query = Query::new("SELECT * FROM audit WHERE ");
    query.push("(tenant = ").bind(filter.tenant.as_str());
    if filter.tenant == "local" {
        query.push(" OR tenant = ''");
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
    query.push(" ORDER BY no DESC LIMIT ").bind(limit);
    query
}

/// Rows after a number, oldest first.
pub(in crate::store) async fn after<R: SqlReader>(db: &R, no: u64) -> Result<Vec<AuditRow>, StoreError> {
    let found = all(db, Query::new(AFTER).with(int(no)).with(STRETCH), audit).await;
    found.map_err(|error| R::failure("the audit log", &error))
}
