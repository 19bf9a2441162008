//! Several replicas that write to one database at the same time, each to sessions of its own. Nobody beats here: every store has
//! the row of an owner, and the scope of all shards. A lock of a shell on a table holds both writers in the middle.

mod blobs;
mod chances;
mod forks;
mod index;
mod large;
mod shared;
mod waits;

use std::time::Duration;

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

/// A replica that may write to every session.
async fn replica(schema: &Schema) -> Arc<PostgresStore> {
    let ReplicaConnection { mut db, .. } = for_replica(&schema.options).await.unwrap();
    let (address, configuration_digest) = ("a:1".to_owned(), "c".to_owned());
    let me = ReplicaOptions { address, lease: Duration::from_secs(60), configuration_digest };
    let number = statements::register(&mut db, &me).await.unwrap();
    let scope = Scope::none();
    (0..agentloop_core::cluster::shard::SHARDS).for_each(|shard| scope.add(ShardNo(shard)));
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

/// The one number that a query returns.
async fn number(db: &mut PgConnection, sql: &str) -> i64 {
    use sqlx::Row as _;
    sqlx::query(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(db).await.unwrap().get(0)
}

async fn count(schema: &Schema, table: &str) -> i64 {
    number(&mut schema.shell().await, &format!("SELECT count(*) FROM {table}")).await
}
