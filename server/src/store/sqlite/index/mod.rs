//! The index of what was said: a full-text index in a file of its own beside the database, written by a task of its own.
//!
//! The writer gives each message of a user or a model a number, which entries of forks share. The index has a document
//! under this number; the task reads the messages above the highest number that it has and adds them, many at a time.
//! Whoever searches waits until everything that was acknowledged before is in the index.
//!
//! **Invariant:** nothing is in this file alone. One that is damaged, of another version or of another database is
//! deleted and filled again from the journals. A session that is deleted leaves the numbers of its documents in
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

pub(in crate::store::sqlite) use self::task::Searchers;
use self::task::{Command, Filler};
use crate::lifecycle::Tasks;
use crate::store::StoreError;
use crate::store::sqlite::write::task::Job;

#[cfg(test)]
pub(in crate::store::sqlite) use self::task::{STATE, UNINDEXED};

/// Messages that are added together, unless someone searches before.
const BATCH_MESSAGES: usize = 256;
/// Searches and deletions that wait for the task; whoever brings more waits before it is heard.
const COMMANDS_MAX: usize = 1_024;
/// How long a search waits for an index that is being filled, which may take minutes for a large database.
const FILLED_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the index is, and of which database.
#[derive(Debug, Clone)]
pub(in crate::store::sqlite) struct IndexPlace {
    /// The file, or the name in memory.
    pub(in crate::store::sqlite) path: PathBuf,
    /// Whether it is gone with the last connection to it.
    pub(in crate::store::sqlite) in_memory: bool,
    /// The database, or its name in memory.
    pub(in crate::store::sqlite) database: PathBuf,
    /// A number that the database was given when it was made.
    pub(in crate::store::sqlite) identity: i64,
    /// The number of the last document before this opening.
    pub(in crate::store::sqlite) last: i64,
    /// Which opening of the database this is.
    pub(in crate::store::sqlite) epoch: Epoch,
    /// How large the file may get. Absent means as large as the disk.
    pub(in crate::store::sqlite) max_bytes: Option<u64>,
}

/// The index, for those who search, add and delete.
#[derive(Debug)]
pub(in crate::store::sqlite) struct Index {
    commands: mpsc::Sender<Command>,
    /// Messages that were acknowledged since the task was last woken.
    added: AtomicUsize,
    many: Arc<Notify>,
}

impl Index {
    /// Starts the task. It ends with the last of the handles, or with the store's readers.
    pub(in crate::store::sqlite) fn start(
        place: IndexPlace,
        readers: SqlitePool,
        writer: mpsc::WeakSender<Job>,
        tasks: &Tasks,
    ) -> Self {
        let (commands, queue) = mpsc::channel(COMMANDS_MAX);
        let many = Arc::<Notify>::default();
        let filler = Filler::new(place, readers, writer, queue, many.clone());
        let _supervised = tasks.spawn("search index", filler.run());
        Self { commands, added: AtomicUsize::new(0), many }
    }

    /// Notes that so many messages were acknowledged.
    pub(in crate::store::sqlite) fn note(&self, messages: usize) {
        if messages > 0 && self.added.fetch_add(messages, Ordering::Relaxed) + messages >= BATCH_MESSAGES {
            self.added.store(0, Ordering::Relaxed);
            self.many.notify_one();
        }
    }

    /// Connections to an index that has everything that was acknowledged before.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when that takes longer than ten seconds, or cannot be.
    pub(in crate::store::sqlite) async fn filled(&self) -> Result<Searchers, StoreError> {
        let filled = self.ask(Command::Fill);
        tokio::time::timeout(FILLED_TIMEOUT, filled).await.unwrap_or_else(|_| {
            let what = "the search index is being filled; the more was said, the longer it takes".to_owned();
            Err(StoreError::Unavailable { what })
        })
    }

    /// Deletes the index and fills it again, if these connections are still those to it.
    pub(in crate::store::sqlite) async fn is_damaged(&self, searchers: &Searchers) {
        // Without the task there is nothing to be filled.
        let _ended = self.commands.send(Command::Damaged(searchers.number())).await;
    }

    /// Takes out of the index what was said in sessions that are deleted.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]; it is tried again by the next deletion, and at the next start.
    pub(in crate::store::sqlite) async fn delete(&self) -> Result<(), StoreError> {
        self.ask(Command::Delete).await
    }

    /// Ends the task once what it does is done. Searches that wait fail.
    pub(in crate::store::sqlite) async fn close(&self) {
        // It has ended where it does not answer.
        let _ended = self.ask(Command::Close).await;
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Command,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| crate::store::sqlite::closed())?;
        answer.await.map_err(|_| crate::store::sqlite::closed())?
    }
}
