//! Blobs that are rows of a table.

use agentloop_core::blob::BlobDigest;
use agentloop_core::id::TenantId;
use agentloop_core::time::Timestamp;
use sha2::{Digest as _, Sha256};
use sqlx::Row as _;

use super::*;
use crate::store::conformance::blobs::{new_blob, the_same_bytes_count_once};
use crate::store::conformance::fixture::{labelled, new_session};
use crate::store::{BlobRow, BlobStore as _, NewBlob, SessionStore as _};

pub(super) async fn put(store: &PostgresStore, owner: &str, bytes: &[u8], now: u64) -> BlobRow {
    let mut upload = store.begin_blob(new_blob(owner)).await.unwrap();
    for piece in bytes.chunks(100_000) {
        upload.write(piece).await.unwrap();
    }
    upload.finish(Timestamp(now)).await.unwrap().row
}

pub(super) async fn read(store: &PostgresStore, row: &BlobRow, offset: u64) -> Result<Vec<u8>, StoreError> {
    let (mut reader, mut all) = (store.read_blob(row, offset).await?, Vec::new());
    while let Some(piece) = reader.next().await? {
        all.extend(piece);
    }
    Ok(all)
}

async fn count(schema: &Schema, table: &str) -> i64 {
    let sql = sqlx::AssertSqlSafe(format!("SELECT count(*) AS n FROM {table}"));
    sqlx::query(sql).fetch_one(&mut schema.shell().await).await.unwrap().get("n")
}

#[tokio::test]
async fn bytes_are_read_back_from_any_place() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    let bytes: Vec<u8> = (0..700_000_u32).map(|n| (n % 251) as u8).collect();
    let row = put(&store, "", &bytes, 1_000).await;
    assert_eq!(row.digest, BlobDigest::of_hash(Sha256::digest(&bytes).into()));
    for offset in [0, 1, 300_000, 699_999, 700_000] {
        let found = read(&store, &row, offset).await.unwrap();
        assert!(found == bytes[usize::try_from(offset).unwrap()..], "{offset}");
    }
    let row = put(&store, "", b"", 1_000).await;
    assert_eq!(read(&store, &row, 0).await.unwrap(), b"");
}

#[tokio::test]
async fn an_upload_and_a_read_go_on_when_their_connections_are_cut() {
    let Some(schema) = Schema::new().await else { return };
    let cut = schema.severable("cut_blobs").await;
    let store = PostgresStore::open(&cut.options).await.unwrap();
    let bytes: Vec<u8> = (0..700_000_u32).map(|n| (n % 251) as u8).collect();
    let mut upload = store.begin_blob(new_blob("")).await.unwrap();
    for half in bytes.chunks(350_000) {
        cut.sever().await;
        upload.write(half).await.unwrap();
    }
    cut.sever().await;
    let row = upload.finish(Timestamp(1_000)).await.unwrap().row;
    let mut reader = store.read_blob(&row, 0).await.unwrap();
    let mut all = Vec::new();
    cut.sever().await;
    while let Some(piece) = reader.next().await.unwrap() {
        all.extend(piece);
    }
    assert!(all == bytes);
    store.close().await;
}

#[tokio::test]
async fn the_same_bytes_are_stored_once_until_the_last_owner_is_gone() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    let row = put(&store, "ann", b"same", 1_000).await;
    put(&store, "bob", b"same", 3_000).await;
    let of =
        async |owner: &str| store.blob(&TenantId::local(), Some(owner), &row.digest).await.unwrap().is_some();
    assert!(of("ann").await && of("bob").await && !of("eve").await);
    assert_eq!(count(&schema, "blob_uploads").await, 1);
    assert_eq!(store.sweep_blobs(Timestamp(2_000)).await.unwrap(), 1);
    assert!(!of("ann").await && of("bob").await);
    assert_eq!(read(&store, &row, 0).await.unwrap(), b"same");
    let claim = store
        .claim_blobs(&TenantId::local(), None, std::slice::from_ref(&row.digest), Timestamp(9_000))
        .await;
    assert_eq!(claim.unwrap(), [Some(4)]);
    assert_eq!(store.sweep_blobs(Timestamp(9_000)).await.unwrap(), 0, "it was claimed");
    assert_eq!(store.sweep_blobs(Timestamp(9_001)).await.unwrap(), 1);
    assert_eq!(count(&schema, "blob_pieces").await, 0);
}

