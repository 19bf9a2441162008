//! The one task that writes. It takes all writes that are queued, commits them together, and acknowledges each when it is
//! durable.
//!
//! There is no timer: a commit begins as soon as the one before it is done. Writes queue while one runs, so commits grow
//! with the load, and a lone write does not wait for others.

use std::sync::Arc;

use agentloop_core::id::Epoch;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Error, Executor as _, SqliteConnection};
use tokio_util::sync::CancellationToken;

use crate::store::sql::write::{WriteError, sessions, to_reply};
use crate::store::sqlite::files::last_state_keeper::LastStateKeeper;
use crate::store::sqlite::files::lock::DatabaseLock;
use crate::store::sqlite::files::same_files::SameFiles;
use crate::store::sqlite::write::append::CommitPlan;
use crate::store::sqlite::write::audit::{self, ChainEnd};
use crate::store::sqlite::write::batch::BEGIN;
use crate::store::sqlite::write::blobs;
use crate::store::sqlite::write::ops;
use crate::store::sqlite::write::own::{
    SqliteOp, WriteOp, WriteQueue, WriteReply, WriteRequest, WriteResult,
};
use crate::store::sqlite::write::sessions::SessionTables;
use crate::store::sqlite::{rows, write::append, write::jobs};
use crate::store::support::append::WriterCache;
use crate::store::support::write::{
    WriteCounters, WriteGroup, audit_rows, groups, only_appends, replies_of, set_recorded,
};

/// Writes of one commit, at most. Bounds how long the first of them waits for the others, and how long a write waits that comes
/// while a full commit runs. Larger commits save little: what a commit costs once is about as much as four writes.
const COMMIT_WRITES_MAX: usize = 64;
/// Journal bytes of one commit, give or take its last append.
const COMMIT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The writing task and everything that only it uses.
pub(in crate::store::sqlite) struct Writer {
    /// Options for a new connection after a failure.
    pub(in crate::store::sqlite) options: SqliteConnectOptions,
    /// `None` after a failure, until the next commit.
    pub(in crate::store::sqlite) db: Option<SqliteConnection>,
    pub(in crate::store::sqlite) cache: WriterCache,
    pub(in crate::store::sqlite) epoch: Epoch,
    /// True if there is a search index, which has to drop the documents of deleted sessions too.
    pub(in crate::store::sqlite) has_index: bool,
    /// False if the disk was too full for the epoch when the store was opened. It is written before anything else.
    pub(in crate::store::sqlite) epoch_is_written: bool,
    pub(in crate::store::sqlite) requests: WriteQueue,
    /// Cancelled to end the task once the queue is written.
    pub(in crate::store::sqlite) closing: CancellationToken,
    pub(in crate::store::sqlite) counters: Arc<WriteCounters>,
    /// Kept until the file is closed.
    pub(in crate::store::sqlite) lock: Option<DatabaseLock>,
    /// The files that have to stay where they are.
    pub(in crate::store::sqlite) files: SameFiles,
    /// True from when one of them was missed until it is back. Nothing is written meanwhile.
    pub(in crate::store::sqlite) moved: bool,
    /// Writes down what the database has. `None` for a database in memory.
    pub(in crate::store::sqlite) keeper: Option<LastStateKeeper>,
    /// The end of the audit log's chain, once it was read or written.
    pub(in crate::store::sqlite) audited: Option<ChainEnd>,
}

impl Writer {
    /// Writes until the store is closed or dropped, then leaves the file clean.
    pub(in crate::store::sqlite) async fn run(mut self) {
        let mut requests = Vec::with_capacity(COMMIT_WRITES_MAX);
        while self.gather(&mut requests).await {
            let replies = self.commit(&requests).await;
            for (request, reply) in requests.drain(..).zip(replies) {
                // The caller may be gone; the write stays.
                let _ = request.reply.send(reply);
            }
        }
        self.close().await;
    }

