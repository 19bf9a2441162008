//! Owners that are fenced while they live: their commits write nothing, and nobody waits for them for ever.

use super::takeovers::{session_of, shard};
use super::*;
use crate::store::conformance::fixture;
use crate::store::postgres::replica::statements;
use crate::store::postgres::tests::wire::Wire;

/// Fences an owner, as another replica does after its lease.
async fn fence(schema: &Schema, server: &Server) {
    let (mut db, number) = (schema.shell().await, server.replica.number());
    let observer =
        ReplicaOptions { address: "x:1".to_owned(), lease: LONG, configuration_digest: "c".to_owned() };
    let observer = statements::register(&mut db, &observer).await.unwrap();
    until(async || {
        let seen = statements::beat(&mut db, observer).await.unwrap();
        let suspect = seen.replicas.iter().find(|replica| replica.number == number).unwrap();
        statements::mark(&mut db, number, suspect.beat).await.unwrap()
    })
    .await;
    statements::mark_lane(&mut db, number).await.unwrap();
    statements::leave(&mut db, observer).await.unwrap();
}

#[tokio::test]
async fn a_fenced_owner_writes_nothing_and_stops() {
    let Some(schema) = Schema::new().await else { return };
    let server = Server::start(&schema, "a:1", Duration::from_secs(5)).await;
    let store = server.own().await;
    let shared: Arc<dyn Store> = store.clone();
    let mut owner = fixture::Owner::started(&shared, "s", "r").await;
    fence(&schema, &server).await;
    let refused = owner.says("too late").await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    assert!(store.failed().is_cancelled());
    let mut shell = schema.shell().await;
    assert_eq!(number(&mut shell, "SELECT count(*) FROM run_events").await, 1);
    tokio::time::timeout(BOUND, server.replica.failed().cancelled()).await.unwrap();
    assert!(!server.replica.ownerships().borrow().is_valid());
    server.replica.leave().await;
    server.replica.leave().await;
    assert!(server.replica.shards().borrow().owned.is_empty());
}

#[tokio::test]
async fn a_transaction_of_a_fenced_owner_writes_nothing() {
    let Some(schema) = Schema::new().await else { return };
    let server = Server::start(&schema, "a:1", LONG).await;
    let store = server.own().await;
    store.check().await.unwrap();
    let mut shell = schema.shell().await;
    let commits = "SELECT batch FROM owners";
    let before = number(&mut shell, commits).await;
    assert!(before > 0, "the check was a commit");
    fence(&schema, &server).await;
    let refused = store.check().await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    assert!(store.failed().is_cancelled());
    assert_eq!(number(&mut shell, commits).await, before);
}

/// An owner that froze between two statements of a transaction holds the lock that the fence waits for.
#[tokio::test]
async fn a_transaction_that_a_frozen_owner_left_open_is_ended() {
    let Some(schema) = Schema::new().await else { return };
    let frozen = Server::start(&schema, "a:1", SHORT).await;
    let store = frozen.own().await;
    let term = frozen.term();
    store.check().await.unwrap();
    // A connection in the place of the owner's: the owner's own threads cannot be stopped inside of a commit.
    let mut writing = schema.shell().await;
    writing.execute("BEGIN").await.unwrap();
    let options = "UPDATE owners SET conn = conn + 1, pid = pg_backend_pid()";
    writing.execute(options).await.unwrap();
    writing.execute("COMMIT").await.unwrap();
    writing.execute("BEGIN").await.unwrap();
    writing.execute("UPDATE owners SET batch = batch + 1").await.unwrap();
    writing.execute("UPDATE meta SET value = 77 WHERE key = 'checks'").await.unwrap();
    frozen.kill();
    let second = Server::start(&schema, "b:1", SHORT).await;
    let _store = second.own().await;
    assert_eq!(second.term(), term + 1);
    assert!(writing.execute("COMMIT").await.is_err(), "its connection is ended");
    let mut shell = schema.shell().await;
    assert_eq!(number(&mut shell, "SELECT value FROM meta WHERE key = 'checks'").await, 0);
}

/// It has committed nothing yet, and holds the lock that the fence waits for.
#[tokio::test]
async fn an_owner_that_is_lost_while_it_opens_is_fenced() {
    let Some(schema) = Schema::new().await else { return };
    let first = Server::start(&schema, "a:1", SHORT).await;
    // It takes shards before it has opened the store.
    first.replica.ready();
    first.wait_for_shards(SHARDS).await;
    let term = first.term();
    // Its opening comes no further than this row.
    let mut shell = schema.shell().await;
    shell.execute("BEGIN").await.unwrap();
    shell.execute("UPDATE meta SET value = value WHERE key = 'epoch'").await.unwrap();
    let (options, number_of, scope) =
        (schema.options.clone(), first.replica.number(), first.replica.scope().clone());
    let opening = async move { PostgresStore::open_replica(&options, number_of, scope).await };
    first.runtime.as_ref().unwrap().spawn(opening);
    let mut watching = schema.shell().await;
    let waiting = "SELECT count(*) FROM pg_locks AS l JOIN owners AS o ON o.pid = l.pid WHERE NOT l.granted";
    until(async || number(&mut watching, waiting).await > 0).await;
    first.kill();
    let second = Server::start(&schema, "b:1", SHORT).await;
    second.replica.ready();
    second.wait_for_shards(SHARDS).await;
    assert_eq!(second.term(), term + 1);
}

