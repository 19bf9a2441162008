//! Queries, the same for both databases. What differs is in the [`Dialect`](super::reader::Dialect).

pub(in crate::store) mod audit;
mod call_titles;
mod filter;
mod jobs;
mod queue;
mod requests;
mod rules;
mod runs;
mod sessions;

pub(in crate::store) use self::call_titles::call_titles;
pub(in crate::store) use self::jobs::due_jobs;
pub(in crate::store) use self::queue::{
    any_queued, interrupted, interrupted_in, next_queued, queue_heads, steered,
};
pub(in crate::store) use self::requests::{open_questions, pending, request};
pub(in crate::store) use self::rules::{rules, rules_for_run};
pub(in crate::store) use self::runs::{
    due, journal, records, run, runs, session_runs, stretch, unfinished, unverified,
};
pub(in crate::store) use self::sessions::{
    idle_sessions, session, session_count, session_of_user, session_of_user_query, session_query, sessions,
    stored_bytes, stored_entries, tenants_with_sessions, todos,
};

#[cfg(test)]
pub(in crate::store) use self::{
    jobs::NEXT_DUE,
    queue::STEERED,
    requests::{REQUESTS, SIZES, pending_query, request_query},
    rules::{RULES, RULES_FOR_RUN, RULES_OF_SESSION},
    runs::{UNVERIFIED, runs_floor_query, runs_query},
    sessions::{
        IDLE_SESSIONS, SESSION_COUNT, SESSION_COUNT_OF, TENANTS, TODOS, sessions_floor_query, sessions_query,
    },
};

use sqlx::Error;

use super::query::Query;
use super::reader::SqlReader;
use crate::store::sql::tool::{found_tool, stored_tools};
use crate::store::support::page::Cursor;
use crate::store::{StoreError, StoredTools};

/// Rows that are looked at for one page, at most. Among them may be few that a filter leaves.
const EXAMINED_MAX: u32 = 20_000;

/// Every stored declaration of a tool.
pub(in crate::store) async fn tools<R: SqlReader>(db: &R) -> Result<StoredTools, StoreError> {
    let query = Query::new("SELECT * FROM tools ORDER BY tenant, name");
    let found = all(db, query, found_tool).await.map_err(|error| R::failure("tools", &error))?;
    Ok(stored_tools(found))
}

/// Reads a row, to see that reading works.
pub(in crate::store) async fn check<R: SqlReader>(db: &R) -> Result<(), StoreError> {
    let row = db.row(Query::new("SELECT value FROM meta WHERE key = 'epoch'")).await;
    row.and_then(|row| row.map(drop).ok_or(Error::RowNotFound)).map_err(|error| R::failure("check", &error))
}

/// All rows of a query, each converted by `row`.
pub(in crate::store) async fn all<R: SqlReader, T>(
    db: &R,
    query: Query,
    row: impl Fn(&R::Row) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    db.rows(query).await?.iter().map(row).collect()
}

/// The one row of a query, if there is one, converted by `row`.
pub(in crate::store) async fn one<R: SqlReader, T>(
    db: &R,
    query: Query,
    row: impl Fn(&R::Row) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    db.row(query).await?.as_ref().map(row).transpose()
}

/// Adds the condition that rows come behind the cursor in the order of the list.
fn after(query: &mut Query, condition: &str, begin: Option<Cursor>) {
    if let Some(cursor) = begin {
        query.push(condition).bind(cursor.key).push(", ").bind(cursor.id).push(")");
    }
}
