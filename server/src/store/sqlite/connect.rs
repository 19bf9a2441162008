//! Options that connections to the database and to the search index share.

use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous};

/// Longest wait for a lock that another process holds, such as a SQL shell.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for a free reading connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Prepared statements of one connection. The writer has one for each size of a commit and set of tables in it, and a few
/// more.
const STATEMENTS_MAX: usize = 128;
/// Page size of a file that names none: SQLite's own.
pub(in crate::store::sqlite) const DEFAULT_PAGE_BYTES: u32 = 4_096;

/// Limits the size of a file with pages of this size.
pub(in crate::store::sqlite) fn limited(
    options: SqliteConnectOptions,
    max_bytes: Option<u64>,
    page_bytes: u32,
) -> SqliteConnectOptions {
    match max_bytes {
        Some(bytes) => options.pragma("max_page_count", (bytes / u64::from(page_bytes)).max(1).to_string()),
        None => options,
    }
}

/// Options of every connection.
pub(in crate::store::sqlite) fn base() -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
        .statement_cache_capacity(STATEMENTS_MAX)
        .disable_statement_logging()
}

/// A pool of this many connections, at most. If a caller is dropped, its connection is free once its query has ended.
pub(in crate::store::sqlite) fn pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
}
