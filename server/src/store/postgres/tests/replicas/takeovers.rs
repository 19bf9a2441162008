//! Who owns the database, and who takes it over.

use futures_util::future::join_all;
use tokio::time::Instant;

use super::*;
use crate::cluster::{ReplicaPart, ReplicaRow, Replicas as _};
use crate::store::conformance::fixture::{self, tenant};

const STANDBY_WITHOUT_OWNER: Standing = Standing::Standby { owner: None };

async fn write(store: &Arc<PostgresStore>, session: &str, run: &str) {
    let shared: Arc<dyn Store> = store.clone();
    fixture::Owner::started(&shared, session, run).await.says("hello").await.unwrap();
}

async fn runs(store: &PostgresStore) -> usize {
    let page = PageRequest { size: 100, after: None };
    store.runs(&tenant(), RunFilter::default(), page).await.unwrap().rows.len()
}

#[tokio::test]
async fn a_second_replica_stands_by_and_knows_the_owner() {
    let Some(schema) = Schema::new().await else { return };
    let owner = Server::start(&schema, "owner:1", LONG).await;
    assert_eq!(owner.claim().await, Claim { number: owner.replica.number(), term: 1 });
    owner.wait_for(Standing::Owner).await;
    let other = Server::start(&schema, "other:1", LONG).await;
    other.wait_for(Standing::Standby { owner: Some(owner.peer()) }).await;
    until(async || other.replica.rows().len() == 2).await;
    let members = other.replica.rows();
    let shown: Vec<_> =
        members.iter().map(|row| (row.peer.number, row.peer.address.as_str(), row.part)).collect();
    let (first, second) = (owner.replica.number(), other.replica.number());
    let (owns, stands_by) = (ReplicaPart::Owner, ReplicaPart::Standby);
    assert_eq!(shown, [(first, "owner:1", owns), (second, "other:1", stands_by)]);
    assert!(members.iter().all(|row| row.version == env!("CARGO_PKG_VERSION")));
    assert_eq!(*owner.replica.standings().borrow(), Standing::Owner);
}

#[tokio::test]
async fn another_follows_an_owner_that_was_killed() {
    let Some(schema) = Schema::new().await else { return };
    let first = Server::start(&schema, "a:1", SHORT).await;
    let (before, store) = first.own().await;
    write(&store, "s1", "r1").await;
    let second = Server::start(&schema, "b:1", SHORT).await;
    second.wait_for(Standing::Standby { owner: Some(first.peer()) }).await;
    let (killed, epoch) = (first.replica.number(), store.epoch());
    first.kill();
    drop(store);
    let (claim, store) = second.own().await;
    assert!(claim.term > before.term && claim.number == second.replica.number(), "{before:?} {claim:?}");
    assert!(store.epoch() > epoch, "{:?} {epoch:?}", store.epoch());
    second.wait_for(Standing::Owner).await;
    assert_eq!(runs(&store).await, 1);
    write(&store, "s2", "r2").await;
    assert_eq!(runs(&store).await, 2);
    let is_shown = |row: &ReplicaRow| {
        row.peer.number == killed && row.part == ReplicaPart::Fenced && row.peer.address == "a:1"
    };
    until(async || second.replica.rows().iter().any(is_shown)).await;
}

#[tokio::test]
async fn an_owner_that_leaves_is_followed_before_its_lease_is_over() {
    let Some(schema) = Schema::new().await else { return };
    let first = Server::start(&schema, "a:1", LONG).await;
    let (_, store) = first.own().await;
    write(&store, "s", "r").await;
    let second = Server::start(&schema, "b:1", LONG).await;
    second.wait_for(Standing::Standby { owner: Some(first.peer()) }).await;
    let left = Instant::now();
    store.close().await;
    first.replica.leave().await;
    let (claim, store) = second.own().await;
    assert!(left.elapsed() < LONG.mul_f32(0.8), "{:?}", left.elapsed());
    assert_eq!((claim.term, runs(&store).await), (2, 1));
    assert_eq!(first.replica.owned().await, None);
    assert!(!first.replica.failed().is_cancelled(), "it is no failure");
    first.replica.leave().await;
    until(async || second.replica.rows().len() == 1).await;
}

