//! Blobs that several replicas upload, claim and sweep.

use agentloop_core::blob::BlobDigest;
use agentloop_core::id::TenantId;
use agentloop_core::time::{Millis, Timestamp};

use super::*;
use crate::store::BlobStore as _;
use crate::store::conformance::blobs::new_blob;
use crate::store::postgres::replica::skew::Skew;
use crate::store::postgres::tests::blobs::{put, read};

const LATER: Timestamp = Timestamp(u64::MAX >> 1);

#[tokio::test]
async fn a_blob_that_is_claimed_while_it_is_swept_stays() {
    let Some(Two { a, schema, .. }) = two_stores().await else { return };
    let row = put(&a, "", b"old", 1_000).await;
    // A claim of another replica that is not committed yet.
    let mut shell = schema.shell().await;
    shell.execute("BEGIN; UPDATE blobs SET touched_at = 9000").await.unwrap();
    let both = async { tokio::join!(a.sweep_blobs(Timestamp(5_000)), release(&schema, shell, 1)) };
    let (swept, ()) = tokio::time::timeout(BOUND, both).await.expect("in time");
    assert_eq!(swept.unwrap(), 0);
    assert_eq!(read(&a, &row, 0).await.unwrap(), b"old");
    assert_eq!(a.sweep_blobs(Timestamp(9_001)).await.unwrap(), 1);
    assert_eq!(count(&schema, "blob_pieces").await, 0);
}

/// One whose clock is ahead would delete blobs that another replica has just taken.
#[tokio::test]
async fn times_of_blobs_are_those_of_the_database() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    let by = Millis(5_000);
    a.blobs.set_skew(Skew::Ahead(by));
    b.blobs.set_skew(Skew::Behind(by));
    put(&a, "", b"of a", 16_000).await;
    put(&b, "", b"of b", 6_000).await;
    let sql = "SELECT touched_at FROM blobs ORDER BY 1";
    let times: Vec<i64> = sqlx::query_scalar(sql).fetch_all(&mut schema.shell().await).await.unwrap();
    assert_eq!(times, [11_000, 11_000]);
    assert_eq!(a.sweep_blobs(Timestamp(16_000)).await.unwrap(), 0);
    assert_eq!(b.sweep_blobs(Timestamp(6_001)).await.unwrap(), 2);
}

#[tokio::test]
async fn bytes_that_an_upload_relies_on_while_they_are_swept_stay() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    let row = put(&a, "ann", b"same", 1_000).await;
    // The end of another replica's upload of the same bytes, which is not committed yet.
    let mut shell = schema.shell().await;
    let sql = "BEGIN;
               SELECT 1 FROM blob_uploads FOR KEY SHARE;
               INSERT INTO blobs SELECT tenant, digest, 'bob', size_bytes, media_type, 9000 FROM blobs";
    shell.execute(sql).await.unwrap();
    assert_eq!(a.sweep_blobs(Timestamp(5_000)).await.unwrap(), 0);
    shell.execute("COMMIT").await.unwrap();
    // The row of the first caller goes with a later sweep, and the bytes stay.
    assert_eq!(b.sweep_blobs(Timestamp(5_000)).await.unwrap(), 1);
    assert_eq!(count(&schema, "blobs").await, 1);
    assert_eq!(read(&b, &row, 0).await.unwrap(), b"same");
}

#[tokio::test]
async fn bytes_are_stored_again_if_a_sweep_was_faster() {
    let Some(Two { b, a, schema }) = two_stores().await else { return };
    put(&a, "ann", b"same", 1_000).await;
    let mut shell = schema.shell().await;
    let sql = "BEGIN; SELECT 1 FROM blob_uploads FOR UPDATE; DELETE FROM blobs; DELETE FROM blob_uploads WHERE digest IS NOT NULL;
               DELETE FROM blob_pieces";
    shell.execute(sql).await.unwrap();
    let both = async { tokio::join!(put(&b, "bob", b"same", 9_000), release(&schema, shell, 1)) };
    let (row, ()) = tokio::time::timeout(BOUND, both).await.expect("in time");
    assert_eq!(read(&a, &row, 0).await.unwrap(), b"same");
}

#[tokio::test]
async fn the_same_bytes_of_two_replicas_are_stored_once() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    for no in 0..10 {
        let bytes = format!("bytes {no}");
        let both = async {
            tokio::join!(put(&a, "ann", bytes.as_bytes(), 1_000), put(&b, "bob", bytes.as_bytes(), 1_000))
        };
        let (row, _) = tokio::time::timeout(BOUND, both).await.expect("in time");
        assert_eq!(read(&b, &row, 0).await.unwrap(), bytes.as_bytes());
    }
    assert_eq!((count(&schema, "blob_uploads").await, count(&schema, "blobs").await), (10, 20));
}

#[tokio::test]
async fn an_upload_goes_on_while_another_replica_starts() {
    let Some(Two { a, schema, .. }) = two_stores().await else { return };
    let mut upload = a.begin_blob(new_blob("")).await.unwrap();
    upload.write(&[1; 300_000]).await.unwrap();
    let c = replica(&schema).await;
    upload.write(&[1; 300_000]).await.unwrap();
    let stored = upload.finish(Timestamp(1)).await.unwrap();
    assert_eq!(read(&c, &stored.row, 0).await.unwrap(), vec![1; 600_000]);
}

#[tokio::test]
async fn an_upload_that_was_given_up_is_refused_and_leaves_nothing() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    let mut upload = a.begin_blob(new_blob("")).await.unwrap();
    upload.write(&[1; 300_000]).await.unwrap();
    let mut ending = a.begin_blob(new_blob("")).await.unwrap();
    ending.write(&[2; 262_144]).await.unwrap();
    b.sweep_blobs(LATER).await.unwrap();
    let refused = upload.write(&[1; 300_000]).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    // All of its bytes were written before.
    let refused = ending.finish(Timestamp(1)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    assert_eq!(count(&schema, "blob_pieces").await + count(&schema, "blobs").await, 0);
}

#[tokio::test]
async fn two_sweeps_at_once_delete_each_blob_once_and_leave_what_is_used() {
    let Some(Two { a, b, schema }) = two_stores().await else { return };
    for no in 0..100 {
        put(&a, "", format!("old {no}").as_bytes(), 1_000).await;
    }
    let used = put(&b, "", b"used", 1_000).await;
    let claimed = std::slice::from_ref::<BlobDigest>(&used.digest);
    b.claim_blobs(&TenantId::local(), None, claimed, Timestamp(9_000)).await.unwrap();
    let (first, second) = tokio::join!(a.sweep_blobs(Timestamp(5_000)), b.sweep_blobs(Timestamp(5_000)));
    let again = a.sweep_blobs(Timestamp(5_000)).await;
    assert_eq!(first.unwrap() + second.unwrap() + again.unwrap(), 100);
    assert_eq!((count(&schema, "blobs").await, count(&schema, "blob_uploads").await), (1, 1));
    assert_eq!(read(&a, &used, 0).await.unwrap(), b"used");
}
