//! Jobs that are done by a fake executor.

use agentloop_core::id::TenantId;
use agentloop_core::run::state::RunState;
use agentloop_core::run::status::RunStatus;
use async_trait::async_trait;
use tokio::sync::mpsc;

use super::*;
use crate::engine::EngineParts;
use crate::engine::ports::JobExecutor;
use crate::lifecycle::Tasks;
use crate::model::{HttpOptions, ProviderRegistry};
use crate::store::conformance::fixture::{Owner, finished, session, tenant};
use crate::store::sqlite::SqliteStore;
use crate::store::{JobKind, Store};
use crate::tool::{RemoteTools, RemoteToolsOptions};

/// The longest time that anything here may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Fails, panics, hangs or succeeds, as the name of the job's hook says.
struct FakeExecutor {
    tried: mpsc::UnboundedSender<u32>,
}

#[async_trait]
impl JobExecutor for FakeExecutor {
    fn wanted(&self, _tenant: &TenantId, _ended: &RunState) -> Vec<JobKind> {
        Vec::new()
    }

    fn takes(&self, kind: &JobKind) -> bool {
        matches!(kind, JobKind::PostRun { .. })
    }

    async fn execute(&self, job: &Job, _spec: &RunSpec) -> Result<(), JobError> {
        self.tried.send(job.attempts).unwrap();
        let JobKind::PostRun { hook } = &job.id.kind else { panic!("only hooks") };
        let why = "because".to_owned();
        match (hook.as_str(), job.attempts) {
            ("stumbles", 0) => Err(JobError::Retryable { why, after: None }),
            ("stumbles", 1) => panic!("a fault in an executor"),
            ("never", _) => Err(JobError::Retryable { why, after: None }),
            ("hopeless", _) => Err(JobError::Fatal { why }),
            ("stays", _) => std::future::pending().await,
            _ => Ok(()),
        }
    }
}

/// An engine over this store, and the attempts that its fake executor reports.
fn engine(store: &Arc<dyn Store>) -> (Tasks, mpsc::UnboundedReceiver<u32>) {
    let (tasks, _engine, tries) = engine_of(store);
    (tasks, tries)
}

fn engine_of(store: &Arc<dyn Store>) -> (Tasks, Engine, mpsc::UnboundedReceiver<u32>) {
    let (tried, tries) = mpsc::unbounded_channel();
    let models = Arc::new(ProviderRegistry::new(HttpOptions::default(), []).unwrap());
    let tools = RemoteTools::new(RemoteToolsOptions::default(), Timestamp(0), Vec::new());
    let tasks = Tasks::new();
    let job_executors: Vec<Arc<dyn JobExecutor>> = vec![Arc::new(FakeExecutor { tried })];
    let parts = EngineParts { job_executors, tasks: tasks.clone(), ..EngineParts::default() };
    let engine = parts.start(store.clone(), models, tools);
    (tasks, engine, tries)
}

/// A store with a run that has ended and left a job for this hook.
async fn left(hook: &str) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.unwrap());
    leaves(&store, "s", "r", hook).await;
    store
}

async fn leaves(store: &Arc<dyn Store>, session: &str, run: &str, hook: &str) {
    leaves_of("local", store, session, run, hook).await;
}

async fn leaves_of(tenant: &str, store: &Arc<dyn Store>, session: &str, run: &str, hook: &str) {
    let mut owner = Owner::new(store, session, run).of(tenant);
    let mut append = owner.creation();
    let Event::Started { spec, .. } = &mut append.records[0].event else { panic!("a run starts") };
    Arc::make_mut(spec).retry.initial_backoff = Millis(1);
    owner.write(append).await.unwrap();
    let mut append = owner.append(RunStatus::Completed, vec![finished()]);
    append.jobs = vec![JobKind::PostRun { hook: hook.to_owned() }];
    owner.write(append).await.unwrap();
}

async fn jobs(store: &Arc<dyn Store>) -> Vec<Job> {
    store.due_jobs(Timestamp(u64::MAX), None, 9).await.unwrap().0
}

