//! The one task that writes. It takes all writes that are queued, commits them together, and answers each when it is
//! durable.
//!
//! Appends alone are one statement, see [`commit`]. Other writes are a transaction of several statements. Either begins with
//! the owner's row, which gets the number of the commit: if the connection breaks before the answer, a new one finds there if
//! the commit happened, and carries it out again if it did not.

use std::sync::Arc;
use std::time::Duration;

use agentloop_core::id::Epoch;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, Error, Executor as _, PgConnection};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::store::append::{EncodedAppend, LastNumbers, WriterCache};
use crate::store::postgres::owner::{self, ConnectError, Hold, Owner};
use crate::store::postgres::rows;
use crate::store::postgres::write::append::{self, CommitPlan};
use crate::store::postgres::write::audit::{self, ChainEnd};
use crate::store::postgres::write::own::{Answer, WriteOp, WriteRequest, WriteResult};
use crate::store::postgres::write::{blobs, commit, ops, sessions};
use crate::store::write::{
    WriteCounters, WriteGroup, answers_of, audit_rows, groups, only_appends, set_recorded,
};
use crate::store::{SessionRow, StoreError};

/// Longest time of a commit. After that a new connection finds out if it happened.
const COMMIT_WAIT: Duration = Duration::from_secs(15);
/// Longest time in which a new connection is made and takes the place of the lost one.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// Longest time of all writes that are committed together. A deletion may take long.
const WRITE_WAIT: Duration = Duration::from_secs(120);
/// Writes of one commit, at most. Bounds how long the first of them waits for the others.
const COMMIT_WRITES_MAX: usize = 256;
/// Journal bytes of one commit, give or take its last append.
const COMMIT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Writes in the queue, at most. Callers beyond that wait to enqueue theirs.
pub(in crate::store::postgres) const QUEUED_WRITES_MAX: usize = 1_024;
/// Numbers of a block that are left for the commit under way when the next block is taken.
const SPARE_NUMBERS: i64 = 1 << 20;
/// The wait before another attempt to connect.
const RECONNECT_WAIT: Duration = Duration::from_millis(200);

/// The reason why an attempt of a commit failed.
enum Failure {
    /// The database refused it. Nothing is written.
    Refused(Error),
    /// The connection is lost. If `answers` are there, the commit may have happened.
    Lost { error: Error, answers: Option<Vec<Answer>> },
    /// Another server has taken the database over. Nothing is written.
    Fenced,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if rows::is_lost(&error) { Self::Lost { error, answers: None } } else { Self::Refused(error) }
    }
}

/// The writing task and everything that only it uses.
pub(in crate::store::postgres) struct Writer {
    /// Options for a new connection after a failure.
    pub(in crate::store::postgres) options: PgConnectOptions,
    /// `None` after a failure, until the next commit.
    pub(in crate::store::postgres) db: Option<PgConnection>,
    pub(in crate::store::postgres) owner: Owner,
    pub(in crate::store::postgres) hold: Hold,
    /// Number of the last commit.
    pub(in crate::store::postgres) batch: i64,
    /// The numbers that were given out last.
    pub(in crate::store::postgres) numbers: LastNumbers,
    pub(in crate::store::postgres) cache: WriterCache,
    pub(in crate::store::postgres) epoch: Epoch,
    pub(in crate::store::postgres) requests: mpsc::Receiver<WriteRequest>,
    /// Cancelled to end the task once the queue is written.
    pub(in crate::store::postgres) closing: CancellationToken,
    /// Cancelled here when another server has taken the database over.
    pub(in crate::store::postgres) failed: CancellationToken,
    pub(in crate::store::postgres) counters: Arc<WriteCounters>,
    /// Time for which a commit is tried again while the database cannot be reached.
    pub(in crate::store::postgres) retry_for: Duration,
    /// The end of the audit log's chain, once it was read or written.
    pub(in crate::store::postgres) audited: Option<ChainEnd>,
}

/// The result of a commit, or the error of a connection that was lost if there is none in time: then it is looked up.
async fn in_time<T>(committing: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(COMMIT_WAIT, committing).await.unwrap_or_else(|_| Err(silent()))
}

/// The error of a database that does not answer.
fn silent() -> Error {
    Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the database does not answer"))
}

