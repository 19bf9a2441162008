//! Statements of a connection that the writer has given up, which the database goes on with. A trigger stops them half way.

use super::takeovers::shard;
use super::*;
use crate::store::conformance::fixture;
use crate::store::postgres::owner::{self, ServerKind};
use crate::store::postgres::replica::statements;
use crate::store::postgres::tests::wire::Wire;
use crate::store::support::number::int;

/// Stops the process whose number is in `stopped` until a lock of ours is free, and notes which processes wrote events.
const HOLD: &str = "
    CREATE TABLE stopped (pid integer NOT NULL);
    CREATE TABLE wrote (pid integer NOT NULL);
    CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$ BEGIN
        IF EXISTS (SELECT 1 FROM stopped WHERE pid = pg_backend_pid()) THEN
            PERFORM pg_advisory_xact_lock_shared(hashtext('stopped'), hashtext(current_schema()));
        END IF;
        IF TG_TABLE_NAME = 'run_events' THEN
            INSERT INTO wrote VALUES (pg_backend_pid());
        END IF;
        RETURN NEW;
    END $$";
/// Between its snapshot and its lock of the owner's row: this trigger runs before the statement looks for a row.
pub(super) const BEFORE_THE_LOCK: &str =
    "CREATE TRIGGER hold BEFORE UPDATE ON owners FOR EACH STATEMENT EXECUTE FUNCTION hold()";
/// With that lock: an event comes out of the fence.
const AFTER_THE_LOCK: &str =
    "CREATE TRIGGER hold BEFORE INSERT ON run_events FOR EACH ROW EXECUTE FUNCTION hold()";
const LOCK: &str = "SELECT pg_advisory_lock(hashtext('stopped'), hashtext(current_schema()))";
pub(super) const UNLOCK: &str = "SELECT pg_advisory_unlock(hashtext('stopped'), hashtext(current_schema()))";
/// Processes that the trigger has stopped.
pub(super) const ARE_STOPPED: &str = "SELECT count(*) FROM pg_locks AS l JOIN stopped AS h ON h.pid = l.pid
                        WHERE NOT l.granted AND l.locktype = 'advisory'";
/// Processes that wait for one of these.
const WAIT_FOR_IT: &str =
    "SELECT count(*) FROM pg_locks AS l JOIN stopped AS h ON h.pid = ANY (pg_blocking_pids(l.pid))
                           WHERE NOT l.granted AND l.locktype = 'transactionid'";
/// Processes that were stopped and have not ended.
const LIVE: &str = "SELECT count(*) FROM pg_stat_activity AS a JOIN stopped AS h ON h.pid = a.pid";

/// A replica whose writes go over a wire that can be cut, with a run.
struct Writing {
    wire: Wire,
    server: Server,
    store: Arc<PostgresStore>,
    owner: fixture::Owner,
    shell: PgConnection,
}

impl Writing {
    /// From here on, the connection that writes stops at this trigger.
    async fn stopped_at(schema: &Schema, at: &'static str) -> Self {
        let wire = Wire::to(&schema.options).await;
        let mut server = Server::start(schema, "a:1", LONG).await;
        // Its beats go another way.
        server.options = wire.options.clone();
        let store = server.own().await;
        let shared: Arc<dyn Store> = store.clone();
        let owner = fixture::Owner::started(&shared, "s", "r").await;
        let mut shell = schema.shell().await;
        stop_owners(&mut shell, at).await;
        Self { wire, server, store, owner, shell }
    }
}

/// From here on, the connections in the rows of owners stop at this trigger, until the shell gives its lock back.
pub(super) async fn stop_owners(shell: &mut PgConnection, at: &'static str) {
    for sql in [HOLD, at, "INSERT INTO stopped SELECT pid FROM owners", LOCK] {
        shell.execute(sql).await.unwrap();
    }
}

/// Cuts the connections of a wire once the commit is stopped. The process of the database does not notice.
async fn cut(wire: &Wire, watching: &mut PgConnection) {
    until(async || number(watching, ARE_STOPPED).await == 1).await;
    wire.is_cut();
    wire.has_no_connection().await;
    wire.is_back();
}

#[tokio::test]
async fn a_commit_of_a_lost_connection_that_comes_after_the_next_connection_writes_nothing() {
    let Some(schema) = Schema::new().await else { return };
    let Writing { wire, server, store, mut owner, mut shell } =
        Writing::stopped_at(&schema, BEFORE_THE_LOCK).await;
    let mut watching = schema.shell().await;
    let (said, ()) = tokio::join!(owner.says("one"), cut(&wire, &mut watching));
    said.expect("the next connection has written it");
    assert_eq!(number(&mut watching, ARE_STOPPED).await, 1, "the lost one is still before its lock");
    owner.says("two").await.unwrap();
    let batch = number(&mut watching, "SELECT batch FROM owners").await;
    shell.execute(UNLOCK).await.unwrap();
    until(async || number(&mut watching, LIVE).await == 0).await;
    assert_eq!(number(&mut watching, "SELECT count(*) FROM run_events").await, 3);
    assert_eq!(number(&mut watching, "SELECT batch FROM owners").await, batch, "nothing at all");
    owner.says("three").await.unwrap();
    assert_eq!(owner.stored().await.len(), 4);
    assert!(!store.failed().is_cancelled() && !server.replica.failed().is_cancelled());
}

