//! The search index: a full-text index of messages in a file beside the database, filled by a task of its own.
//!
//! The writer numbers each message of a user or a model; entries of forks share the number. The index has a document under
//! that number. The task reads the messages above its highest number and adds them in batches. A search first waits until
//! every acknowledged message is in the index.
//!
//! **Invariant:** everything in this file follows from the database. An index that is damaged, of another version or of
//! another database is deleted and filled again from the journals. A deleted session leaves the numbers of its documents in
//! `search_deleted` until the index has deleted them. No number is given out twice.

pub(in crate::store::sqlite) mod file;
mod task;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentloop_core::id::Epoch;
use sqlx::SqlitePool;
use tokio::sync::{Notify, mpsc, oneshot};

pub(in crate::store::sqlite) use self::task::SearchConnections;
use self::task::{IndexCommand, IndexTask};
use crate::lifecycle::Tasks;
use crate::store::StoreError;
use crate::store::sqlite::files::same_files::SameFiles;
use crate::store::sqlite::write::own::WeakWriteSender;
use crate::store::support::write::closed;

#[cfg(test)]
pub(in crate::store::sqlite) use self::task::{STATE, UNINDEXED};

/// Messages of a batch. A search does not wait until a batch is full.
const BATCH_MESSAGES: usize = 256;
/// Commands in the task's queue, at most. Callers beyond that wait to enqueue theirs.
const COMMANDS_MAX: usize = 1_024;
/// Longest wait of a search for an index that is being filled. Filling may take minutes for a large database.
const FILLED_TIMEOUT: Duration = Duration::from_secs(10);

/// The files of an index and its database, and the marks by which they recognise each other.
#[derive(Debug, Clone)]
pub(in crate::store::sqlite) struct IndexLocation {
    /// The file of the index, or its name in memory.
    pub(in crate::store::sqlite) path: PathBuf,
    /// True for an index in memory, which is gone with the last connection to it.
    pub(in crate::store::sqlite) in_memory: bool,
    /// The file of the database, or its name in memory.
    pub(in crate::store::sqlite) database: PathBuf,
    /// The random number of the database, see `write::ops::identity`.
    pub(in crate::store::sqlite) identity: i64,
    /// The highest number of a document when the database was opened.
    pub(in crate::store::sqlite) last: i64,
    /// The epoch that began when the database was opened.
    pub(in crate::store::sqlite) epoch: Epoch,
    /// Largest size of the file, in bytes. Absent means as large as the disk.
    pub(in crate::store::sqlite) max_bytes: Option<u64>,
    /// The database's files, which a connection for searches must not find replaced.
    pub(in crate::store::sqlite) files: SameFiles,
}

/// A handle to the task that fills the index.
#[derive(Debug)]
pub(in crate::store::sqlite) struct Index {
    commands: mpsc::Sender<IndexCommand>,
    /// Messages that were acknowledged since a batch was last announced.
    unannounced: AtomicUsize,
    batch_ready: Arc<Notify>,
}

impl Index {
    /// Starts the task. It ends when the handle is dropped or closed.
    pub(in crate::store::sqlite) fn start(
        location: IndexLocation,
        readers: SqlitePool,
        writer: WeakWriteSender,
        tasks: &Tasks,
    ) -> Self {
        let (commands, queue) = mpsc::channel(COMMANDS_MAX);
        let batch_ready = Arc::<Notify>::default();
        let filler = IndexTask::new(location, readers, writer, queue, batch_ready.clone());
        let _supervised = tasks.spawn("search index", filler.run());
        Self { commands, unannounced: AtomicUsize::new(0), batch_ready }
    }

    /// Counts messages that were acknowledged, and wakes the task once they make a batch.
    pub(in crate::store::sqlite) fn note(&self, messages: usize) {
        if messages > 0
            && self.unannounced.fetch_add(messages, Ordering::Relaxed) + messages >= BATCH_MESSAGES
        {
            self.unannounced.store(0, Ordering::Relaxed);
            self.batch_ready.notify_one();
        }
    }

    /// Connections to an index that has every message that was acknowledged before.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if that takes longer than ten seconds, or fails.
    pub(in crate::store::sqlite) async fn filled(&self) -> Result<SearchConnections, StoreError> {
        let filled = self.send_command(IndexCommand::Fill);
        tokio::time::timeout(FILLED_TIMEOUT, filled).await.unwrap_or_else(|_| {
            let what =
                "the search index is being filled, which takes minutes for a large database; try again later"
                    .to_owned();
            Err(StoreError::Unavailable { what })
        })
    }

    /// Deletes the index and fills it again, unless that was done since these connections were made.
    pub(in crate::store::sqlite) async fn report_damage(&self, searchers: &SearchConnections) {
        // Without the task there is no index to be filled.
        let _ended = self.commands.send(IndexCommand::Damaged(searchers.number())).await;
    }

    /// Deletes the documents of deleted sessions from the index.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]. The next deletion and the next start try again.
    pub(in crate::store::sqlite) async fn delete(&self) -> Result<(), StoreError> {
        self.send_command(IndexCommand::Delete).await
    }

    /// Ends the task after its current step. Searches that wait fail.
    pub(in crate::store::sqlite) async fn close(&self) {
        // A task that does not reply has ended.
        let _ended = self.send_command(IndexCommand::Close).await;
    }

    async fn send_command<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> IndexCommand,
    ) -> Result<T, StoreError> {
        let (reply, result) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| closed())?;
        result.await.map_err(|_| closed())?
    }
}