/// The replica that began the fence may have ended since.
#[tokio::test]
async fn a_fence_that_somebody_began_is_completed() {
    let Some(schema) = Schema::new().await else { return };
    let first = Server::start(&schema, "a:1", LONG).await;
    let store = first.own().await;
    let term = first.term();
    store.check().await.unwrap();
    fence(&schema, &first).await;
    let second = Server::start(&schema, "b:1", Duration::from_secs(5)).await;
    second.replica.ready();
    second.wait_for_shards(SHARDS).await;
    assert_eq!(second.term(), term + 1);
    let mut shell = schema.shell().await;
    let ended = "SELECT count(*) FROM replicas WHERE fenced AND ended_at IS NOT NULL";
    assert_eq!(number(&mut shell, ended).await, 1);
}

/// A fail-over to an asynchronous standby may lose a claim, and the release before it. Both replicas have the shard then.
#[tokio::test]
async fn an_owner_whose_claim_the_database_has_lost_stops_and_writes_nothing_more() {
    const LEASE: Duration = Duration::from_secs(4);
    let Some(schema) = Schema::new().await else { return };
    let first = Server::start(&schema, "a:1", LEASE).await;
    let _store = first.own().await;
    let second = Server::start(&schema, "b:1", LEASE).await;
    let other = second.open().await;
    second.wait_for_shards(SHARDS / 2).await;
    let mine = session_of(&second);
    let shared: Arc<dyn Store> = other.clone();
    let mut run = fixture::Owner::started(&shared, &mine, "r").await;
    let sql = "UPDATE shards SET owner_no = $2, term = term - 1 WHERE shard = $1";
    let (of, to) = (i64::from(shard(&mine).0), i64::try_from(first.replica.number().0).unwrap());
    sqlx::query(sql).bind(of).bind(to).execute(&mut schema.shell().await).await.unwrap();
    tokio::time::timeout(BOUND, second.replica.failed().cancelled()).await.expect("it stops");
    let refused = run.says("too late").await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    // It has left, so nobody waits for its lease.
    first.wait_for_shards(SHARDS).await;
    assert!(!first.replica.failed().is_cancelled());
    assert_eq!(run.stored().await.len(), 1);
}

/// The same, at the moment at which the database is another one: a commit comes before the next beat.
#[tokio::test]
async fn a_claim_that_the_database_has_lost_is_found_before_the_first_commit_over_a_new_connection() {
    let Some(schema) = Schema::new().await else { return };
    let wire = Wire::to(&schema.options).await;
    let mut server = Server::start(&schema, "a:1", LONG).await;
    // Its beats go another way.
    server.options = wire.options.clone();
    let store = server.own().await;
    let shared: Arc<dyn Store> = store.clone();
    let mut run = fixture::Owner::started(&shared, "s", "r").await;
    let mut other = fixture::Owner::started(&shared, "t", "r2").await;
    let mut shell = schema.shell().await;
    let lost = "UPDATE shards SET owner_no = NULL, term = term - 1 WHERE shard = $1";
    sqlx::query(lost).bind(i64::from(shard("s").0)).execute(&mut shell).await.unwrap();
    wire.is_cut();
    wire.has_no_connection().await;
    wire.is_back();
    // No commit is, whatever it writes to.
    let refused = [other.says("too late").await, run.says("too late").await];
    assert!(
        refused.iter().all(|refused| matches!(refused, Err(StoreError::Unavailable { .. }))),
        "{refused:?}"
    );
    assert!(store.failed().is_cancelled());
    assert_eq!(number(&mut shell, "SELECT count(*) FROM run_events").await, 2);
}

/// A claim was confirmed by a primary that is gone, and the writer has connected to the next one before it hears of the shard.
#[tokio::test]
async fn a_shard_that_is_gained_without_a_claim_in_the_database_is_not_written_to() {
    let Some(schema) = Schema::new().await else { return };
    let server = Server::start(&schema, "a:1", LONG).await;
    let store = server.own().await;
    let shared: Arc<dyn Store> = store.clone();
    let mut run = fixture::Owner::started(&shared, "s", "r").await;
    run.says("in time").await.unwrap();
    let term = server.term();
    server.replica.scope().add(shard("s"), Term(term + 1));
    let refused = run.says("too late").await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    assert!(store.failed().is_cancelled());
    assert_eq!(run.stored().await.len(), 2);
}
