//! The one task that writes. It takes what has gathered, commits it together, and answers each when it is durable.
//!
//! There is no timer: a commit begins as soon as the one before it is done. While one runs, the next one gathers, so
//! commits grow with the load by themselves, and without load nobody waits for company.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agentloop_core::id::{Epoch, RuleId, RunId, RunKey, SessionId, TenantId};
use agentloop_core::time::Timestamp;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Error, Executor as _, SqliteConnection};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::store::append::{EncodedAppend, WriterCache};
use crate::store::sqlite::open::lock::Lock;
use crate::store::sqlite::write::append::CommitPlan;
use crate::store::sqlite::write::batch::BEGIN;
use crate::store::sqlite::write::ops::{self, Claim};
use crate::store::sqlite::write::sessions::{self, NewFork, NewNotes, NewSession};
use crate::store::sqlite::{rows, write::append, write::jobs};
use crate::store::{JobId, SessionRow, StoreError, ToolRow};

/// Writes that share one commit at most, which bounds how long the first of them waits for the others.
const COMMIT_JOBS_MAX: usize = 256;
/// Journal bytes of one commit, give or take its last append.
const COMMIT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Writes that wait for the writer; whoever brings more waits with its own in hand.
pub(in crate::store::sqlite) const QUEUE_JOBS_MAX: usize = 1_024;

/// Something to write.
#[derive(Debug)]
pub(in crate::store::sqlite) enum Op {
    Append(Box<EncodedAppend>),
    Claim {
        tenant: TenantId,
        run: RunId,
    },
    CreateSession(NewSession),
    Fork(NewFork),
    DeleteSession {
        tenant: TenantId,
        session: SessionId,
        /// Whether there is a search index, from which it is to be deleted too.
        indexed: bool,
    },
    DeleteRule {
        tenant: TenantId,
        rule: RuleId,
    },
    SetNotes(NewNotes),
    RetryJob {
        job: JobId,
        due_at: Timestamp,
        error: String,
    },
    FinishJob {
        job: JobId,
    },
    SaveTools {
        tenant: TenantId,
        tools: Vec<ToolRow>,
    },
    /// The search index has these documents of deleted sessions no more.
    ForgetDeleted(Vec<i64>),
    Check,
}

/// What became of an [`Op`].
#[derive(Debug)]
pub(in crate::store::sqlite) enum Answer {
    /// To `Append`, `RetryJob`, `FinishJob`, `SaveTools`, `ForgetDeleted` and `Check`.
    Done,
    /// To `Claim`.
    Claimed(Option<Box<Claim>>),
    /// To `CreateSession` and `Fork`.
    Session(Box<SessionRow>),
    /// To `DeleteSession`, `DeleteRule` and `SetNotes`: whether there was one.
    Existed(bool),
}

/// An [`Op`] and who asked for it.
#[derive(Debug)]
pub(in crate::store::sqlite) struct Job {
    pub(in crate::store::sqlite) op: Op,
    pub(in crate::store::sqlite) reply: oneshot::Sender<Result<Answer, StoreError>>,
}

/// How much was written since the store was opened.
#[derive(Debug, Default)]
pub(in crate::store::sqlite) struct Counters {
    pub(in crate::store::sqlite) appends: AtomicU64,
    pub(in crate::store::sqlite) commits: AtomicU64,
    pub(in crate::store::sqlite) bytes: AtomicU64,
}

/// What the writing task owns.
pub(in crate::store::sqlite) struct Writer {
    /// For a new connection after a failure.
    pub(in crate::store::sqlite) options: SqliteConnectOptions,
    /// `None` after a failure.
    pub(in crate::store::sqlite) db: Option<SqliteConnection>,
    pub(in crate::store::sqlite) cache: WriterCache,
    pub(in crate::store::sqlite) epoch: Epoch,
    pub(in crate::store::sqlite) jobs: mpsc::Receiver<Job>,
    /// Ends the task once everything that waits is written.
    pub(in crate::store::sqlite) closing: CancellationToken,
    pub(in crate::store::sqlite) counters: Arc<Counters>,
    /// Held as long as anything can still be written.
    pub(in crate::store::sqlite) lock: Option<Lock>,
}

impl Writer {
    /// Writes until the store is closed or dropped, then leaves the file clean.
    pub(in crate::store::sqlite) async fn run(mut self) {
        let mut jobs = Vec::with_capacity(COMMIT_JOBS_MAX);
        while self.gather(&mut jobs).await {
            let answers = self.commit(&jobs).await;
            for (job, answer) in jobs.drain(..).zip(answers) {
                // Whoever asked may be gone; what was written stays written.
                let _ = job.reply.send(answer);
            }
        }
        self.close().await;
    }

