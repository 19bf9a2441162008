//! Owners of shards, and takeovers.

use std::collections::BTreeMap;

use agentloop_core::cluster::shard::shard_of;
use agentloop_core::id::SessionId;
use agentloop_core::time::{Millis, Timestamp};
use futures_util::future::join_all;
use tokio::time::Instant;

use super::*;
use crate::clock::{Clock as _, SystemClock};
use crate::cluster::{HUB, ReplicaPart, ReplicaRow, Replicas as _};
use crate::store::SessionStore as _;
use crate::store::conformance::fixture::{self, tenant};
use crate::store::support::number::int;

/// From then on, deletions of sessions go on until `deletions_end` has a row.
const SLOW_DELETIONS: &str = "
    CREATE TABLE deletions_end (n bigint);
    CREATE FUNCTION delete_slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        WHILE NOT EXISTS (SELECT 1 FROM deletions_end) LOOP PERFORM pg_sleep(0.01); END LOOP;
        RETURN OLD;
    END $$;
    CREATE TRIGGER delete_slowly BEFORE DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION delete_slowly()";

async fn write(store: &Arc<PostgresStore>, session: &str, run: &str) {
    let shared: Arc<dyn Store> = store.clone();
    fixture::Owner::started(&shared, session, run).await.says("hello").await.unwrap();
}

async fn runs(store: &PostgresStore) -> usize {
    let page = PageRequest { size: 100, after: None };
    store.runs(&tenant(), RunFilter::default(), page).await.unwrap().rows.len()
}

/// The shard of a session of the tests.
pub(super) fn shard(session: &str) -> ShardNo {
    shard_of(&tenant(), &SessionId::parse(session).unwrap())
}

/// A session in a shard that the server owns.
pub(super) fn session_of(server: &Server) -> String {
    let ownership = server.replica.ownerships().borrow().clone();
    (0..).map(|no| format!("s-{no}")).find(|session| ownership.is_mine(shard(session))).unwrap()
}

#[tokio::test]
async fn a_second_replica_gets_its_share_and_the_first_writes_there_no_more() {
    let Some(schema) = Schema::new().await else { return };
    let first = Server::start(&schema, "a:1", LONG).await;
    let store = first.own().await;
    for no in 0..8 {
        write(&store, &format!("s{no}"), &format!("r{no}")).await;
    }
    let second = Server::start(&schema, "b:1", LONG).await;
    first.wait_for(|ownership| ownership.peers().count() == 1).await;
    first.wait_for_shards(SHARDS).await;
    let other = second.open().await;
    first.wait_for_shards(SHARDS / 2).await;
    second.wait_for_shards(SHARDS / 2).await;
    // The shard that keeps the tool hosts stays where it is.
    first.wait_for(|ownership| ownership.is_mine(HUB)).await;
    second.wait_for(|ownership| ownership.owner(HUB) == ShardOwner::Peer(first.peer())).await;
    let mine = session_of(&second);
    let shared: Arc<dyn Store> = store.clone();
    let refused = fixture::Owner::new(&shared, &mine, "late").create().await;
    assert!(matches!(refused, Err(StoreError::Elsewhere)), "{refused:?}");
    write(&other, &mine, "r8").await;
    assert_eq!((runs(&store).await, runs(&other).await), (9, 9), "each reads everything");
    let moved = (0..8).find(|no| second.replica.ownerships().borrow().is_mine(shard(&format!("s{no}"))));
    if let Some(moved) = moved {
        let run = fixture::run(&format!("r{moved}"));
        let refused = store.claim(&tenant(), &run).await;
        assert!(matches!(refused, Err(StoreError::Elsewhere)), "{refused:?}");
        assert!(other.claim(&tenant(), &run).await.unwrap().is_some());
    }
    until(async || second.replica.rows().len() == 2).await;
    let half = SHARDS / 2;
    let shown = |row: &ReplicaRow| (row.part, row.shards, row.keeps_hosts);
    until(async || {
        let rows: Vec<_> = second.replica.rows().iter().map(shown).collect();
        rows == [(ReplicaPart::Owner, half, true), (ReplicaPart::Owner, half, false)]
    })
    .await;
}

