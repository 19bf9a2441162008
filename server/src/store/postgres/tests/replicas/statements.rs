//! Each statement of replicas, against others that are under way: who waits, and who finds nothing any more.

use std::collections::BTreeSet;

use agentloop_core::cluster::shard::{OwnerNo, ShardNo, Term};
use futures_util::future::join_all;

use super::ghosts::{ARE_STOPPED, BEFORE_THE_LOCK, UNLOCK, stop_owners};
use super::*;
use crate::store::postgres::owner::{self, ConnectError, Owner, ServerKind};
use crate::store::postgres::replica::statements::{self, Beaten};
use crate::store::postgres::scope::Scope;
use crate::store::postgres::tests::wire::{Lost, Wire};
use crate::store::support::number::int;

/// Notes that a replica of a later version has changed the tables.
const RAISE: &str = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                     VALUES (9999, 'later', true, '', 0)";

/// The schema with its tables, and no server.
async fn with_tables() -> Option<Schema> {
    let schema = Schema::new().await?;
    schema.open().await.close().await;
    Some(schema)
}

async fn register(db: &mut PgConnection) -> OwnerNo {
    let me = ReplicaOptions { address: "a:1".to_owned(), lease: LONG, configuration_digest: "c".to_owned() };
    statements::register(db, &me).await.unwrap()
}

/// An owner, as the fence of a commit names it.
async fn register_owner(db: &mut PgConnection) -> Owner {
    let number = register(db).await;
    assert_eq!(claim(db, number).await, usize::from(SHARDS));
    owner::enter(db, int(number.0)).await.unwrap()
}

/// The number of shards that a claim of all got.
async fn claim(db: &mut PgConnection, number: OwnerNo) -> usize {
    statements::claim(db, number, SHARDS).await.unwrap().len()
}

/// The number of the replica whose write lane this is.
fn number_of(owner: &Owner) -> OwnerNo {
    OwnerNo(owner.no.unsigned_abs())
}

fn counter(beaten: &Beaten, number: OwnerNo) -> u64 {
    beaten.replicas.iter().find(|replica| replica.number == number).unwrap().beat
}

/// Waits until a statement of this schema waits for a lock of this kind.
async fn until_waiting(db: &mut PgConnection, kind: &'static str) {
    let sql = "SELECT count(*) AS n FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
               WHERE NOT l.granted AND l.locktype = $1 AND a.application_name = current_schema()";
    until(async || {
        use sqlx::Row as _;
        sqlx::query(sql).bind(kind).fetch_one(&mut *db).await.unwrap().get::<i64, _>("n") > 0
    })
    .await;
}

/// A connection whose waits [`until_waiting`] finds.
async fn named(schema: &Schema) -> PgConnection {
    let mut db = schema.shell().await;
    db.execute("SELECT set_config('application_name', current_schema(), false)").await.unwrap();
    db
}

#[tokio::test]
async fn of_many_claims_at_once_each_shard_goes_to_one() {
    let Some(schema) = with_tables().await else { return };
    let mut connections = join_all((0..8).map(|_| schema.shell())).await;
    let mut candidates = Vec::new();
    for db in &mut connections {
        candidates.push(register(db).await);
    }
    for round in 1..=10 {
        let claims = connections.iter_mut().zip(&candidates);
        let claims = claims.map(|(db, number)| statements::claim(db, *number, SHARDS / 4));
        let claimed: Vec<_> = join_all(claims).await.into_iter().flat_map(Result::unwrap).collect();
        let shards: BTreeSet<ShardNo> = claimed.iter().map(|(shard, _)| *shard).collect();
        assert_eq!(shards.len(), claimed.len(), "each was given once");
        assert!(claimed.iter().all(|(_, term)| *term == Term(round)), "{round}");
        // One that found others at work takes what is left, so that the next round begins with terms that are equal.
        assert_eq!(claim(&mut connections[0], candidates[0]).await, usize::from(SHARDS) - shards.len());
        for (db, number) in connections.iter_mut().zip(&mut candidates) {
            statements::leave(db, *number).await.unwrap();
            *number = register(db).await;
        }
    }
}