/// The next connection waits for it, and finds its number.
#[tokio::test]
async fn a_commit_of_a_lost_connection_that_comes_before_the_next_connection_is_found_and_acknowledged() {
    let Some(schema) = Schema::new().await else { return };
    let Writing { wire, server, store, mut owner, mut shell } =
        Writing::stopped_at(&schema, AFTER_THE_LOCK).await;
    let mut watching = schema.shell().await;
    let (said, ()) = tokio::join!(owner.says("one"), async {
        cut(&wire, &mut watching).await;
        until(async || number(&mut watching, WAIT_FOR_IT).await == 1).await;
        shell.execute(UNLOCK).await.unwrap();
    });
    said.unwrap();
    let by_it = "SELECT count(*) FROM wrote AS w JOIN stopped AS h ON h.pid = w.pid";
    assert_eq!(number(&mut watching, by_it).await, 1, "the lost connection has committed it");
    assert_eq!(number(&mut watching, "SELECT count(*) FROM wrote").await, 1, "and nobody else");
    owner.says("two").await.unwrap();
    assert_eq!(owner.stored().await.len(), 3);
    assert!(!store.failed().is_cancelled() && !server.replica.failed().is_cancelled());
}

/// The next owner reads the journals of the shard once it has claimed it, and would not find this commit.
#[tokio::test]
async fn a_shard_is_not_given_away_before_a_commit_of_a_lost_connection_has_ended() {
    let Some(schema) = Schema::new().await else { return };
    let Writing { wire, server: _server, store, mut owner, mut shell } =
        Writing::stopped_at(&schema, AFTER_THE_LOCK).await;
    let mut watching = schema.shell().await;
    let shards = [shard("s")];
    let (said, ()) = tokio::join!(owner.says("one"), async {
        cut(&wire, &mut watching).await;
        let mut forgetting = std::pin::pin!(store.forget_shards(&shards));
        tokio::select! { biased;
            forgotten = forgetting.as_mut() => panic!("a commit is under way: {forgotten:?}"),
            () = until(async || number(&mut watching, WAIT_FOR_IT).await == 1) => {}
        }
        shell.execute(UNLOCK).await.unwrap();
        forgetting.await.unwrap();
        assert_eq!(number(&mut watching, "SELECT count(*) FROM run_events").await, 2);
    });
    said.unwrap();
    let refused = owner.says("two").await;
    assert!(matches!(refused, Err(StoreError::Elsewhere)), "{refused:?}");
}

/// Its connection is well, and its snapshot is from before the mark. The row is looked at again.
#[tokio::test]
async fn a_commit_of_appends_that_began_before_the_fence_and_is_late_writes_nothing() {
    let Some(schema) = Schema::new().await else { return };
    let Writing { wire: _wire, server, store, mut owner, mut shell } =
        Writing::stopped_at(&schema, BEFORE_THE_LOCK).await;
    let mut watching = schema.shell().await;
    let before = number(&mut watching, "SELECT batch FROM owners").await;
    let (said, ()) = tokio::join!(owner.says("late"), async {
        until(async || number(&mut watching, ARE_STOPPED).await == 1).await;
        statements::mark_lane(&mut watching, server.replica.number()).await.unwrap();
        shell.execute(UNLOCK).await.unwrap();
    });
    assert!(matches!(said, Err(StoreError::Unavailable { .. })), "{said:?}");
    assert!(store.failed().is_cancelled());
    assert_eq!(number(&mut watching, "SELECT count(*) FROM run_events").await, 1);
    assert_eq!(number(&mut watching, "SELECT batch FROM owners").await, before);
}

/// The fence alone, without the other checks of a commit, which would refuse the same rows once more.
#[tokio::test]
async fn the_fence_looks_again_at_the_number_of_the_connection_that_changed_after_its_snapshot() {
    let Some(schema) = Schema::new().await else { return };
    schema.open().await.close().await;
    let (mut old, mut shell) = (schema.shell().await, schema.shell().await);
    let me = ReplicaOptions { address: "a:1".to_owned(), lease: LONG, configuration_digest: "c".to_owned() };
    let replica = statements::register(&mut old, &me).await.unwrap();
    let owner = owner::enter(&mut old, int(replica.0)).await.unwrap();
    stop_owners(&mut shell, BEFORE_THE_LOCK).await;
    let options = super::open::connect_options(&schema.options).unwrap();
    let newer = owner::Owner { conn: owner.conn + 1, ..owner };
    let mut watching = schema.shell().await;
    let (is_written, batch) = tokio::join!(owner::fence(&mut old, owner, 7), async {
        until(async || number(&mut watching, ARE_STOPPED).await == 1).await;
        let (_new, batch) = owner::reconnect(&options, newer, ServerKind::Replica).await.unwrap();
        shell.execute(UNLOCK).await.unwrap();
        batch
    });
    assert!(!is_written.unwrap(), "the snapshot still shows the old number");
    assert_eq!((batch, number(&mut shell, "SELECT batch FROM owners").await), (0, 0));
}
