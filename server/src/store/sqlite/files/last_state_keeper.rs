//! The task that writes down what the database has, a little after commits and not more often than it has to.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{SqliteConnection, SqlitePool};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::last_state::LastState;
use crate::lifecycle::Tasks;

/// Shortest time between two writes. It bounds the commits whose loss is not noticed.
const SAVE_EVERY: Duration = Duration::from_millis(100);

/// The writer's handle to the task.
#[derive(Debug)]
pub(in crate::store::sqlite) struct LastStateKeeper {
    database: PathBuf,
    committed: Arc<Notify>,
    task: JoinHandle<()>,
}

impl LastStateKeeper {
    /// Starts the task, which ends with `closing`.
    pub(in crate::store::sqlite) fn start(
        database: PathBuf,
        readers: SqlitePool,
        closing: CancellationToken,
        tasks: &Tasks,
    ) -> Self {
        let committed = Arc::<Notify>::default();
        let task = tasks.spawn("last state", keep(database.clone(), readers, committed.clone(), closing));
        Self { database, committed, task }
    }

    /// Tells the task that there is something new.
    pub(in crate::store::sqlite) fn committed(&self) {
        self.committed.notify_one();
    }

    /// Waits for the end of the task, and writes the state of a database that is about to be closed.
    pub(in crate::store::sqlite) async fn end(self, db: &mut SqliteConnection) {
        // It panics only if its runtime ends.
        let _ended = self.task.await;
        if let Ok(state) = LastState::read(db).await {
            state.save(&self.database);
        }
    }
}

async fn keep(database: PathBuf, readers: SqlitePool, committed: Arc<Notify>, closing: CancellationToken) {
    while closing.run_until_cancelled(committed.notified()).await.is_some() {
        // A failed read is tried again after the next commit.
        if let Ok(state) = LastState::read(&readers).await {
            let database = database.clone();
            // A file system may hold up a write while it is busy with others.
            let _written = tokio::task::spawn_blocking(move || state.save(&database)).await;
        }
        if closing.run_until_cancelled(tokio::time::sleep(SAVE_EVERY)).await.is_none() {
            return;
        }
    }
}
