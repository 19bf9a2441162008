use std::collections::BTreeMap;
use std::sync::Arc;

use agentloop_core::id::{EntryNo, Epoch, RunKey, Seq};
use agentloop_core::message::Usage;
use agentloop_core::run::state::CallCounts;
use agentloop_core::run::status::{RunError, RunErrorCode, RunStatus};
use agentloop_core::time::Timestamp;
use agentloop_core::tool::Digest;

use super::fixture::*;
use crate::store::{RunRow, RunSummary, Store, StoreError};

pub async fn a_run_is_created_once(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await;
    owner.ends().await.unwrap();
    for session_name in ["s", "t"] {
        let mut again = Owner::new(&store, session_name, "r");
        let answer = again.create().await;
        assert!(matches!(answer, Err(StoreError::RunExists)), "{answer:?}");
    }
    assert_eq!(owner.stored().await.len(), 2);
    assert_eq!(store.session(&owner.tenant, &session("t")).await.unwrap(), None);
}

pub async fn a_row_says_where_its_run_stands(store: Arc<dyn Store>) {
    let mut owner = Owner::started(&store, "s", "r").await.at(2_000);
    assert_eq!(store.run(&owner.tenant, &run("other")).await.unwrap(), None);
    let mut expected = RunRow {
        run: run("r"),
        session: session("s"),
        request_digest: Digest::of(&[b"r"]),
        agent: "default".to_owned(),
        model: "openai/gpt-5".to_owned(),
        labels: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
        preview: "Preview of r".to_owned(),
        created_by: None,
        created_at: Timestamp(START),
        updated_at: Timestamp(START),
        last_seq: Seq(1),
        queue_no: None,
        summary: summary(RunStatus::Preparing, None),
    };
    assert_eq!(store.run(&owner.tenant, &owner.run).await.unwrap().as_ref(), Some(&expected));

    let mut append = owner.append(RunStatus::Paused, vec![plain(1), plain(2)]);
    append.summary = RunSummary {
        status: RunStatus::Paused,
        wake_at: Some(Timestamp(9_000)),
        at_hosts: true,
        error: Some(RunError::new(RunErrorCode::LimitTokens, "it's \"over\"")),
        usage: Usage { input_tokens: u64::MAX, output_tokens: 2, ..Usage::default() },
        iterations: 3,
        tool_calls: 4,
        calls: CallCounts {
            model_calls: 1,
            failed_model_attempts: 2,
            tool_calls: 3,
            failed_tool_calls: u64::MAX,
        },
    };
    expected.summary = append.summary.clone();
    (expected.updated_at, expected.last_seq) = (Timestamp(2_000), Seq(3));
    owner.write(append).await.unwrap();
    assert_eq!(store.run(&owner.tenant, &owner.run).await.unwrap(), Some(expected));
}

pub async fn a_claim_fences_the_old_owner(store: Arc<dyn Store>) {
    let mut old = Owner::started(&store, "s", "r").await;
    old.says("hello").await.unwrap();
    let claimed = store.claim(&old.tenant, &old.run).await.unwrap().unwrap();
    assert_eq!(claimed.records, old.stored().await);
    assert_eq!(Some(claimed.row), store.run(&old.tenant, &old.run).await.unwrap());
    assert!(claimed.epoch > old.epoch);

    let answer = old.says("still here").await;
    assert!(matches!(answer, Err(StoreError::Conflict)), "{answer:?}");
    let mut new = Owner { epoch: claimed.epoch, ..old.clone() };
    new.says("mine now").await.unwrap();
    assert_eq!(new.stored().await.len(), 3);
}

pub async fn claims_rise(store: Arc<dyn Store>) {
    let owner = Owner::started(&store, "s", "r").await;
    let mut last = store.epoch();
    assert!(last > Epoch(0));
    for _ in 0..3 {
        let claimed = store.claim(&owner.tenant, &owner.run).await.unwrap().unwrap();
        assert!(claimed.epoch > last);
        last = claimed.epoch;
    }
    assert!(store.claim(&owner.tenant, &run("other")).await.unwrap().is_none());
}

pub async fn unfinished_runs_of_every_tenant_are_found(store: Arc<dyn Store>) {
    let mut expected = Vec::new();
    for (index, status) in RunStatus::ALL.into_iter().enumerate() {
        let name = format!("r{index:02}");
        let mut owner = Owner::new(&store, &name, &name).of(if index % 2 == 0 { "even" } else { "odd" });
        owner.create().await.unwrap();
        owner.tell(status, vec![plain(1)]).await.unwrap();
        if !status.is_terminal() && !status.is_interrupted() {
            expected.push(RunKey::new(owner.tenant, owner.run));
        }
    }
    expected.sort();
    let mut found = store.unfinished().await.unwrap();
    found.sort();
    assert_eq!(found, expected);
}

pub async fn due_runs_are_found_by_their_time(store: Arc<dyn Store>) {
    for (name, status, wake_at) in [
        ("a", RunStatus::AwaitingHuman, Some(300)),
        ("b", RunStatus::Paused, Some(100)),
        ("c", RunStatus::AwaitingHuman, Some(200)),
        ("never", RunStatus::AwaitingHuman, None),
        ("later", RunStatus::BackingOff, Some(400)),
        ("running", RunStatus::BackingOff, None),
    ] {
        let mut owner = Owner::started(&store, name, name).await;
        owner.wake_at = wake_at.map(Timestamp);
        owner.tell(status, vec![plain(1)]).await.unwrap();
    }
    check_due(&store, 99, 9, &[], Some(100)).await;
    check_due(&store, 200, 9, &["b", "c"], Some(300)).await;
    check_due(&store, 200, 1, &["b"], Some(200)).await;
    check_due(&store, 999, 9, &["b", "c", "a", "later"], None).await;
    check_due(&store, 999, 4, &["b", "c", "a", "later"], None).await;
    check_due(&store, 999, 0, &[], Some(100)).await;

    let mut woken = Owner::new(&store, "b", "b");
    woken.seq = Seq(2);
    woken.tell(RunStatus::ModelRunning, vec![input(EntryNo(1), "answered")]).await.unwrap();
    check_due(&store, 200, 9, &["c"], Some(300)).await;
}

async fn check_due(store: &Arc<dyn Store>, now: u64, limit: u32, runs: &[&str], next: Option<u64>) {
    let expected: Vec<_> = runs.iter().map(|name| key(name)).collect();
    let found = store.due(Timestamp(now), limit).await.unwrap();
    assert_eq!(found, (expected, next.map(Timestamp)), "at {now}, {limit} at most");
}
