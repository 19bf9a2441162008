//! Does the jobs that follow runs, in the background. A job is written together with its run's end, and retried until it
//! succeeds or has failed too often. A run's callers never wait for it.
//!
//! **Invariant:** a job stays in the store until it is done. A job that a stop of the server cuts is done after the next
//! start, so a job may be done more than once. A job that ends while the due jobs are read is not done again because of
//! what was read before its end.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::agent::{RetryPolicy, RunSpec};
use agentloop_core::id::Seq;
use agentloop_core::model::retry;
use agentloop_core::run::event::Event;
use agentloop_core::time::{Millis, Timestamp};
use futures_util::FutureExt as _;

use crate::engine::Engine;
use crate::engine::deps::Deps;
use crate::engine::deps::job_queue::JOBS_TOGETHER_MAX;
use crate::engine::ports::JobError;
use crate::engine::watch::SessionSignal;
use crate::store::{Job, JobId, StoreError};

/// Retries of a job after its first attempt.
const JOB_RETRIES_MAX: u32 = 9;
/// The longest wait between two attempts, unless the error gives a longer one.
const JOB_BACKOFF_MAX: Millis = Millis::secs(300);
/// The most bytes of an error that are stored with the job.
const ERROR_BYTES_MAX: usize = 1024;
/// The wait before the store is tried again after it failed. It doubles each time.
const STORE_WAIT: Duration = Duration::from_secs(1);
/// The longest wait of any kind, so that a change of the system clock is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(60);

impl From<StoreError> for JobError {
    fn from(error: StoreError) -> Self {
        let why = error.to_string();
        if error.is_damage() { Self::Fatal { why } } else { Self::Retryable { why, after: None } }
    }
}

/// The task of the runner: starts due jobs, then sleeps until more are due.
pub(in crate::engine) async fn watch(engine: Engine) {
    let deps = engine.deps().clone();
    let stop = deps.tasks.soft().clone();
    while !stop.is_cancelled() {
        let sleep = start_due(&deps).await;
        tokio::select! { biased;
            () = stop.cancelled() => return,
            () = deps.jobs.changed() => {}
            () = tokio::time::sleep(sleep) => {}
        }
    }
}

/// Starts due jobs, as many as fit, of tenants in turn, each on a task of its own. A job that holds a store connection must
/// be polled until it releases it, so this task, which waits for connections too, must not poll jobs. Returns the time to
/// sleep.
async fn start_due(deps: &Arc<Deps>) -> Duration {
    if deps.jobs.running() >= JOBS_TOGETHER_MAX {
        return SLEEP_MAX;
    }
    let now = deps.clock.now();
    // Jobs under way may be among the due ones. There are fewer of them than this, so each free place finds a job.
    let limit = u32::try_from(JOBS_TOGETHER_MAX).unwrap_or(u32::MAX);
    let served = deps.jobs.begin_read();
    let (due, next) = match deps.store.due_jobs(now, served.as_ref(), limit).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "cannot read the due jobs from the store; trying again");
            return STORE_WAIT;
        }
    };
    let mut waiting = deps.jobs.in_turn(due);
    while deps.jobs.running() < JOBS_TOGETHER_MAX
        && let Some(job) = waiting.pop()
    {
        start(deps, job);
    }
    match next {
        Some(next) if deps.jobs.running() < JOBS_TOGETHER_MAX => {
            next.since(now).duration().clamp(Duration::from_millis(1), SLEEP_MAX)
        }
        _ => SLEEP_MAX,
    }
}

/// Starts a job, unless it is under way, has just ended, or too many others are under way.
fn start(deps: &Arc<Deps>, job: Job) {
    let stop = deps.tasks.soft().child_token();
    if !deps.jobs.begin(&job, stop.clone()) {
        return;
    }
    let deps_of_job = deps.clone();
    drop(deps.tasks.spawn("job", async move {
        let (deps, id) = (deps_of_job, job.id.clone());
        let _done = stop.run_until_cancelled(do_job(&deps, job)).await;
        deps.jobs.end(&id);
    }));
}

/// Makes one attempt of a job and records its result in the store.
async fn do_job(deps: &Deps, job: Job) {
    let (spec, result) = attempt(deps, &job).await;
    let attempts = job.attempts + 1;
    let retry = match result {
        Ok(()) => None,
        Err(error) => {
            let policy = RetryPolicy {
                max_retries: JOB_RETRIES_MAX,
                max_backoff: JOB_BACKOFF_MAX,
                ..spec.map(|spec| spec.retry.clone()).unwrap_or_default()
            };
            let chance = deps.ids.seed();
            let wait = retry::after_failure(&policy, error.class(), attempts, error.after(), chance);
            if wait.is_none() {
                log_given_up(&job, attempts);
            }
            wait.map(|wait| Retry { due_at: deps.clock.now().after(wait), why: error.to_string() })
        }
    };
    record_result(deps, &job.id, retry).await;
}

/// Logs that a job has failed for good. The error is not logged: it may quote the conversation.
fn log_given_up(job: &Job, tries: u32) {
    tracing::warn!(run.id = %job.id.run, kind = %job.id.kind, tries, "a job that follows a run is given up");
}

/// Makes one attempt. A panic of the executor is a failed attempt. Also returns the run's spec, if it could be read.
async fn attempt(deps: &Deps, job: &Job) -> (Option<Arc<RunSpec>>, Result<(), JobError>) {
    let spec = match spec(deps, &job.id).await {
        Ok(Some(spec)) => spec,
        // The run's session was deleted, and the job with it.
        Ok(None) => return (None, Ok(())),
        Err(error) => return (None, Err(error.into())),
    };
    let Some(executor) = deps.jobs.executor(&job.id.kind) else {
        let why = "no executor takes jobs of this kind".to_owned();
        return (Some(spec), Err(JobError::Retryable { why, after: None }));
    };
    let result = AssertUnwindSafe(executor.execute(job, &spec)).catch_unwind().await;
    // It may have written a title or a summary.
    deps.watchers.sessions.changed(&job.id.tenant, &job.session, SessionSignal::Row);
    let panicked = || Err(JobError::Retryable { why: "the executor panicked".to_owned(), after: None });
    (Some(spec), result.unwrap_or_else(|_| panicked()))
}

/// The run's spec, from its first event. `None` if the run was deleted.
async fn spec(deps: &Deps, job: &JobId) -> Result<Option<Arc<RunSpec>>, StoreError> {
    let first = deps.store.records(&job.tenant, &job.run, Seq(0), 1).await?;
    Ok(first.into_iter().find_map(|record| match record.event {
        Event::Started { spec, .. } => Some(spec),
        _ => None,
    }))
}

/// The next attempt of a job.
struct Retry {
    due_at: Timestamp,
    why: String,
}

/// Records in the store that a job is finished, or when its next attempt is due. The job stays under way until this is
/// written. Otherwise a failing store would have the job done over and over.
async fn record_result(deps: &Deps, job: &JobId, retry: Option<Retry>) {
    let mut wait = STORE_WAIT;
    loop {
        let recorded = match &retry {
            None => deps.store.finish_job(job).await,
            Some(Retry { due_at, why }) => {
                let why = &why[..why.floor_char_boundary(ERROR_BYTES_MAX)];
                deps.store.retry_job(job, *due_at, why).await
            }
        };
        let Err(error) = recorded else { return };
        tracing::warn!(run.id = %job.run, %error, "cannot record the result of a job; trying again");
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(SLEEP_MAX);
    }
}

#[cfg(test)]
mod tests;