/// All attempts of the job for this hook, until it is gone from the store.
async fn tries(hook: &str) -> Vec<u32> {
    let store = left(hook).await;
    let (tasks, mut tries) = engine(&store);
    let gone = async {
        while !jobs(&store).await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
    tasks.shut_down(PATIENCE).await;
    let mut all = Vec::new();
    while let Ok(attempts) = tries.try_recv() {
        all.push(attempts);
    }
    all
}

#[tokio::test]
async fn a_job_is_tried_until_it_is_done() {
    assert_eq!(tries("works").await, [0]);
    assert_eq!(tries("stumbles").await, [0, 1, 2]);
}

#[tokio::test]
async fn a_job_that_is_hopeless_is_given_up_at_once() {
    assert_eq!(tries("hopeless").await, [0]);
}

#[tokio::test]
async fn a_job_that_keeps_failing_is_given_up() {
    assert_eq!(tries("never").await, (0..=JOB_RETRIES_MAX).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_stop_leaves_a_job_for_the_next_start() {
    let store = left("stays").await;
    for _ in 0..2 {
        let (tasks, mut tries) = engine(&store);
        assert_eq!(tokio::time::timeout(PATIENCE, tries.recv()).await.unwrap(), Some(0));
        assert_eq!(tasks.shut_down(PATIENCE).await, crate::lifecycle::Exit::Clean);
        assert_eq!(jobs(&store).await.len(), 1);
    }
}

#[tokio::test]
async fn what_is_done_for_a_deleted_session_is_not_done_to_the_next_of_its_name() {
    let store = left("stays").await;
    let (tasks, engine, mut tries) = engine_of(&store);
    let mut tried = async || tokio::time::timeout(PATIENCE, tries.recv()).await.unwrap();
    assert_eq!(tried().await, Some(0));
    let (tenant, session) = (tenant(), session("s"));
    assert!(engine.delete_session(&tenant, &session).await.unwrap());
    leaves(&store, "s", "r", "stays").await;
    engine.deps().jobs.notify();
    assert_eq!(tried().await, Some(0), "the job of the new run is its own");
    assert_eq!(jobs(&store).await.len(), 1, "and is not taken for done with the old one");
    tasks.shut_down(PATIENCE).await;
}

#[tokio::test]
async fn jobs_under_way_are_bounded_also_where_they_are_not_due_any_more() {
    let store = left("stays").await;
    let (tasks, engine, mut tries) = engine_of(&store);
    let mut tried = async || tokio::time::timeout(PATIENCE, tries.recv()).await.unwrap();
    assert_eq!(tried().await, Some(0));
    // The job under way is not due any more, as after the clock is set back, so others come first.
    let id = jobs(&store).await.remove(0).id;
    store.retry_job(&id, Timestamp(u64::MAX / 4), "").await.unwrap();
    for at in 0..2 * JOBS_TOGETHER_MAX {
        leaves(&store, &format!("s{at}"), &format!("r{at}"), "stays").await;
    }
    engine.deps().jobs.notify();
    for _ in 1..JOBS_TOGETHER_MAX {
        assert_eq!(tried().await, Some(0));
    }
    start_due(engine.deps()).await;
    start(engine.deps(), jobs(&store).await.remove(0));
    assert_eq!(engine.deps().jobs.running(), JOBS_TOGETHER_MAX, "no further job is started");
    tasks.shut_down(PATIENCE).await;
}

#[tokio::test]
async fn a_tenant_with_many_jobs_delays_the_job_of_another_by_one() {
    let store = left("stays").await;
    for at in 1..5 * JOBS_TOGETHER_MAX {
        leaves(&store, &format!("s{at}"), &format!("r{at}"), "stays").await;
    }
    let (tasks, engine, mut tries) = engine_of(&store);
    let mut tried = async || tokio::time::timeout(PATIENCE, tries.recv()).await.unwrap();
    for _ in 0..JOBS_TOGETHER_MAX {
        assert_eq!(tried().await, Some(0));
    }
    // It comes last, and its tenant is next.
    leaves_of("quiet", &store, "q", "q", "works").await;
    let ended = engine.deps().jobs.in_turn(jobs(&store).await).pop().unwrap();
    assert_eq!(ended.id.tenant.as_str(), "local", "others of the noisy tenant wait");
    assert!(engine.delete_session(&tenant(), &session("s")).await.unwrap());
    let done = async {
        while jobs(&store).await.iter().any(|job| job.id.tenant.as_str() == "quiet") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, done).await.unwrap();
    tasks.shut_down(PATIENCE).await;
}

#[tokio::test]
async fn tenants_take_turns_also_where_only_one_place_is_free() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.unwrap());
    let (tasks, engine, _tries) = engine_of(&store);
    // This engine starts nothing by itself any more; its table of jobs is used by hand.
    tasks.shut_down(PATIENCE).await;
    for tenant in ["amber", "noisy", "quiet"] {
        for at in 0..3 {
            leaves_of(tenant, &store, &format!("s{at}"), &format!("r{at}"), "stays").await;
        }
    }
    let table = &engine.deps().jobs;
    let mut served = Vec::new();
    for _ in 0..6 {
        let after = table.begin_read();
        let (due, _) = store.due_jobs(Timestamp(u64::MAX), after.as_ref(), 8).await.unwrap();
        let job = table.in_turn(due).pop().unwrap();
        assert!(table.begin(&job, Default::default()));
        served.push(format!("{} {}", job.id.tenant, job.id.run));
    }
    assert_eq!(served, ["amber r0", "noisy r0", "quiet r0", "amber r1", "noisy r1", "quiet r1"]);
}

#[tokio::test]
async fn a_job_that_ends_while_the_due_ones_are_read_is_not_done_again() {
    let store = left("stays").await;
    let (tasks, engine, _tries) = engine_of(&store);
    // This engine starts nothing by itself any more; its table of jobs is used by hand.
    tasks.shut_down(PATIENCE).await;
    let table = &engine.deps().jobs;
    table.begin_read();
    let job = jobs(&store).await.remove(0);
    assert!(table.begin(&job, Default::default()));
    table.begin_read();
    let read = jobs(&store).await;
    table.end(&job.id);
    assert!(table.in_turn(read).pop().is_none(), "it was read before its end");
    assert!(!table.begin(&job, Default::default()));
    table.begin_read();
    assert!(table.begin(&job, Default::default()), "it is due again after its end");
}
