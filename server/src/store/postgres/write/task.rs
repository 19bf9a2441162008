//! The one task that writes. It takes all writes that are queued, commits them together, and confirms each when it is
//! durable.
//!
//! Appends alone are one statement, see [`super::commit`]. Other writes are a transaction of several statements. A long one,
//! such as a deletion, is a transaction of its own, one of them after each commit of others. Each begins with the owner's row,
//! which gets the number of the commit. If the connection breaks before the response, a new one finds there if the commit
//! happened, and carries it out again if it did not.

use std::sync::Arc;
use std::time::Duration;

use agentloop_core::cluster::shard::shard_of;
use agentloop_core::id::Epoch;
use agentloop_core::time::Timestamp;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, Error, PgConnection};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::store::StoreError;
use crate::store::postgres::deleted_rows::DeletedRows;
use crate::store::postgres::owner::{self, Owner, ServerKind};
use crate::store::postgres::rows;
use crate::store::postgres::scope::Scope;
use crate::store::postgres::write::audit::ChainEnd;
use crate::store::postgres::write::own::{WriteQueue, WriteReply, WriteRequest};
use crate::store::postgres::write::put_off::{PutOffWrite, PutOffWrites};
use crate::store::postgres::write::wait::{WRITE_WAIT, in_time};
use crate::store::support::append::{LastNumbers, WriterCache};
use crate::store::support::write::{WriteCounters, closed, set_recorded};

/// Writes of one commit, at most. Bounds how long the first of them waits for the others.
const COMMIT_WRITES_MAX: usize = 256;
/// Journal bytes of one commit, give or take its last append.
const COMMIT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest wait for as many writes as the commit before had. Most of what a small commit costs the database is the same for a
/// large one. A write that comes alone, after one that came alone, waits for nothing.
const GATHER_WAIT: Duration = Duration::from_millis(1);

/// Connections that a commit may lose in its middle. If it is a write of it that ends them, the others are tried without it.
const LOSSES_MAX: u32 = 2;

/// The reason why an attempt of a commit failed.
pub(super) enum AttemptError {
    /// The database refused it. Nothing is written.
    Refused(Error),
    /// The connection is lost. If `replies` are there, the commit may have happened.
    Lost { error: Error, replies: Option<Vec<WriteReply>> },
    /// There was no connection, and none was to be had. Nothing is written.
    Unreached(Error),
    /// The store is closed, and did not wait for the end of a long write. Nobody knows if it is written.
    BrokenOff,
    /// Another server has taken the database over. Nothing is written.
    Fenced,
    /// A start that was taken for new is there, or has overlooked something. Nothing is written.
    GuessedWrong,
}

impl From<Error> for AttemptError {
    fn from(error: Error) -> Self {
        if rows::is_lost(&error) { Self::Lost { error, replies: None } } else { Self::Refused(error) }
    }
}

/// The reason why writes are not known to be committed.
enum CommitError {
    /// The database refused them, so nothing is written. Others of them may succeed without the one that caused it.
    Refused(Error),
    /// They have lost one connection after the other, so nothing is written. Others of them may succeed without the one that
    /// caused it.
    Lost(Error),
    /// The database is at fault, or cannot be reached. They may have been written, so none is carried out once more.
    Unknown(Error),
}

impl CommitError {
    /// The error of a database that has responded.
    fn of_response(error: Error) -> Self {
        if is_fault_of_all(&error) && !is_deadlock(&error) {
            Self::Unknown(error)
        } else {
            Self::Refused(error)
        }
    }
}

/// The patience with which a commit waits for locks of other replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::postgres) enum LockPatience {
    /// Writes that are committed together. If they find a lock, each is tried alone.
    Batch,
    /// A write alone. If it finds a lock, it is put off.
    Alone,
}