/// So none holds what the other needs, and no claim is broken off.
#[tokio::test]
async fn a_claim_waits_for_another_and_takes_what_that_has_left() {
    let Some(schema) = with_tables().await else { return };
    let (mut one, mut other) = (schema.shell().await, named(&schema).await);
    let (first, second) = (register(&mut one).await, register(&mut other).await);
    assert_eq!(statements::claim(&mut one, first, 1).await.unwrap(), [(ShardNo(0), Term(1))]);
    one.execute("BEGIN").await.unwrap();
    assert_eq!(statements::claim(&mut one, first, 2).await.unwrap().len(), 2);
    let mut shell = schema.shell().await;
    let (claimed, ()) = tokio::join!(statements::claim(&mut other, second, 2), async {
        until_waiting(&mut shell, "transactionid").await;
        one.execute("COMMIT").await.unwrap();
    });
    assert_eq!(claimed.unwrap(), [(ShardNo(3), Term(1)), (ShardNo(4), Term(1))]);
}

#[tokio::test]
async fn shards_that_are_released_are_free_for_others() {
    let Some(schema) = with_tables().await else { return };
    let mut db = schema.shell().await;
    let (first, second) = (register(&mut db).await, register(&mut db).await);
    assert_eq!(claim(&mut db, first).await, usize::from(SHARDS));
    let given = [(ShardNo(3), Term(1)), (ShardNo(700), Term(1))];
    statements::release(&mut db, second, &given).await.unwrap();
    assert_eq!(claim(&mut db, second).await, 0, "they are not its own to give");
    statements::release(&mut db, first, &given).await.unwrap();
    let claimed = statements::claim(&mut db, second, SHARDS).await.unwrap();
    assert_eq!(claimed, given.map(|(shard, _)| (shard, Term(2))));
    // A release that is late, of a shard that was claimed again since.
    statements::release(&mut db, second, &[(ShardNo(3), Term(1))]).await.unwrap();
    let seen = statements::beat(&mut db, first).await.unwrap();
    assert_eq!(
        (seen.owners[3], seen.owners[4], seen.mine.len()),
        (Some(second), Some(first), usize::from(SHARDS) - 2)
    );
    statements::release(&mut db, first, &[(ShardNo(0), Term(1))]).await.unwrap();
    let shown = "SELECT count(*) FROM ownership WHERE owner_no IS NULL";
    assert_eq!(number(&mut db, shown).await, 1, "nobody owns the first shard");
}

#[tokio::test]
async fn a_replica_counts_for_nobodys_share_before_it_is_ready() {
    let Some(schema) = with_tables().await else { return };
    let mut db = schema.shell().await;
    let me = register(&mut db).await;
    let seen = statements::beat(&mut db, me).await.unwrap();
    assert!(seen.replicas[0].is_draining);
    statements::set_ready(&mut db, me, true).await.unwrap();
    let seen = statements::beat(&mut db, me).await.unwrap();
    assert!(!seen.replicas[0].is_draining);
}

#[tokio::test]
async fn a_counter_that_moves_is_not_fenced_and_a_fenced_one_does_not_move() {
    let Some(schema) = with_tables().await else { return };
    let mut db = schema.shell().await;
    let number = register(&mut db).await;
    let seen = statements::beat(&mut db, number).await.unwrap();
    assert_eq!((seen.is_beaten, counter(&seen, number)), (true, 0));
    assert!(!statements::mark(&mut db, number, 0).await.unwrap(), "it has beaten since");
    assert!(statements::mark(&mut db, number, 1).await.unwrap());
    assert!(!statements::mark(&mut db, number, 1).await.unwrap(), "once");
    let seen = statements::beat(&mut db, number).await.unwrap();
    assert_eq!((seen.is_beaten, counter(&seen, number)), (false, 1));
    statements::leave(&mut db, number).await.unwrap();
    assert!(!statements::beat(&mut db, number).await.unwrap().is_beaten, "a row that is gone is fenced");
}

