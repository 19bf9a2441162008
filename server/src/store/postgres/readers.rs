//! The reading connections. What a query waits for is bounded here too: a database whose machine is gone says nothing at all.

use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agentloop_core::time::{Millis, Timestamp};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, Error, PgConnection, PgPool};

use super::PostgresOptions;
use crate::clock::{Clock as _, SystemClock};
use crate::store::StoreError;

/// Longest wait for a free connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time beyond the database's own bound on a statement: for a connection, and for the way of the answer.
const MARGIN: Duration = Duration::from_secs(15);
/// A connection that was idle for so long is tried before it is used: the database may have been started again since.
const IDLE_BEFORE_TEST: Duration = Duration::from_secs(1);
/// Longest wait for the answer. A connection that has fallen silent is dropped then.
const TEST_WAIT: Duration = Duration::from_secs(1);
/// Time after a query was given up in which every connection that comes back is tried: one of them is that query's.
const TESTED_FOR: Millis = Millis::secs(5);

/// The reading connections of a store.
#[derive(Debug, Clone)]
pub(in crate::store::postgres) struct Readers {
    pool: PgPool,
    /// Longest wait for a query.
    wait: Duration,
    /// When a query was given up last, in milliseconds of the clock.
    given_up: Arc<AtomicU64>,
}

/// The database has not answered in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::postgres) struct Silent;

impl From<Silent> for StoreError {
    fn from(_: Silent) -> Self {
        Self::Unavailable { what: "the database does not answer".to_owned() }
    }
}

impl From<Silent> for Error {
    fn from(_: Silent) -> Self {
        Self::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the database does not answer"))
    }
}

impl Deref for Readers {
    type Target = PgPool;

    fn deref(&self) -> &PgPool {
        &self.pool
    }
}

/// Notes the end of a query that was not answered.
struct Unanswered<'a>(Option<&'a AtomicU64>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(given_up) = self.0 {
            given_up.store(SystemClock.now().0, Ordering::Relaxed);
        }
    }
}

impl Readers {
    /// Connects once, and later as often as is needed.
    pub(in crate::store::postgres) async fn open(
        base: PgConnectOptions,
        options: &PostgresOptions,
    ) -> Result<Self, Error> {
        let timeout = options.statement_timeout.as_millis().to_string();
        let base = base.options([("statement_timeout", timeout.as_str()), ("jit", "off")]);
        let given_up = Arc::<AtomicU64>::default();
        let last = given_up.clone();
        let pool = PgPoolOptions::new()
            .max_connections(options.readers.max(1))
            .min_connections(1)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .before_acquire(|db, state| {
                Box::pin(async move {
                    if state.idle_for > IDLE_BEFORE_TEST {
                        test(db).await?;
                    }
                    Ok(true)
                })
            })
            .after_release(move |db, _| {
                let last = Timestamp(last.load(Ordering::Relaxed));
                Box::pin(async move {
                    // A connection that waits for an answer for ever would keep its place among the connections.
                    if SystemClock.now().since(last) <= TESTED_FOR {
                        test(db).await?;
                    }
                    Ok(true)
                })
            })
            .connect_with(base)
            .await?;
        Ok(Self { pool, wait: options.statement_timeout + MARGIN, given_up })
    }

    /// The result of a query, unless the database says nothing for longer than it may take.
    pub(in crate::store::postgres) async fn in_time<T>(
        &self,
        query: impl Future<Output = T>,
    ) -> Result<T, Silent> {
        let mut query = pin!(query);
        // Dropped before the query, whose connection goes back to the others then.
        let mut unanswered = Unanswered(Some(&self.given_up));
        let answer = tokio::time::timeout(self.wait, query.as_mut()).await.map_err(|_| Silent)?;
        unanswered.0 = None;
        Ok(answer)
    }
}

async fn test(db: &mut PgConnection) -> Result<(), Error> {
    tokio::time::timeout(TEST_WAIT, db.ping()).await.map_err(|_| Error::from(Silent))?
}