/// The writing task and everything that only it uses.
pub(in crate::store::postgres) struct Writer {
    /// Options for a new connection after a failure.
    pub(in crate::store::postgres) options: PgConnectOptions,
    /// `None` after a failure, until the next commit.
    pub(in crate::store::postgres) db: Option<PgConnection>,
    pub(in crate::store::postgres) owner: Owner,
    pub(in crate::store::postgres) server: ServerKind,
    /// Number of the last commit.
    pub(in crate::store::postgres) batch: i64,
    /// Number of the last commit that is known to be in the database. A lower one there means that it has lost commits.
    pub(in crate::store::postgres) acknowledged: i64,
    /// Writes of the last commit.
    pub(in crate::store::postgres) last_writes: usize,
    /// The numbers that were given out last.
    pub(in crate::store::postgres) numbers: LastNumbers,
    pub(in crate::store::postgres) cache: WriterCache,
    pub(in crate::store::postgres) epoch: Epoch,
    /// The shards whose sessions this task may write to.
    pub(in crate::store::postgres) scope: Scope,
    /// The scope's [additions](Scope::additions) when the block of numbers was taken.
    pub(in crate::store::postgres) additions: u64,
    /// The same when the claims of the shards were last seen in the database, over this connection.
    pub(in crate::store::postgres) claims_seen: Option<u64>,
    /// The count of shards that were taken away, when the cache was last known to be right.
    pub(in crate::store::postgres) removals: u64,
    pub(in crate::store::postgres) requests: WriteQueue,
    pub(in crate::store::postgres) put_off: PutOffWrites,
    /// The task that deletes the rest of large sessions.
    pub(in crate::store::postgres) deleted_rows: DeletedRows,
    pub(in crate::store::postgres) patience: LockPatience,
    /// Cancelled to end the task once the queue is written.
    pub(in crate::store::postgres) closing: CancellationToken,
    /// Cancelled here when another server has taken the database over.
    pub(in crate::store::postgres) failed: CancellationToken,
    pub(in crate::store::postgres) counters: Arc<WriteCounters>,
    /// Time for which a commit is tried again while the database cannot be reached.
    pub(in crate::store::postgres) retry_for: Duration,
    /// When this replica forgot the last time which specs are stored.
    pub(in crate::store::postgres) specs_since: Timestamp,
    /// The end of the audit log's chain, once it was read or written. Of use to a server alone.
    pub(in crate::store::postgres) audited: Option<ChainEnd>,
}

impl Writer {
    /// Writes until the store is closed or dropped.
    pub(in crate::store::postgres) async fn run(mut self) {
        let mut requests = Vec::with_capacity(COMMIT_WRITES_MAX);
        while self.gather(&mut requests).await {
            self.refuse_others(&mut requests);
            self.commit(&mut requests).await;
            self.commit_long().await;
            self.try_put_off().await;
        }
        self.close().await;
    }

    /// Refuses writes to sessions of other replicas. One of a session that was given away may have come before.
    fn refuse_others(&mut self, requests: &mut Vec<WriteRequest>) {
        if self.scope.is_all() {
            return;
        }
        let removals = self.scope.removals();
        if std::mem::replace(&mut self.removals, removals) != removals {
            self.cache.clear();
        }
        for refused in requests.extract_if(.., |request| is_elsewhere(&self.scope, request)) {
            send_reply(refused, Err(StoreError::Elsewhere));
        }
    }

    /// Waits for one write, then takes all that are queued, tenants in turn, within the bounds. Takes none if a write that was
    /// put off is due before that. Long ones stay in the queue, and it waits for no other while there is one of them. `false`:
    /// the queue has ended.
    async fn gather(&mut self, requests: &mut Vec<WriteRequest>) -> bool {
        if !self.takes_long() {
            tokio::select! { biased;
                is_open = self.requests.wait(&self.closing) => if !is_open { return false },
                () = self.put_off.comes_due() => return true,
            }
        }
        let until = Instant::now() + GATHER_WAIT;
        // Callers that the last commit woke can enqueue their next write first, if they have one at once.
        tokio::task::yield_now().await;
        self.requests.wait_for(self.last_writes, until).await;
        self.requests.take_short(COMMIT_WRITES_MAX, COMMIT_BYTES_MAX, requests);
        self.last_writes = requests.len();
        true
    }

    /// Commits these writes together and confirms each. If the database refuses one of them, or one ends its connection, each is
    /// tried alone, so that the others do not fail with it. They do only if the database itself is known to be at fault.
    /// Likewise if they and another replica's writes wait for each other: one write takes its locks in an order.
    async fn commit(&mut self, requests: &mut Vec<WriteRequest>) {
        if requests.is_empty() {
            return;
        }
        match self.persist(requests).await {
            Ok(replies) => {
                for (request, reply) in requests.drain(..).zip(replies) {
                    send_reply(request, reply);
                }
            }
            Err(CommitError::Lost(error)) if requests.iter().all(|request| request.op.is_long()) => {
                // It has taken its time twice.
                for request in requests.drain(..) {
                    let failure = rows::failure(request.op.describe(), &error);
                    send_reply(request, Err(failure));
                }
            }
            Err(CommitError::Refused(_) | CommitError::Lost(_)) => self.commit_each(requests).await,
            Err(CommitError::Unknown(error)) => {
                for request in requests.drain(..) {
                    let failure = rows::failure(request.op.describe(), &error);
                    send_reply(request, Err(failure));
                }
            }
        }
    }