/// Both are on one row, so one of them waits, and looks again.
#[tokio::test]
async fn a_mark_and_a_beat_wait_for_each_other() {
    let Some(schema) = with_tables().await else { return };
    let (mut beating, mut marking) = (named(&schema).await, named(&schema).await);
    let mut shell = schema.shell().await;
    let number = register(&mut shell).await;
    marking.execute("BEGIN").await.unwrap();
    assert!(statements::mark(&mut marking, number, 0).await.unwrap());
    let beat = statements::beat(&mut beating, number);
    let (beaten, ()) = tokio::join!(beat, async {
        until_waiting(&mut shell, "transactionid").await;
        marking.execute("COMMIT").await.unwrap();
    });
    assert!(!beaten.unwrap().is_beaten);

    let number = register(&mut shell).await;
    beating.execute("BEGIN").await.unwrap();
    assert!(statements::beat(&mut beating, number).await.unwrap().is_beaten);
    let mark = statements::mark(&mut marking, number, 0);
    let (marked, ()) = tokio::join!(mark, async {
        until_waiting(&mut shell, "transactionid").await;
        beating.execute("COMMIT").await.unwrap();
    });
    assert!(!marked.unwrap(), "the counter has moved");
}

#[tokio::test]
async fn the_fence_waits_for_a_commit_under_way() {
    let Some(schema) = with_tables().await else { return };
    let (mut committing, mut fencing) = (schema.shell().await, named(&schema).await);
    let owner = register_owner(&mut committing).await;
    committing.execute("BEGIN").await.unwrap();
    assert!(owner::fence(&mut committing, owner, 1).await.unwrap());
    owner::wait_for_locks(&mut fencing, 20).await.unwrap();
    let waited = statements::mark_lane(&mut fencing, number_of(&owner)).await.unwrap_err();
    assert!(owner::is_waited_for(&waited), "{waited}");
    owner::wait_for_locks(&mut fencing, 0).await.unwrap();
    let mut shell = schema.shell().await;
    let (marked, ()) = tokio::join!(statements::mark_lane(&mut fencing, number_of(&owner)), async {
        until_waiting(&mut shell, "transactionid").await;
        committing.execute("COMMIT").await.unwrap();
    });
    marked.unwrap();
    assert_eq!(number(&mut shell, "SELECT batch FROM owners").await, 1, "it was not lost");
    assert!(!owner::fence(&mut committing, owner, 2).await.unwrap());
}

/// Its snapshot is from before the mark. The row is looked at again.
#[tokio::test]
async fn a_commit_that_began_before_the_fence_and_is_late_writes_nothing() {
    let Some(schema) = with_tables().await else { return };
    let (mut late, mut shell) = (schema.shell().await, schema.shell().await);
    let owner = register_owner(&mut late).await;
    stop_owners(&mut shell, BEFORE_THE_LOCK).await;
    let mut fencing = schema.shell().await;
    let (is_written, ()) = tokio::join!(owner::fence(&mut late, owner, 7), async {
        until(async || number(&mut fencing, ARE_STOPPED).await == 1).await;
        statements::mark_lane(&mut fencing, number_of(&owner)).await.unwrap();
        shell.execute(UNLOCK).await.unwrap();
    });
    assert!(!is_written.unwrap());
    assert_eq!(number(&mut shell, "SELECT batch FROM owners").await, 0);
}

/// The row is gone when the lock is had.
#[tokio::test]
async fn a_commit_that_waits_for_the_end_of_its_owner_writes_nothing() {
    let Some(schema) = with_tables().await else { return };
    let (mut late, mut fencing) = (named(&schema).await, schema.shell().await);
    let owner = register_owner(&mut fencing).await;
    fencing.execute("BEGIN").await.unwrap();
    statements::mark_lane(&mut fencing, number_of(&owner)).await.unwrap();
    statements::end(&mut fencing, number_of(&owner)).await.unwrap();
    let mut shell = schema.shell().await;
    let (committed, ()) = tokio::join!(owner::fence(&mut late, owner, 1), async {
        until_waiting(&mut shell, "transactionid").await;
        fencing.execute("COMMIT").await.unwrap();
    });
    assert!(!committed.unwrap());
}