impl Writer {
    /// Writes until the store is closed or dropped.
    pub(in crate::store::postgres) async fn run(mut self) {
        let mut requests = Vec::with_capacity(COMMIT_WRITES_MAX);
        while self.gather(&mut requests).await {
            let answers = self.commit(&requests).await;
            for (request, answer) in requests.drain(..).zip(answers) {
                // The caller may be gone; the write stays.
                let _ = request.reply.send(answer);
            }
        }
        self.close().await;
    }

    /// Waits for one write, then takes all that are queued, within the bounds. `false`: the queue has ended.
    async fn gather(&mut self, requests: &mut Vec<WriteRequest>) -> bool {
        let first = tokio::select! { biased;
            first = self.requests.recv() => first,
            () = self.closing.cancelled() => {
                self.requests.close();
                self.requests.recv().await
            }
        };
        // Callers that the last commit woke can enqueue their next write first, if they have one at once.
        tokio::task::yield_now().await;
        let mut next = first;
        let mut bytes = 0;
        while let Some(request) = next {
            bytes += request.op.bytes();
            requests.push(request);
            let full = requests.len() == COMMIT_WRITES_MAX || bytes >= COMMIT_BYTES_MAX;
            next = if full { None } else { self.requests.try_recv().ok() };
        }
        !requests.is_empty()
    }

