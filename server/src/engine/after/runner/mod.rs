//! Work that follows runs: written with a run's end, done in the background, tried again until it succeeds or has
//! failed too often. A run's callers never wait for it.
//!
//! **Invariant:** what is under way when the server stops is still in the store, and done by the next one. So a job may
//! be done more than once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentloop_core::agent::{RetryPolicy, RunSpec};
use agentloop_core::id::{Seq, SessionId, TenantId};
use agentloop_core::retry;
use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::state::State;
use agentloop_core::time::{Millis, Timestamp};
use futures_util::FutureExt as _;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::engine::deps::Deps;
use crate::engine::ports::{JobError, JobExecutor};
use crate::store::{Job, JobId, JobKind, StoreError};

/// Jobs under way at a time, of all runs.
const JOBS_TOGETHER_MAX: usize = 8;
/// Tries after the first before a job is given up.
const JOB_RETRIES_MAX: u32 = 9;
/// The longest wait between two tries, unless whoever refused asks for a longer one.
const JOB_BACKOFF_MAX: Millis = Millis::secs(300);
/// Of why a try failed, what is stored, in bytes.
const ERROR_BYTES_MAX: usize = 1024;
/// Before the store is asked again after it failed; doubled each time.
const STORE_WAIT: Duration = Duration::from_secs(1);
/// No such wait is longer. Also the longest sleep, so that a clock that was moved is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(60);

impl From<StoreError> for JobError {
    fn from(error: StoreError) -> Self {
        Self::Retryable { why: error.to_string(), after: None }
    }
}

/// Who does what follows runs, and how they are told that there is something to do.
pub(in crate::engine) struct Jobs {
    executors: Vec<Arc<dyn JobExecutor>>,
    /// The store has more to do, or there is more room.
    changed: Notify,
    under_way: Mutex<BTreeMap<JobId, UnderWay>>,
}

/// A job that is being done.
struct UnderWay {
    session: SessionId,
    /// Ends it where it is.
    stop: CancellationToken,
}

impl Jobs {
    pub(in crate::engine) fn new(executors: Vec<Arc<dyn JobExecutor>>) -> Self {
        Self { executors, changed: Notify::new(), under_way: Mutex::default() }
    }

    /// What goes with these records of a run: something where its end is among them, else nothing.
    pub(in crate::engine) fn wanted(
        &self,
        tenant: &TenantId,
        state: &State,
        records: &[Record],
    ) -> Vec<JobKind> {
        if !records.iter().any(|record| matches!(record.event, Event::Finished { .. })) {
            return Vec::new();
        }
        self.executors.iter().flat_map(|executor| executor.wanted(tenant, state)).collect()
    }

    /// The store has more to do, or there is more room.
    pub(in crate::engine) fn changed(&self) {
        self.changed.notify_one();
    }

    /// The session is deleted: what was being done for its runs is not gone on with, and writes nothing to another of its
    /// name.
    pub(in crate::engine) fn forget(&self, tenant: &TenantId, session: &SessionId) {
        let under_way = self.under_way();
        let its = under_way.iter().filter(|(id, job)| id.tenant == *tenant && job.session == *session);
        its.for_each(|(_, job)| job.stop.cancel());
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<JobId, UnderWay>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn executor(&self, kind: &JobKind) -> Option<&Arc<dyn JobExecutor>> {
        self.executors.iter().find(|executor| executor.takes(kind))
    }
}

/// Has done what is due, then sleeps until there is more.
pub(in crate::engine) async fn watch(engine: Engine) {
    let deps = engine.deps().clone();
    let stop = deps.tasks.soft().clone();
    while !stop.is_cancelled() {
        let sleep = begin_due(&deps).await;
        tokio::select! { biased;
            () = stop.cancelled() => return,
            () = deps.jobs.changed.notified() => {}
            () = tokio::time::sleep(sleep) => {}
        }
    }
}

/// Begins what is due, as far as there is room, each on a task of its own: one that was handed a connection to the store
/// must not wait to be polled by somebody who waits for one. How long to sleep if nothing else happens.
async fn begin_due(deps: &Arc<Deps>) -> Duration {
    if deps.jobs.under_way().len() >= JOBS_TOGETHER_MAX {
        return SLEEP_MAX;
    }
    let now = deps.clock.now();
    // What is under way may still be due, and come along.
    let limit = u32::try_from(JOBS_TOGETHER_MAX).unwrap_or(u32::MAX);
    let (due, next) = match deps.store.due_jobs(now, limit).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "cannot ask the store what is to be done");
            return STORE_WAIT;
        }
    };
    for job in due {
        begin(deps, job);
    }
    match next {
        Some(next) if deps.jobs.under_way().len() < JOBS_TOGETHER_MAX => {
            next.since(now).duration().clamp(Duration::from_millis(1), SLEEP_MAX)
        }
        _ => SLEEP_MAX,
    }
}

