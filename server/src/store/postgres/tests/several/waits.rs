//! Writes that find what another replica has locked. Their neighbours do not wait with them.

use std::collections::BTreeMap;

use agentloop_core::time::Timestamp;

use super::*;
use crate::store::postgres::write::own::WriteOp;
use crate::store::support::write::SessionOp;
use crate::store::{NewSession, SessionRow, SessionStore as _, USER_LABEL};

/// The lock of a user's sessions.
const LOCK_USER: &str = "
    BEGIN;
    SELECT pg_advisory_xact_lock(hashtextextended(
        concat_ws(chr(1), 'agentloop session', 'local', 'ada', '', current_schema()), 0))";

fn of_ada(id: &str) -> NewSession {
    let labels = BTreeMap::from([(USER_LABEL.to_owned(), "ada".to_owned())]);
    new_session(id, &labels, Timestamp(1))
}

/// The owner's appends are durable while the other write waits, which goes on once the shell lets it.
async fn waits_alone<T>(mut shell: PgConnection, owner: &mut Owner, write: impl Future<Output = T>) -> T {
    let goes_on = async {
        for no in 0..50 {
            owner.says(&format!("meanwhile {no}")).await.unwrap();
        }
    };
    let mut write = Box::pin(write);
    let waited = async {
        tokio::select! { biased;
            _ = write.as_mut() => panic!("it does not wait"),
            () = goes_on => {}
        }
        shell.execute("COMMIT").await.unwrap();
        write.await
    };
    tokio::time::timeout(BOUND, waited).await.expect("in time")
}

async fn get_for_ada(store: &PostgresStore, id: &str) -> SessionRow {
    store.get_or_create_session(of_ada(id)).await.unwrap()
}

/// The deletion of a large session, which may take minutes.
#[tokio::test]
async fn a_deletion_keeps_no_lock_of_the_writes_beside_it() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    talks(&a, "s", "r").await;
    let mut owner = Owner::started(&shared(&b), "t", "t").await;
    let mut shell = lock(&schema, "session_todos").await;
    let at_once = async {
        let made = a.writes.session(WriteOp::Session(SessionOp::GetOrCreate(of_ada("a"))));
        let (s, local) = (session("s"), tenant());
        let (made, deleted) = tokio::join!(made, a.delete_session(&local, &s));
        assert!(deleted.unwrap());
        made.unwrap()
    };
    let meanwhile = async {
        wait_for_waiting(&schema, 1).await;
        let (got, said) = tokio::join!(get_for_ada(&b, "b"), owner.says("meanwhile"));
        said.unwrap();
        shell.execute("COMMIT").await.unwrap();
        got
    };
    let both = async { tokio::join!(at_once, meanwhile) };
    let (made, got) = tokio::time::timeout(BOUND, both).await.expect("in time");
    assert_eq!((made.session, got.session), (session("a"), session("a")));
}

#[tokio::test]
async fn a_session_of_a_user_that_is_locked_keeps_nobody_waiting() {
    let Some(Two { b, schema, .. }) = two_stores().await else { return };
    let mut owner = Owner::started(&shared(&b), "t", "t").await;
    let mut shell = schema.shell().await;
    shell.execute(LOCK_USER).await.unwrap();
    let got = waits_alone(shell, &mut owner, get_for_ada(&b, "b")).await;
    assert_eq!(got.session, session("b"));
}

/// A sweep of another replica that stands in its middle has locked the spec of a run that begins.
#[tokio::test]
async fn a_run_whose_spec_is_locked_keeps_nobody_waiting() {
    let Some(Two { b, schema, .. }) = two_stores().await else { return };
    let mut owner = Owner::started(&shared(&b), "t", "t").await;
    talks(&b, "s", "r").await;
    // The store forgets which specs there are.
    assert!(b.delete_session(&tenant(), &session("s")).await.unwrap());
    let mut shell = schema.shell().await;
    shell.execute("BEGIN; DELETE FROM unused_specs").await.unwrap();
    let mut begins = Owner::new(&shared(&b), "u", "u");
    waits_alone(shell, &mut owner, begins.create()).await.unwrap();
}

/// A read of rows of runs would wait here.
#[tokio::test]
async fn a_deletion_that_is_tried_again_and_again_does_not_have_other_writes_read_their_rows() {
    let Some(Two { a, schema, .. }) = two_stores().await else { return };
    talks(&a, "s", "r").await;
    let mut owner = Owner::started(&shared(&a), "t", "t").await;
    let mut holding = schema.shell().await;
    holding.execute("BEGIN; SELECT 1 FROM sessions WHERE session_id = 's' FOR UPDATE").await.unwrap();
    let meanwhile = async {
        wait_for_waiting(&schema, 1).await;
        let mut runs = schema.shell().await;
        runs.execute("BEGIN; LOCK TABLE runs IN ACCESS EXCLUSIVE MODE").await.unwrap();
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(500) {
            let said = tokio::time::timeout(Duration::from_secs(5), owner.says("meanwhile")).await;
            said.expect("it does not wait").unwrap();
        }
        runs.execute("COMMIT").await.unwrap();
        holding.execute("COMMIT").await.unwrap();
    };
    let (s, local) = (session("s"), tenant());
    let (deleted, ()) = tokio::join!(a.delete_session(&local, &s), meanwhile);
    assert!(deleted.unwrap());
}
