//! Forks and deletions of sessions that share events, at different replicas.

use agentloop_core::id::EntryNo;
use agentloop_core::time::Timestamp;

use super::*;
use crate::store::{SessionRow, SessionStore as _};

async fn fork(store: &PostgresStore, source: &str, new: &str) -> Result<SessionRow, StoreError> {
    store.fork(new_fork(source, 0, new, Timestamp(9))).await
}

async fn delete(store: &PostgresStore, name: &str) -> Result<bool, StoreError> {
    store.delete_session(&tenant(), &session(name)).await
}

async fn told(store: &PostgresStore, name: &str) -> Vec<String> {
    let found = store.entries(&tenant(), &session(name), EntryNo(0), 99).await.unwrap();
    found.iter().map(plain_text).collect()
}

/// Documents and events that nobody may see.
async fn left(schema: &Schema) -> [i64; 3] {
    [
        count(schema, "kept_events").await,
        count(schema, "search_documents").await,
        count(schema, "session_entries").await,
    ]
}

async fn search(store: &PostgresStore) -> usize {
    store.search(&tenant(), "r", SearchFilter::default(), 99).await.unwrap().len()
}

/// A fork is stopped in its middle, and the session `s` is deleted meanwhile. The deletion waits for the fork.
async fn deletes_s_during_fork(Two { a, b, schema }: &Two, source: &str, new: &str) {
    stands_still(schema, "TRIGGER still BEFORE INSERT ON session_todos", "").await;
    let deleting = async {
        // The deletion begins now, and waits for the fork.
        wait_for_still(schema, "INSERT INTO session_todos").await;
        let ends = async {
            wait_for_waiting(schema, 1).await;
            goes_on(schema).await;
        };
        tokio::join!(delete(a, "s"), ends).0
    };
    let both = async { tokio::join!(fork(b, source, new), deleting) };
    let (forked, deleted) = tokio::time::timeout(BOUND, both).await.expect("in time");
    forked.unwrap();
    assert!(deleted.unwrap());
}

/// Two sessions are deleted at once, one at each replica. Both deletions are stopped in their middle, and nothing is left.
async fn deletes_at_once(Two { a, b, schema }: &Two, first: &str, second: &str) {
    let shell = lock(schema, "steers").await;
    let both = async { tokio::join!(delete(a, first), delete(b, second), release(schema, shell, 2)) };
    let (first, second, ()) = tokio::time::timeout(BOUND, both).await.expect("in time");
    assert!(first.unwrap() && second.unwrap());
    assert_eq!(left(schema).await, [0, 0, 0]);
}

#[tokio::test]
async fn a_deletion_waits_for_a_fork_that_has_begun() {
    let Some(two) = two_stores().await else { return };
    talks(&two.a, "s", "r").await;
    deletes_s_during_fork(&two, "s", "f").await;
    assert_eq!(told(&two.a, "f").await, ["r asks", "r hears"]);
    assert!(delete(&two.b, "f").await.unwrap());
    assert_eq!(left(&two.schema).await, [0, 0, 0]);
}

#[tokio::test]
async fn a_fork_does_not_see_a_session_that_is_being_deleted() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    talks(&a, "s", "r").await;
    stands_still(&schema, "TRIGGER still BEFORE DELETE ON session_todos", "").await;
    let deleting = async { assert!(delete(&a, "s").await.unwrap()) };
    let begun = async {
        wait_for_still(&schema, "DELETE FROM session_todos").await;
        let ends = async {
            wait_for_waiting(&schema, 1).await;
            goes_on(&schema).await;
        };
        let (forked, ()) = tokio::join!(fork(&b, "s", "f"), ends);
        assert!(matches!(forked, Err(StoreError::NoSession)), "{forked:?}");
    };
    tokio::time::timeout(BOUND, async { tokio::join!(deleting, begun) }).await.expect("in time");
    assert_eq!(left(&schema).await, [0, 0, 0]);
}

/// The fork of a fork refers to the journals of the first session.
#[tokio::test]
async fn a_fork_of_a_fork_keeps_what_it_shares_with_a_session_that_is_deleted_meanwhile() {
    let Some(two) = two_stores().await else { return };
    talks(&two.a, "s", "r").await;
    fork(&two.b, "s", "f").await.unwrap();
    deletes_s_during_fork(&two, "f", "g").await;
    for name in ["f", "g"] {
        assert_eq!(told(&two.a, name).await, ["r asks", "r hears"], "{name}");
    }
    assert!(delete(&two.a, "f").await.unwrap() && delete(&two.b, "g").await.unwrap());
    assert_eq!(left(&two.schema).await, [0, 0, 0]);
}

#[tokio::test]
async fn two_deletions_of_forks_at_once_leave_nothing_of_what_they_share() {
    let Some(two) = two_stores().await else { return };
    talks(&two.a, "s", "r").await;
    fork(&two.a, "s", "f").await.unwrap();
    fork(&two.b, "s", "g").await.unwrap();
    assert_eq!(search(&two.a).await, 2);
    assert!(delete(&two.a, "s").await.unwrap());
    assert_eq!(count(&two.schema, "kept_events").await, 2);
    deletes_at_once(&two, "f", "g").await;
}

#[tokio::test]
async fn a_session_and_its_fork_are_deleted_at_once() {
    let Some(two) = two_stores().await else { return };
    talks(&two.a, "s", "r").await;
    fork(&two.b, "s", "f").await.unwrap();
    assert_eq!(search(&two.a).await, 2);
    deletes_at_once(&two, "s", "f").await;
}

/// While another replica forks or deletes what they need, the writes behind them go on.
#[tokio::test]
async fn a_deletion_and_a_fork_that_find_a_lock_are_put_off() {
    let Some(Two { a, schema, .. }) = two_stores().await else { return };
    talks(&a, "s", "r").await;
    let mut owner = Owner::started(&shared(&a), "t", "t").await;
    let writes_go_on = async |owner: &mut Owner, shell: &mut PgConnection| {
        wait_for_waiting(&schema, 1).await;
        // Most come while it is tried again.
        for _ in 0..100 {
            owner.says("meanwhile").await.unwrap();
        }
        shell.execute("COMMIT").await.unwrap();
    };
    let mut shell = schema.shell().await;

    shell.execute("BEGIN; SELECT 1 FROM sessions WHERE session_id = 's' FOR UPDATE").await.unwrap();
    let forks = async { tokio::join!(fork(&a, "s", "f"), writes_go_on(&mut owner, &mut shell)) };
    let (forked, ()) = tokio::time::timeout(BOUND, forks).await.expect("in time");
    forked.unwrap();

    shell.execute("BEGIN; SELECT 1 FROM sessions WHERE session_id = 's' FOR KEY SHARE").await.unwrap();
    let deletes = async { tokio::join!(delete(&a, "s"), writes_go_on(&mut owner, &mut shell)) };
    let (deleted, ()) = tokio::time::timeout(BOUND, deletes).await.expect("in time");
    assert!(deleted.unwrap());
    assert_eq!(told(&a, "f").await, ["r asks", "r hears"]);
}