    /// Waits for one job, then takes all that are there, within bounds. `false`: there will be no more.
    async fn gather(&mut self, jobs: &mut Vec<Job>) -> bool {
        let first = tokio::select! { biased;
            first = self.jobs.recv() => first,
            () = self.closing.cancelled() => {
                self.jobs.close();
                self.jobs.recv().await
            }
        };
        // Whoever the last commit woke gets to bring its next write, where it has nothing to wait for.
        tokio::task::yield_now().await;
        let mut next = first;
        let mut bytes = 0;
        while let Some(job) = next {
            bytes += job.op.bytes();
            jobs.push(job);
            let full = jobs.len() == COMMIT_JOBS_MAX || bytes >= COMMIT_BYTES_MAX;
            next = if full { None } else { self.jobs.try_recv().ok() };
        }
        !jobs.is_empty()
    }

    /// Commits these jobs together and has an answer for each. Where one of them is at fault, the others are not made to
    /// fail with it.
    async fn commit(&mut self, jobs: &[Job]) -> Vec<Result<Answer, StoreError>> {
        let error = match self.attempt(jobs).await {
            Ok(answers) => return answers,
            Err(error) => error,
        };
        if !is_fault_of_one(&error) {
            return jobs.iter().map(|_| Err(rows::failure("commit", &error))).collect();
        }
        let mut answers = Vec::with_capacity(jobs.len());
        for job in jobs {
            answers.push(self.commit_alone(job).await);
        }
        answers
    }

    /// Resting on nothing but what is read: that an id is new may be what was wrong.
    async fn commit_alone(&mut self, job: &Job) -> Result<Answer, StoreError> {
        self.cache.clear();
        let mut answers = self
            .attempt(std::slice::from_ref(job))
            .await
            .map_err(|error| rows::failure(job.op.place(), &error))?;
        answers.pop().expect("one job has one answer")
    }

    /// One transaction. When it fails, nothing that this connection said is believed any more: it is closed, which
    /// rolls back what may be open, and the next attempt begins with a new one.
    async fn attempt(&mut self, jobs: &[Job]) -> Result<Vec<Result<Answer, StoreError>>, Error> {
        let mut db = match self.db.take() {
            Some(db) => db,
            None => self.options.connect().await?,
        };
        match transaction(&mut db, &mut self.cache, self.epoch, jobs).await {
            Ok(answers) => {
                self.db = Some(db);
                self.count(jobs, &answers);
                Ok(answers)
            }
            Err(error) => {
                tracing::warn!(%error, jobs = jobs.len(), "a commit failed");
                self.cache.clear();
                let _ = db.close().await;
                Err(error)
            }
        }
    }

    fn count(&self, jobs: &[Job], answers: &[Result<Answer, StoreError>]) {
        let written = jobs.iter().zip(answers).filter(|(_, answer)| answer.is_ok()).map(|(job, _)| &job.op);
        let (mut appends, mut bytes) = (0, 0);
        for op in written.filter(|op| op.as_append().is_some()) {
            appends += 1;
            bytes += op.bytes() as u64;
        }
        self.counters.appends.fetch_add(appends, Ordering::Relaxed);
        self.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
    }

