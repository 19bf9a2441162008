//! Tests of events that changed after they were written: they are noticed wherever they are read.

use agentloop_core::id::{EntryNo, Seq};

use super::*;
use crate::store::conformance::fixture::*;

/// A store with two finished sessions, of which a row of the first one's journal was changed while it was stopped.
async fn changed(sql: &str) -> (Arc<SqliteStore>, TempDir) {
    let (store, directory) = fresh().await;
    let shared: Arc<dyn Store> = store.clone();
    for name in ["a", "b"] {
        let mut owner = Owner::started(&shared, &format!("s-{name}"), &format!("r-{name}")).await;
        owner.says("transfer 1000 to Bergen").await.unwrap();
        owner.ends().await.unwrap();
    }
    store.fork(&tenant(), &session("s-a"), EntryNo(0), &session("f-a"), Timestamp(9)).await.unwrap();
    store.close().await;
    let mut shell = shell(&directory).await;
    let changed = sqlx::query(sqlx::AssertSqlSafe(sql.to_owned())).execute(&mut shell).await.unwrap();
    assert!(changed.rows_affected() > 0);
    sqlx::Connection::close(shell).await.unwrap();
    (reopened(&directory).await, directory)
}

fn is_damage<T>(answer: Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Corrupt { .. }))
}

const DIGIT: &str =
    "UPDATE run_events SET payload = replace(payload, '1000', '9000') WHERE run_no = 1 AND seq > 1";

#[tokio::test]
async fn a_changed_digit_is_noticed_in_that_run_alone() {
    let changes = [
        DIGIT,
        "UPDATE run_events SET at = at + 1 WHERE run_no = 1 AND seq = 2",
        "UPDATE run_events SET status = 4 WHERE run_no = 1 AND seq = 2",
        "UPDATE run_events SET payload = (SELECT replace(payload, '1000', '10') FROM run_events WHERE run_no = 2 AND seq = 2)
         WHERE run_no = 1 AND seq = 2",
        "UPDATE run_events SET checksum = (SELECT checksum FROM run_events WHERE run_no = 2 AND seq = 2)
         WHERE run_no = 1 AND seq = 2",
    ];
    for change in changes {
        let (store, _directory) = changed(change).await;
        let max = StretchMax { records: 9, bytes: usize::MAX };
        assert!(is_damage(store.records(&tenant(), &run("r-a"), Seq(0), 9).await), "{change}");
        assert!(is_damage(store.stretch(&tenant(), &run("r-a"), Seq(0), max).await), "{change}");
        assert!(is_damage(store.claim(&tenant(), &run("r-a")).await), "{change}");
        for id in ["s-a", "f-a"] {
            assert!(is_damage(store.entries(&tenant(), &session(id), EntryNo(0), 9).await), "{change}: {id}");
        }
        assert_eq!(store.records(&tenant(), &run("r-b"), Seq(0), 9).await.unwrap().len(), 3);
        assert_eq!(store.entries(&tenant(), &session("s-b"), EntryNo(0), 9).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_changed_spec_is_noticed() {
    let (store, _directory) =
        changed("UPDATE specs SET spec = json_set(spec, '$.system_prompt', 'Obey.')").await;
    assert!(is_damage(store.records(&tenant(), &run("r-a"), Seq(0), 1).await));
}

#[tokio::test]
async fn a_changed_event_that_a_fork_keeps_is_noticed() {
    let (store, directory) = changed("UPDATE meta SET value = value WHERE key = 'epoch'").await;
    assert!(store.delete_session(&tenant(), &session("s-a")).await.unwrap());
    let kept = store.entries(&tenant(), &session("f-a"), EntryNo(0), 9).await.unwrap();
    assert_eq!(kept.len(), 1, "its checksum went with it");
    store.close().await;
    let sql = "UPDATE kept_events SET payload = replace(payload, '1000', '9000')";
    let mut shell = shell(&directory).await;
    sqlx::query(sql).execute(&mut shell).await.unwrap();
    sqlx::Connection::close(shell).await.unwrap();
    let store = reopened(&directory).await;
    assert!(is_damage(store.entries(&tenant(), &session("f-a"), EntryNo(0), 9).await));
}

#[tokio::test]
async fn rows_of_older_servers_are_read_and_counted() {
    let (store, _directory) =
        changed("UPDATE run_events SET checksum = NULL WHERE run_no = 1 AND seq < 3").await;
    assert_eq!(store.records(&tenant(), &run("r-a"), Seq(0), 9).await.unwrap().len(), 3);
    assert_eq!(store.unverified_events(&tenant(), &run("r-a")).await.unwrap(), 2);
    assert_eq!(store.unverified_events(&tenant(), &run("r-b")).await.unwrap(), 0);
}
