//! Connections: what those to the database and to the search index have in common.

use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous};

/// How long to wait for someone else's lock, such as that of a SQL shell.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait for a free reading connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Prepared statements of one connection; the writer's are one per size of a commit and what is in it, and a few.
const STATEMENTS_MAX: usize = 128;
const PAGE_BYTES: u64 = 4_096;

/// A file that may get as large as this.
pub(in crate::store::sqlite) fn limited(
    options: SqliteConnectOptions,
    max_bytes: Option<u64>,
) -> SqliteConnectOptions {
    match max_bytes {
        Some(bytes) => options.pragma("max_page_count", (bytes / PAGE_BYTES).max(1).to_string()),
        None => options,
    }
}

/// What all connections have in common.
pub(in crate::store::sqlite) fn base() -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
        .statement_cache_capacity(STATEMENTS_MAX)
        .disable_statement_logging()
}

/// As many connections at most. One whose reader went away is free again when its query has ended.
pub(in crate::store::sqlite) fn pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
}
