//! The state of blobs after a crash at each step, and the sessions that keep a blob.

use agentloop_core::blob::BlobDigest;
use agentloop_core::id::TenantId;
use agentloop_core::time::Timestamp;
use sha2::{Digest as _, Sha256};
use sqlx::{Executor as _, Row as _};

use super::*;
use crate::store::conformance::blobs::{new_blob, the_same_bytes_count_once};
use crate::store::{BlobRow, BlobStore as _};

fn digest(bytes: &[u8]) -> BlobDigest {
    BlobDigest::of_hash(Sha256::digest(bytes).into())
}

async fn put(store: &SqliteStore, owner: &str, bytes: &[u8], now: u64) -> BlobRow {
    let mut upload = store.begin_blob(new_blob(owner)).await.unwrap();
    upload.write(bytes).await.unwrap();
    upload.finish(Timestamp(now)).await.unwrap().row
}

async fn found(store: &SqliteStore, bytes: &[u8]) -> bool {
    let digest = digest(bytes);
    store.blob(&TenantId::local(), None, &digest).await.unwrap().is_some()
}

fn file(directory: &TempDir, bytes: &[u8]) -> std::path::PathBuf {
    let name = digest(bytes);
    let (folder, rest) = name.digits().split_at(2);
    directory.path().join("a.db-blobs").join(folder).join(rest)
}

async fn rows(directory: &TempDir) -> i64 {
    let row = sqlx::query("SELECT count(*) AS n FROM blobs").fetch_one(&mut shell(directory).await).await;
    row.unwrap().get("n")
}

#[tokio::test]
async fn what_a_crash_leaves_between_the_steps_is_deleted_by_its_row() {
    let (store, directory) = fresh().await;
    for bytes in [&b"announced"[..], b"named", b"retired"] {
        put(&store, "", bytes, 1_000).await;
    }
    store.close().await;
    drop(store);
    // Killed before the file had its name, before its row said so, and before a file was deleted.
    shell(&directory).await.execute("UPDATE blobs SET stored = 0").await.unwrap();
    std::fs::remove_file(file(&directory, b"announced")).unwrap();
    let store = reopened(&directory).await;
    for bytes in [&b"announced"[..], b"named", b"retired"] {
        assert!(!found(&store, bytes).await, "it was not acknowledged");
    }
    // One of them is stored again before the sweep.
    put(&store, "", b"named", 5_000).await;
    assert_eq!(store.sweep_blobs(Timestamp(5_000)).await.unwrap(), 2);
    assert!(found(&store, b"named").await && file(&directory, b"named").exists());
    assert!(!file(&directory, b"retired").exists());
    assert_eq!(rows(&directory).await, 1);
}

#[tokio::test]
async fn files_that_the_database_does_not_know_are_left_alone() {
    let (store, directory) = fresh().await;
    put(&store, "", b"of a newer copy", 1_000).await;
    shell(&directory).await.execute("DELETE FROM blobs").await.unwrap();
    assert_eq!(store.sweep_blobs(Timestamp(9_000)).await.unwrap(), 0);
    assert!(file(&directory, b"of a newer copy").exists());
}

#[tokio::test]
async fn one_file_serves_all_who_stored_it_until_the_last_one_is_gone() {
    let (store, directory) = fresh().await;
    let row = put(&store, "ann", b"same", 1_000).await;
    put(&store, "bob", b"same", 3_000).await;
    let of =
        async |owner: &str| store.blob(&TenantId::local(), Some(owner), &row.digest).await.unwrap().is_some();
    assert!(of("ann").await && of("bob").await && !of("eve").await);
    assert_eq!(store.sweep_blobs(Timestamp(2_000)).await.unwrap(), 1);
    assert!(!of("ann").await && of("bob").await && file(&directory, b"same").exists());
    assert_eq!(store.sweep_blobs(Timestamp(4_000)).await.unwrap(), 1);
    assert!(!file(&directory, b"same").exists());
    assert_eq!(rows(&directory).await, 0);
}

#[tokio::test]
async fn a_file_that_cannot_be_deleted_holds_up_no_other() {
    let (store, directory) = fresh().await;
    let mut contents = [&b"one"[..], b"two", b"three"];
    contents.sort_by_key(|bytes| digest(bytes));
    for bytes in contents {
        put(&store, "", bytes, 1_000).await;
    }
    let first = file(&directory, contents[0]);
    std::fs::remove_file(&first).unwrap();
    std::fs::create_dir(&first).unwrap();
    assert_eq!(store.sweep_blobs(Timestamp(2_000)).await.unwrap(), 2);
    assert!(!file(&directory, contents[1]).exists() && !file(&directory, contents[2]).exists());
    std::fs::remove_dir(&first).unwrap();
    assert_eq!(store.sweep_blobs(Timestamp(2_000)).await.unwrap(), 1, "the next sweep finds it again");
    assert_eq!(rows(&directory).await, 0);
}

#[tokio::test]
async fn a_claim_keeps_a_blob_as_storing_it_does() {
    let (store, _directory) = fresh().await;
    let row = put(&store, "ann", b"claimed", 1_000).await;
    let other = digest(b"never stored");
    let claim = async |of: Option<&str>, now: u64| {
        let digests = [row.digest.clone(), other.clone()];
        store.claim_blobs(&TenantId::local(), of, &digests, Timestamp(now)).await.unwrap()
    };
    assert_eq!(claim(None, 5_000).await, [Some(7), None]);
    assert_eq!(claim(Some("bob"), 9_000).await, [None, None]);
    assert_eq!(store.sweep_blobs(Timestamp(5_000)).await.unwrap(), 0);
    assert_eq!(store.sweep_blobs(Timestamp(5_001)).await.unwrap(), 1);
}

#[tokio::test]
async fn an_upload_that_is_dropped_gives_its_room_back() {
    let blobs = BlobBounds { max_bytes: 100, total_bytes: 100 };
    let options = SqliteOptions { blobs, ..SqliteOptions::default() };
    let store = SqliteStore::in_memory_with(&options).await.unwrap();
    for _ in 0..3 {
        let mut upload = store.begin_blob(new_blob("")).await.unwrap();
        upload.write(&[0; 90]).await.unwrap();
        // Uploads may have the bytes of one blob more than there is room for.
        let mut other = store.begin_blob(new_blob("")).await.unwrap();
        other.write(&[0; 90]).await.unwrap();
        let full = store.begin_blob(new_blob("")).await.unwrap().write(&[1; 21]).await;
        assert!(matches!(full, Err(StoreError::BlobsFull { max: 100 })), "{full:?}");
    }
    put(&store, "", &[0; 90], 1).await;
    // The same bytes count once, and what is deleted counts no more.
    assert_eq!(put(&store, "ann", b"0123456789", 1).await.size, 10);
    assert_eq!(store.sweep_blobs(Timestamp(2)).await.unwrap(), 2);
    put(&store, "", &[7; 100], 3).await;
}

#[tokio::test]
async fn the_same_bytes_count_once_also_where_there_is_no_room_for_more() {
    let blobs = BlobBounds { max_bytes: 100, total_bytes: 100 };
    let options = SqliteOptions { blobs, ..SqliteOptions::default() };
    let store = SqliteStore::in_memory_with(&options).await.unwrap();
    the_same_bytes_count_once(&store).await;
}