/// The mark waits for the new number, looks at the row again, and marks that. A row for each connection would be missed.
#[tokio::test]
async fn a_mark_of_a_lane_finds_the_connection_that_is_made_anew_meanwhile() {
    let Some(schema) = with_tables().await else { return };
    let (mut connecting, mut fencing) = (schema.shell().await, named(&schema).await);
    let owner = register_owner(&mut connecting).await;
    connecting.execute("BEGIN").await.unwrap();
    connecting.execute("UPDATE owners SET conn = conn + 1 WHERE NOT fenced").await.unwrap();
    let mut shell = schema.shell().await;
    let (marked, ()) = tokio::join!(statements::mark_lane(&mut fencing, number_of(&owner)), async {
        until_waiting(&mut shell, "transactionid").await;
        connecting.execute("COMMIT").await.unwrap();
    });
    marked.unwrap();
    let newer = Owner { conn: owner.conn + 1, ..owner };
    assert!(!owner::fence(&mut connecting, newer, 1).await.unwrap());
    let options = super::open::connect_options(&schema.options).unwrap();
    let later = Owner { conn: owner.conn + 2, ..owner };
    let fenced = owner::reconnect(&options, later, ServerKind::Replica).await;
    assert!(matches!(fenced, Err(ConnectError::Fenced)));
}

#[tokio::test]
async fn a_statement_of_an_older_connection_writes_nothing() {
    let Some(schema) = with_tables().await else { return };
    let mut old = schema.shell().await;
    let owner = register_owner(&mut old).await;
    let options = super::open::connect_options(&schema.options).unwrap();
    let newer = Owner { conn: owner.conn + 1, ..owner };
    let (mut new, batch) = owner::reconnect(&options, newer, ServerKind::Replica).await.unwrap();
    assert_eq!(batch, 0);
    assert!(!owner::fence(&mut old, owner, 1).await.unwrap());
    assert!(owner::fence(&mut new, newer, 1).await.unwrap());
    statements::mark_lane(&mut old, number_of(&owner)).await.unwrap();
    let fenced =
        owner::reconnect(&options, Owner { conn: owner.conn + 2, ..owner }, ServerKind::Replica).await;
    assert!(matches!(fenced, Err(ConnectError::Fenced)));
}

/// The database has not noticed yet that the other end of the older connection is gone.
#[tokio::test]
async fn an_older_connection_that_holds_a_transaction_open_is_ended() {
    let Some(schema) = with_tables().await else { return };
    let mut old = schema.shell().await;
    let owner = register_owner(&mut old).await;
    old.execute("BEGIN").await.unwrap();
    assert!(owner::fence(&mut old, owner, 1).await.unwrap());
    let options = super::open::connect_options(&schema.options).unwrap();
    let newer = Owner { conn: owner.conn + 1, ..owner };
    let waited = owner::reconnect(&options, newer, ServerKind::Replica).await;
    assert!(matches!(&waited, Err(ConnectError::Sql(error)) if owner::is_waited_for(error)));
    let (mut new, batch) = owner::reconnect(&options, newer, ServerKind::Replica).await.unwrap();
    assert_eq!(batch, 0, "the older one had not committed");
    assert!(old.execute("COMMIT").await.is_err());
    assert!(owner::fence(&mut new, newer, 1).await.unwrap());
    assert!(!owner::end_connection(&mut new, owner.no).await.unwrap(), "it is in no transaction");
}

