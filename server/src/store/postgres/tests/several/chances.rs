//! Writers that wait for each other: each gets its turn.

use std::collections::BTreeMap;

use agentloop_core::time::Timestamp;
use futures_util::future::join_all;

use super::*;
use crate::store::postgres::connect::settings;
use crate::store::{SessionStore as _, USER_LABEL};

/// As many as are always written together.
const USERS: u32 = 200;

#[tokio::test]
async fn writes_that_cross_all_succeed() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    let get = async |store: &PostgresStore, user: u32, id: String| {
        let labels = BTreeMap::from([(USER_LABEL.to_owned(), format!("u{user}"))]);
        store.get_or_create_session(new_session(&id, &labels, Timestamp(1))).await.unwrap()
    };
    // Each store writes all of them in one transaction, in the opposite order.
    let up = join_all((0..USERS).map(|user| get(&a, user, format!("a{user}"))));
    let down = join_all((0..USERS).rev().map(|user| get(&b, user, format!("b{user}"))));
    let both = async { tokio::join!(up, down) };
    let (up, mut down) = tokio::time::timeout(BOUND, both).await.expect("in time");
    down.reverse();
    let ids = |rows: Vec<crate::store::SessionRow>| {
        rows.into_iter().map(|row| row.session.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ids(up), ids(down));
    assert_eq!(count(&schema, "sessions").await, i64::from(USERS));
}

/// A replica stands still in the middle of a transaction, or its connection has fallen silent.
#[tokio::test]
async fn a_transaction_that_stands_still_is_broken_off() {
    let Some(Two { a, schema, .. }) = two_stores().await else { return };
    let mut still = schema.shell().await;
    settings::to_write_beside_others(&mut still).await.unwrap();
    still.execute("BEGIN; LOCK TABLE sessions IN EXCLUSIVE MODE").await.unwrap();
    let write = async { a.create_session(new_session("s", &BTreeMap::new(), Timestamp(1))).await };
    let written = tokio::time::timeout(Duration::from_secs(20), write).await;
    written.expect("it waits for a moment only").unwrap();
    assert!(still.execute("COMMIT").await.is_err());
}

/// A replica's check writes its own row alone, so that one which stands still in the middle of it holds up no other.
#[tokio::test]
async fn a_check_waits_for_nobody() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    let mut shell = schema.shell().await;
    let sql = "BEGIN; UPDATE meta SET value = value; UPDATE owners SET batch = batch
               WHERE owner_no = (SELECT min(owner_no) FROM owners)";
    shell.execute(sql).await.unwrap();
    b.check().await.unwrap();
    shell.execute("ROLLBACK").await.unwrap();
    a.check().await.unwrap();
}
