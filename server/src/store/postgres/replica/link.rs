//! A replica's connection to the database. It is made anew when it breaks, or does not respond in time.

use std::io;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Error, PgConnection};

use crate::store::postgres::connect::settings;
use crate::store::postgres::open::ReplicaConnection;
use crate::store::postgres::{owner, rows};

/// The connection, and how it is used.
#[derive(Debug)]
pub(in crate::store::postgres) struct DatabaseLink {
    options: PgConnectOptions,
    /// `None` after a failure.
    db: Option<PgConnection>,
    /// True if it shares the lock that keeps servers without `[cluster]` out.
    has_lock: bool,
    /// Longest time of a statement, with the connection that it may need.
    patience: Duration,
    /// Longest wait of a statement for a row that another has locked, in milliseconds.
    lock_wait: u32,
}

impl DatabaseLink {
    /// Uses a connection that has the lock.
    pub(in crate::store::postgres) fn new(
        connection: ReplicaConnection,
        patience: Duration,
        lock_wait: Duration,
    ) -> Self {
        let lock_wait = u32::try_from(lock_wait.as_millis()).unwrap_or(u32::MAX);
        let ReplicaConnection { db, options, .. } = connection;
        Self { options, db: Some(db), has_lock: true, patience, lock_wait }
    }

    /// Executes a statement, on a new connection if there is none.
    ///
    /// # Errors
    /// SQL's own, or [`Error::Io`] after too long a time. Then nobody knows if the statement was carried out, or will be.
    pub(in crate::store::postgres) async fn execute<T>(
        &mut self,
        statement: impl AsyncFnOnce(&mut PgConnection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // A connection whose response is outstanding is of no use, so it is not put back.
        let before = self.db.take();
        let in_time = tokio::time::timeout(self.patience, async {
            let mut db = match before {
                Some(db) => db,
                None => self.connect().await?,
            };
            let done = statement(&mut db).await;
            if !matches!(&done, Err(error) if rows::is_lost(error)) {
                self.db = Some(db);
            }
            done
        });
        in_time.await.unwrap_or_else(|_| Err(Error::Io(io::ErrorKind::TimedOut.into())))
    }

    /// Takes the lock that the connection before had, if that is possible at once. It is not needed for anything but to keep
    /// a server without `[cluster]` from starting, which would fence this replica.
    pub(in crate::store::postgres) async fn share_lock(&mut self) {
        if self.has_lock || self.db.is_none() {
            return;
        }
        match self.execute(async |db: &mut PgConnection| owner::try_share_lock(db).await).await {
            Ok(has_owner) => self.has_lock = has_owner,
            Err(error) => tracing::debug!(%error, "the lock of replicas was not taken; trying again"),
        }
    }

    /// Bounds the waits for locks of the connection that there is.
    pub(in crate::store::postgres) async fn begin(&mut self) -> Result<(), Error> {
        let wait = self.lock_wait;
        self.execute(async move |db: &mut PgConnection| owner::wait_for_locks(db, wait).await).await
    }

    async fn connect(&mut self) -> Result<PgConnection, Error> {
        self.has_lock = false;
        let mut db = self.options.connect().await?;
        settings::to_beat(&mut db).await?;
        owner::wait_for_locks(&mut db, self.lock_wait).await?;
        Ok(db)
    }
}