#[tokio::test]
async fn what_is_not_what_was_announced_is_refused_and_gives_its_room_back() {
    let Some(mut schema) = Schema::new().await else { return };
    schema.options.blobs = BlobBounds { max_bytes: 100, total_bytes: 100 };
    let store = schema.open().await;
    for _ in 0..3 {
        let new = NewBlob { size: Some(90), digest: Some(BlobDigest::of_hash([7; 32])), ..new_blob("") };
        let mut upload = store.begin_blob(new).await.unwrap();
        upload.write(&[0; 90]).await.unwrap();
        let more = upload.write(&[0; 1]).await;
        assert!(matches!(more, Err(StoreError::BlobMismatch { field: "size_bytes", .. })), "{more:?}");
        // Uploads may have the bytes of one blob more than there is room for.
        let mut another = store.begin_blob(new_blob("")).await.unwrap();
        another.write(&[0; 90]).await.unwrap();
        let full = store.begin_blob(new_blob("")).await.unwrap().write(&[1; 21]).await;
        assert!(matches!(full, Err(StoreError::BlobsFull { max: 100 })), "{full:?}");
        let other = upload.finish(Timestamp(1)).await;
        assert!(matches!(other, Err(StoreError::BlobMismatch { field: "digest", .. })), "{other:?}");
    }
    put(&store, "", &[0; 90], 1).await;
    store.close().await;
    // A start deletes what uploads have left.
    schema.open().await.close().await;
    assert_eq!((count(&schema, "blob_uploads").await, count(&schema, "blob_pieces").await), (1, 1));
}

#[tokio::test]
async fn damage_is_found() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    let row = put(&store, "", b"whole", 1_000).await;
    schema.shell().await.execute("UPDATE blob_pieces SET bytes = 'other'").await.unwrap();
    assert!(matches!(read(&store, &row, 0).await, Err(StoreError::DamagedBlob { .. })));
}

#[tokio::test]
async fn the_same_bytes_count_once_also_where_there_is_no_room_for_more() {
    let Some(mut schema) = Schema::new().await else { return };
    schema.options.blobs = BlobBounds { max_bytes: 100, total_bytes: 100 };
    let store = schema.open().await;
    the_same_bytes_count_once(&*store).await;
}

/// Waits until a query finds a row.
async fn until_found(shell: &mut PgConnection, sql: &'static str) {
    let found = async { while sqlx::query(sql).fetch_optional(&mut *shell).await.unwrap().is_none() {} };
    tokio::time::timeout(Duration::from_secs(60), found).await.expect("it is found");
}

#[tokio::test]
async fn writes_go_on_while_a_sweep_looks_for_blobs() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    put(&store, "", b"old", 1_000).await;
    let mut shell = schema.shell().await;
    shell.execute("BEGIN; LOCK TABLE session_blobs").await.unwrap();
    let others = async {
        let mut looking = schema.shell().await;
        until_found(
            &mut looking,
            "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'session_blobs'::regclass",
        )
        .await;
        store.create_session(new_session("s", &labelled(&[]), Timestamp(1))).await.unwrap();
        shell.execute("COMMIT").await.unwrap();
    };
    let both = async { tokio::join!(store.sweep_blobs(Timestamp(2_000)), others) };
    let (swept, ()) =
        tokio::time::timeout(Duration::from_secs(60), both).await.expect("nobody waits for the other");
    assert_eq!(swept.unwrap(), 1);
}

#[tokio::test]
async fn a_sweep_goes_past_what_is_in_use() {
    let Some(schema) = Schema::new().await else { return };
    let store = schema.open().await;
    for no in 0..150_u64 {
        put(&store, "", format!("blob {no}").as_bytes(), 1_000 + no % 2 * 8_000).await;
    }
    assert_eq!(store.sweep_blobs(Timestamp(5_000)).await.unwrap(), 75);
    assert_eq!(count(&schema, "blobs").await, 75);
    assert_eq!(store.sweep_blobs(Timestamp(9_001)).await.unwrap(), 75);
}

#[tokio::test]
async fn the_bytes_of_a_caller_that_leaves_at_the_end_of_its_upload_count() {
    let Some(mut schema) = Schema::new().await else { return };
    schema.options.blobs = BlobBounds { max_bytes: 100, total_bytes: 100 };
    let store = schema.open().await;
    let mut upload = store.begin_blob(new_blob("")).await.unwrap();
    upload.write(&[1; 60]).await.unwrap();
    let mut shell = schema.shell().await;
    shell.execute("BEGIN; LOCK TABLE blobs IN EXCLUSIVE MODE").await.unwrap();
    let mut looking = schema.shell().await;
    let waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'blobs'::regclass";
    tokio::select! {
        ended = upload.finish(Timestamp(1)) => panic!("it waits: {ended:?}"),
        () = until_found(&mut looking, waits) => {}
    }
    shell.execute("COMMIT").await.unwrap();
    until_found(&mut looking, "SELECT 1 FROM blobs").await;
    let mut another = store.begin_blob(new_blob("")).await.unwrap();
    another.write(&[2; 60]).await.unwrap();
    let full = another.finish(Timestamp(2)).await;
    assert!(matches!(full, Err(StoreError::BlobsFull { max: 100 })), "{full:?}");
}