async fn beats(schema: &Schema, server: &Server) -> i64 {
    let sql = "SELECT beat FROM replicas WHERE replica_no = $1";
    let number = int(server.replica.number().0);
    sqlx::query_scalar(sql).bind(number).fetch_one(&mut schema.shell().await).await.unwrap()
}

/// They would be nobody's until the commit has ended.
#[tokio::test]
async fn shards_are_given_away_when_a_long_commit_has_ended() {
    const LEASE: Duration = Duration::from_secs(4);
    let Some(schema) = Schema::new().await else { return };
    let first = Server::start(&schema, "a:1", LEASE).await;
    let store = first.own().await;
    let session = SessionId::parse("s").unwrap();
    store.create_session(fixture::new_session("s", &BTreeMap::new(), Timestamp(1))).await.unwrap();
    let mut shell = schema.shell().await;
    shell.execute(SLOW_DELETIONS).await.unwrap();
    let long = store.clone();
    let deleting = tokio::spawn(async move { long.delete_session(&tenant(), &session).await });
    let lasts = || first.replica.scope().commit_lasts(SystemClock.now());
    until(async || lasts() >= Millis(600)).await;
    let second = Server::start(&schema, "b:1", LEASE).await;
    let _other = second.open().await;
    first.wait_for(|ownership| ownership.peers().count() == 1).await;
    let before = beats(&schema, &first).await;
    until(async || beats(&schema, &first).await >= before + 3).await;
    assert_eq!(first.replica.ownerships().borrow().own().count(), usize::from(SHARDS));
    shell.execute("INSERT INTO deletions_end VALUES (1)").await.unwrap();
    assert!(deleting.await.unwrap().unwrap(), "it is deleted");
    first.wait_for_shards(SHARDS / 2).await;
    second.wait_for_shards(SHARDS / 2).await;
}

/// It begins after the shards were chosen, whose runs have stopped.
#[tokio::test]
async fn shards_are_kept_when_a_long_commit_has_begun() {
    let Some(schema) = Schema::new().await else { return };
    let first = Server::start(&schema, "a:1", LONG).await;
    let store = first.open_and_keep().await;
    first.wait_for_shards(SHARDS).await;
    let session = SessionId::parse("s").unwrap();
    store.create_session(fixture::new_session("s", &BTreeMap::new(), Timestamp(1))).await.unwrap();
    assert!(store.writes_within(BOUND).await);
    let second = Server::start(&schema, "b:1", LONG).await;
    let other = second.open().await;
    let mut now = first.replica.shards();
    wait_for(&mut now, |now| !now.shedding.is_empty()).await;
    let shards: Vec<ShardNo> = now.borrow().shedding.iter().copied().collect();
    let in_first =
        (0..).map(|no| format!("k-{no}")).find(|session| shards.contains(&shard(session))).unwrap();
    let mut shell = schema.shell().await;
    shell.execute(SLOW_DELETIONS).await.unwrap();
    let long = store.clone();
    let deleting = tokio::spawn(async move { long.delete_session(&tenant(), &session).await });
    until(async || first.replica.scope().commit_lasts(SystemClock.now()) >= Millis(1)).await;
    assert!(!store.writes_within(Duration::from_millis(100)).await);
    let forgotten = tokio::time::timeout(Duration::from_millis(100), store.forget_shards(&shards)).await;
    assert!(forgotten.is_err(), "a commit is under way: {forgotten:?}");

    let before = first.term();
    first.replica.keep(shards.clone()).await;
    first.wait_for_shards(SHARDS).await;
    assert_eq!(first.term(), before, "nobody has claimed them");
    assert!(!deleting.is_finished(), "it goes on");
    shell.execute("INSERT INTO deletions_end VALUES (1)").await.unwrap();
    assert!(deleting.await.unwrap().unwrap(), "it is deleted");
    write(&store, &in_first, "r").await;

    wait_for(&mut now, |now| !now.shedding.is_empty()).await;
    let shards: Vec<ShardNo> = now.borrow().shedding.iter().copied().collect();
    store.forget_shards(&shards).await.unwrap();
    first.replica.given_away(shards);
    second.wait_for(|ownership| ownership.own().next().is_some()).await;
    let mine = session_of(&second);
    write(&other, &mine, "r2").await;
}

