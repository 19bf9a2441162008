//! The store of the servers under test: a SQLite file, or a schema of a PostgreSQL, if `AGENTLOOP_TEST_POSTGRES` has the
//! address of one. `tests/with-postgres` starts one.

use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};

/// The keys of `[store]` for a new and empty store, which is a file of this name or a schema of its own.
///
/// # Panics
/// When the PostgreSQL cannot be reached.
#[must_use]
pub fn store_keys(file: &str) -> String {
    match url() {
        None => format!("path = \"{file}\""),
        Some(url) => format!("url = \"{}\"", in_new_schema(url)),
    }
}

/// The address of the PostgreSQL to test with.
#[must_use]
pub fn url() -> Option<String> {
    std::env::var("AGENTLOOP_TEST_POSTGRES").ok().filter(|url| !url.is_empty())
}

/// The address of an empty schema in the database at this one.
///
/// # Panics
/// When it cannot be reached.
#[must_use]
pub fn in_new_schema(url: String) -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let name = format!("t_{}_{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed));
    let create = format!("CREATE SCHEMA {name}");
    let separator = if url.contains('?') { '&' } else { '?' };
    let of_schema = format!("{url}{separator}options=-csearch_path%3D{name}");
    // In a thread of its own: some of those who ask are in a runtime.
    let made = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let options: PgConnectOptions = url.parse()?;
            let mut db = options.connect().await?;
            db.execute(AssertSqlSafe(create)).await?;
            db.close().await
        })
    });
    made.join().expect("no panic").expect("a schema can be made");
    of_schema
}
