use std::sync::Arc;

use agentloop_core::id::{RunId, TenantId};
use agentloop_core::run::status::RunStatus;
use agentloop_core::time::Timestamp;

use super::fixture::*;
use crate::store::{Job, JobId, JobKind, Store, StoreError};

fn hook() -> JobKind {
    JobKind::PostRun { hook: "audit".to_owned() }
}

async fn ends_with(owner: &mut Owner, jobs: &[JobKind]) -> Result<(), StoreError> {
    let mut append = owner.append(RunStatus::Completed, vec![finished()]);
    append.jobs = jobs.to_vec();
    owner.write(append).await
}

async fn due(store: &Arc<dyn Store>, now: u64) -> Vec<Job> {
    store.due_jobs(Timestamp(now), None, 9).await.unwrap().0
}

fn kinds(jobs: &[Job]) -> Vec<(RunId, JobKind)> {
    jobs.iter().map(|job| (job.id.run.clone(), job.id.kind.clone())).collect()
}

pub async fn jobs_come_with_the_end_of_their_run(store: Arc<dyn Store>) {
    assert_eq!(store.due_jobs(Timestamp(u64::MAX), None, 9).await.unwrap(), (vec![], None));
    let mut owner = Owner::started(&store, "s", "r").await.at(5_000);
    ends_with(&mut owner, &[JobKind::Title, hook()]).await.unwrap();
    assert_eq!(store.due_jobs(Timestamp(4_999), None, 9).await.unwrap(), (vec![], Some(Timestamp(5_000))));
    let found = due(&store, 5_000).await;
    assert_eq!(kinds(&found), [(run("r"), hook()), (run("r"), JobKind::Title)]);
    let id = JobId { tenant: tenant(), run: run("r"), kind: hook() };
    let expected =
        Job { id: id.clone(), session: session("s"), due_at: Timestamp(5_000), attempts: 0, error: None };
    assert_eq!(found[0], expected);
    assert_eq!(id.to_string(), "r/post_run:audit");

    store.finish_job(&id).await.unwrap();
    store.finish_job(&id).await.unwrap();
    assert_eq!(kinds(&due(&store, 5_000).await), [(run("r"), JobKind::Title)]);
}

pub async fn jobs_of_a_refused_append_are_none(store: Arc<dyn Store>) {
    let owner = Owner::started(&store, "s", "r").await;
    let mut stale = Owner { epoch: agentloop_core::id::Epoch(owner.epoch.0 + 1), ..owner.clone() };
    let refused = ends_with(&mut stale, &[JobKind::Title]).await;
    assert!(matches!(refused, Err(StoreError::Conflict)), "{refused:?}");
    assert_eq!(due(&store, u64::MAX).await, []);
}

pub async fn a_failed_job_comes_again_at_its_time(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    ends_with(&mut owner, &[JobKind::Summary]).await.unwrap();
    let id = due(&store, START).await.remove(0).id;
    store.retry_job(&id, Timestamp(7_000), "busy").await.unwrap();
    store.retry_job(&id, Timestamp(8_000), "busier").await.unwrap();
    assert_eq!(store.due_jobs(Timestamp(7_999), None, 9).await.unwrap(), (vec![], Some(Timestamp(8_000))));
    let again = due(&store, 8_000).await.remove(0);
    assert_eq!((again.attempts, again.error.as_deref()), (2, Some("busier")));
    store.finish_job(&id).await.unwrap();
    store.retry_job(&id, Timestamp(9_000), "late").await.unwrap();
    assert_eq!(due(&store, u64::MAX).await, []);
}

pub async fn due_jobs_are_bounded(store: Arc<dyn Store>) {
    for (name, at) in [("a", 3_000), ("b", 2_000), ("c", 4_000), ("d", 9_500), ("e", 9_400)] {
        leaves_a_title(&store, "local", name, at).await;
    }
    let (found, next) = store.due_jobs(Timestamp(9_000), None, 2).await.unwrap();
    assert_eq!(kinds(&found), [(run("b"), JobKind::Title), (run("a"), JobKind::Title)]);
    assert_eq!(next, Some(Timestamp(9_400)), "the first that is not due yet");
    let (found, next) = store.due_jobs(Timestamp(9_500), None, 9).await.unwrap();
    assert_eq!((found.len(), next), (5, None));
}

async fn leaves_a_title(store: &Arc<dyn Store>, tenant: &str, name: &str, at: u64) {
    let mut owner = Owner::new(store, name, name).at(at).of(tenant);
    owner.create().await.unwrap();
    ends_with(&mut owner, &[JobKind::Title]).await.unwrap();
}

pub async fn due_jobs_are_those_of_tenants_in_turn(store: Arc<dyn Store>) {
    for at in 0..30 {
        leaves_a_title(&store, "noisy", &format!("n{at}"), 2_000 + at).await;
    }
    leaves_a_title(&store, "late", "l", 9_000).await;
    for (tenant, at) in [("amber", 4_000), ("quiet", 5_000), ("red", 3_000)] {
        leaves_a_title(&store, tenant, "q", at).await;
    }
    let after = async |tenant: Option<&str>, limit| {
        let tenant = tenant.map(|tenant| TenantId::parse(tenant).unwrap());
        let (found, next) = store.due_jobs(Timestamp(8_000), tenant.as_ref(), limit).await.unwrap();
        assert_eq!(next, Some(Timestamp(9_000)));
        found.iter().map(|job| format!("{} {}", job.id.tenant, job.id.run)).collect::<Vec<_>>()
    };
    let noisy = ["noisy n0", "noisy n1", "noisy n2"];
    assert_eq!(after(None, 3).await, [&["amber q"][..], &noisy, &["quiet q"]].concat());
    assert_eq!(after(Some("noisy"), 3).await, ["quiet q", "red q", "amber q"], "it goes round");
    // A tenant without jobs has its place, too. One whose job is not due has no turn.
    assert_eq!(after(Some("blue"), 3).await, [&noisy[..], &["quiet q", "red q"]].concat());
    assert_eq!(after(Some("red"), 1).await, ["amber q"]);
    let all_round = [&["quiet q", "red q", "amber q"][..], &noisy, &["noisy n3", "noisy n4"]].concat();
    assert_eq!(after(Some("noisy"), 5).await, all_round, "it comes itself at the end");
}

pub async fn jobs_go_with_their_session(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    ends_with(&mut owner, &[JobKind::Title, JobKind::Summary]).await.unwrap();
    assert!(store.delete_session(&tenant(), &session("s")).await.unwrap());
    assert_eq!(due(&store, u64::MAX).await, []);
}
