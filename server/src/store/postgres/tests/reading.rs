//! The connections that read.

use agentloop_core::time::Millis;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use sqlx::Row as _;

use super::replicas::until;
use super::wire::Wire;
use super::*;
use crate::lifecycle::Tasks;
use crate::store::conformance::fixture::{run, session, tenant};
use crate::store::postgres::connect::reader_pool::ReaderPool;
use crate::store::{JournalStore as _, SessionStore as _, StartIds, UsageQuery};

/// One connection, and a shell beside it.
async fn one() -> Option<(ReaderPool, PgConnection)> {
    let schema = Schema::new().await?;
    let options = schema.options.url.expose().parse().unwrap();
    Some((ReaderPool::new(options, 1, Tasks::new()), schema.shell().await))
}

/// The process of the database behind the connection.
async fn process(pool: &ReaderPool) -> i32 {
    let row = sqlx::query("SELECT pg_backend_pid() AS pid").fetch_one(pool).await.unwrap();
    row.try_get("pid").unwrap()
}

async fn count(shell: &mut PgConnection, sql: &'static str, pid: i32) -> i64 {
    sqlx::query(sql).bind(pid).fetch_one(shell).await.unwrap().try_get("count").unwrap()
}

/// Queries through the pool cost what they cost over a connection of their own: nothing is sent between them.
#[tokio::test]
async fn a_query_is_one_trip_to_the_database() {
    const QUERIES: usize = 10;
    let Some(schema) = Schema::new().await else { return };
    let [direct, pooled] = [Wire::to(&schema.options).await, Wire::to(&schema.options).await];
    let query = || sqlx::query("SELECT 1");
    let mut db = connect(direct.options.url.expose()).await;
    let pool = ReaderPool::new(pooled.options.url.expose().parse().unwrap(), 1, Tasks::new());
    query().fetch_one(&mut db).await.unwrap();
    query().fetch_one(&pool).await.unwrap();
    let before = [direct.requested(), pooled.requested()];
    for _ in 0..QUERIES {
        query().fetch_one(&mut db).await.unwrap();
        query().fetch_one(&pool).await.unwrap();
    }
    let sent = [direct.requested() - before[0], pooled.requested() - before[1]];
    assert!(sent[0] > 0);
    assert_eq!(sent[0], sent[1]);
}

/// The run and the session alone would be two.
#[tokio::test]
async fn the_look_up_of_a_start_is_one_trip() {
    let Some(schema) = Schema::new().await else { return };
    let wire = Wire::to(&schema.options).await;
    let store = PostgresStore::open(&wire.options).await.unwrap();
    let (id, of) = (run("r"), session("s"));
    let ids = StartIds { run: Some(&id), session: Some(&of) };
    let (mut at_once, mut in_parts) = (usize::MAX, usize::MAX);
    // The first time, statements are prepared. The store has requests of its own now and then.
    for _ in 0..8 {
        let before = wire.requested();
        store.start_view(&tenant(), ids).await.unwrap();
        let after_view = wire.requested();
        assert_eq!(store.run(&tenant(), &id).await.unwrap(), None);
        assert_eq!(store.session(&tenant(), &of).await.unwrap(), None);
        at_once = at_once.min(after_view - before);
        in_parts = in_parts.min(wire.requested() - after_view);
    }
    assert!(at_once > 0 && at_once < in_parts, "{at_once} bytes, and {in_parts} for the run and the session");
}

/// Statements that were planned for empty tables are planned again when there may be rows.
#[tokio::test]
async fn plans_are_made_anew_after_some_queries() {
    let Some(schema) = Schema::new().await else { return };
    let wire = Wire::to(&schema.options).await;
    let pool = ReaderPool::new(wire.options.url.expose().parse().unwrap(), 1, Tasks::new());
    let mut sent = Vec::new();
    for _ in 0..600 {
        let before = wire.requested();
        sqlx::query("SELECT 1").fetch_one(&pool).await.unwrap();
        sent.push(wire.requested() - before);
    }
    // The first one connects. A sign of life after a pause is shorter.
    let with_more = sent[1] + "DISCARD PLANS".len();
    let more: Vec<usize> = (1..sent.len()).filter(|query| sent[*query] >= with_more).collect();
    assert_eq!(more, [256, 512]);
}

