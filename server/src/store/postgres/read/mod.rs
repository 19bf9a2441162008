//! Queries. Each takes a reading connection, and sees every write that was answered before it began.

pub(super) mod audit;
mod call_titles;
mod filter;
mod jobs;
mod queue;
mod requests;
mod rules;
mod runs;
mod search;
mod sessions;
mod shard;
mod usage;

pub(super) use self::call_titles::call_titles;
pub(super) use self::jobs::due_jobs;
pub(super) use self::queue::{interrupted, interrupted_in, next_queued, queue_heads, steered};
pub(super) use self::requests::{open_questions, pending, request};
pub(super) use self::rules::{rules, rules_for_run};
pub(super) use self::runs::{
    due, journal, records, run, runs, session_runs, stretch, tenants, unfinished, unverified,
};
pub(super) use self::search::find;
pub(super) use self::sessions::{
    idle_sessions, session, session_count, session_of_user, session_of_user_query, session_query, sessions,
    stored_bytes, stored_entries, tenants_with_sessions, todos,
};
pub(super) use self::usage::{keep_usage, usage};

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Error, Postgres, QueryBuilder};

use crate::store::page::Cursor;
use crate::store::postgres::reader_pool::ReaderPool;
use crate::store::postgres::rows;
use crate::store::sql::tool::{found_tool, stored_tools};
use crate::store::{StoreError, StoredTools};

/// Rows that are looked at for one page, at most. Among them may be few that a filter leaves.
const EXAMINED_MAX: i64 = 20_000;

/// Every stored declaration of a tool.
pub(super) async fn tools(db: &ReaderPool) -> Result<StoredTools, StoreError> {
    let query = sqlx::query("SELECT * FROM tools ORDER BY tenant, name");
    let found = all(db, query, found_tool).await.map_err(|error| rows::failure("tools", &error))?;
    Ok(stored_tools(found))
}

/// Reads a row, to see that reading works.
pub(super) async fn check(db: &ReaderPool) -> Result<(), StoreError> {
    let query = sqlx::query("SELECT value FROM meta WHERE key = 'epoch'");
    query.fetch_one(db).await.map(|_| ()).map_err(|error| rows::failure("check", &error))
}

/// All rows of a query, each converted by `row`.
async fn all<T>(
    db: &ReaderPool,
    query: Query<'_, Postgres, PgArguments>,
    row: impl Fn(&PgRow) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    query.fetch_all(db).await?.iter().map(row).collect()
}

/// The one row of a query, if there is one, converted by `row`.
async fn one<T>(
    db: &ReaderPool,
    query: Query<'_, Postgres, PgArguments>,
    row: impl Fn(&PgRow) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    query.fetch_optional(db).await?.as_ref().map(row).transpose()
}

/// Adds the condition that rows come behind the cursor in the order of the list.
fn after(query: &mut QueryBuilder<Postgres>, condition: &str, begin: Option<Cursor>) {
    if let Some(cursor) = begin {
        query.push(condition).push_bind(cursor.key).push(", ").push_bind(cursor.id).push(")");
    }
}