    /// Commits each of these writes alone. Once the database cannot be reached, the others fail at once: each would wait for it.
    async fn commit_each(&mut self, requests: &mut Vec<WriteRequest>) {
        let until = Instant::now() + WRITE_WAIT;
        let mut is_reached = true;
        for request in requests.drain(..) {
            if is_reached {
                if request.op.as_append().is_some() {
                    // Rows are read again: an id that was taken for a new one may be another replica's by now.
                    self.cache.clear();
                }
                is_reached = self.commit_alone(PutOffWrite { request, until }).await;
            } else {
                let what = format!("{}: the database cannot be reached", request.op.describe());
                send_reply(request, Err(StoreError::Unavailable { what }));
            }
        }
    }

    /// True if there is a long write that may be tried.
    fn takes_long(&self) -> bool {
        self.requests.has_long(|lane| self.put_off.has_room(lane))
    }

    /// Commits the next long write, if there is one. Others wait for it, so it has a commit of its own.
    async fn commit_long(&mut self) {
        match self.requests.take_long(|lane| self.put_off.has_room(lane)) {
            Some(request) if is_elsewhere(&self.scope, &request) => {
                send_reply(request, Err(StoreError::Elsewhere));
            }
            // It would be broken off.
            Some(request) if self.server == ServerKind::Replica && self.closing.is_cancelled() => {
                send_reply(request, Err(closed()));
            }
            Some(request) => self.commit(&mut vec![request]).await,
            None => {}
        }
    }

    /// Commits one write and confirms it, or puts it off. False if the database cannot be reached.
    async fn commit_alone(&mut self, write: PutOffWrite) -> bool {
        self.patience = LockPatience::Alone;
        let committed = self.persist(std::slice::from_ref(&write.request)).await;
        self.patience = LockPatience::Batch;
        let is_reached = self.db.is_some() || !matches!(committed, Err(CommitError::Unknown(_)));
        let reply = match committed {
            Ok(mut replies) => replies.pop().expect("one request has one reply"),
            Err(CommitError::Refused(error)) if is_locked(&error) && Instant::now() < write.until => {
                if self.put_off.has_room(&write.lane()) {
                    self.put_off.push(write);
                    return true;
                }
                let what = "too many writes of the tenant wait for others; try again later".to_owned();
                Err(StoreError::Unavailable { what })
            }
            Err(CommitError::Refused(error) | CommitError::Lost(error) | CommitError::Unknown(error)) => {
                Err(rows::failure(write.request.op.describe(), &error))
            }
        };
        send_reply(write.request, reply);
        is_reached
    }

    /// Tries the next write that was put off, if it is due.
    async fn try_put_off(&mut self) {
        match self.put_off.take_due() {
            Some(write) if is_elsewhere(&self.scope, &write.request) => {
                send_reply(write.request, Err(StoreError::Elsewhere));
            }
            Some(write) => {
                self.commit_alone(write).await;
            }
            None => {}
        }
    }