/// Callers that leave cannot have the database do more at a time than there are connections.
#[tokio::test]
async fn a_query_that_nobody_waits_for_keeps_its_place_until_it_ends() {
    let Some((pool, mut shell)) = one().await else { return };
    let reader = process(&pool).await;
    let lock = i64::from(reader);
    sqlx::query("SELECT pg_advisory_lock($1)").bind(lock).execute(&mut shell).await.unwrap();
    {
        let query = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(lock).execute(&pool);
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = $1";
        tokio::select! {
            ended = query => panic!("{ended:?}"),
            () = until(async || count(&mut shell, waits, reader).await == 1) => {}
        }
    }
    assert!(pool.acquire().now_or_never().is_none(), "the only place is taken");
    sqlx::query("SELECT pg_advisory_unlock($1)").bind(lock).execute(&mut shell).await.unwrap();
    assert_eq!(process(&pool).await, reader, "the same connection goes on");
}

#[tokio::test]
async fn a_connection_goes_on_after_a_query_that_failed() {
    let Some((pool, _shell)) = one().await else { return };
    let reader = process(&pool).await;
    let failed = sqlx::query("SELECT 1 / 0").fetch_all(&pool).await;
    assert!(matches!(failed, Err(sqlx::Error::Database(_))), "{failed:?}");
    assert_eq!(process(&pool).await, reader);
}

#[tokio::test]
async fn a_connection_that_the_database_has_ended_is_made_anew() {
    let Some((pool, mut shell)) = one().await else { return };
    let reader = process(&pool).await;
    sqlx::query("SELECT pg_terminate_backend($1)").bind(reader).execute(&mut shell).await.unwrap();
    let alive = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1";
    until(async || count(&mut shell, alive, reader).await == 0).await;
    // It was used a moment ago, so nobody tests it.
    assert!(sqlx::query("SELECT 1").execute(&pool).await.is_err());
    assert_ne!(process(&pool).await, reader);
}

/// The database cut all connections once, as a pooler does that starts again.
#[tokio::test]
async fn a_read_whose_connection_was_cut_is_made_again() {
    let Some(schema) = Schema::new().await else { return };
    let cut = schema.severable("cut_reads").await;
    let store = PostgresStore::open(&cut.options).await.unwrap();
    for _ in 0..3 {
        assert!(!store.tenants_with_sessions().await.unwrap().contains(&tenant()));
        cut.sever().await;
    }
    assert!(!store.tenants_with_sessions().await.unwrap().contains(&tenant()));
    store.close().await;
}

#[tokio::test]
async fn a_closed_pool_gives_out_nothing() {
    let Some((pool, mut shell)) = one().await else { return };
    let reader = process(&pool).await;
    pool.close().await;
    assert!(matches!(pool.acquire().await, Err(sqlx::Error::PoolClosed)));
    let alive = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1";
    until(async || count(&mut shell, alive, reader).await == 0).await;
}

/// However many searches and sums are requested, other reads have a connection.
#[tokio::test]
async fn searches_and_sums_of_usage_take_turns() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    let (tenant, filter) = (tenant(), SearchFilter::default());
    let query = UsageQuery { bucket: Millis(60_000), rows_max: 1, ..UsageQuery::default() };
    let (adding_up, searching) = (store.adding_up.lock().await, store.searching.acquire().await.unwrap());
    let sums = join_all((0..8).map(|_| store.usage(&tenant, &query)));
    let searches = join_all((0..8).map(|_| store.search(&tenant, "word", filter.clone(), 9)));
    let mut all = std::pin::pin!(futures_util::future::join(sums, searches));
    let reads = async {
        for _ in 0..100 {
            store.check().await.unwrap();
        }
    };
    tokio::select! {
        _ = &mut all => panic!("they wait for their turn"),
        () = reads => {}
    }
    drop((adding_up, searching));
    let (sums, searches) = all.await;
    assert!(sums.iter().all(Result::is_ok) && searches.iter().all(Result::is_ok));
}
