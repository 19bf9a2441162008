//! A store in a PostgreSQL database: of a server alone, or of one of several replicas, each of which writes to the sessions of
//! its own shards.
//!
//! It is built like the SQLite store: one writing task, which checks appends against rows that it has in memory, and a few
//! reading connections. A commit of many appends is one statement and one round trip. A read sees every write that was
//! acknowledged before it began.

mod blobs;
mod connect;
mod deleted_rows;
mod index;
mod migrations;
mod open;
mod open_error;
mod owner;
mod ports;
mod read;
mod replica;
mod rows;
mod scope;
mod words;
mod write;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use agentloop_core::cluster::shard::{OwnerNo, ShardNo};
use agentloop_core::id::Epoch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::connect::readers::Readers;
pub use self::open_error::OpenError;
pub use self::replica::{Replica, ReplicaOptions, ReplicaShards};
pub use self::scope::Scope;

use self::blobs::Blobs;
use self::deleted_rows::DeletedRows;
use self::index::Index;
use self::open::OpenedStore;
pub(in crate::store) use self::open::{SOURCE_UNKNOWN, for_copy as open_for_copy};
use self::owner::ServerKind;
pub(in crate::store) use self::rows::{clean, indexed};
pub(in crate::store) use self::write::ops::BLOCK_NUMBERS;
use self::write::own::{WriteOp, WriteSender};
use self::write::put_off::PutOffWrites;
use self::write::task::{LockPatience, Writer};
use crate::clock::{Clock as _, SystemClock};
use crate::lifecycle::Tasks;
use crate::secret::Secret;
use crate::store::support::append::WriterCache;
use crate::store::support::damaged::{DamagedQuestions, DamagedSessions};
use crate::store::support::features_used::FeaturesUsed;
use crate::store::support::number::int;
use crate::store::support::write::{WriteCounters, write_queue};
use crate::store::{BlobBounds, StoreError, StoreStats};

/// Options of an opened store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresOptions {
    /// Address of the database, as `postgres://USER@HOST:PORT/DATABASE`. It may have the password.
    pub url: Secret,
    /// The password, if it is not in the address.
    pub password: Option<Secret>,
    /// Connections for queries; at least 1. One more writes.
    pub readers: u32,
    /// Longest time of a query.
    pub statement_timeout: Duration,
    /// Time for which a write is tried again while the database cannot be reached.
    pub retry_for: Duration,
    /// Keeps a search index. If this is off, an index from before is emptied; when it is on again, the index is filled from
    /// the journals.
    pub search: bool,
    /// Opens a database whose settings may lose acknowledged writes at a power cut.
    pub accept_loss: bool,
    /// Bounds on the bytes of one blob, and of all together.
    pub blobs: BlobBounds,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            url: Secret::new(""),
            password: None,
            readers: 8,
            statement_timeout: Duration::from_secs(60),
            retry_for: Duration::from_secs(10),
            search: true,
            accept_loss: false,
            blobs: BlobBounds::default(),
        }
    }
}

/// A [`Store`](crate::store::Store) in a PostgreSQL database.
///
/// Call [`Self::close`] at the end. Nothing is lost without it.
pub struct PostgresStore {
    writes: WriteSender,
    readers: Readers,
    epoch: Epoch,
    scope: Scope,
    counters: Arc<WriteCounters>,
    used: FeaturesUsed,
    damaged: DamagedSessions,
    damaged_questions: DamagedQuestions,
    blobs: Blobs,
    deleted_rows: DeletedRows,
    /// Absent if search is off.
    index: Option<Index>,
    /// A place for each search that may be made at a time. One may take long, and other reads need connections, too.
    searching: tokio::sync::Semaphore,
    /// Locked while usage is added up, for the same reason.
    adding_up: tokio::sync::Mutex<()>,
    closing: CancellationToken,
    /// The writing task and the task of the search index.
    tasks: Tasks,
    writer: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

impl PostgresStore {
    /// Opens a database, makes its tables if there are none, and locks it against other servers.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(options: &PostgresOptions) -> Result<Self, OpenError> {
        let opened = Box::pin(open::open(options, false)).await?;
        Ok(Self::start(opened, options, Scope::all()))
    }

