//! Slices of large sessions that were deleted, beside deletions of sessions that share events with them.

use agentloop_core::time::Timestamp;

use super::large::{large, search, wait_for_left};
use super::*;
use crate::store::SessionStore as _;
use crate::store::postgres::tests::wire::Wire;

/// The bound on the waits for locks: of a server alone, of a write of a replica that is tried alone, and of a slice.
const ALONE: &str = "0";
const REPLICA: &str = "10ms";
const SLICE: &str = "1s";

/// Connections that wait for one that writes for a server.
const WAITS_FOR_WRITER: &str = "SELECT count(*) FROM pg_stat_activity AS a
    WHERE pg_blocking_pids(a.pid) && ARRAY(SELECT o.pid FROM owners AS o)";

/// Keeps slices from going on, as long as the shell's transaction lasts: they begin with the event that it has locked.
async fn hold_slices(schema: &Schema) -> PgConnection {
    let mut shell = schema.shell().await;
    let sql = "INSERT INTO run_events VALUES (-1, 1, 0, 4, 1, ''); INSERT INTO deleted_runs VALUES (-1)";
    shell.execute(sql).await.unwrap();
    shell.execute("BEGIN; SELECT 1 FROM run_events WHERE run_no = -1 FOR UPDATE").await.unwrap();
    shell
}

/// The session is larger than it is, as far as a deletion can see.
async fn make_large(schema: &Schema, name: &str) {
    let sql = format!("UPDATE sessions SET last_entry = 20000 WHERE session_id = '{name}'");
    schema.shell().await.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
}

async fn delete(store: &PostgresStore, name: &str) -> bool {
    store.delete_session(&tenant(), &session(name)).await.unwrap()
}

fn deletes(store: &Arc<PostgresStore>, name: &'static str) -> tokio::task::JoinHandle<bool> {
    let store = store.clone();
    tokio::spawn(async move { delete(&store, name).await })
}

/// In the end, nothing is there of what sessions have shared.
async fn nothing_is_left(schema: &Schema) {
    wait_for_left(schema, [0; 5]).await;
    let left = [count(schema, "kept_events").await, count(schema, "search_documents").await];
    assert_eq!(left, [0, 0], "kept events and documents");
}

/// The rows of the fork go in slices, over another connection than the one which deletes its source.
#[tokio::test]
async fn slices_of_a_fork_wait_for_the_deletion_of_its_source_by_a_server_alone() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    talks(&store, "s", "r").await;
    store.fork(new_fork("s", 0, "f", Timestamp(9))).await.unwrap();
    assert_eq!(search(&store).await.len(), 2);
    make_large(&schema, "f").await;
    let mut holding = hold_slices(&schema).await;
    assert!(delete(&store, "f").await);
    stands_still(&schema, "TRIGGER still BEFORE INSERT ON kept_events FOR EACH ROW", ALONE).await;
    let deleting = deletes(&store, "s");
    wait_for_still(&schema, "INSERT INTO kept_events").await;
    holding.execute("COMMIT").await.unwrap();
    let wait_or_end =
        format!("SELECT ({WAITS_FOR_WRITER}) + (NOT EXISTS (SELECT 1 FROM deleted_sessions))::int");
    wait_until(&schema, &wait_or_end).await;
    goes_on(&schema).await;
    assert!(deleting.await.unwrap());
    nothing_is_left(&schema).await;
}

/// A slice of `s` stands still before it ends. Then the last other session that has messages of `s` is deleted.
async fn deletes_the_last_fork(a: &Arc<PostgresStore>, b: &Arc<PostgresStore>, schema: &Schema, bound: &str) {
    assert_eq!(search(b).await.len(), 2);
    let todos = "INSERT INTO session_todos (session_no, entry_no, items)
                 SELECT session_no, 1, '[]' FROM sessions WHERE session_id = 's'";
    schema.shell().await.execute(todos).await.unwrap();
    stands_still(schema, "TRIGGER still BEFORE DELETE ON session_todos FOR EACH ROW", SLICE).await;
    assert!(delete(a, "s").await);
    wait_for_still(schema, "DELETE FROM session_todos").await;
    let of_fork = "TRIGGER still BEFORE DELETE ON sessions FOR EACH ROW WHEN (OLD.session_id = 'f')";
    stands_still(schema, of_fork, bound).await;
    let deleting = deletes(b, "f");
    let is_put_off = tokio::select! { biased;
        () = wait_for_still(schema, "DELETE FROM sessions") => false,
        () = wait_for_waiting(schema, 1) => true,
    };
    goes_on(schema).await;
    assert!(deleting.await.unwrap());
    nothing_is_left(schema).await;
    assert!(is_put_off);
}