/// The database has carried the statement out, and waits for the rest of the request. It calls that active, so its bounds on idle
/// transactions do not end it.
#[tokio::test]
async fn a_commit_the_end_of_whose_request_does_not_arrive_is_ended() {
    let Some(schema) = with_tables().await else { return };
    let wire = Wire::to(&schema.options).await;
    let (mut old, mut fencing) = (connect(wire.options.url.expose()).await, schema.shell().await);
    let owner = register_owner(&mut old).await;
    // The statement is prepared, so the next request is one piece.
    assert!(owner::fence(&mut old, owner, 1).await.unwrap());
    wire.falls_silent(Lost::Ends);
    let (fenced, ()) = tokio::join!(owner::fence(&mut old, owner, 2), async {
        let open = "SELECT count(*) FROM owners AS o JOIN pg_stat_activity AS a ON a.pid = o.pid
                    WHERE a.state = 'active' AND a.wait_event = 'ClientRead' AND a.backend_xid IS NOT NULL";
        until(async || number(&mut fencing, open).await == 1).await;
        owner::wait_for_locks(&mut fencing, 20).await.unwrap();
        let waited = statements::mark_lane(&mut fencing, number_of(&owner)).await.unwrap_err();
        assert!(owner::is_waited_for(&waited), "{waited}");
        assert!(owner::end_connection(&mut fencing, owner.no).await.unwrap());
        owner::wait_for_locks(&mut fencing, 0).await.unwrap();
        statements::mark_lane(&mut fencing, number_of(&owner)).await.unwrap();
    });
    assert!(fenced.is_err(), "its connection is ended: {fenced:?}");
    assert_eq!(number(&mut fencing, "SELECT batch FROM owners").await, 1);
}

/// Readers would see a commit that a fail-over takes back. There is no standby here: a view in the place of the database's own
/// says that the connection waits for one.
#[tokio::test]
async fn a_commit_that_waits_for_a_synchronous_standby_is_not_ended() {
    let Some(schema) = with_tables().await else { return };
    let (mut old, mut ending) = (schema.shell().await, schema.shell().await);
    let owner = register_owner(&mut old).await;
    old.execute("BEGIN").await.unwrap();
    assert!(owner::fence(&mut old, owner, 1).await.unwrap());
    let waits = "CREATE VIEW pg_stat_activity AS SELECT pid, 'SyncRep'::text AS wait_event FROM owners";
    ending.execute(waits).await.unwrap();
    ending
        .execute("SELECT set_config('search_path', current_schema() || ', pg_catalog', false)")
        .await
        .unwrap();
    assert!(!owner::end_connection(&mut ending, owner.no).await.unwrap());
    old.execute("COMMIT").await.unwrap();
    assert_eq!(number(&mut ending, "SELECT batch FROM owners").await, 1);
    // Another wait than that is ended.
    old.execute("BEGIN").await.unwrap();
    assert!(owner::fence(&mut old, owner, 2).await.unwrap());
    ending.execute("DROP VIEW pg_stat_activity").await.unwrap();
    assert!(owner::end_connection(&mut ending, owner.no).await.unwrap());
    assert!(old.execute("COMMIT").await.is_err());
}

#[tokio::test]
async fn a_fenced_replica_claims_nothing_and_opens_nothing() {
    let Some(schema) = with_tables().await else { return };
    let mut db = schema.shell().await;
    let first = register(&mut db).await;
    assert!(statements::mark(&mut db, first, 0).await.unwrap());
    assert_eq!(claim(&mut db, first).await, 0);
    let second = register(&mut db).await;
    assert_eq!(claim(&mut db, second).await, usize::from(SHARDS));
    assert!(statements::mark(&mut db, second, 0).await.unwrap());
    statements::mark_lane(&mut db, second).await.unwrap();
    let before = number(&mut db, "SELECT value FROM meta WHERE key = 'epoch'").await;
    for _ in ["its row is marked", "its row is gone"] {
        let refused =
            PostgresStore::open_replica(&schema.options, second, Scope::none()).await.err().unwrap();
        assert!(matches!(refused, OpenError::Fenced { .. }), "{refused}");
        statements::end(&mut db, second).await.unwrap();
    }
    assert_eq!(number(&mut db, "SELECT value FROM meta WHERE key = 'epoch'").await, before);
    let third = register(&mut db).await;
    let taken = statements::claim(&mut db, third, 1).await.unwrap();
    assert_eq!(taken, [(ShardNo(0), Term(2))]);
}

