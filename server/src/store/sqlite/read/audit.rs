//! Queries for the audit log.

use std::path::Path;

use agentloop_core::time::Timestamp;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{
    ConnectOptions as _, Connection as _, Error, QueryBuilder, Row as _, Sqlite, SqliteConnection, SqlitePool,
};

use super::rows;
use crate::audit::{AuditFilter, AuditRow, ChainCheck, ChainOutcome};
use crate::store::number::int;
use crate::store::sql::audit::audit;
use crate::store::{Page, PageRequest, StoreError};

/// Rows that one query reads.
const STRETCH: u32 = 1_000;
/// Rows after a number, oldest first.
const AFTER: &str = "SELECT * FROM audit WHERE no > ?1 ORDER BY no LIMIT ?2";

/// Number and hash of the last row.
pub(in crate::store::sqlite) async fn last_row(
    db: &mut SqliteConnection,
) -> Result<Option<(u64, String)>, Error> {
    let row = sqlx::query("SELECT no, hash FROM audit ORDER BY no DESC LIMIT 1").fetch_optional(db).await?;
    row.map(|row| Ok((rows::number(&row, "no")?, row.try_get("hash")?))).transpose()
}

/// Number of the last row; 0 without rows.
pub(in crate::store::sqlite) async fn last(db: &SqlitePool) -> Result<u64, StoreError> {
    let row = sqlx::query("SELECT coalesce(max(no), 0) AS no FROM audit").fetch_one(db).await;
    let last = row.and_then(|row| rows::number(&row, "no"));
    last.map_err(|error| rows::failure("the audit log", &error))
}

/// A page of rows, newest first.
pub(in crate::store::sqlite) async fn page(
    db: &SqlitePool,
    filter: &AuditFilter,
    page: &PageRequest,
) -> Result<Page<AuditRow>, StoreError> {
    let before = page.after.as_deref().map(str::parse::<u64>).transpose();
    let before = before.map_err(|_| StoreError::BadPageToken)?;
    let mut query = page_query(filter, before, page.size.saturating_add(1));
    let found = query.build().fetch_all(db).await;
    let found = found.and_then(|found| found.iter().map(audit).collect::<Result<Vec<_>, _>>());
    let mut found = found.map_err(|error| rows::failure("the audit log", &error))?;
    let more = found.len() > page.size as usize;
    found.truncate(page.size as usize);
    let next = found.last().filter(|_| more).map(|row| row.no.to_string());
    Ok(Page { rows: found, next })
}

fn page_query(filter: &AuditFilter, before: Option<u64>, limit: u32) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::new("SELECT * FROM audit WHERE ");
    query.push("(tenant = ").push_bind(filter.tenant.clone());
    if filter.tenant == "local" {
        query.push(" OR tenant = ''");
    }
    query.push(")");
    let equal = [("who", &filter.who), ("run_id", &filter.run), ("session_id", &filter.session)];
    for (column, value) in equal.into_iter().filter(|(_, value)| !value.is_empty()) {
        query.push(format!(" AND {column} = ")).push_bind(value.clone());
    }
    if !filter.what.is_empty() {
        query.push(" AND instr(lower(what), ").push_bind(filter.what.to_lowercase()).push(") > 0");
    }
    let bound = |time: Timestamp| int(time.0);
    if let Some(from) = filter.from {
        query.push(" AND at >= ").push_bind(bound(from));
    }
    if let Some(before) = filter.before {
        query.push(" AND at < ").push_bind(bound(before));
    }
    if filter.denied {
        query.push(" AND allowed = 0");
    }
    if let Some(before) = before {
        query.push(" AND no < ").push_bind(int(before));
    }
    query.push(" ORDER BY no DESC LIMIT ").push_bind(limit);
    query
}

/// Rows after a number, oldest first.
pub(in crate::store::sqlite) async fn after(db: &SqlitePool, no: u64) -> Result<Vec<AuditRow>, StoreError> {
    let query = sqlx::query(AFTER).bind(int(no)).bind(STRETCH);
    let found = query.fetch_all(db).await.and_then(|found| found.iter().map(audit).collect());
    found.map_err(|error| rows::failure("the audit log", &error))
}

/// Checks the chain of a database file, which a server may have open. It must have a row of this hash, if it is not empty.
///
/// # Errors
/// SQL's own: the file cannot be read, or is of a version before the audit log.
pub async fn verify_file(path: &Path, known_hash: &str) -> Result<ChainOutcome, Error> {
    let mut db = SqliteConnectOptions::new().filename(path).read_only(true).connect().await?;
    let (mut check, mut last) = (ChainCheck::knowing(known_hash), 0_u64);
    let outcome = loop {
        let found = sqlx::query(AFTER).bind(int(last)).bind(STRETCH).fetch_all(&mut db).await?;
        let rows = found.iter().map(audit).collect::<Result<Vec<_>, _>>()?;
        let Some(newest) = rows.last() else { break check.verdict().into() };
        last = newest.no;
        if let Err(broken) = rows.iter().try_for_each(|row| check.check(row)) {
            break ChainOutcome::Broken(broken);
        }
    };
    db.close().await?;
    Ok(outcome)
}