    /// Commits these writes together and returns an answer for each. If the database refuses one of them, each is tried
    /// alone, so that the others do not fail with it.
    async fn commit(&mut self, requests: &[WriteRequest]) -> Vec<Answer> {
        let error = match self.persist(requests).await {
            Ok(answers) => return answers,
            Err(error) => error,
        };
        if !is_fault_of_one(&error) {
            return requests
                .iter()
                .map(|request| Err(rows::failure(request.op.describe(), &error)))
                .collect();
        }
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            let answer = self.persist(std::slice::from_ref(request)).await;
            answers.push(match answer {
                Ok(mut answers) => answers.pop().expect("one request has one answer"),
                Err(error) => Err(rows::failure(request.op.describe(), &error)),
            });
        }
        answers
    }

    /// Commits these writes. While the database cannot be reached, it is tried again, for a time.
    async fn persist(&mut self, requests: &[WriteRequest]) -> Result<Vec<Answer>, Error> {
        let until = Instant::now() + self.retry_for;
        // No number is used twice: the commit before may have been given up, and have happened all the same.
        self.batch += 1;
        let batch = self.batch;
        loop {
            let (error, planned) = match self.attempt(requests, batch).await {
                Ok(answers) => {
                    self.counters.count(requests, &answers);
                    return Ok(answers);
                }
                Err(failure) => {
                    self.cache.clear();
                    self.audited = None;
                    match failure {
                        Failure::Refused(error) if is_chance(&error) && Instant::now() < until => continue,
                        Failure::Refused(error) => {
                            tracing::warn!(%error, writes = requests.len(), "a commit was refused");
                            return Err(error);
                        }
                        Failure::Fenced => return Err(self.fenced()),
                        Failure::Lost { error, answers } => (error, answers),
                    }
                }
            };
            tracing::warn!(%error, writes = requests.len(), "the connection to the database is lost; trying again");
            self.db = None;
            let done = self.reconnect(until).await?;
            if done == batch {
                let answers = planned.ok_or(error)?;
                set_recorded(requests, &answers);
                self.counters.count(requests, &answers);
                return Ok(answers);
            }
        }
    }

    /// Another server writes to the database. Nothing that this one has in memory may be relied on.
    fn fenced(&self) -> Error {
        if !self.failed.is_cancelled() {
            tracing::error!("another server has taken the database over; this one stops");
            self.failed.cancel();
        }
        Error::Configuration("another server has taken the database over".into())
    }

    /// Opens a connection in the place of the lost one. Returns the number of the last commit that happened.
    async fn reconnect(&mut self, until: Instant) -> Result<i64, Error> {
        loop {
            self.owner.conn += 1;
            match self.connect_again().await {
                Ok((db, batch)) => {
                    self.db = Some(db);
                    return Ok(batch);
                }
                Err(ConnectError::Fenced) => return Err(self.fenced()),
                Err(error) if Instant::now() >= until => {
                    return Err(match error {
                        ConnectError::Sql(error) => error,
                        other => Error::Configuration(other.to_string().into()),
                    });
                }
                Err(_) => tokio::time::sleep(RECONNECT_WAIT).await,
            }
        }
    }

    /// One try. A database whose machine is gone answers nothing, not even that.
    async fn connect_again(&self) -> Result<(PgConnection, i64), ConnectError> {
        let connecting = owner::reconnect(&self.options, self.owner, self.hold);
        tokio::time::timeout(CONNECT_WAIT, connecting).await.unwrap_or_else(|_| Err(silent().into()))
    }

    async fn attempt(&mut self, requests: &[WriteRequest], batch: i64) -> Result<Vec<Answer>, Failure> {
        if self.db.is_none() {
            // The commit before was given up. It cannot happen any more once there is a new connection.
            self.owner.conn += 1;
            match self.connect_again().await {
                Ok((db, _)) => self.db = Some(db),
                Err(ConnectError::Fenced) => return Err(Failure::Fenced),
                Err(ConnectError::Sql(error)) => return Err(Failure::Lost { error, answers: None }),
                Err(other @ (ConnectError::InUse(_) | ConnectError::InUseByReplicas(_))) => {
                    let error = Error::Configuration(other.to_string().into());
                    return Err(Failure::Lost { error, answers: None });
                }
            }
        }
        let mut db = self.db.take().expect("it was opened");
        let writing = tokio::time::timeout(WRITE_WAIT, self.write_to(&mut db, requests, batch));
        let done = writing.await.unwrap_or_else(|_| Err(Failure::Lost { error: silent(), answers: None }));
        match done {
            Ok(answers) => {
                self.db = Some(db);
                Ok(answers)
            }
            Err(Failure::Refused(error)) => {
                // A transaction may be open.
                let rolled_back = tokio::time::timeout(COMMIT_WAIT, db.execute("ROLLBACK")).await;
                if matches!(rolled_back, Ok(Ok(_))) {
                    self.db = Some(db);
                }
                Err(Failure::Refused(error))
            }
            Err(failure) => Err(failure),
        }
    }

    async fn write_to(
        &mut self,
        db: &mut PgConnection,
        requests: &[WriteRequest],
        batch: i64,
    ) -> Result<Vec<Answer>, Failure> {
        self.take_numbers(db).await?;
        if let Some(appends) = only_appends(requests) {
            return self.write_appends(db, &appends, batch).await;
        }
        self.write_transaction(db, requests, batch).await
    }

    /// Takes a new block of numbers before the one in use comes to its end.
    async fn take_numbers(&mut self, db: &mut PgConnection) -> Result<(), Error> {
        let LastNumbers { run, session, document } = self.numbers;
        let is_used = |no: i64| no % ops::BLOCK_NUMBERS >= ops::BLOCK_NUMBERS - SPARE_NUMBERS;
        if [run, session, document].into_iter().any(is_used) {
            self.numbers = ops::number_block(db).await?;
        }
        Ok(())
    }

    /// Commits appends by one statement.
    async fn write_appends(
        &mut self,
        db: &mut PgConnection,
        appends: &[&EncodedAppend],
        batch: i64,
    ) -> Result<Vec<Answer>, Failure> {
        let plan = append::plan(db, &mut self.cache, self.numbers, appends).await?;
        // They are not given out again, whatever becomes of the commit.
        self.numbers = plan.rows.last;
        if plan.accepted.is_empty() {
            return Ok(answers_of(plan.answers).collect());
        }
        match in_time(commit::write(db, self.owner, batch, &plan)).await {
            Ok(Some(())) => {
                let CommitPlan { answers, rows, .. } = plan;
                self.cache.update(rows);
                Ok(answers_of(answers).collect())
            }
            Ok(None) => Err(Failure::Fenced),
            Err(error) if rows::is_lost(&error) => {
                Err(Failure::Lost { error, answers: Some(answers_of(plan.answers).collect()) })
            }
            Err(error) => Err(Failure::Refused(error)),
        }
    }

    async fn write_transaction(
        &mut self,
        db: &mut PgConnection,
        requests: &[WriteRequest],
        batch: i64,
    ) -> Result<Vec<Answer>, Failure> {
        db.execute("BEGIN").await?;
        if !owner::fence(db, self.owner, batch).await? {
            return Err(Failure::Fenced);
        }
        let mut answers = Vec::with_capacity(requests.len());
        for group in groups(requests) {
            match group {
                WriteGroup::Alone(op) => {
                    op.invalidate(&mut self.cache);
                    answers.push(self.write_alone(db, op).await?);
                }
                WriteGroup::Appends(appends) => {
                    answers.extend(self.write_appends(db, &appends, batch).await?);
                }
            }
        }
        let rows = audit_rows(requests, &answers);
        if !rows.is_empty() {
            self.audited = Some(audit::write(db, self.audited.take(), rows).await?);
        }
        match in_time(db.execute("COMMIT")).await {
            Ok(_) => {
                set_recorded(requests, &answers);
                Ok(answers)
            }
            Err(error) if rows::is_lost(&error) => Err(Failure::Lost { error, answers: Some(answers) }),
            Err(error) => Err(Failure::Refused(error)),
        }
    }

    /// Everything but appends: one write at a time, in a transaction that is open.
    async fn write_alone(&mut self, db: &mut PgConnection, op: &WriteOp) -> Result<Answer, Error> {
        let session =
            |row: Result<SessionRow, StoreError>| row.map(|row| WriteResult::Session(Box::new(row)));
        Ok(match op {
            WriteOp::Append(_) => unreachable!("appends are written together"),
            WriteOp::Claim { tenant, run } => {
                let claimed = ops::claim(db, tenant, run, self.epoch).await?;
                Ok(WriteResult::Claimed(claimed.map(Box::new)))
            }
            WriteOp::CreateSession(new) => session(sessions::create(db, self.next_session(), new).await?),
            WriteOp::GetOrCreateSession(new) => {
                session(sessions::get_or_create(db, self.next_session(), new).await?)
            }
            WriteOp::UpdateSession(new) => session(sessions::update(db, new).await?),
            WriteOp::Fork(new) => session(sessions::fork(db, self.next_session(), new).await?),
            WriteOp::DeleteSession { tenant, session, damaged } => {
                let deleted = sessions::delete(db, tenant, session, damaged.as_ref()).await?;
                deleted.map(WriteResult::Existed)
            }
            WriteOp::SetNotes(new) => Ok(WriteResult::Existed(sessions::set_notes(db, new).await?)),
            WriteOp::RetryJob { job, due_at, error } => {
                ops::retry_job(db, job, *due_at, error).await?;
                Ok(WriteResult::Done)
            }
            WriteOp::FinishJob { job } => {
                ops::finish_job(db, job).await?;
                Ok(WriteResult::Done)
            }
            WriteOp::DeleteRule { tenant, rule } => {
                Ok(WriteResult::Existed(ops::delete_rule(db, tenant, rule).await?))
            }
            WriteOp::SaveTools { tenant, tools } => {
                ops::save_tools(db, tenant, tools).await?;
                Ok(WriteResult::Done)
            }
            WriteOp::ForgetTool { tenant, name } => {
                Ok(WriteResult::Existed(ops::forget_tool(db, tenant, name).await?))
            }
            // They are written with the rows of other writes.
            WriteOp::Audit(_) => Ok(WriteResult::Done),
            WriteOp::Own(op) => Ok(WriteResult::Own(blobs::write(db, op).await?)),
            WriteOp::Check => {
                ops::check(db).await?;
                Ok(WriteResult::Done)
            }
        })
    }

    fn next_session(&mut self) -> i64 {
        self.numbers.session += 1;
        self.numbers.session
    }

    async fn close(mut self) {
        self.closing.cancel();
        let Some(mut db) = self.db.take() else { return };
        let left = owner::leave(&mut db, self.owner).await;
        if let Err(error) = left.and(db.close().await) {
            tracing::warn!(%error, "the connection to the database was not closed in order");
        }
    }
}

/// True if a single write of the transaction caused the error, so that the others may succeed without it.
fn is_fault_of_one(error: &Error) -> bool {
    matches!(error, Error::ColumnDecode { .. })
        // 22: a value; 23: a constraint. A wrong assumption that an id is new may be behind it.
        || rows::code(error).is_some_and(|code| {
            code.starts_with("22") || code.starts_with("23") || code == rows::DIFFERS
        })
}

/// True if the same may go well at once: a deadlock, or a conflict with another transaction.
fn is_chance(error: &Error) -> bool {
    rows::code(error).is_some_and(|code| code == "40P01" || code == "40001")
}