/// Each would find that the other still has the messages, and leave their documents.
#[tokio::test]
async fn the_last_fork_of_a_large_session_is_deleted_between_two_slices() {
    let Some(two) = two_stores().await else { return };
    large(&two.a, &two.schema).await;
    deletes_the_last_fork(&two.a, &two.b, &two.schema, REPLICA).await;
}

#[tokio::test]
async fn a_server_alone_deletes_the_last_fork_of_a_large_session_between_two_slices() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    large(&store, &schema).await;
    deletes_the_last_fork(&store, &store, &schema, ALONE).await;
}

/// A slice that has waited sees what was committed meanwhile, whatever isolation the database gives by itself.
#[tokio::test]
async fn slices_see_what_they_have_waited_for_in_a_database_of_repeatable_reads() {
    let Some(mut schema) = Schema::new().await else { return };
    let isolation = "%20-cdefault_transaction_isolation%3Drepeatable%5C%20read";
    schema.options.url = Secret::new(format!("{}{isolation}", schema.options.url.expose()));
    let store = schema.open().await;
    large(&store, &schema).await;
    assert_eq!(search(&store).await.len(), 2);
    let mut holding = hold_slices(&schema).await;
    assert!(delete(&store, "s").await);
    stands_still(&schema, "TRIGGER still BEFORE DELETE ON sessions FOR EACH ROW", ALONE).await;
    let deleting = deletes(&store, "f");
    wait_for_still(&schema, "DELETE FROM sessions").await;
    holding.execute("COMMIT").await.unwrap();
    wait_until(&schema, WAITS_FOR_WRITER).await;
    goes_on(&schema).await;
    assert!(deleting.await.unwrap());
    nothing_is_left(&schema).await;
}

/// The commit of the deletion of a large session.
const IN_COMMIT: &str =
    "CONSTRAINT TRIGGER still AFTER INSERT ON deleted_sessions DEFERRABLE INITIALLY DEFERRED FOR EACH ROW";

/// A store whose deletion of a large session stands still in its commit, of which it knows nothing: it cannot reach the database.
async fn deletes_without_a_response(schema: &Schema, name: &'static str) -> (Arc<PostgresStore>, Wire) {
    let options = schema.severable(name).await.options;
    let wire = Wire::to(&PostgresOptions { retry_for: Duration::ZERO, ..options }).await;
    let store = Arc::new(PostgresStore::open(&wire.options).await.unwrap());
    large(&store, schema).await;
    stands_still(schema, IN_COMMIT, ALONE).await;
    let of_task = store.clone();
    let deleting = tokio::spawn(async move { of_task.delete_session(&tenant(), &session("s")).await });
    wait_for_still(schema, "COMMIT").await;
    wire.is_cut();
    let result = deleting.await.unwrap();
    assert!(matches!(result, Err(StoreError::Unavailable { .. })), "{result:?}");
    (store, wire)
}

async fn commits(schema: &Schema) {
    goes_on(schema).await;
    wait_until(schema, "SELECT count(*) FROM deleted_sessions").await;
}

/// A caller that has gone away is not told.
#[tokio::test]
async fn the_rows_of_a_session_go_although_nobody_waits_for_its_deletion() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    large(&store, &schema).await;
    stands_still(&schema, IN_COMMIT, ALONE).await;
    let deleting = deletes(&store, "s");
    wait_for_still(&schema, "COMMIT").await;
    deleting.abort();
    assert!(deleting.await.unwrap_err().is_cancelled());
    goes_on(&schema).await;
    wait_for_left(&schema, [0, 2, 0, 0, 0]).await;
}

#[tokio::test]
async fn the_rows_of_a_session_go_although_its_deletion_got_no_response() {
    let Some(schema) = Schema::new().await else { return };
    let (_store, wire) = deletes_without_a_response(&schema, "no_response").await;
    commits(&schema).await;
    wire.is_back();
    wait_for_left(&schema, [0, 2, 0, 0, 0]).await;
}

/// The next connection that writes is the first which sees what became of it.
#[tokio::test]
async fn the_rows_of_a_session_go_although_they_were_looked_for_before_its_deletion_was_committed() {
    let Some(schema) = Schema::new().await else { return };
    let (store, wire) = deletes_without_a_response(&schema, "too_early").await;
    let looks = "SELECT count(*) FROM pg_stat_activity
                 WHERE application_name = 'too_early' AND state = 'idle' AND query LIKE '%AS are_left%'";
    let mut shell = schema.shell().await;
    let gone = async { while number(&mut shell, looks).await > 0 {} };
    tokio::time::timeout(BOUND, gone).await.expect("the wire is cut");
    wire.is_back();
    wait_until(&schema, looks).await;
    commits(&schema).await;
    talks(&store, "t", "t").await;
    wait_for_left(&schema, [4, 4, 0, 0, 0]).await;
}
