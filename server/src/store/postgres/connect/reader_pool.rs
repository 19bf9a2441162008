//! Connections that read, each for one query at a time. The pool of sqlx tests each connection that comes back, which is a trip
//! to the database for each query. Here only one whose query failed, or was given up, is tested.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agentloop_core::time::{Millis, Timestamp};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Connection as _, Either, Error, Execute, Executor, PgConnection, Postgres, SqlStr};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::plans;
use crate::clock::{Clock as _, SystemClock};
use crate::lifecycle::Tasks;

/// Longest wait for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// The wait before a database that is about to start is tried again. It doubles each time, up to the longest.
const CONNECT_WAIT_MIN: Duration = Duration::from_millis(10);
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(2);
/// A connection that was idle for so long is tried before it is used: the database may have been started again since.
const IDLE_BEFORE_TEST: Duration = Duration::from_secs(1);
/// Longest wait for the sign of life. A connection that has fallen silent is dropped then.
const TEST_WAIT: Duration = Duration::from_secs(1);
/// Time after a query was given up in which every connection that comes back is tried: one of them is that query's.
const TESTED_FOR: Millis = Millis::secs(5);

/// At most so many connections. Clones share them.
#[derive(Debug, Clone)]
pub(in crate::store) struct ReaderPool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: PgConnectOptions,
    /// One permit for each connection that is used, or comes back.
    places: Arc<Semaphore>,
    idle: Mutex<Vec<Idle>>,
    /// When a query was given up last, in milliseconds of the clock.
    given_up: AtomicU64,
    tasks: Tasks,
}

#[derive(Debug)]
struct Idle {
    reader: Reader,
    since: Instant,
}

/// A connection, and the number of queries that it was given out for.
#[derive(Debug)]
struct Reader {
    db: PgConnection,
    uses: u64,
}

/// A connection that is used. It comes back when this is dropped.
#[derive(Debug)]
pub(in crate::store::postgres) struct PooledReader {
    /// `None` once it is on its way back.
    reader: Option<Reader>,
    /// True if the response to the last query was read to its end.
    is_settled: bool,
    place: Option<OwnedSemaphorePermit>,
    pool: Arc<Shared>,
}

impl ReaderPool {
    /// Connects when a connection is needed, up to `max` times.
    pub(in crate::store::postgres) fn new(options: PgConnectOptions, max: u32, tasks: Tasks) -> Self {
        let places = usize::try_from(max.max(1)).expect("a number of connections");
        Self(Arc::new(Shared {
            options,
            places: Arc::new(Semaphore::new(places)),
            idle: Mutex::default(),
            given_up: AtomicU64::new(0),
            tasks,
        }))
    }

    /// Waits for a connection. Call [`PooledReader::settle`] after its last query, or the connection is tested before it is used
    /// again.
    ///
    /// # Errors
    /// [`Error::PoolTimedOut`] after 10 s, [`Error::PoolClosed`], or that of the database.
    pub(in crate::store::postgres) async fn acquire(&self) -> Result<PooledReader, Error> {
        let until = Instant::now() + ACQUIRE_TIMEOUT;
        let place = timeout_at(until, self.0.places.clone().acquire_owned());
        let place = place.await.map_err(|_late| Error::PoolTimedOut)?.map_err(|_closed| Error::PoolClosed)?;
        let reader = timeout_at(until, self.0.connection());
        let mut reader = reader.await.map_err(|_late| Error::PoolTimedOut)??;
        reader.uses += 1;
        Ok(PooledReader { reader: Some(reader), is_settled: true, place: Some(place), pool: self.0.clone() })
    }

    /// True once it gives out no connections any more.
    pub(in crate::store::postgres) fn is_closed(&self) -> bool {
        self.0.places.is_closed()
    }

    /// Notes that a query was given up because the database said nothing.
    pub(in crate::store::postgres) fn gave_up(&self) {
        self.0.given_up.store(SystemClock.now().0, Ordering::Relaxed);
    }

    /// Gives out no connections any more, and closes those that are idle.
    pub(in crate::store::postgres) async fn close(&self) {
        self.0.places.close();
        let idle = std::mem::take(&mut *self.0.idle.lock());
        for Idle { reader, .. } in idle {
            // A database that does not respond closes it by itself.
            let _closed = timeout(TEST_WAIT, reader.db.close()).await;
        }
    }
}

