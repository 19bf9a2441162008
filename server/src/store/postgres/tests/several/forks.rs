//! Forks and deletions of sessions that share events, at different replicas.

use agentloop_core::id::EntryNo;
use agentloop_core::time::Timestamp;

use super::*;
use crate::store::{SessionRow, SessionStore as _};

async fn fork(store: &PostgresStore, source: &str, new: &str) -> Result<SessionRow, StoreError> {
    store.fork_by(&tenant(), &session(source), EntryNo(0), &session(new), Timestamp(9), None).await
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

#[tokio::test]
async fn a_deletion_waits_for_a_fork_that_has_begun() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    talks(&a, "s", "r").await;
    let shell = lock(&schema, "session_todos").await;
    let forking = async {
        let forked = fork(&b, "s", "f").await;
        forked.unwrap();
    };
    let begun = async {
        // The fork stands in its middle. The deletion waits for it, and not for the table.
        wait_for_waiting(&schema, 1).await;
        let (deleted, ()) = tokio::join!(delete(&a, "s"), release(&schema, shell, 2));
        assert!(deleted.unwrap());
    };
    tokio::time::timeout(BOUND, async { tokio::join!(forking, begun) }).await.expect("in time");
    assert_eq!(told(&a, "f").await, ["r asks", "r hears"]);
    assert!(delete(&b, "f").await.unwrap());
    assert_eq!(left(&schema).await, [0, 0, 0]);
}

#[tokio::test]
async fn a_fork_does_not_see_a_session_that_is_being_deleted() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    talks(&a, "s", "r").await;
    let shell = lock(&schema, "session_todos").await;
    let deleting = async { assert!(delete(&a, "s").await.unwrap()) };
    let begun = async {
        wait_for_waiting(&schema, 1).await;
        let (forked, ()) = tokio::join!(fork(&b, "s", "f"), release(&schema, shell, 2));
        assert!(matches!(forked, Err(StoreError::NoSession)), "{forked:?}");
    };
    tokio::time::timeout(BOUND, async { tokio::join!(deleting, begun) }).await.expect("in time");
    assert_eq!(left(&schema).await, [0, 0, 0]);
}

/// The fork of a fork refers to the journals of the first session.
#[tokio::test]
async fn a_fork_of_a_fork_keeps_what_it_shares_with_a_session_that_is_deleted_meanwhile() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    talks(&a, "s", "r").await;
    fork(&b, "s", "f").await.unwrap();
    let shell = lock(&schema, "session_todos").await;
    let forking = async {
        let forked = fork(&b, "f", "g").await;
        forked.unwrap();
    };
    let begun = async {
        wait_for_waiting(&schema, 1).await;
        let (deleted, ()) = tokio::join!(delete(&a, "s"), release(&schema, shell, 2));
        assert!(deleted.unwrap());
    };
    tokio::time::timeout(BOUND, async { tokio::join!(forking, begun) }).await.expect("in time");
    for name in ["f", "g"] {
        assert_eq!(told(&a, name).await, ["r asks", "r hears"], "{name}");
    }
    assert!(delete(&a, "f").await.unwrap() && delete(&b, "g").await.unwrap());
    assert_eq!(left(&schema).await, [0, 0, 0]);
}

#[tokio::test]
async fn two_deletions_of_forks_at_once_leave_nothing_of_what_they_share() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    talks(&a, "s", "r").await;
    fork(&a, "s", "f").await.unwrap();
    fork(&b, "s", "g").await.unwrap();
    assert_eq!(search(&a).await, 2);
    assert!(delete(&a, "s").await.unwrap());
    assert_eq!(count(&schema, "kept_events").await, 2);
    let shell = lock(&schema, "steers").await;
    let both = async { tokio::join!(delete(&a, "f"), delete(&b, "g"), release(&schema, shell, 2)) };
    let (first, second, ()) = tokio::time::timeout(BOUND, both).await.expect("in time");
    assert!(first.unwrap() && second.unwrap());
    assert_eq!(left(&schema).await, [0, 0, 0]);
}

#[tokio::test]
async fn a_session_and_its_fork_are_deleted_at_once() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    talks(&a, "s", "r").await;
    fork(&b, "s", "f").await.unwrap();
    assert_eq!(search(&a).await, 2);
    let shell = lock(&schema, "steers").await;
    let both = async { tokio::join!(delete(&a, "s"), delete(&b, "f"), release(&schema, shell, 2)) };
    let (first, second, ()) = tokio::time::timeout(BOUND, both).await.expect("in time");
    assert!(first.unwrap() && second.unwrap());
    assert_eq!(left(&schema).await, [0, 0, 0]);
}
