//! Tests of behaviour that only the PostgreSQL store has. It also runs the conformance tests.
//!
//! They need a PostgreSQL, whose address `AGENTLOOP_TEST_POSTGRES` has: `tests/with-postgres` starts one. An address where
//! none responds fails them. Without an address they test nothing, but the test runner counts them as passed, since a test
//! cannot leave itself out. One line on standard error then says so, and `tests/run` looks for it. Each test has a schema of
//! its own.

mod blobs;
mod commits;
mod copies;
mod in_place;
mod opening;
mod plans;
mod pooled;
mod reading;
mod replicas;
mod several;
mod shard;
mod wire;

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};

use sqlx::{ConnectOptions as _, Executor as _, PgConnection};

use super::*;
use crate::store::{
    JournalStore as _, PageRequest, RunFilter, SearchFilter, SearchStore as _, Store, StoreError,
};

mod conformance {
    crate::conforms!(super::in_schema());
    crate::conforms_in_accounts!(super::in_schema());
    crate::conforms_in_search!(super::in_schema());
}

/// The connections of a store, which the database can cut.
struct Severable {
    options: PostgresOptions,
    name: &'static str,
    shell: tokio::sync::Mutex<PgConnection>,
}

impl Severable {
    /// Ends the connections that read, as many as there are. There must be one: the store has just read.
    async fn sever(&self) {
        // The one that writes keeps a lock for as long as it is there.
        let sql = "SELECT count(pg_terminate_backend(a.pid)) AS cut FROM pg_stat_activity AS a
                   WHERE a.application_name = $1
                     AND NOT EXISTS (SELECT 1 FROM pg_locks AS l WHERE l.pid = a.pid AND l.locktype = 'advisory')";
        let row = sqlx::query(sql).bind(self.name).fetch_one(&mut *self.shell.lock().await).await.unwrap();
        assert!(sqlx::Row::get::<i64, _>(&row, "cut") > 0, "there is a connection to cut");
    }
}

/// A schema of a test. It goes with the test's database.
struct Schema {
    options: PostgresOptions,
}

impl Schema {
    /// An empty schema. `None`: there is no PostgreSQL to test with.
    async fn new() -> Option<Self> {
        let url = url()?;
        static LAST: AtomicU64 = AtomicU64::new(0);
        let name = format!("t_{}_{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed));
        let mut db = connect(&url).await;
        db.execute(sqlx::AssertSqlSafe(format!("CREATE SCHEMA {name}"))).await.unwrap();
        let separator = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{separator}options=-csearch_path%3D{name}");
        // Two connections a test: tests run side by side, and a server has a hundred.
        let options = PostgresOptions { url: Secret::new(url), readers: 2, ..PostgresOptions::default() };
        Some(Self { options })
    }

    /// Options for a store whose connections can be cut. They have this name, which no other test gives.
    async fn severable(&self, name: &'static str) -> Severable {
        let url = format!("{}&application_name={name}", self.options.url.expose());
        let options = PostgresOptions { url: Secret::new(url), ..self.options.clone() };
        Severable { options, name, shell: tokio::sync::Mutex::new(self.shell().await) }
    }

    async fn open(&self) -> Arc<PostgresStore> {
        Arc::new(self.try_open().await.unwrap())
    }

    async fn try_open(&self) -> Result<PostgresStore, OpenError> {
        PostgresStore::open(&self.options).await
    }

    /// A connection of our own, as a SQL shell has one.
    async fn shell(&self) -> PgConnection {
        connect(self.options.url.expose()).await
    }
}

async fn connect(url: &str) -> PgConnection {
    url.parse::<sqlx::postgres::PgConnectOptions>().unwrap().connect().await.unwrap()
}

#[expect(clippy::disallowed_methods, reason = "whoever runs the tests says where a PostgreSQL is")]
fn url() -> Option<String> {
    let url = std::env::var("AGENTLOOP_TEST_POSTGRES").ok().filter(|url| !url.is_empty());
    if url.is_none() {
        static SAID: Once = Once::new();
        // `eprintln!` is captured where a test passes.
        SAID.call_once(|| {
            let line = "not tested: the PostgreSQL store, because AGENTLOOP_TEST_POSTGRES names no database";
            writeln!(std::io::stderr(), "{line}").expect("there is a standard error");
        });
    }
    url
}

async fn in_schema() -> Option<(Arc<dyn Store>, Schema)> {
    let schema = Schema::new().await?;
    let store = schema.open().await;
    Some((store, schema))
}
