//! Copies of SQLite stores.

use agentloop_core::id::EntryNo;
use agentloop_core::run::human::RememberScope;
use agentloop_core::time::Timestamp;
use tempfile::TempDir;

use super::*;
use crate::store::conformance::fixture::*;
use crate::store::copy::{CopyError, CopyReport, sqlite_to_postgres};
use crate::store::sqlite::{SqliteOptions, SqliteStore};

/// A store with a fork of a deleted session, a queue, questions, a rule and more sessions than a batch has.
async fn source(directory: &TempDir) -> std::path::PathBuf {
    let path = directory.path().join("a.db");
    let opened = SqliteStore::open(&path, &SqliteOptions::default()).await.unwrap();
    let store: Arc<dyn Store> = Arc::new(opened);
    let mut gone = Owner::started(&store, "gone", "g").await;
    gone.says("shared with a fork").await.unwrap();
    gone.ends().await.unwrap();
    store.fork(&tenant(), &session("gone"), EntryNo(0), &session("fork"), Timestamp(9)).await.unwrap();
    store.delete_session(&tenant(), &session("gone")).await.unwrap();
    let mut asking = Owner::started(&store, "asking", "a").await;
    asking.says("weather? \u{0} \u{1f324}").await.unwrap();
    asking.remembers_deny(0, RememberScope::Session).await;
    asking.asks(1).await;
    Owner::queued(&store, "asking", "waits").await;
    for no in 0..70 {
        let mut owner = Owner::started(&store, &format!("s{no}"), &format!("r{no}")).await;
        owner.says(&format!("number {no}")).await.unwrap();
        owner.ends().await.unwrap();
    }
    let closing = SqliteStore::open(&path, &SqliteOptions::default()).await;
    assert!(closing.is_err(), "it is locked");
    drop(store);
    path
}

async fn copied(path: &std::path::Path, schema: &Schema) -> Result<CopyReport, CopyError> {
    sqlite_to_postgres(path, &schema.options, |_| {}).await
}

/// Copies once the store that wrote the source has let go of its lock.
async fn copied_once_free(path: &std::path::Path, schema: &Schema) -> CopyReport {
    loop {
        match copied(path, schema).await {
            Err(CopyError::Source(_)) => tokio::task::yield_now().await,
            done => return done.unwrap(),
        }
    }
}

#[tokio::test]
async fn a_copy_has_everything_and_goes_on() {
    let Some(schema) = Schema::new().await else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = source(&directory).await;
    let report = copied_once_free(&path, &schema).await;
    assert_eq!((report.sessions, report.runs), (72, 72));
    let rows = |name| report.tables.iter().find(|(table, _)| *table == name).unwrap().1;
    assert_eq!((rows("kept_events"), rows("human_requests"), rows("remembered_rules")), (1, 2, 1));

    let store: Arc<dyn Store> = schema.open().await;
    let entries = store.entries(&tenant(), &session("fork"), EntryNo(0), 9).await.unwrap();
    assert_eq!(plain_text(&entries[0]), "shared with a fork");
    let found = store.search(&tenant(), "number", SearchFilter::default(), 100).await.unwrap();
    assert_eq!(found.len(), 70);
    // A run of the copy goes on, and a new one gets numbers of its own.
    let claimed = store.claim(&tenant(), &run("a")).await.unwrap().unwrap();
    let mut owner = Owner::new(&store, "asking", "a");
    (owner.epoch, owner.seq, owner.entry) = (claimed.epoch, claimed.row.last_seq, EntryNo(1));
    owner.says("and here").await.unwrap();
    Owner::started(&store, "new", "new").await.says("hello").await.unwrap();
    assert!(matches!(copied(&path, &schema).await, Err(CopyError::Target(_))), "a server uses it");
}

#[tokio::test]
async fn a_copy_that_was_cut_goes_on_and_no_server_opens_it_before() {
    let Some(schema) = Schema::new().await else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = source(&directory).await;
    copied_once_free(&path, &schema).await;
    // As it is when the copy is killed after its first batch.
    let mut shell = schema.shell().await;
    let identity = "INSERT INTO copied (source, last) SELECT $1, session_no FROM sessions ORDER BY session_no OFFSET 63 LIMIT 1";
    let mut db = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    let of = sqlx::query("SELECT value FROM meta WHERE key = 'identity'").fetch_one(&mut db).await.unwrap();
    sqlx::Connection::close(db).await.unwrap();
    sqlx::query(identity).bind(sqlx::Row::get::<i64, _>(&of, "value")).execute(&mut shell).await.unwrap();
    let later = "IN (SELECT run_no FROM runs WHERE session_no > (SELECT last FROM copied))";
    for table in ["run_events", "steers", "human_requests", "jobs", "run_states", "runs"] {
        shell
            .execute(sqlx::AssertSqlSafe(format!("DELETE FROM {table} WHERE run_no {later}")))
            .await
            .unwrap();
    }
    for table in ["session_entries", "session_todos", "session_blobs", "sessions"] {
        let sql = format!("DELETE FROM {table} WHERE session_no > (SELECT last FROM copied)");
        shell.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
    }
    let refused = schema.try_open().await.err().unwrap();
    assert!(matches!(refused, OpenError::HalfCopied { .. }), "{refused}");
    assert_eq!(copied(&path, &schema).await.unwrap().sessions, 72);
    schema.open().await.close().await;
}

#[tokio::test]
async fn what_was_changed_in_the_copy_is_found() {
    let Some(schema) = Schema::new().await else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = source(&directory).await;
    copied_once_free(&path, &schema).await;
    let refused = copied(&path, &schema).await;
    assert!(matches!(refused, Err(CopyError::NotEmpty)), "{refused:?}");
    let mut db = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    let of = sqlx::query("SELECT value FROM meta WHERE key = 'identity'").fetch_one(&mut db).await.unwrap();
    sqlx::Connection::close(db).await.unwrap();
    let mut shell = schema.shell().await;
    let sql = "INSERT INTO copied (source, last) SELECT $1, max(session_no) FROM sessions";
    sqlx::query(sql).bind(sqlx::Row::get::<i64, _>(&of, "value")).execute(&mut shell).await.unwrap();
    let sql = "UPDATE run_events SET payload = replace(payload, 'number 5', 'number 6') WHERE seq = 2";
    shell.execute(sql).await.unwrap();
    let refused = copied(&path, &schema).await;
    assert!(matches!(refused, Err(CopyError::Differs(_))), "{refused:?}");
}