#[tokio::test]
async fn of_many_that_start_at_once_one_owns() {
    let Some(schema) = Schema::new().await else { return };
    let addresses: Vec<String> = (0..5).map(|no| format!("replica-{no}:1")).collect();
    let started =
        join_all(addresses.iter().map(|address| Server::start(&schema, address, Duration::from_secs(5))));
    let servers = started.await;
    let mut owner = None;
    until(async || {
        let is_owner = |server: &&Server| *server.replica.standings().borrow() == Standing::Owner;
        owner = servers.iter().find(is_owner).map(Server::peer);
        owner.is_some()
    })
    .await;
    for server in servers.iter().filter(|server| Some(server.peer()) != owner) {
        server.wait_for(Standing::Standby { owner: owner.clone() }).await;
    }
    let mut shell = schema.shell().await;
    assert_eq!(number(&mut shell, "SELECT term FROM ownership").await, 1);
    assert_eq!(number(&mut shell, "SELECT count(*) FROM owners").await, 1);
}

#[tokio::test]
async fn a_runtime_that_stands_still_loses_the_database() {
    let Some(schema) = Schema::new().await else { return };
    let first = Server::start(&schema, "a:1", SHORT).await;
    let (_, store) = first.own().await;
    first.wait_for(Standing::Owner).await;
    first.replica.stop_pulse();
    first.wait_for(STANDBY_WITHOUT_OWNER).await;
    let second = Server::start(&schema, "b:1", SHORT).await;
    let (claim, _store) = second.own().await;
    assert_eq!(claim.number, second.replica.number());
    let refused = store.check().await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    assert!(store.failed().is_cancelled());
}

#[tokio::test]
async fn a_server_alone_and_replicas_refuse_each_other() {
    let Some(schema) = Schema::new().await else { return };
    let alone = schema.open().await;
    let refused = Server::join(&schema.options, "a:1", LONG).await.err().unwrap();
    assert!(matches!(refused, OpenError::InUseAlone { .. }), "{refused}");
    assert!(refused.to_string().contains("cluster.listen"), "{refused}");
    alone.close().await;
    let replica = Server::start(&schema, "a:1", LONG).await;
    let (_, store) = replica.own().await;
    let refused = schema.try_open().await.err().unwrap();
    assert!(matches!(refused, OpenError::InUseByReplicas { .. }), "{refused}");
    assert!(refused.to_string().contains("cluster.listen"), "{refused}");
    store.check().await.unwrap();
    store.close().await;
    replica.replica.leave().await;
    schema.open().await.check().await.unwrap();
}

/// Its memory of the database is older than what the replica wrote.
#[tokio::test]
async fn a_server_alone_whose_connection_was_cut_does_not_go_on_after_a_replica() {
    let Some(schema) = Schema::new().await else { return };
    let alone = schema.open().await;
    alone.check().await.unwrap();
    let mut shell = schema.shell().await;
    number(&mut shell, "SELECT pg_terminate_backend(pid)::int::bigint FROM owners").await;
    let replica = Server::start(&schema, "a:1", LONG).await;
    let (_, store) = replica.own().await;
    store.close().await;
    replica.replica.leave().await;
    let refused = alone.check().await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    assert!(alone.failed().is_cancelled());
}

/// The connection that writes has no lock in a replica: a new one takes the place of a cut one at once.
#[tokio::test]
async fn a_cut_connection_of_an_owner_is_replaced() {
    let Some(schema) = Schema::new().await else { return };
    let replica = Server::start(&schema, "a:1", LONG).await;
    let (_, store) = replica.own().await;
    let shared: Arc<dyn Store> = store.clone();
    let mut owner = fixture::Owner::started(&shared, "s", "r").await;
    let mut shell = schema.shell().await;
    for text in ["one", "two", "three"] {
        number(&mut shell, "SELECT pg_terminate_backend(pid)::int::bigint FROM owners").await;
        owner.says(text).await.unwrap();
    }
    assert_eq!(owner.stored().await.len(), 4);
    assert!(!store.failed().is_cancelled());
}
