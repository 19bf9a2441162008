//! A connection that falls silent without an end, as that of a machine that is gone or behind a firewall that forgot it.

use agentloop_core::id::{RunId, TenantId};
use agentloop_core::time::Timestamp;

use super::takeovers::session_of;
use super::*;
use crate::store::SessionStore as _;
use crate::store::conformance::fixture;
use crate::store::postgres::tests::wire::{Lost, Wire};

/// The owner gives the connection up after a time, and another one tells if the commit has happened.
#[tokio::test]
async fn a_write_whose_connection_falls_silent_is_done_once_over_another() {
    tokio::join!(says_once(Lost::Responses), says_once(Lost::Everything));
}

async fn says_once(lost: Lost) {
    let Some(schema) = Schema::new().await else { return };
    let wire = Wire::to(&schema.options).await;
    let mut replica = Server::start(&schema, "a:1", LONG).await;
    // Its beats go another way.
    replica.options = wire.options.clone();
    let store = replica.own().await;
    let shared: Arc<dyn Store> = store.clone();
    let mut owner = fixture::Owner::started(&shared, "s", "r").await;
    wire.falls_silent(lost);
    tokio::time::timeout(BOUND, owner.says("one")).await.expect("in time").unwrap();
    owner.says("two").await.unwrap();
    assert_eq!(owner.stored().await.len(), 3, "{lost:?}");
    assert!(!store.failed().is_cancelled());
}

/// A firewall lets the beats through and nothing else.
#[tokio::test]
async fn a_replica_whose_writes_do_not_reach_the_database_gives_up_its_place() {
    let Some(schema) = Schema::new().await else { return };
    let wire = Wire::to(&schema.options).await;
    let mut first = Server::start(&schema, "a:1", SHORT).await;
    let second = Server::start(&schema, "b:1", SHORT).await;
    first.options = PostgresOptions { retry_for: Duration::from_secs(1), ..wire.options.clone() };
    let store = first.own().await;
    let shared: Arc<dyn Store> = store.clone();
    let _second = second.open().await;
    first.wait_for_shards(SHARDS / 2).await;
    let mut owner = fixture::Owner::started(&shared, &session_of(&first), "r").await;
    wire.is_cut();
    let ended = async {
        let failed = first.replica.failed();
        while !failed.is_cancelled() {
            assert!(owner.says("lost").await.is_err());
        }
    };
    tokio::time::timeout(BOUND, ended).await.expect("in time");
    second.wait_for_shards(SHARDS).await;
}

/// Likewise of a write that is a transaction of several statements.
#[tokio::test]
async fn a_session_whose_connection_falls_silent_is_created_over_another() {
    let Some(schema) = Schema::new().await else { return };
    let wire = Wire::to(&schema.options).await;
    let store = PostgresStore::open(&wire.options).await.unwrap();
    wire.falls_silent(Lost::Everything);
    let created = store.create_session(fixture::new_session("s", &fixture::labelled(&[]), Timestamp(1)));
    tokio::time::timeout(BOUND, created).await.expect("in time").unwrap();
    store.close().await;
}

/// A caller has the patience of the store, or less.
#[tokio::test]
async fn a_query_whose_connection_falls_silent_ends_and_the_next_one_is_done() {
    tokio::join!(reads_again(true), reads_again(false));
}

async fn reads_again(is_patient: bool) {
    let Some(mut schema) = Schema::new().await else { return };
    (schema.options.statement_timeout, schema.options.readers) = (Duration::from_secs(5), 1);
    let wire = Wire::to(&schema.options).await;
    let store = Arc::new(PostgresStore::open(&wire.options).await.unwrap());
    let mut shell = schema.shell().await;
    shell.execute("BEGIN").await.unwrap();
    shell.execute("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let run = RunId::parse("r").unwrap();
    let reading = {
        let (store, run) = (store.clone(), run.clone());
        tokio::spawn(async move { store.run(&TenantId::local(), &run).await })
    };
    let mut watching = schema.shell().await;
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'runs'::regclass";
    until(async || number(&mut watching, waiting).await > 0).await;
    wire.falls_silent(Lost::Responses);
    shell.execute("COMMIT").await.unwrap();
    if is_patient {
        let ended = tokio::time::timeout(BOUND, reading).await.expect("in time").unwrap();
        assert!(matches!(ended, Err(StoreError::Unavailable { .. })), "{ended:?}");
    } else {
        reading.abort();
    }
    // There is one connection, and it is silent.
    assert_eq!(store.run(&TenantId::local(), &run).await.unwrap(), None);
}
