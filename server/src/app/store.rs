//! The store that the configuration names: a SQLite file, or a PostgreSQL database.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::config::{BlobOptions, Config, PostgresLocation, StoreLocation, StoreOptions};
use crate::store::postgres::{self, PostgresOptions, PostgresStore};
use crate::store::sqlite::{self, SqliteOptions, SqliteStore};
use crate::store::{BlobBounds, Store, StoreStats};

/// Longest time in which a PostgreSQL store is closed: that of a last commit, and of a new connection for it.
const CLOSE_WAIT: Duration = Duration::from_secs(30);

/// The reason why the store of the configuration is not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The SQLite database cannot be opened.
    #[error(transparent)]
    Sqlite(#[from] sqlite::OpenError),
    /// The PostgreSQL database cannot be opened.
    #[error(transparent)]
    Postgres(#[from] postgres::OpenError),
}

/// A store that the server has opened and closes. Clones share it.
#[derive(Clone)]
pub(super) enum OwnStore {
    Sqlite(Arc<SqliteStore>),
    Postgres(Arc<PostgresStore>),
}

impl OwnStore {
    pub(super) async fn open(store: &StoreOptions, blobs: &BlobOptions) -> Result<Self, OpenError> {
        let postgres = match &store.location {
            StoreLocation::Memory => return Self::open_sqlite(None, store, blobs).await,
            StoreLocation::File(path) => return Self::open_sqlite(Some(path), store, blobs).await,
            StoreLocation::Postgres(postgres) => postgres,
        };
        let options = postgres_options(postgres, store, blobs);
        let opened = PostgresStore::open(&options).await?;
        Ok(Self::Postgres(Arc::new(opened)))
    }

    async fn open_sqlite(
        path: Option<&PathBuf>,
        store: &StoreOptions,
        blobs: &BlobOptions,
    ) -> Result<Self, OpenError> {
        let options = SqliteOptions {
            search: store.search,
            accept_loss: store.accept_loss,
            blobs: BlobBounds { max_bytes: blobs.max_bytes, total_bytes: blobs.total_bytes },
            ..SqliteOptions::default()
        };
        let opened = match path {
            Some(path) => SqliteStore::open(path, &options).await?,
            None => SqliteStore::in_memory_with(&options).await?,
        };
        Ok(Self::Sqlite(Arc::new(opened)))
    }

    /// The name of its kind, as `GetServerInfo` tells it.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            Self::Postgres(_) => "postgresql",
        }
    }

    pub(super) fn shared(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(store) => store.clone(),
            Self::Postgres(store) => store.clone(),
        }
    }

    pub(super) fn failed(&self) -> &CancellationToken {
        match self {
            Self::Sqlite(store) => store.failed(),
            Self::Postgres(store) => store.failed(),
        }
    }

    pub(super) fn stats(&self) -> StoreStats {
        match self {
            Self::Sqlite(store) => store.stats(),
            Self::Postgres(store) => store.stats(),
        }
    }

    /// Writes what is queued and closes the store. A database that does not respond cannot keep the server from its end.
    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite(store) => store.close().await,
            Self::Postgres(store) => {
                if tokio::time::timeout(CLOSE_WAIT, store.close()).await.is_err() {
                    tracing::warn!("the database does not respond; the server stops without it");
                }
            }
        }
    }
}

/// Checks that a server with this configuration could use its PostgreSQL database. Changes nothing. Returns host, port and
/// database; `None` if the database is not PostgreSQL.
///
/// # Errors
/// [`postgres::OpenError`]: such a server does not start.
pub async fn check_database(config: &Config) -> Result<Option<String>, postgres::OpenError> {
    let StoreLocation::Postgres(postgres) = &config.store.location else { return Ok(None) };
    let options = postgres_options(postgres, &config.store, &config.blobs);
    PostgresStore::check(&options).await.map(Some)
}

/// The way in which a PostgreSQL database is used.
pub(super) fn postgres_options(
    postgres: &PostgresLocation,
    store: &StoreOptions,
    blobs: &BlobOptions,
) -> PostgresOptions {
    PostgresOptions {
        url: postgres.url.clone(),
        password: postgres.password.clone(),
        readers: postgres.readers,
        statement_timeout: postgres.statement_timeout.duration(),
        retry_for: postgres.retry_for.duration(),
        search: store.search,
        accept_loss: store.accept_loss,
        blobs: BlobBounds { max_bytes: blobs.max_bytes, total_bytes: blobs.total_bytes },
    }
}