impl Shared {
    /// The connection that was used last and is alive, or else a new one.
    async fn connection(&self) -> Result<Reader, Error> {
        loop {
            let Some(Idle { mut reader, since }) = self.idle.lock().pop() else {
                return Ok(Reader { db: self.connect().await?, uses: 0 });
            };
            let is_good = if plans::are_renewed(reader.uses) {
                plans::renew(&mut reader.db, TEST_WAIT).await
            } else {
                since.elapsed() <= IDLE_BEFORE_TEST || is_alive(&mut reader.db, TEST_WAIT).await
            };
            if is_good {
                return Ok(reader);
            }
        }
    }

    /// Connects. A database that is about to start is tried again and again.
    async fn connect(&self) -> Result<PgConnection, Error> {
        let mut wait = CONNECT_WAIT_MIN;
        loop {
            match PgConnection::connect_with(&self.options).await {
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
                Err(Error::Database(error)) if error.is_transient_in_connect_phase() => {}
                connected => return connected,
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(CONNECT_WAIT_MAX);
        }
    }

    fn gave_up_lately(&self) -> bool {
        SystemClock.now().since(Timestamp(self.given_up.load(Ordering::Relaxed))) <= TESTED_FOR
    }

    fn keep(&self, reader: Reader) {
        if !self.places.is_closed() {
            self.idle.lock().push(Idle { reader, since: Instant::now() });
        }
    }

    /// Keeps a connection whose query may be under way, once that has ended. Its place stays taken until then.
    async fn keep_once_settled(&self, mut reader: Reader, place: OwnedSemaphorePermit) {
        let wait = if self.gave_up_lately() { TEST_WAIT } else { Duration::MAX };
        if is_alive(&mut reader.db, wait).await {
            self.keep(reader);
        }
        drop(place);
    }
}

impl PooledReader {
    /// Notes the end of a query. After an error the connection is tested before it is used again.
    pub(in crate::store::postgres) fn settle<T>(&mut self, result: &Result<T, Error>) {
        self.is_settled = result.is_ok();
    }
}

impl Deref for PooledReader {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.reader.as_ref().expect("it is there until this is dropped").db
    }
}

/// A query takes the connection this way, and is under way from then on.
impl DerefMut for PooledReader {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.is_settled = false;
        &mut self.reader.as_mut().expect("it is there until this is dropped").db
    }
}

impl Drop for PooledReader {
    fn drop(&mut self) {
        let (Some(reader), Some(place)) = (self.reader.take(), self.place.take()) else { return };
        if self.is_settled && !self.pool.gave_up_lately() {
            return self.pool.keep(reader);
        }
        // It ends with the connection, and nobody waits for it. Without a runtime the process is about to end.
        if Handle::try_current().is_ok() {
            let pool = self.pool.clone();
            let settling = async move { pool.keep_once_settled(reader, place).await };
            drop(self.pool.tasks.spawn_contained("settle reader", settling));
        }
    }
}

/// True if the database responds over this connection in time, after what it still has to send.
async fn is_alive(db: &mut PgConnection, wait: Duration) -> bool {
    matches!(timeout(wait, db.ping()).await, Ok(Ok(())))
}

/// Each query has a connection of its own. All of its rows are read before the first is given out.
impl<'c> Executor<'c> for &'c ReaderPool {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let result = async move {
            let mut reader = self.acquire().await?;
            let result = reader.fetch_many(query).try_collect::<Vec<_>>().await;
            reader.settle(&result);
            result.map(|steps| stream::iter(steps.into_iter().map(Ok)))
        };
        stream::once(result).try_flatten().boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        Box::pin(async move {
            let mut reader = self.acquire().await?;
            let result = reader.fetch_optional(query).await;
            reader.settle(&result);
            result
        })
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, Error>>
    where
        'c: 'e,
    {
        Box::pin(async move {
            let mut reader = self.acquire().await?;
            let result = reader.prepare_with(sql, parameters).await;
            reader.settle(&result);
            result
        })
    }
}
