//! Deletions of large sessions: they are gone at once, and their rows go in slices.

use agentloop_core::id::Seq;
use agentloop_core::time::Timestamp;

use super::*;
use crate::store::SessionStore as _;

/// Events that are added to a run, by far more than a slice has.
const EVENTS: i64 = 30_000;

/// A session with a finished run of very many events, which another session shares some entries with.
pub(super) async fn large(store: &Arc<PostgresStore>, schema: &Schema) {
    talks(store, "s", "r").await;
    let fork = new_fork("s", 0, "f", Timestamp(9));
    store.fork(fork).await.unwrap();
    let sql = "INSERT INTO run_events (run_no, seq, at, status, version, payload)
               SELECT run_no, last_seq + n, 0, 4, 1, repeat('x', 100) FROM run_states, generate_series(1, {EVENTS}) AS n;
               UPDATE run_states SET last_seq = last_seq + {EVENTS};
               INSERT INTO session_todos (session_no, entry_no, items)
               SELECT session_no, n, '[]' FROM sessions, generate_series(10, 9 + {EVENTS}) AS n WHERE session_id = 's'";
    let sql = sql.replace("{EVENTS}", &EVENTS.to_string());
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut schema.shell().await).await.unwrap();
}

pub(super) async fn search(store: &PostgresStore) -> Vec<String> {
    let hits = store.search(&tenant(), "r", SearchFilter::default(), 99).await.unwrap();
    hits.into_iter().map(|hit| hit.session.to_string()).collect()
}

/// Rows of the large session, and of what it shares.
async fn left(schema: &Schema) -> [i64; 5] {
    let mut left = [0; 5];
    let tables = ["run_events", "session_entries", "session_todos", "deleted_runs", "deleted_sessions"];
    for (left, table) in left.iter_mut().zip(tables) {
        *left = count(schema, table).await;
    }
    left
}

pub(super) async fn wait_for_left(schema: &Schema, wanted: [i64; 5]) {
    let gone = async { while left(schema).await != wanted {} };
    let waited = tokio::time::timeout(BOUND, gone).await;
    assert!(waited.is_ok(), "{:?}", left(schema).await);
}

/// The other replica goes on with it when this one has ended in the middle.
#[tokio::test]
async fn a_large_session_is_gone_before_its_rows_are_and_any_replica_deletes_these() {
    let Some(two) = two_stores().await else { return };
    large(&two.a, &two.schema).await;
    let Two { a, b, schema } = two;
    assert_eq!(search(&b).await.len(), 2, "both its messages");
    // Nobody can delete events meanwhile.
    let mut shell = lock(&schema, "run_events").await;
    let deleted = tokio::time::timeout(BOUND, a.delete_session(&tenant(), &session("s"))).await;
    assert!(deleted.expect("it does not wait for its events").unwrap());
    for store in [&a, &b] {
        assert_eq!(store.session(&tenant(), &session("s")).await.unwrap(), None);
        assert_eq!(store.run(&tenant(), &run("r")).await.unwrap(), None);
        assert!(store.records(&tenant(), &run("r"), Seq(0), 9).await.unwrap().is_empty());
        let told = store.entries(&tenant(), &session("f"), agentloop_core::id::EntryNo(0), 99).await.unwrap();
        assert_eq!(told.iter().map(plain_text).collect::<Vec<_>>(), ["r asks", "r hears"]);
        assert_eq!(search(store).await, ["f", "f"]);
    }
    let [events, _, todos, runs, sessions] = left(&schema).await;
    assert!(events > EVENTS && todos >= EVENTS && (runs, sessions) == (1, 1));
    a.close().await;
    shell.execute("COMMIT").await.unwrap();
    // Its shards have a new owner.
    b.wake_runs_of_the_future().await.unwrap();
    wait_for_left(&schema, [0, 2, 0, 0, 0]).await;
    // The ids are free.
    talks(&b, "s", "r").await;
    assert!(b.delete_session(&tenant(), &session("f")).await.unwrap());
    assert!(b.delete_session(&tenant(), &session("s")).await.unwrap());
    assert_eq!(count(&schema, "kept_events").await, 0);
    assert_eq!(count(&schema, "search_documents").await, 0);
}

/// The shared events of a fork go with the last that has them, which is a large one here.
#[tokio::test]
async fn what_a_large_session_shares_goes_with_the_last_that_has_it() {
    let Some(two) = two_stores().await else { return };
    large(&two.a, &two.schema).await;
    let Two { a, b, schema } = two;
    assert_eq!(search(&b).await.len(), 2);
    let of_fork = "UPDATE sessions SET last_entry = 20000 WHERE session_id = 'f'";
    schema.shell().await.execute(of_fork).await.unwrap();
    let (s, f, local) = (session("s"), session("f"), tenant());
    let (first, second) = tokio::join!(a.delete_session(&local, &s), b.delete_session(&local, &f));
    assert!(first.unwrap() && second.unwrap());
    wait_for_left(&schema, [0; 5]).await;
    assert_eq!(count(&schema, "kept_events").await, 0);
    assert_eq!(count(&schema, "search_documents").await, 0);
}

/// The rows of the large session are no longer found by anybody. Its entries are, before those of the fork.
#[tokio::test]
async fn the_index_takes_up_what_a_fork_has_of_a_large_session_that_goes() {
    let Some(two) = two_stores().await else { return };
    large(&two.a, &two.schema).await;
    let Two { a, b, schema } = two;
    let mut shell = lock(&schema, "run_events").await;
    assert!(a.delete_session(&tenant(), &session("s")).await.unwrap());
    assert_eq!(search(&b).await, ["f", "f"]);
    shell.execute("COMMIT").await.unwrap();
    wait_for_left(&schema, [0, 2, 0, 0, 0]).await;
    assert_eq!(search(&b).await, ["f", "f"]);
}
