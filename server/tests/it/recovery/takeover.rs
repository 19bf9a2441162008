//! Calls and hosts while a run is taken over.

use std::sync::Arc;

use agentloop_core::cluster::shard::shard_of;
use agentloop_core::id::{Attempt, HostId, SessionId, TenantId};
use agentloop_core::outcome::Ran;
use agentloop_core::run::status::RunStatus;
use agentloop_server::engine::EngineOptions;
use agentloop_server::store::Store;
use agentloop_server::store::sqlite::SqliteStore;
use agentloop_server::tool::{CallSink as _, CallUpdate, Seek};

use crate::recovery::process::{Process, request};
use crate::support::patience::{PATIENCE, in_time};
use crate::support::until::until;

#[tokio::test]
async fn a_run_whose_end_is_found_when_it_is_taken_over_makes_room_for_the_next() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.unwrap());
    let tenant = TenantId::local();
    let mut before = Process::start(&store, [Seek::Queued, Seek::Queued]);
    let (first, _) = before.waiting_run("first").await;
    let second = before.engine.start(request("second")).await.unwrap().run;
    before.stop().await;

    // No host has room any more. Taking over the first run therefore ends it.
    let after = Process::start(&store, [(); 2].map(|()| Seek::Denied("nobody is there".to_owned())));
    for run in [first, second] {
        let view = in_time(after.engine.wait(&tenant, &run)).await.unwrap();
        assert_eq!(view.state.status(), Some(RunStatus::Failed), "{run}");
    }
    until(|| after.engine.live_runs() == 0).await;
    after.stop().await;
}

#[tokio::test]
async fn a_host_that_is_found_while_a_run_is_taken_over_is_offered_the_call() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.unwrap());
    let tenant = TenantId::local();
    let mut before = Process::start(&store, [Seek::Queued, Seek::Queued]);
    let (_, call) = before.waiting_run("r").await;
    before.stop().await;

    let host = HostId::parse("h").unwrap();
    let mut after = Process::start(
        &store,
        [Seek::Granted { host: host.clone(), instance: None, terms: None }, Seek::Queued],
    );
    assert_eq!(after.second_sought().await, call);
    // The offer of the first call is decided but not durable yet.
    let digest = agentloop_core::tool::Digest::of(&[b"terms"]);
    let effect = agentloop_core::tool::EffectClass::ReadOnly;
    let terms = Some(Arc::new(agentloop_core::tool::ToolTerms {
        effect,
        requires_approval: false,
        digest,
        output_schema: None,
    }));
    after.engine.report_update(&tenant, &call, CallUpdate::Granted { host, instance: None, terms }).await;
    in_time(after.offered.recv()).await.unwrap();
    assert_eq!(in_time(after.offered.recv()).await, Some(call));
    after.stop().await;
}

#[tokio::test]
async fn a_call_that_was_not_begun_is_offered_again_if_its_run_is_not_taken_over_yet() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.unwrap());
    let tenant = TenantId::local();
    let host = HostId::parse("h").unwrap();
    let seek = || [Seek::Granted { host: host.clone(), instance: None, terms: None }, Seek::Queued];
    let mut before = Process::start(&store, seek());
    before.engine.start(request("r")).await.expect("started");
    let call = in_time(before.offered.recv()).await.expect("it is offered");
    before.stop().await;

    let mut after = Process::start(&store, seek());
    assert_eq!(after.engine.live_runs(), 0);
    let message = "refused".to_owned();
    let lost = CallUpdate::Lost { attempt: Attempt(1), message, ran: Ran::No, busy: false };
    assert!(after.engine.report_update(&tenant, &call, lost).await, "the run is told");
    assert_eq!(in_time(after.offered.recv()).await, Some(call));
    after.stop().await;
}

#[tokio::test]
async fn a_session_that_is_given_away_does_not_wait_long_for_hosts_that_say_nothing() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().await.unwrap());
    let options = EngineOptions { offers_wait: PATIENCE * 20, ..EngineOptions::default() };
    let granted = Seek::Granted { host: HostId::parse("h").unwrap(), instance: None, terms: None };
    let mut owner = Process::start_with(&store, [granted.clone(), granted], options);
    owner.engine.start(request("r")).await.expect("started");
    in_time(owner.offered.recv()).await.expect("it is offered");
    let shard = shard_of(&TenantId::local(), &SessionId::parse("s").unwrap());
    assert!(owner.engine.give_away_shards([shard].into(), PATIENCE).await, "the run has stopped");
    assert_eq!(owner.engine.live_runs(), 0);
}
