//! Tests of shared entries: they are stored once, and deleted with the last session that has them.

use agentloop_core::time::Timestamp;
use sqlx::Row as _;

use super::*;
use crate::store::conformance::fixture::{Owner, new_fork, session, tenant};

async fn fork(store: &Arc<SqliteStore>, source: &str, new: &str) {
    store.fork(new_fork(source, 0, new, Timestamp(1))).await.unwrap();
}

async fn delete(store: &Arc<SqliteStore>, name: &str) {
    assert!(store.delete_session(&tenant(), &session(name)).await.unwrap());
}

/// Number of rows in the journals and among the kept events.
async fn events(directory: &TempDir) -> (i64, i64) {
    let sql =
        "SELECT (SELECT count(*) FROM run_events) AS journal, (SELECT count(*) FROM kept_events) AS kept";
    let row = sqlx::query(sql).fetch_one(&mut shell(directory).await).await.unwrap();
    (row.get("journal"), row.get("kept"))
}

#[tokio::test]
async fn nothing_is_left_of_what_nobody_has() {
    let (store, directory) = fresh().await;
    let shared: Arc<dyn Store> = store.clone();
    let mut owner = Owner::started(&shared, "s", "a").await;
    owner.says("once-and-only-once").await.unwrap();
    owner.hears("another").await.unwrap();
    owner.ends().await.unwrap();
    fork(&store, "s", "f").await;
    fork(&store, "f", "g").await;
    assert_eq!(events(&directory).await, (4, 0));

    delete(&store, "s").await;
    assert_eq!(events(&directory).await, (0, 2), "only what is shared is kept");
    let mut own = Owner::started(&shared, "f", "b").await;
    own.says("own").await.unwrap();
    own.ends().await.unwrap();
    delete(&store, "f").await;
    assert_eq!(events(&directory).await, (0, 2), "the other fork has it still");
    fork(&store, "g", "h").await;
    delete(&store, "g").await;
    assert_eq!(events(&directory).await, (0, 2));
    delete(&store, "h").await;
    assert_eq!(events(&directory).await, (0, 0));
}

#[tokio::test]
async fn what_is_kept_is_stored_once() {
    let (store, directory) = fresh().await;
    let shared: Arc<dyn Store> = store.clone();
    let mut owner = Owner::started(&shared, "s", "a").await;
    owner.says("once-and-only-once").await.unwrap();
    owner.ends().await.unwrap();
    for name in ["f", "g", "h"] {
        fork(&store, "s", name).await;
    }
    delete(&store, "s").await;
    store.close().await;
    let mut shell = shell(&directory).await;
    sqlx::query("VACUUM").execute(&mut shell).await.unwrap();
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut shell).await.unwrap();
    drop(shell);
    let file = std::fs::read(directory.path().join("a.db")).unwrap();
    let found = file.windows(18).filter(|window| window == b"once-and-only-once").count();
    assert_eq!(found, 1);
}