    /// Checks that a server could use the database: that it responds, its version and its settings. Changes nothing. Returns
    /// host, port and database.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn check(options: &PostgresOptions) -> Result<String, OpenError> {
        open::check(options).await
    }

    /// Opens the database as the replica of this number, which reads all of it and writes to the sessions of its shards
    /// ([`Replica::scope`]). The tables are there: the replica has made them.
    ///
    /// # Errors
    /// [`OpenError`], of which [`OpenError::Fenced`] says that others have taken the replica for dead.
    pub async fn open_replica(
        options: &PostgresOptions,
        number: OwnerNo,
        scope: Scope,
    ) -> Result<Self, OpenError> {
        let opened = Box::pin(open::open_replica(options, number)).await?;
        Ok(Self::start(opened, options, scope))
    }

    /// Makes parked runs due whose last event lies in the future, in the shards that this replica has gained: the clock of their
    /// owner before was ahead. Their waits are measured anew. It needs no fence, since a run that is woken early waits on.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn wake_runs_of_the_future(&self) -> Result<(), StoreError> {
        let now = SystemClock.now();
        let sql = "UPDATE run_states SET wake_at = $1
                   WHERE wake_at > $1 AND greatest(updated_at, last_event_at) > $1
                     AND ($2::text::bigint[] IS NULL OR shard = ANY ($2::text::bigint[]))";
        let query = sqlx::query(sql).bind(int(now.0)).bind(self.scope.listed()).execute(&*self.readers);
        // The owner before may have left deleted sessions half way.
        self.deleted_rows.look();
        if let Some(index) = &self.index {
            index.look();
        }
        let woken = self.readers.in_time(query).await?;
        woken.map(|_| ()).map_err(|error| rows::failure("waits of runs", &error))
    }

    /// Begins nothing more for the sessions of these shards, which are about to be given away: runs neither start nor come up
    /// again.
    pub fn leave_shards(&self, shards: &[ShardNo]) {
        for shard in shards {
            self.scope.leave(*shard);
        }
    }

    /// True if a write that is queued now is done within this time. It is not while one goes on for longer, such as the deletion
    /// of a large session, or the database does not respond.
    pub async fn writes_within(&self, time: Duration) -> bool {
        let written = tokio::time::timeout(time, self.writes.done(WriteOp::Check)).await;
        matches!(written, Ok(Ok(())))
    }

    /// Writes nothing more to the sessions of these shards. Returns after the last commit that may have.
    ///
    /// # Errors
    /// [`StoreError`] if the database does not respond. The shards are forgotten all the same, but a commit may be under way.
    pub async fn forget_shards(&self, shards: &[ShardNo]) -> Result<(), StoreError> {
        for shard in shards {
            self.scope.remove(*shard);
        }
        // The writing task looks at the shards before each commit.
        self.writes.done(WriteOp::Check).await
    }

    /// Opens a database that a copy is made into, to compare it.
    pub(in crate::store) async fn open_copy(options: &PostgresOptions) -> Result<Self, OpenError> {
        let opened = Box::pin(open::open(options, true)).await?;
        Ok(Self::start(opened, options, Scope::all()))
    }

    fn start(opened: OpenedStore, options: &PostgresOptions, scope: Scope) -> Self {
        let (writes, queue) = write_queue();
        let counters = Arc::<WriteCounters>::default();
        let closing = CancellationToken::new();
        let tasks = opened.tasks;
        let readers = opened.readers.within(scope.clone());
        let deleted_rows = DeletedRows::start(readers.clone(), closing.clone(), &tasks);
        let writer = Writer {
            options: opened.writing,
            db: Some(opened.db),
            owner: opened.owner,
            server: opened.server,
            batch: 0,
            acknowledged: 0,
            last_writes: 0,
            numbers: opened.started.numbers,
            cache: WriterCache::default(),
            epoch: opened.started.epoch,
            scope: scope.clone(),
            additions: 0,
            claims_seen: None,
            removals: 0,
            requests: queue,
            deleted_rows: deleted_rows.clone(),
            put_off: PutOffWrites::default(),
            patience: LockPatience::Batch,
            closing: closing.clone(),
            failed: tasks.soft().clone(),
            counters: counters.clone(),
            retry_for: options.retry_for,
            specs_since: SystemClock.now(),
            audited: None,
        };
        let blobs =
            Blobs::new(options.blobs, opened.server, readers.clone(), writes.downgrade(), tasks.clone());
        let writer = tokio::sync::Mutex::new(Some(tasks.spawn("store writer", writer.run())));
        let own = (opened.server == ServerKind::Replica).then_some(opened.owner.no);
        let index = options.search.then(|| Index::start(readers.clone(), own, closing.clone(), &tasks));
        Self {
            writes,
            readers,
            epoch: opened.started.epoch,
            scope,
            counters,
            used: opened.started.used,
            damaged: DamagedSessions::default(),
            damaged_questions: DamagedQuestions::default(),
            blobs,
            deleted_rows,
            index,
            searching: tokio::sync::Semaphore::new(searches_at_once(options.readers)),
            adding_up: tokio::sync::Mutex::new(()),
            closing,
            tasks,
            writer,
        }
    }

    /// Commits all queued writes and closes the connections. Every later call is
    /// [`Unavailable`](crate::store::StoreError::Unavailable). Closing again waits for the same end.
    pub async fn close(&self) {
        self.closing.cancel();
        if let Some(writer) = self.writer.lock().await.take()
            && let Err(error) = writer.await
        {
            tracing::error!(%error, "the writing task of the store failed; restart the server");
        }
        self.readers.close().await;
    }

    /// Cancelled when a task of the store has panicked, or another server has taken the database over. Every later write is
    /// [`Unavailable`](crate::store::StoreError::Unavailable). The process should end.
    #[must_use]
    pub fn failed(&self) -> &CancellationToken {
        self.tasks.soft()
    }

    /// Counts of writes since the store was opened.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        self.counters.stats()
    }
}

/// Searches at a time: they leave connections to other reads, if there are several.
fn searches_at_once(readers: u32) -> usize {
    if readers < 4 { 1 } else { 2 }
}