/// The other replica is steady by then, and nothing else delays what is shed next.
#[tokio::test]
async fn kept_shards_are_served_before_they_are_given_away_again() {
    let Some(schema) = Schema::new().await else { return };
    let first = Server::start(&schema, "a:1", LONG).await;
    let store = first.open_and_keep().await;
    first.wait_for_shards(SHARDS).await;
    let second = Server::start(&schema, "b:1", LONG).await;
    let _other = second.open().await;
    let mut now = first.replica.shards();
    wait_for(&mut now, |now| !now.shedding.is_empty()).await;
    let shards: Vec<ShardNo> = now.borrow().shedding.iter().copied().collect();
    let kept = (0..).map(|no| format!("k-{no}")).find(|session| shards.contains(&shard(session))).unwrap();
    assert!(store.writes_within(BOUND).await);
    first.replica.keep(shards.clone()).await;
    wait_for(&mut now, |now| shards.iter().all(|shard| now.owned.contains_key(shard))).await;
    assert!(now.borrow().shedding.is_empty());
    let before = beats(&schema, &first).await;
    until(async || beats(&schema, &first).await > before + 1).await;
    write(&store, &kept, "r").await;
    assert!(now.borrow().shedding.is_empty(), "it has beaten since");
}

#[tokio::test]
async fn a_replica_that_cannot_work_yet_owns_nothing_and_changes_nothing() {
    let Some(schema) = Schema::new().await else { return };
    let first = Server::start(&schema, "a:1", SHORT).await;
    let _store = first.own().await;
    let waiting = Server::start(&schema, "b:1", SHORT).await;
    waiting.wait_for(|ownership| ownership.owner(HUB) == ShardOwner::Peer(first.peer())).await;
    let mut beats = waiting.replica.seen.clone();
    for _ in 0..3 {
        beats.changed().await.unwrap();
    }
    first.wait_for_shards(SHARDS).await;
    let rows = waiting.replica.rows();
    let shown: Vec<_> = rows.iter().map(|row| (row.part, row.shards)).collect();
    assert_eq!(shown, [(ReplicaPart::Owner, SHARDS), (ReplicaPart::Standby, 0)]);
    assert!(rows.iter().all(|row| row.version == env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn others_take_the_shards_of_an_owner_that_was_killed() {
    let Some(schema) = Schema::new().await else { return };
    let first = Server::start(&schema, "a:1", SHORT).await;
    let store = first.own().await;
    write(&store, "s1", "r1").await;
    let before = first.term();
    let second = Server::start(&schema, "b:1", SHORT).await;
    let taken = second.open().await;
    second.wait_for_shards(SHARDS / 2).await;
    let (killed, epoch) = (first.replica.number(), store.epoch());
    first.kill();
    drop(store);
    second.wait_for_shards(SHARDS).await;
    assert!(second.term() > before, "{} {before}", second.term());
    assert!(taken.epoch() > epoch, "{:?} {epoch:?}", taken.epoch());
    assert_eq!(runs(&taken).await, 1);
    write(&taken, "s2", "r2").await;
    assert_eq!(runs(&taken).await, 2);
    let is_shown = |row: &ReplicaRow| {
        row.peer.number == killed && row.part == ReplicaPart::Fenced && row.peer.address == "a:1"
    };
    until(async || second.replica.rows().iter().any(is_shown)).await;
    let counts = second.replica.takeovers();
    assert_eq!((counts.fences(), counts.claimed_shards()), (1, SHARDS as u64));
}

/// Two servers with half of the shards each, and their stores. The first one has written a run.
async fn halves(schema: &Schema) -> [(Server, Arc<PostgresStore>); 2] {
    let first = Server::start(schema, "a:1", LONG).await;
    let store = first.own().await;
    write(&store, "s", "r").await;
    let second = Server::start(schema, "b:1", LONG).await;
    let other = second.open().await;
    second.wait_for_shards(SHARDS / 2).await;
    [(first, store), (second, other)]
}

#[tokio::test]
async fn an_owner_that_leaves_is_followed_before_its_lease_is_over() {
    let Some(schema) = Schema::new().await else { return };
    let [(first, store), (second, other)] = halves(&schema).await;
    let left = Instant::now();
    store.close().await;
    first.replica.leave().await;
    second.wait_for_shards(SHARDS).await;
    assert!(left.elapsed() < LONG.mul_f32(0.8), "{:?}", left.elapsed());
    assert_eq!(runs(&other).await, 1);
    assert!(!first.replica.failed().is_cancelled(), "it is no failure");
    first.replica.leave().await;
    until(async || second.replica.rows().len() == 1).await;
}

/// Its process may stay for a while, for the sake of callers and hosts that are slow to leave.
#[tokio::test]
async fn the_shards_of_a_server_that_stops_go_to_others_before_it_leaves() {
    let Some(schema) = Schema::new().await else { return };
    let [(first, store), (second, other)] = halves(&schema).await;

    first.replica.stopping();
    let last: Vec<ShardNo> = first.replica.shards().borrow().owned.keys().copied().collect();
    store.forget_shards(&last).await.unwrap();
    first.replica.given_away(last);

    second.wait_for_shards(SHARDS).await;
    first.wait_for(|ownership| ownership.is_valid() && ownership.own().count() == 0).await;
    assert_eq!(runs(&other).await, 1);
    // It still writes to tables without shards, such as the audit log.
    store.check().await.unwrap();
    assert!(!first.replica.failed().is_cancelled());
}

/// A server that could not give shards away keeps them, and may be told to stop at that moment.
#[tokio::test]
async fn a_shard_that_a_server_has_kept_meanwhile_is_not_given_away() {
    let Some(schema) = Schema::new().await else { return };
    let server = Server::start(&schema, "a:1", LONG).await;
    let store = server.own().await;
    let kept = shard("s");
    let term = server.replica.shards().borrow().owned[&kept];
    server.replica.stopping();
    let last: Vec<ShardNo> = server.replica.shards().borrow().owned.keys().copied().collect();
    store.forget_shards(&last).await.unwrap();
    server.replica.scope().add(kept, term);

    server.replica.given_away(last);

    let is_kept = |ownership: &Ownership| ownership.own().eq([kept]);
    server.wait_for(is_kept).await;
    write(&store, "s", "r").await;
    assert!(!store.failed().is_cancelled());
}

#[tokio::test]
async fn many_that_start_at_once_have_equal_parts() {
    let Some(schema) = Schema::new().await else { return };
    let addresses: Vec<String> = (0..4).map(|no| format!("replica-{no}:1")).collect();
    let started =
        join_all(addresses.iter().map(|address| Server::start(&schema, address, Duration::from_secs(5))));
    let servers = started.await;
    let _stores = join_all(servers.iter().map(Server::open)).await;
    for server in &servers {
        server.wait_for_shards(SHARDS / 4).await;
    }
    let owners = servers[0].replica.ownerships();
    let mut owners = owners.clone();
    wait_for(&mut owners, |ownership| owners_of(ownership).len() == 4).await;
    let mut shell = schema.shell().await;
    assert_eq!(number(&mut shell, "SELECT count(*) FROM shards WHERE owner_no IS NULL").await, 0);
    assert_eq!(number(&mut shell, "SELECT count(*) FROM owners").await, 4);
}

#[tokio::test]
async fn a_runtime_that_stands_still_loses_its_shards() {
    let Some(schema) = Schema::new().await else { return };
    let first = Server::start(&schema, "a:1", SHORT).await;
    let store = first.own().await;
    first.replica.stop_pulse();
    first.wait_for(|ownership| !ownership.is_valid()).await;
    let second = Server::start(&schema, "b:1", SHORT).await;
    let _other = second.own().await;
    let refused = store.check().await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    assert!(store.failed().is_cancelled());
}

/// Its version knows the row of the whole database alone. Afterwards that row leads its like to the owner of the first shard.
#[tokio::test]
async fn nobody_claims_a_shard_while_a_replica_of_the_version_before_owns_the_database() {
    let Some(schema) = Schema::new().await else { return };
    schema.open().await.close().await;
    let earlier = Server::start(&schema, "earlier:1", LONG).await;
    let mut shell = schema.shell().await;
    let whole = "UPDATE ownership SET owner_no = (SELECT min(replica_no) FROM replicas), of_shards = false";
    shell.execute(whole).await.unwrap();
    let later = Server::start(&schema, "later:1", LONG).await;
    let _store = later.open().await;
    later.wait_for(|ownership| owners_of(ownership) == [ShardOwner::Peer(earlier.peer())]).await;
    let mut beats = later.replica.seen.clone();
    for _ in 0..3 {
        beats.changed().await.unwrap();
    }
    assert_eq!(number(&mut shell, "SELECT count(*) FROM shards WHERE owner_no IS NOT NULL").await, 0);
    earlier.replica.leave().await;
    later.wait_for_shards(SHARDS).await;
    let shown = "SELECT owner_no FROM ownership WHERE of_shards";
    assert_eq!(number(&mut shell, shown).await, int(later.replica.number().0));
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
    let store = replica.own().await;
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
    let store = replica.own().await;
    store.close().await;
    replica.replica.leave().await;
    let refused = alone.check().await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    assert!(alone.failed().is_cancelled());
}

/// A deletion that takes minutes.
#[tokio::test]
async fn a_replica_that_stops_in_a_long_write_leaves_at_once() {
    let Some(schema) = Schema::new().await else { return };
    let first = Server::start(&schema, "a:1", LONG).await;
    let store = first.own().await;
    let shared: Arc<dyn Store> = store.clone();
    let mut owner = fixture::Owner::started(&shared, "s", "r").await;
    owner.ends().await.unwrap();
    let second = Server::start(&schema, "b:1", LONG).await;
    let mut shell = schema.shell().await;
    shell.execute(SLOW_DELETIONS).await.unwrap();
    let deleting = {
        let store = store.clone();
        let id = SessionId::parse("s").unwrap();
        tokio::spawn(async move { store.delete_session(&tenant(), &id).await })
    };
    let sleeps = "SELECT count(*) FROM owners AS o JOIN pg_stat_activity AS a ON a.pid = o.pid
                  WHERE a.wait_event = 'PgSleep'";
    until(async || number(&mut shell, sleeps).await > 0).await;
    // Nothing lets it end.
    let stopped = async {
        store.close().await;
        first.replica.leave().await;
    };
    tokio::time::timeout(BOUND, stopped).await.expect("in time");
    let deleted = deleting.await.unwrap();
    assert!(matches!(deleted, Err(StoreError::Unavailable { .. })), "{deleted:?}");
    let other = second.own().await;
    assert!(other.session(&tenant(), &SessionId::parse("s").unwrap()).await.unwrap().is_some());
}

/// The connection that writes has no lock in a replica: a new one takes the place of a cut one at once.
#[tokio::test]
async fn a_cut_connection_of_an_owner_is_replaced() {
    let Some(schema) = Schema::new().await else { return };
    let replica = Server::start(&schema, "a:1", LONG).await;
    let store = replica.own().await;
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