    async fn close(mut self) {
        let db = match self.db.take() {
            Some(db) => Ok(db),
            None => self.options.connect().await,
        };
        let closed = match db {
            Ok(mut db) => match ops::end_epoch(&mut db).await {
                Ok(()) => db.close().await,
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

impl Op {
    fn as_append(&self) -> Option<&EncodedAppend> {
        match self {
            Self::Append(append) => Some(append),
            Self::Claim { .. }
            | Self::CreateSession(_)
            | Self::Fork(_)
            | Self::DeleteSession { .. }
            | Self::DeleteRule { .. }
            | Self::SetNotes(_)
            | Self::RetryJob { .. }
            | Self::FinishJob { .. }
            | Self::SaveTools { .. }
            | Self::ForgetDeleted(_)
            | Self::Check => None,
        }
    }

    /// Drops from the cache what is no longer true once this is done.
    pub(in crate::store::sqlite) fn invalidate(&self, cache: &mut WriterCache) {
        match self {
            Self::Claim { tenant, run } => cache.drop_run(&RunKey::new(tenant.clone(), run.clone())),
            Self::CreateSession(NewSession { tenant, session, .. })
            | Self::Fork(NewFork { tenant, session, .. }) => {
                cache.drop_session(&(tenant.clone(), session.clone()));
                // It has one.
                cache.drop_numbers();
            }
            // Its runs go with it.
            Self::DeleteSession { .. } => cache.clear(),
            Self::Append(_)
            | Self::DeleteRule { .. }
            | Self::SetNotes(_)
            | Self::RetryJob { .. }
            | Self::FinishJob { .. }
            | Self::SaveTools { .. }
            | Self::ForgetDeleted(_)
            | Self::Check => {}
        }
    }

    fn bytes(&self) -> usize {
        self.as_append().map_or(0, EncodedAppend::bytes)
    }

    /// What errors call it.
    fn place(&self) -> String {
        match self {
            Self::Append(append) => {
                format!("append to {}/{} after {}", append.run.tenant, append.run.run, append.after.0)
            }
            Self::Claim { tenant, run } => format!("claim of {tenant}/{run}"),
            Self::CreateSession(new) => format!("new session {}/{}", new.tenant, new.session),
            Self::Fork(new) => format!("fork {}/{} of {}", new.tenant, new.session, new.source),
            Self::DeleteSession { tenant, session, .. } => format!("deletion of session {tenant}/{session}"),
            Self::SetNotes(new) => format!("notes on session {}/{}", new.tenant, new.session),
            Self::RetryJob { job, .. } | Self::FinishJob { job } => format!("job {}/{job}", job.tenant),
            Self::SaveTools { tenant, .. } => format!("tools of {tenant}"),
            Self::ForgetDeleted(_) => "deletion from the search index".to_owned(),
            Self::DeleteRule { tenant, rule } => format!("rule {tenant}/{rule}"),
            Self::Check => "check".to_owned(),
        }
    }
}

/// Whether another job in the same transaction would have been fine without this one.
fn is_fault_of_one(error: &Error) -> bool {
    matches!(error, Error::ColumnDecode { .. }) || rows::primary_code(error) == Some(rows::CONSTRAINT)
}

async fn transaction(
    db: &mut SqliteConnection,
    cache: &mut WriterCache,
    epoch: Epoch,
    jobs: &[Job],
) -> Result<Vec<Result<Answer, StoreError>>, Error> {
    if let Some(appends) = jobs.iter().map(|job| job.op.as_append()).collect::<Option<Vec<_>>>() {
        let CommitPlan { answers, statements, rows } = append::plan(db, cache, &appends).await?;
        statements.commit(db).await?;
        cache.update(rows);
        return Ok(answers.into_iter().map(|done| done.map(|()| Answer::Done)).collect());
    }
    db.execute(BEGIN).await?;
    let mut answers = Vec::with_capacity(jobs.len());
    for group in jobs.chunk_by(|a, b| a.op.as_append().is_some() && b.op.as_append().is_some()) {
        let appends: Vec<&EncodedAppend> = group.iter().filter_map(|job| job.op.as_append()).collect();
        if appends.is_empty() {
            group[0].op.invalidate(cache);
            answers.push(alone(db, epoch, &group[0].op).await?);
        } else {
            let CommitPlan { answers: done, statements, rows } = append::plan(db, cache, &appends).await?;
            statements.execute(db).await?;
            // If the commit fails, all of it is forgotten.
            cache.update(rows);
            answers.extend(done.into_iter().map(|done| done.map(|()| Answer::Done)));
        }
    }
    db.execute("COMMIT").await?;
    Ok(answers)
}

async fn alone(
    db: &mut SqliteConnection,
    epoch: Epoch,
    op: &Op,
) -> Result<Result<Answer, StoreError>, Error> {
    Ok(match op {
        Op::Append(_) => unreachable!("appends are written together"),
        Op::Claim { tenant, run } => {
            Ok(Answer::Claimed(ops::claim(db, tenant, run, epoch).await?.map(Box::new)))
        }
        Op::CreateSession(new) => sessions::create(db, new).await?.map(|row| Answer::Session(Box::new(row))),
        Op::Fork(new) => sessions::fork(db, new).await?.map(|row| Answer::Session(Box::new(row))),
        Op::DeleteSession { tenant, session, indexed } => {
            sessions::delete(db, tenant, session, *indexed).await?.map(Answer::Existed)
        }
        Op::SetNotes(new) => Ok(Answer::Existed(sessions::set_notes(db, new).await?)),
        Op::RetryJob { job, due_at, error } => {
            jobs::retry(db, job, *due_at, error).await?;
            Ok(Answer::Done)
        }
        Op::FinishJob { job } => {
            jobs::finish(db, job).await?;
            Ok(Answer::Done)
        }
        Op::DeleteRule { tenant, rule } => Ok(Answer::Existed(ops::delete_rule(db, tenant, rule).await?)),
        Op::SaveTools { tenant, tools } => {
            ops::save_tools(db, tenant, tools).await?;
            Ok(Answer::Done)
        }
        Op::ForgetDeleted(numbers) => {
            ops::forget_deleted(db, numbers).await?;
            Ok(Answer::Done)
        }
        Op::Check => {
            ops::check(db).await?;
            Ok(Answer::Done)
        }
    })
}
