//! A connection that falls silent without an end, as that of a machine that is gone or behind a firewall that forgot it.

use super::*;
use crate::store::conformance::fixture;
use crate::store::postgres::tests::wire::{Lost, Wire};

/// The owner gives the connection up after a time, and another one tells if the commit has happened.
#[tokio::test]
async fn a_write_whose_connection_falls_silent_is_done_once_over_another() {
    tokio::join!(says_once(Lost::Answers), says_once(Lost::Everything));
}

async fn says_once(lost: Lost) {
    let Some(schema) = Schema::new().await else { return };
    let wire = Wire::to(&schema.options).await;
    let mut replica = Server::start(&schema, "a:1", LONG).await;
    // Its beats go another way.
    replica.options = wire.options.clone();
    let (_, store) = replica.own().await;
    let shared: Arc<dyn Store> = store.clone();
    let mut owner = fixture::Owner::started(&shared, "s", "r").await;
    wire.falls_silent(lost);
    tokio::time::timeout(BOUND, owner.says("one")).await.expect("in time").unwrap();
    owner.says("two").await.unwrap();
    assert_eq!(owner.stored().await.len(), 3, "{lost:?}");
    assert!(!store.failed().is_cancelled());
}