/// Begins a job, unless it is under way or there is no room.
fn begin(deps: &Arc<Deps>, job: Job) {
    let stop = deps.tasks.soft().child_token();
    {
        let mut under_way = deps.jobs.under_way();
        if under_way.len() >= JOBS_TOGETHER_MAX {
            return;
        }
        let Entry::Vacant(place) = under_way.entry(job.id.clone()) else { return };
        place.insert(UnderWay { session: job.session.clone(), stop: stop.clone() });
    }
    let deps_of_job = deps.clone();
    drop(deps.tasks.spawn("job", async move {
        let (deps, id) = (deps_of_job, job.id.clone());
        let _done = stop.run_until_cancelled(see_to(&deps, job)).await;
        deps.jobs.under_way().remove(&id);
        deps.jobs.changed();
    }));
}

/// Does one job, and notes what came of it.
async fn see_to(deps: &Deps, job: Job) {
    let (spec, result) = tried(deps, &job).await;
    let tries = job.attempts + 1;
    let again = match result {
        Ok(()) => None,
        Err(error) => {
            let policy = RetryPolicy {
                max_retries: JOB_RETRIES_MAX,
                max_backoff: JOB_BACKOFF_MAX,
                ..spec.map(|spec| spec.retry.clone()).unwrap_or_default()
            };
            let chance = deps.ids.seed();
            let wait = retry::after_failure(&policy, error.class(), tries, error.after(), chance);
            if wait.is_none() {
                given_up(&job, tries);
            }
            wait.map(|wait| (deps.clock.now().after(wait), error.to_string()))
        }
    };
    note(deps, &job.id, again).await;
}

/// Nobody is told but the log, which hears nothing of what was said in the run.
fn given_up(job: &Job, tries: u32) {
    tracing::warn!(run.id = %job.id.run, kind = %job.id.kind, tries, "a job that follows a run is given up");
}

/// One try, and the run's spec where it could be read. A panic is a failed try.
async fn tried(deps: &Deps, job: &Job) -> (Option<Arc<RunSpec>>, Result<(), JobError>) {
    let spec = match spec(deps, &job.id).await {
        Ok(Some(spec)) => spec,
        // Its session was deleted; the job is gone with it.
        Ok(None) => return (None, Ok(())),
        Err(error) => return (None, Err(error.into())),
    };
    let Some(executor) = deps.jobs.executor(&job.id.kind) else {
        let why = "nobody does jobs of this kind".to_owned();
        return (Some(spec), Err(JobError::Retryable { why, after: None }));
    };
    let result = AssertUnwindSafe(executor.execute(job, &spec)).catch_unwind().await;
    let fault = || Err(JobError::Retryable { why: "a fault of the server".to_owned(), after: None });
    (Some(spec), result.unwrap_or_else(|_| fault()))
}

/// How the run was told to behave; `None` where it is gone.
async fn spec(deps: &Deps, job: &JobId) -> Result<Option<Arc<RunSpec>>, StoreError> {
    let first = deps.store.records(&job.tenant, &job.run, Seq(0), 1).await?;
    Ok(first.into_iter().find_map(|record| match record.event {
        Event::Started { spec, .. } => Some(spec),
        _ => None,
    }))
}

/// Notes in the store that a job is done with, or when it is due again. It stays under way until that is written, so
/// that a store that fails does not have it done over and over.
async fn note(deps: &Deps, job: &JobId, again: Option<(Timestamp, String)>) {
    let mut wait = STORE_WAIT;
    loop {
        let noted = match &again {
            None => deps.store.finish_job(job).await,
            Some((due_at, why)) => {
                let why = &why[..why.floor_char_boundary(ERROR_BYTES_MAX)];
                deps.store.retry_job(job, *due_at, why).await
            }
        };
        let Err(error) = noted else { return };
        tracing::warn!(run.id = %job.run, %error, "cannot note what came of a job");
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(SLEEP_MAX);
    }
}

#[cfg(test)]
mod tests;