    /// Waits for one write, then takes all that are queued, tenants in turn, within the bounds. `false`: the queue has ended.
    async fn gather(&mut self, requests: &mut Vec<WriteRequest>) -> bool {
        if !self.requests.wait(&self.closing).await {
            return false;
        }
        // Callers that the last commit woke can enqueue their next write first, if they have one at once.
        tokio::task::yield_now().await;
        self.requests.take(COMMIT_WRITES_MAX, COMMIT_BYTES_MAX, requests);
        true
    }

    /// Commits these writes together and returns a reply for each. If the database refuses one of them, each is tried
    /// alone, so that the others do not fail with it.
    async fn commit(&mut self, requests: &[WriteRequest]) -> Vec<WriteReply> {
        let error = match self.attempt(requests).await {
            Ok(replies) => return replies,
            Err(error) => error,
        };
        if !is_fault_of_one(&error) {
            return requests.iter().map(|_| Err(rows::failure("commit", &error))).collect();
        }
        let mut replies = Vec::with_capacity(requests.len());
        for request in requests {
            replies.push(self.commit_alone(request).await);
        }
        replies
    }

    /// Commits one write without the cache: a wrong assumption that an id is new may be what failed.
    async fn commit_alone(&mut self, request: &WriteRequest) -> WriteReply {
        self.cache.clear();
        let mut replies = self
            .attempt(std::slice::from_ref(request))
            .await
            .map_err(|error| rows::failure(request.op.describe(), &error))?;
        replies.pop().expect("one request has one reply")
    }

    /// Runs one transaction. If it fails, the connection is closed, which rolls back an open transaction, and the next
    /// attempt opens a new one.
    async fn attempt(&mut self, requests: &[WriteRequest]) -> Result<Vec<WriteReply>, Error> {
        // A new connection would open whatever file has the name now.
        if self.moved || self.db.is_none() {
            self.check_files()?;
        }
        let mut db = match self.db.take() {
            Some(db) => db,
            None => self.options.connect().await?,
        };
        match self.write_to(&mut db, requests).await {
            Ok(replies) => {
                self.db = Some(db);
                self.check_files()?;
                if let Some(keeper) = &self.keeper {
                    keeper.committed();
                }
                self.counters.count(requests, &replies);
                Ok(replies)
            }
            Err(error) => {
                tracing::warn!(%error, jobs = requests.len(), "a commit failed");
                self.cache.clear();
                self.audited = None;
                let _ = db.close().await;
                Err(error)
            }
        }
    }

    async fn write_to(
        &mut self,
        db: &mut SqliteConnection,
        requests: &[WriteRequest],
    ) -> Result<Vec<WriteReply>, Error> {
        if !self.epoch_is_written {
            let epoch = ops::write_epoch(db).await?;
            assert_eq!(epoch, self.epoch, "nobody else writes to a locked database");
            self.epoch_is_written = true;
        }
        self.transaction(db, requests).await
    }

    async fn transaction(
        &mut self,
        db: &mut SqliteConnection,
        requests: &[WriteRequest],
    ) -> Result<Vec<WriteReply>, Error> {
        if let Some(appends) = only_appends(requests) {
            let CommitPlan { replies, batch, rows } = append::plan(db, &self.cache, &appends).await?;
            batch.commit(db).await?;
            self.cache.update(rows);
            return Ok(replies_of(replies).collect());
        }
        db.execute(BEGIN).await?;
        let mut replies = Vec::with_capacity(requests.len());
        for group in groups(requests) {
            match group {
                WriteGroup::Alone(op) => {
                    op.invalidate(&mut self.cache);
                    replies.push(to_reply(self.write_alone(db, op).await)?);
                }
                WriteGroup::Appends(appends) => {
                    let CommitPlan { replies: done, batch, rows } =
                        append::plan(db, &self.cache, &appends).await?;
                    batch.execute(db).await?;
                    // If the commit fails, the whole cache is dropped.
                    self.cache.update(rows);
                    replies.extend(replies_of(done));
                }
            }
        }
        let rows = audit_rows(requests, &replies);
        if !rows.is_empty() {
            self.audited = Some(audit::write(db, self.audited.take(), rows).await?);
        }
        db.execute("COMMIT").await?;
        set_recorded(requests, &replies);
        Ok(replies)
    }

