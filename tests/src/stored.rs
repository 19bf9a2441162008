//! The database of a server under test, as one reads and changes it by hand.

use std::path::PathBuf;

use agentloop_server::secret::Secret;
use agentloop_server::store::JournalStore;
use agentloop_server::store::postgres::{PostgresOptions, PostgresStore};
use agentloop_server::store::sqlite::{SqliteOptions, SqliteStore};
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

/// The place of the database.
pub enum Stored {
    /// The path of a SQLite file.
    File(PathBuf),
    /// The address of a PostgreSQL.
    Postgres(String),
}

impl Stored {
    /// The keys of `[store]` with which a server uses it.
    pub fn keys(&self) -> String {
        match self {
            Self::File(path) => format!("path = \"{}\"", path.display()),
            Self::Postgres(url) => format!("url = \"{url}\""),
        }
    }

    /// The path of the SQLite file.
    ///
    /// # Panics
    /// When there is none.
    pub fn file(&self) -> &PathBuf {
        match self {
            Self::File(path) => path,
            Self::Postgres(_) => panic!("the test needs a file: it is to be left out here"),
        }
    }

    /// Executes a statement that both databases know, and returns the number of changed rows. A file is the server's alone while
    /// the server runs.
    ///
    /// # Panics
    /// When that fails.
    pub async fn execute(&self, sql: &str) -> u64 {
        match self {
            Self::File(path) => {
                let mut shell =
                    SqliteConnectOptions::new().filename(path).connect().await.expect("a database");
                let changed = sqlx::query(AssertSqlSafe(sql.to_owned())).execute(&mut shell).await;
                shell.close().await.expect("closed");
                changed.expect("changed").rows_affected()
            }
            Self::Postgres(url) => {
                let mut shell = connect(url).await;
                let changed = sqlx::query(AssertSqlSafe(sql.to_owned())).execute(&mut shell).await;
                shell.close().await.expect("closed");
                changed.expect("changed").rows_affected()
            }
        }
    }

    /// Bytes that it takes, what is not yet checkpointed included.
    ///
    /// # Panics
    /// When there is no database.
    pub async fn bytes(&self) -> u64 {
        match self {
            Self::File(path) => {
                let mut log = path.clone().into_os_string();
                log.push("-wal");
                let size = |file: std::io::Result<std::fs::Metadata>| file.map(|file| file.len());
                let logged = size(std::fs::metadata(log)).unwrap_or_default();
                size(std::fs::metadata(path)).expect("a database") + logged
            }
            Self::Postgres(url) => {
                let sql = "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
                           WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'";
                let mut shell = connect(url).await;
                let bytes: i64 = sqlx::query_scalar(sql).fetch_one(&mut shell).await.expect("a size");
                shell.close().await.expect("closed");
                u64::try_from(bytes).expect("no less than nothing")
            }
        }
    }

    /// Does this with the opened store, while the server is stopped.
    ///
    /// # Panics
    /// When it does not open.
    pub async fn opened(&self, act: impl AsyncFnOnce(&dyn JournalStore)) {
        match self {
            Self::File(path) => {
                let store = SqliteStore::open(path, &SqliteOptions::default()).await.expect("it opens");
                act(&store).await;
                store.close().await;
            }
            Self::Postgres(url) => {
                let options = PostgresOptions { url: Secret::new(url.clone()), ..PostgresOptions::default() };
                let store = PostgresStore::open(&options).await.expect("it opens");
                act(&store).await;
                store.close().await;
            }
        }
    }
}

async fn connect(url: &str) -> sqlx::PgConnection {
    url.parse::<PgConnectOptions>().expect("an address").connect().await.expect("a database")
}