/// A replica of a later version has changed the tables, and its owners may have written what this version cannot read.
#[tokio::test]
async fn a_replica_of_an_earlier_version_claims_nothing() {
    let Some(schema) = with_tables().await else { return };
    let mut db = schema.shell().await;
    let me = register(&mut db).await;
    assert!(!statements::is_newer(&mut db).await.unwrap());
    db.execute(RAISE).await.unwrap();
    assert_eq!(claim(&mut db, me).await, 0);
    assert!(statements::is_newer(&mut db).await.unwrap());
    assert!(statements::beat(&mut db, me).await.unwrap().is_beaten, "it stands by, and sends calls on");
    db.execute("DELETE FROM _sqlx_migrations WHERE version = 9999").await.unwrap();
    assert_eq!(claim(&mut db, me).await, usize::from(SHARDS));
}

/// Its snapshot is from before, so it does not see the change. It still takes none of the shards that somebody of the later version
/// has: both take turns at the gate, and shards are looked at again.
#[tokio::test]
async fn a_claim_under_way_while_the_tables_are_raised_takes_nothing_of_the_later_version() {
    let Some(schema) = with_tables().await else { return };
    let (mut raising, mut claiming) = (schema.shell().await, named(&schema).await);
    let (later, earlier) = (register(&mut raising).await, register(&mut claiming).await);
    raising.execute("BEGIN").await.unwrap();
    let taken = statements::claim(&mut raising, later, 2).await.unwrap();
    assert_eq!(taken, [(ShardNo(0), Term(1)), (ShardNo(1), Term(1))]);
    let mut shell = schema.shell().await;
    let (claimed, ()) = tokio::join!(statements::claim(&mut claiming, earlier, SHARDS), async {
        until_waiting(&mut shell, "transactionid").await;
        shell.execute(RAISE).await.unwrap();
        raising.execute("COMMIT").await.unwrap();
    });
    let claimed = claimed.unwrap();
    assert_eq!(claimed.len(), usize::from(SHARDS) - 2, "it counts as one before the change");
    assert!(taken.iter().all(|(shard, _)| claimed.iter().all(|(other, _)| other != shard)), "{claimed:?}");
    // Shards that come free from then on are not for it.
    statements::release(&mut shell, later, &taken).await.unwrap();
    statements::release(&mut shell, earlier, &claimed[..1]).await.unwrap();
    assert_eq!(claim(&mut claiming, earlier).await, 0);
    assert!(statements::beat(&mut claiming, earlier).await.unwrap().is_beaten, "it keeps what it has");
}

#[tokio::test]
async fn a_replica_that_registers_while_the_tables_are_raised_claims_nothing() {
    let Some(schema) = with_tables().await else { return };
    let (mut joining, mut shell) = (schema.shell().await, schema.shell().await);
    joining.execute("BEGIN").await.unwrap();
    let me = register(&mut joining).await;
    shell.execute(RAISE).await.unwrap();
    joining.execute("COMMIT").await.unwrap();
    assert_eq!(claim(&mut joining, me).await, 0);
    let seen = statements::beat(&mut joining, me).await.unwrap();
    assert!(seen.is_beaten && seen.owners.iter().all(Option::is_none), "{seen:?}");
}

/// A claim under way is waited for, so its shard is found and freed.
#[tokio::test]
async fn a_mark_waits_for_a_claim_under_way() {
    let Some(schema) = with_tables().await else { return };
    let (mut claiming, mut marking) = (schema.shell().await, named(&schema).await);
    let number = register(&mut claiming).await;
    claiming.execute("BEGIN").await.unwrap();
    assert_eq!(claim(&mut claiming, number).await, usize::from(SHARDS));
    let mut shell = schema.shell().await;
    let (marked, ()) = tokio::join!(statements::mark(&mut marking, number, 0), async {
        until_waiting(&mut shell, "transactionid").await;
        claiming.execute("COMMIT").await.unwrap();
    });
    assert!(marked.unwrap());
    statements::mark_lane(&mut shell, number).await.unwrap();
    statements::end(&mut shell, number).await.unwrap();
    let left = super::number(&mut shell, "SELECT count(*) FROM shards WHERE owner_no IS NOT NULL").await;
    assert_eq!(left, 0);
    let ended = statements::beat(&mut shell, number).await.unwrap();
    assert!(ended.replicas[0].is_ended && !ended.is_beaten && ended.mine.is_empty(), "{ended:?}");
}

