//! The job executors, and the jobs that are under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agentloop_core::id::{SessionId, TenantId};
use agentloop_core::run::event::{Event, Record};
use agentloop_core::run::state::RunState;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::engine::ports::JobExecutor;
use crate::fair::FairQueue;
use crate::store::{Job, JobId, JobKind};

/// The most jobs that are under way at the same time, of all runs.
pub(in crate::engine) const JOBS_TOGETHER_MAX: usize = 8;

/// Connects the runs, whose ends bring jobs, with the runner that does them. The jobs themselves are in the store.
pub(in crate::engine) struct JobQueue {
    executors: Vec<Arc<dyn JobExecutor>>,
    changed: Notify,
    under_way: Mutex<UnderWay>,
}

#[derive(Default)]
struct UnderWay {
    jobs: BTreeMap<JobId, RunningJob>,
    /// The jobs that have ended since the runner began to read the due ones. The rows that it reads may still name them.
    ended: BTreeSet<JobId>,
    /// The tenant of the job that was begun last. The other tenants have their turn before it.
    served: Option<TenantId>,
}

impl UnderWay {
    /// True if the job is under way, or ended after the last [`JobQueue::begin_read`].
    fn has(&self, job: &JobId) -> bool {
        self.jobs.contains_key(job) || self.ended.contains(job)
    }
}

/// A job that is being done.
struct RunningJob {
    session: SessionId,
    /// Cancelled to drop the job where it is.
    stop: CancellationToken,
}

impl JobQueue {
    pub(in crate::engine) fn new(executors: Vec<Arc<dyn JobExecutor>>) -> Self {
        Self { executors, changed: Notify::new(), under_way: Mutex::default() }
    }

    /// The jobs to write together with these records of a run. None, unless the run's end is among the records.
    pub(in crate::engine) fn wanted(
        &self,
        tenant: &TenantId,
        state: &RunState,
        records: &[Record],
    ) -> Vec<JobKind> {
        if !records.iter().any(|record| matches!(record.event, Event::Finished { .. })) {
            return Vec::new();
        }
        self.executors.iter().flat_map(|executor| executor.wanted(tenant, state)).collect()
    }

    /// Wakes the runner: the store has new jobs, or a job under way has ended.
    pub(in crate::engine) fn notify(&self) {
        self.changed.notify_one();
    }

    /// Waits for [`Self::notify`].
    pub(in crate::engine) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Drops the jobs under way for a deleted session. They must not write to a new session with the same id.
    pub(in crate::engine) fn stop_session(&self, tenant: &TenantId, session: &SessionId) {
        let under_way = self.under_way.lock();
        let its = under_way.jobs.iter().filter(|(id, job)| id.tenant == *tenant && job.session == *session);
        its.for_each(|(_, job)| job.stop.cancel());
    }

    /// Drops the jobs under way for these sessions: another replica does them.
    pub(in crate::engine) fn stop_where(&self, is_left: impl Fn(&TenantId, &SessionId) -> bool) {
        let under_way = self.under_way.lock();
        let left = under_way.jobs.iter().filter(|(id, job)| is_left(&id.tenant, &job.session));
        left.for_each(|(_, job)| job.stop.cancel());
    }

    /// Called before the due jobs are read from the store. Returns the tenant that was served last: the next one has its turn.
    pub(in crate::engine) fn begin_read(&self) -> Option<TenantId> {
        let mut under_way = self.under_way.lock();
        under_way.ended.clear();
        under_way.served.clone()
    }

    /// Notes that a job is under way. False if it already is, if it ended after the last [`Self::begin_read`], or if
    /// [`JOBS_TOGETHER_MAX`] others are under way.
    pub(in crate::engine) fn begin(&self, job: &Job, stop: CancellationToken) -> bool {
        let mut under_way = self.under_way.lock();
        if under_way.jobs.len() >= JOBS_TOGETHER_MAX || under_way.has(&job.id) {
            return false;
        }
        under_way.jobs.insert(job.id.clone(), RunningJob { session: job.session.clone(), stop });
        under_way.served = Some(job.id.tenant.clone());
        true
    }

    /// Notes that a job is not under way any more, and wakes the runner.
    pub(in crate::engine) fn end(&self, job: &JobId) {
        let mut under_way = self.under_way.lock();
        under_way.jobs.remove(job);
        under_way.ended.insert(job.clone());
        drop(under_way);
        self.notify();
    }

    /// The number of jobs under way.
    pub(in crate::engine) fn running(&self) -> usize {
        self.under_way.lock().jobs.len()
    }

    /// These jobs without those that [`Self::begin`] would refuse, so that none of them takes its tenant's turn.
    pub(in crate::engine) fn in_turn(&self, due: Vec<Job>) -> FairQueue<TenantId, Job> {
        let under_way = self.under_way.lock();
        let mut waiting = FairQueue::default();
        for job in due.into_iter().filter(|job| !under_way.has(&job.id)) {
            waiting.push(job.id.tenant.clone(), job);
        }
        waiting
    }

    /// The executor that does jobs of this kind.
    pub(in crate::engine) fn executor(&self, kind: &JobKind) -> Option<&Arc<dyn JobExecutor>> {
        self.executors.iter().find(|executor| executor.takes(kind))
    }
}