    /// Commits these writes. While the database cannot be reached, it is tried again, for a time; and after a connection that
    /// was lost in the middle, once more.
    async fn persist(&mut self, requests: &[WriteRequest]) -> Result<Vec<WriteReply>, CommitError> {
        let until = Instant::now() + self.retry_for;
        // No number is used twice: the commit before may have been given up, and have happened all the same.
        self.batch += 1;
        let batch = self.batch;
        let mut losses = 0;
        loop {
            let (error, planned) = match self.attempt(requests, batch).await {
                Ok(replies) => {
                    self.counters.count(requests, &replies);
                    return Ok(replies);
                }
                Err(failure) => {
                    if !leaves_cache(&failure, requests) {
                        self.cache.clear();
                    }
                    self.audited = None;
                    match failure {
                        AttemptError::Refused(error) if requests.len() > 1 && is_deadlock(&error) => {
                            return Err(CommitError::Refused(error));
                        }
                        AttemptError::Refused(error)
                            if is_retryable_conflict(&error) && Instant::now() < until =>
                        {
                            continue;
                        }
                        AttemptError::Refused(error) if is_locked(&error) => {
                            return Err(CommitError::Refused(error));
                        }
                        AttemptError::Refused(error) => {
                            tracing::warn!(%error, writes = requests.len(), "a commit was refused");
                            return Err(CommitError::of_response(error));
                        }
                        AttemptError::GuessedWrong => {
                            self.cache.clear_after_wrong_guess();
                            continue;
                        }
                        AttemptError::Fenced => return Err(CommitError::Unknown(self.fenced())),
                        AttemptError::BrokenOff => return Err(CommitError::Unknown(broken_off())),
                        AttemptError::Lost { error, replies } => {
                            losses += 1;
                            (error, replies)
                        }
                        AttemptError::Unreached(error) => (error, None),
                    }
                }
            };
            tracing::warn!(%error, writes = requests.len(), "the connection to the database is lost; trying again");
            self.db = None;
            let done = self.reconnect(until).await.map_err(CommitError::Unknown)?;
            if done == batch {
                self.acknowledged = batch;
                let replies = planned.ok_or(CommitError::Unknown(error))?;
                set_recorded(requests, &replies);
                self.counters.count(requests, &replies);
                return Ok(replies);
            }
            // The connection that was lost cannot commit any more.
            if losses >= LOSSES_MAX {
                return Err(CommitError::Lost(error));
            }
        }
    }

    async fn close(mut self) {
        self.closing.cancel();
        let Some(mut db) = self.db.take() else { return };
        let leaving = async {
            owner::leave(&mut db, self.owner).await?;
            db.close().await
        };
        if let Err(error) = in_time(leaving).await {
            tracing::warn!(%error, "the connection to the database was not closed in order");
        }
    }
}

/// The error of a long write of a replica that stops.
fn broken_off() -> Error {
    Error::Configuration("this replica stops; try again".into())
}

/// True for a write to a session of another replica. One that is given away has its last writes, and begins nothing.
fn is_elsewhere(scope: &Scope, request: &WriteRequest) -> bool {
    let begins = request.op.as_append().is_some_and(|append| append.create.is_some());
    request.op.session().is_some_and(|(tenant, session)| {
        let shard = shard_of(tenant, session);
        !if begins { scope.keeps(shard) } else { scope.has(shard) }
    })
}

/// Replies to a write.
fn send_reply(request: WriteRequest, reply: WriteReply) {
    // The caller may be gone; the write stays.
    let _ = request.reply.send(reply);
}

/// True if the database or the connection caused the error, whatever is written. Any other one is taken for that of a single
/// write of the transaction, without which the others may succeed.
fn is_fault_of_all(error: &Error) -> bool {
    // 08: the connection; 40: other transactions; 53: memory or disk; 57: an operator, or a shutdown; 58: the machine.
    const CLASSES: [&str; 5] = ["08", "40", "53", "57", "58"];
    rows::is_lost(error)
        || matches!(error, Error::Configuration(_))
        || rows::code(error).is_some_and(|code| CLASSES.iter().any(|class| code.starts_with(class)))
}

/// True if a retry may succeed: a deadlock, a serialization failure, or a taken audit number. An owner of an earlier version
/// takes no lock for its rows of the audit log.
fn is_retryable_conflict(error: &Error) -> bool {
    is_deadlock(error)
        || error.as_database_error().is_some_and(|found| {
            found.code().is_some_and(|code| code == "40001") || found.constraint() == Some("audit_pkey")
        })
}

/// True if the database has broken off the transaction because it and others waited for each other.
fn is_deadlock(error: &Error) -> bool {
    rows::code(error).is_some_and(|code| code == "40P01")
}

/// True if the cache is right after the failure of these writes: they found a lock, and add nothing to the cache. A write may be
/// tried again and again, and all others would read their rows anew each time.
fn leaves_cache(failure: &AttemptError, requests: &[WriteRequest]) -> bool {
    let is_locked = matches!(failure, AttemptError::Refused(error) if is_locked(error));
    is_locked && requests.iter().all(|request| request.op.as_append().is_none())
}

/// True if another replica, or a slice, has locked what is to be written, for longer than this write may wait.
fn is_locked(error: &Error) -> bool {
    rows::code(error).is_some_and(|code| code == "55P03")
}
