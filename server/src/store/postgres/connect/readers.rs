//! The reading connections. The time of a query is bounded here too, since a database whose machine is gone never responds.

use std::ops::Deref;
use std::pin::pin;
use std::time::Duration;

use sqlx::Error;
use sqlx::postgres::PgConnectOptions;
use tokio::time::Instant;

use super::reader_pool::ReaderPool;
use crate::lifecycle::Tasks;
use crate::store::StoreError;
use crate::store::postgres::PostgresOptions;
use crate::store::postgres::rows;
use crate::store::postgres::scope::Scope;

/// Time beyond the database's own bound on a statement: for a connection, and for the way of the response.
const MARGIN: Duration = Duration::from_secs(15);

/// The wait before a query is made again.
const RETRY_WAIT: Duration = Duration::from_millis(100);

/// The reading connections of a store.
#[derive(Debug, Clone)]
pub(in crate::store) struct Readers {
    pool: ReaderPool,
    /// Longest wait for a query.
    wait: Duration,
    /// Time for which a query is made again whose connection was lost.
    retry_for: Duration,
    /// The shards that a query for work of this server looks at.
    scope: Scope,
}

/// The database has not responded in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::postgres) struct Silent;

impl From<Silent> for StoreError {
    fn from(_: Silent) -> Self {
        Self::Unavailable { what: "the database does not respond".to_owned() }
    }
}

impl From<Silent> for Error {
    fn from(_: Silent) -> Self {
        Self::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the database does not respond"))
    }
}

impl Deref for Readers {
    type Target = ReaderPool;

    fn deref(&self) -> &ReaderPool {
        &self.pool
    }
}

/// Notes the end of a query that got no response.
struct PendingQuery<'a>(Option<&'a ReaderPool>);

impl Drop for PendingQuery<'_> {
    fn drop(&mut self) {
        if let Some(pool) = self.0 {
            pool.gave_up();
        }
    }
}

impl Readers {
    /// Connects once, and later as often as is needed.
    pub(in crate::store::postgres) async fn open(
        base: PgConnectOptions,
        options: &PostgresOptions,
        tasks: Tasks,
    ) -> Result<Self, Error> {
        let timeout = options.statement_timeout.as_millis().to_string();
        let base = base.options([("statement_timeout", timeout.as_str()), ("jit", "off")]);
        let pool = ReaderPool::new(base, options.readers, tasks);
        drop(pool.acquire().await?);
        Ok(Self {
            pool,
            wait: options.statement_timeout + MARGIN,
            retry_for: options.retry_for,
            scope: Scope::all(),
        })
    }

    /// The same connections, for a server with these shards.
    pub(in crate::store::postgres) fn within(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// The shards, as queries name them. `None`: all.
    pub(in crate::store::postgres) fn shards(&self) -> Option<String> {
        self.scope.listed()
    }

    /// The result of a query. If its connection is lost, it is made again over another one, for the time for which writes are
    /// tried again, too.
    pub(in crate::store::postgres) async fn retried<T, Q>(&self, query: impl Fn() -> Q) -> Result<T, Error>
    where
        Q: Future<Output = Result<T, Error>>,
    {
        let until = Instant::now() + self.retry_for;
        loop {
            match self.in_time(query()).await? {
                Err(error) if rows::is_lost(&error) && Instant::now() < until && !self.pool.is_closed() => {
                    tracing::debug!(%error, "the connection of a query was lost; it is made again");
                    tokio::time::sleep(RETRY_WAIT).await;
                }
                result => return result,
            }
        }
    }

    /// The result of a query, unless the database says nothing for longer than it may take.
    pub(in crate::store::postgres) async fn in_time<T>(
        &self,
        query: impl Future<Output = T>,
    ) -> Result<T, Silent> {
        let mut query = pin!(query);
        // Dropped before the query, whose connection goes back to the others then.
        let mut pending = PendingQuery(Some(&self.pool));
        let result = tokio::time::timeout(self.wait, query.as_mut()).await.map_err(|_| Silent)?;
        pending.0 = None;
        Ok(result)
    }
}
