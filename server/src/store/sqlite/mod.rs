//! The embedded store: one SQLite file, one writing task, a few reading connections, and the search index beside it.
//!
//! A read sees every write that was acknowledged before it began. An append makes two hops: to the writing task, and
//! from it to SQLite's own thread.

mod blobs;
mod connect;
mod features_used;
mod files;
mod index;
mod migrations;
mod open;
mod ports;
mod read;
mod rows;
mod words;
mod write;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use agentloop_core::id::Epoch;
use sqlx::SqlitePool;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use self::files::error::OpenError;
pub use self::read::audit::verify_file as verify_audit_file;
pub use crate::store::{BlobBounds, StoreStats};

use self::blobs::{BlobFolder, Blobs};
use self::files::last_state_keeper::LastStateKeeper;
use self::index::Index;
use self::open::OpenedStore;
use self::write::own::WriteSender;
use self::write::task::Writer;
use crate::lifecycle::Tasks;
use crate::store::support::append::WriterCache;
use crate::store::support::damaged::{DamagedQuestions, DamagedSessions};
use crate::store::support::features_used::FeaturesUsed;
use crate::store::support::write::{WriteCounters, write_queue};

/// Options of an opened store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    /// Connections for queries, each with a thread of its own; at least 1. Searches have their own connections.
    pub readers: u32,
    /// Largest size of the file, in bytes. At that size writes are
    /// [`Unavailable`](crate::store::StoreError::Unavailable) until something is deleted. Absent means as
    /// large as the disk.
    pub max_bytes: Option<u64>,
    /// Keeps a search index. If this is off, an index from before is deleted; when it is on again, the index is filled
    /// from the journals.
    pub search: bool,
    /// Opens a database that has less than it had when it was last written, such as one whose log was deleted. Otherwise
    /// that is [`OpenError::LessThanBefore`].
    pub accept_loss: bool,
    /// Bounds on the bytes of one blob, and of all together.
    pub blobs: BlobBounds,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { readers: 4, max_bytes: None, search: true, accept_loss: false, blobs: BlobBounds::default() }
    }
}

/// A [`Store`](crate::store::Store) in one SQLite file.
///
/// Call [`Self::close`] at the end. Nothing is lost without it, but the next start has more to do.
pub struct SqliteStore {
    writes: WriteSender,
    readers: SqlitePool,
    /// Held while usage is added up, which may take long: it never has more than one of the readers.
    adding_up: tokio::sync::Mutex<()>,
    epoch: Epoch,
    counters: Arc<WriteCounters>,
    used: FeaturesUsed,
    damaged: DamagedSessions,
    damaged_questions: DamagedQuestions,
    blobs: Blobs,
    /// Absent if search is off.
    index: Option<Index>,
    closing: CancellationToken,
    /// The writing task and the task of the search index.
    tasks: Tasks,
    writer: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

impl SqliteStore {
    /// Opens a file, or creates it if it does not exist, and locks it against other servers.
    ///
    /// # Errors
    /// [`OpenError`]; the file is left as it was.
    pub async fn open(path: impl AsRef<Path>, options: &SqliteOptions) -> Result<Self, OpenError> {
        Ok(Self::start(open::file(path.as_ref(), options).await?, options))
    }

    /// A store in memory, for tests. Its content is gone when it is dropped.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn in_memory() -> Result<Self, OpenError> {
        Self::in_memory_with(&SqliteOptions::default()).await
    }

    /// As [`Self::in_memory`], with other options than the default ones.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn in_memory_with(options: &SqliteOptions) -> Result<Self, OpenError> {
        Ok(Self::start(open::memory(options).await?, options))
    }

    fn start(opened: OpenedStore, options: &SqliteOptions) -> Self {
        let (writes, queue) = write_queue();
        let counters = Arc::<WriteCounters>::default();
        let closing = CancellationToken::new();
        let tasks = Tasks::new();
        let folder = match &opened.database {
            Some(database) => BlobFolder::beside(database),
            None => BlobFolder::temporary(),
        };
        let blobs =
            Blobs::new(folder, options.blobs, opened.readers.clone(), writes.downgrade(), tasks.clone());
        let keeper = opened.database.map(|database| {
            LastStateKeeper::start(database, opened.readers.clone(), closing.clone(), &tasks)
        });
        let writer = Writer {
            options: opened.writing,
            db: Some(opened.db),
            cache: WriterCache::default(),
            epoch: opened.epoch,
            has_index: options.search,
            epoch_is_written: opened.epoch_is_written,
            requests: queue,
            closing: closing.clone(),
            counters: counters.clone(),
            lock: opened.lock,
            files: opened.files,
            moved: false,
            keeper,
            audited: None,
        };
        let writer = tokio::sync::Mutex::new(Some(tasks.spawn("store writer", writer.run())));
        let index = options
            .search
            .then(|| Index::start(opened.index, opened.readers.clone(), writes.downgrade(), &tasks));
        Self {
            writes,
            readers: opened.readers,
            adding_up: tokio::sync::Mutex::new(()),
            epoch: opened.epoch,
            counters,
            used: opened.used,
            damaged: DamagedSessions::default(),
            damaged_questions: DamagedQuestions::default(),
            blobs,
            index,
            closing,
            tasks,
            writer,
        }
    }

    /// Commits all queued writes, moves the write-ahead log into the file and closes it. Every later call is
    /// [`Unavailable`](crate::store::StoreError::Unavailable). Closing again waits for the same end.
    pub async fn close(&self) {
        if let Some(index) = &self.index {
            index.close().await;
        }
        self.readers.close().await;
        self.closing.cancel();
        if let Some(writer) = self.writer.lock().await.take()
            && let Err(error) = writer.await
        {
            tracing::error!(%error, "the writing task of the store failed; restart the server");
        }
    }

    /// Cancelled when a task of the store has panicked. Every later write is
    /// [`Unavailable`](crate::store::StoreError::Unavailable). The process should end; its next start opens the file again.
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
