//! Several replicas that write to one database at the same time, each to sessions of its own. Nobody beats here: every store has
//! the row of an owner, and the scope of all shards. A lock of a shell on a table holds both writers in the middle.

mod blobs;
mod chances;
mod forks;
mod index;
mod large;
mod shared;
mod slices;
mod waits;

use std::time::Duration;

use agentloop_core::cluster::shard::{SHARDS, Term, shard_of};

use super::*;
use crate::store::conformance::fixture::*;
use crate::store::postgres::open::{ReplicaConnection, for_replica};
use crate::store::postgres::replica::statements;

/// Bound on every wait: much longer than what is waited for takes.
const BOUND: Duration = Duration::from_secs(60);

/// Two replicas of one database, each with its own shards.
struct Two {
    a: Arc<PostgresStore>,
    b: Arc<PostgresStore>,
    schema: Schema,
}

async fn two_stores() -> Option<Two> {
    let schema = Schema::new().await?;
    let a = replica(&schema).await;
    let b = replica(&schema).await;
    Some(Two { a, b, schema })
}

/// A replica that may write to every session, and has claimed none.
pub(super) async fn replica(schema: &Schema) -> Arc<PostgresStore> {
    let ReplicaConnection { mut db, .. } = for_replica(&schema.options).await.unwrap();
    let (address, configuration_digest) = ("a:1".to_owned(), "c".to_owned());
    let me = ReplicaOptions { address, lease: Duration::from_secs(60), configuration_digest };
    let number = statements::register(&mut db, &me).await.unwrap();
    let scope = Scope::none();
    (0..SHARDS).for_each(|shard| scope.add(ShardNo(shard), Term(0)));
    Arc::new(PostgresStore::open_replica(&schema.options, number, scope).await.unwrap())
}

fn shared(store: &Arc<PostgresStore>) -> Arc<dyn Store> {
    store.clone()
}

/// A finished run of two messages.
async fn talks(store: &Arc<PostgresStore>, session: &str, run: &str) {
    let mut owner = Owner::started(&shared(store), session, run).await;
    owner.says(&format!("{run} asks")).await.unwrap();
    owner.hears(&format!("{run} hears")).await.unwrap();
    owner.ends().await.unwrap();
}

/// A lock that keeps everybody from writing to a table. It goes with its connection.
async fn lock(schema: &Schema, table: &str) -> PgConnection {
    let mut shell = schema.shell().await;
    let sql = format!("BEGIN; LOCK TABLE {table} IN EXCLUSIVE MODE");
    shell.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
    shell
}

/// Waits until so many of the stores' connections wait for a lock, or have given up a write that waited for one.
async fn wait_for_waiting(schema: &Schema, waiting: i64) {
    let mut looking = schema.shell().await;
    let sql = "SELECT count(*) FROM owners AS o JOIN pg_stat_activity AS a ON a.pid = o.pid
               WHERE a.wait_event_type = 'Lock' OR a.query = 'ROLLBACK'";
    let all_wait = async { while number(&mut looking, sql).await < waiting {} };
    tokio::time::timeout(BOUND, all_wait).await.expect("they wait");
}

/// Ends the transaction of the shell as soon as so many of the stores' connections wait.
async fn release(schema: &Schema, mut shell: PgConnection, waiting: i64) {
    wait_for_waiting(schema, waiting).await;
    shell.execute("COMMIT").await.unwrap();
}

/// A trigger that waits until `go_on` has a row. If it is given a bound on waits for locks, it refuses transactions with another.
const STANDS_STILL: &str = "
    CREATE TABLE IF NOT EXISTS go_on (n bigint);
    CREATE OR REPLACE FUNCTION stands_still() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF current_setting('lock_timeout') <> coalesce(nullif(TG_ARGV[0], ''), current_setting('lock_timeout')) THEN
            RAISE EXCEPTION 'the bound on waits is %', current_setting('lock_timeout');
        END IF;
        WHILE NOT EXISTS (SELECT 1 FROM go_on) LOOP PERFORM pg_sleep(0.01); END LOOP;
        RETURN coalesce(NEW, OLD);
    END $$;";

/// From then on, what happens at this trigger stands still until [`goes_on`]. A lock would hold it for a moment only. `bound` is
/// that of its waits for locks; empty: any.
async fn stands_still(schema: &Schema, trigger: &str, bound: &str) {
    let trigger = format!("CREATE {trigger} EXECUTE FUNCTION stands_still('{bound}')");
    schema.shell().await.execute(sqlx::AssertSqlSafe(format!("{STANDS_STILL} {trigger}"))).await.unwrap();
}

/// Waits until something stands still there, by the beginning of its statement.
async fn wait_for_still(schema: &Schema, statement: &str) {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity AS a JOIN pg_locks AS l ON l.pid = a.pid
         WHERE a.wait_event = 'PgSleep' AND l.relation = 'go_on'::regclass AND ltrim(a.query, E' \\n') LIKE '{statement}%'"
    );
    wait_until(schema, &sql).await;
}

/// Waits until this query counts something.
async fn wait_until(schema: &Schema, sql: &str) {
    let mut looking = schema.shell().await;
    let comes = async { while number(&mut looking, sql).await == 0 {} };
    tokio::time::timeout(BOUND, comes).await.expect("it comes");
}

async fn goes_on(schema: &Schema) {
    schema.shell().await.execute("INSERT INTO go_on VALUES (1)").await.unwrap();
}

/// The one number that a query returns.
async fn number(db: &mut PgConnection, sql: &str) -> i64 {
    use sqlx::Row as _;
    sqlx::query(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(db).await.unwrap().get(0)
}

async fn count(schema: &Schema, table: &str) -> i64 {
    number(&mut schema.shell().await, &format!("SELECT count(*) FROM {table}")).await
}