/// Its snapshot is from before the mark, and it has locked nothing yet. Its own row is looked at again: nobody would free what a
/// replica takes after the end of its fence.
#[tokio::test]
async fn a_claim_that_began_before_the_fence_and_is_late_takes_nothing() {
    let Some(schema) = with_tables().await else { return };
    let (mut late, mut shell) = (schema.shell().await, schema.shell().await);
    let me = register(&mut late).await;
    owner::name_connection(&mut late, int(me.0)).await.unwrap();
    let at = "CREATE TRIGGER hold BEFORE UPDATE ON shards FOR EACH STATEMENT EXECUTE FUNCTION hold()";
    stop_owners(&mut shell, at).await;
    let mut fencing = schema.shell().await;
    let (claimed, ()) = tokio::join!(statements::claim(&mut late, me, SHARDS), async {
        until(async || number(&mut fencing, ARE_STOPPED).await == 1).await;
        assert!(statements::mark(&mut fencing, me, 0).await.unwrap());
        statements::mark_lane(&mut fencing, me).await.unwrap();
        statements::end(&mut fencing, me).await.unwrap();
        shell.execute(UNLOCK).await.unwrap();
    });
    assert_eq!(claimed.unwrap().len(), 0);
    let taken = "SELECT count(*) FROM shards WHERE owner_no IS NOT NULL OR term > 0";
    assert_eq!(number(&mut shell, taken).await, 0);
}

/// A replica whose connection was cut has no lock. The server alone dismisses it, whatever it does meanwhile.
#[tokio::test]
async fn a_server_alone_dismisses_replicas_whose_connection_was_cut() {
    let Some(schema) = with_tables().await else { return };
    let (mut db, mut claiming) = (named(&schema).await, schema.shell().await);
    let owner = register_owner(&mut db).await;
    statements::leave(&mut db, number_of(&owner)).await.unwrap();
    let late = register(&mut claiming).await;
    claiming.execute("BEGIN").await.unwrap();
    assert_eq!(claim(&mut claiming, late).await, usize::from(SHARDS));
    let mut shell = schema.shell().await;
    let (taken, ()) = tokio::join!(owner::take_over(&mut db), async {
        until_waiting(&mut shell, "transactionid").await;
        claiming.execute("COMMIT").await.unwrap();
    });
    let alone = taken.unwrap();
    assert!(matches!(owner::enter(&mut claiming, int(late.0)).await, Err(ConnectError::Fenced)));
    assert!(!statements::beat(&mut claiming, late).await.unwrap().is_beaten);
    assert_eq!(claim(&mut claiming, late).await, 0);
    assert!(owner::fence(&mut db, alone, 1).await.unwrap());
}

#[tokio::test]
async fn rows_of_replicas_that_ended_long_ago_go() {
    let Some(schema) = with_tables().await else { return };
    let mut db = schema.shell().await;
    let (old, new) = (register(&mut db).await, register(&mut db).await);
    for number in [old, new] {
        assert!(statements::mark(&mut db, number, 0).await.unwrap());
        statements::end(&mut db, number).await.unwrap();
    }
    let sql = "UPDATE replicas SET ended_at = now() - interval '61 minutes' WHERE replica_no = $1";
    sqlx::query(sql).bind(int(old.0)).execute(&mut db).await.unwrap();
    let me = register(&mut db).await;
    let left = statements::beat(&mut db, me).await.unwrap().replicas;
    assert_eq!(left.iter().map(|replica| replica.number).collect::<Vec<_>>(), [new, me]);
    assert!(old < new && new < me, "numbers are not used again");
}
