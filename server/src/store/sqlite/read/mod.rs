//! Queries. Each takes a reading connection, and sees every write that was answered before it began.

mod jobs;
mod queue;
mod requests;
mod rules;
mod runs;
mod search;
mod sessions;

pub(super) use self::jobs::due_jobs;
pub(super) use self::queue::{interrupted, interrupted_in, next_queued, queue_heads, steered};
pub(super) use self::requests::{pending, request};
pub(super) use self::rules::{rules, rules_for_run};
pub(super) use self::runs::{due, journal, records, run, runs, stretch, unfinished, unverified};
pub(super) use self::search::Search;
pub(super) use self::sessions::{entry_stretch, session, session_query, sessions};

#[cfg(test)]
pub(super) use self::{
    jobs::DUE_JOBS,
    queue::{INTERRUPTED, INTERRUPTED_IN, NEXT_QUEUED, QUEUE_HEADS, STEERED},
    requests::{pending_query, request_query},
    rules::{RULES, RULES_FOR_RUN},
    runs::{DUE, RECORDS, STRETCH, UNFINISHED, UNVERIFIED, runs_query},
    search::SEARCH,
    sessions::{ENTRIES, sessions_query},
};

use agentloop_core::id::TenantId;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Error, QueryBuilder, Sqlite, SqlitePool};

use crate::store::page::Cursor;
use crate::store::sqlite::rows;
use crate::store::{StoreError, ToolRow};

/// Every stored declaration of a tool, with its tenant.
pub(super) async fn tools(db: &SqlitePool) -> Result<Vec<(TenantId, ToolRow)>, StoreError> {
    let query = sqlx::query("SELECT tenant, declaration, last_seen FROM tools ORDER BY tenant, name");
    all(db, query, tool).await.map_err(|error| rows::failure("tools", &error))
}

fn tool(row: &SqliteRow) -> Result<(TenantId, ToolRow), Error> {
    let declaration = rows::json(row, "declaration")?;
    Ok((rows::tenant_id(row, "tenant")?, ToolRow { declaration, last_seen: rows::time(row, "last_seen")? }))
}

/// Reads a row, to see that reading works.
pub(super) async fn check(db: &SqlitePool) -> Result<(), StoreError> {
    let query = sqlx::query("SELECT value FROM meta WHERE key = 'epoch'");
    query.fetch_one(db).await.map(|_| ()).map_err(|error| rows::failure("check", &error))
}

/// All rows of a query, each converted by `row`.
async fn all<T>(
    db: &SqlitePool,
    query: Query<'_, Sqlite, SqliteArguments>,
    row: impl Fn(&SqliteRow) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    query.fetch_all(db).await?.iter().map(row).collect()
}

/// The one row of a query, if there is one, converted by `row`.
async fn one<T>(
    db: &SqlitePool,
    query: Query<'_, Sqlite, SqliteArguments>,
    row: impl Fn(&SqliteRow) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    query.fetch_optional(db).await?.as_ref().map(row).transpose()
}

/// Adds the condition that rows come behind the cursor in the order of the list.
fn after(query: &mut QueryBuilder<Sqlite>, condition: &str, begin: Option<Cursor>) {
    if let Some(cursor) = begin {
        query.push(condition).push_bind(cursor.key).push(", ").push_bind(cursor.id).push(")");
    }
}