    /// Everything but appends: one write at a time, in a transaction that is open.
    async fn write_alone(&self, db: &mut SqliteConnection, op: &WriteOp) -> Result<WriteResult, WriteError> {
        Ok(match op {
            WriteOp::Append(_) => unreachable!("appends are written together"),
            WriteOp::Claim { tenant, run } => {
                WriteResult::Claimed(ops::claim(db, tenant, run, self.epoch).await?.map(Box::new))
            }
            WriteOp::Session(op) => {
                sessions::write(&mut SessionTables { db, has_index: self.has_index }, op).await?
            }
            WriteOp::RetryJob { job, due_at, error } => {
                jobs::retry(db, job, *due_at, error).await?;
                WriteResult::Done
            }
            WriteOp::FinishJob { job } => {
                jobs::finish(db, job).await?;
                WriteResult::Done
            }
            WriteOp::DeleteRule { tenant, rule } => {
                WriteResult::Existed(ops::delete_rule(db, tenant, rule).await?)
            }
            WriteOp::SaveTools { tenant, tools } => {
                ops::save_tools(db, tenant, tools).await?;
                WriteResult::Done
            }
            WriteOp::ClaimHost(claim) => WriteResult::Existed(ops::claim_host(db, claim).await?),
            WriteOp::SeeHosts { hosts, at, free_before } => {
                ops::see_hosts(db, hosts, *at, *free_before).await?;
                WriteResult::Done
            }
            WriteOp::ForgetTool { tenant, name } => {
                WriteResult::Existed(ops::forget_tool(db, tenant, name).await?)
            }
            WriteOp::Own(SqliteOp::ForgetDeleted(numbers)) => {
                ops::forget_deleted(db, numbers).await?;
                WriteResult::Done
            }
            // They are written with the rows of other writes.
            WriteOp::Audit(_) => WriteResult::Done,
            WriteOp::Own(SqliteOp::Blob(op)) => WriteResult::Own(blobs::write(db, op).await?),
            WriteOp::Check => {
                ops::check(db).await?;
                WriteResult::Done
            }
        })
    }

    /// Refuses to acknowledge what is written to files that nobody will find again.
    fn check_files(&mut self) -> Result<(), Error> {
        let same = self.files.check();
        if let Err(error) = &same
            && !self.moved
        {
            tracing::error!(%error, "a file of the store is gone; nothing is acknowledged");
        }
        if same.is_ok() && self.moved {
            tracing::info!("the files of the store are back");
        }
        self.moved = same.is_err();
        Ok(same?)
    }

    async fn close(mut self) {
        self.closing.cancel();
        let db = match self.db.take() {
            Some(db) => Ok(db),
            None => match self.check_files() {
                Ok(()) => self.options.connect().await,
                Err(error) => Err(error),
            },
        };
        let closed = match db {
            // There is nothing to mark, and the disk is too full for a mark.
            Ok(db) if !self.epoch_is_written => db.close().await,
            Ok(mut db) => match ops::end_epoch(&mut db).await {
                Ok(()) => {
                    if let Some(keeper) = self.keeper {
                        keeper.end(&mut db).await;
                    }
                    db.close().await
                }
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        if let Err(error) = closed {
            tracing::warn!(%error, "the store was not closed in order; the next start checks it");
        }
        drop(self.lock);
    }
}

/// True if a single write of the transaction caused the error, so that the others may succeed without it.
fn is_fault_of_one(error: &Error) -> bool {
    matches!(error, Error::ColumnDecode { .. }) || rows::primary_code(error) == Some(rows::CONSTRAINT)
}
