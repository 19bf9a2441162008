//! Blobs of a store with bounds of its own, which each store's tests open.

use agentloop_core::blob::BlobDigest;
use agentloop_core::time::Timestamp;
use sha2::{Digest as _, Sha256};

use super::fixture::tenant;
use crate::store::{BlobStore, NewBlob, StoreError};

/// A blob of this owner, of which nothing is announced. No name means no owner.
#[must_use]
pub fn new_blob(owner: &str) -> NewBlob {
    let owner = Some(owner.to_owned()).filter(|owner| !owner.is_empty());
    NewBlob { tenant: tenant(), owner, digest: None, size: None, media_type: String::new() }
}

/// The store takes blobs of 100 bytes at most, and as many bytes in all.
pub async fn the_same_bytes_count_once(store: &dyn BlobStore) {
    let announced = |owner: &str, bytes: &[u8]| NewBlob {
        digest: Some(BlobDigest::of_hash(Sha256::digest(bytes).into())),
        size: Some(bytes.len() as u64),
        ..new_blob(owner)
    };
    let send = async |new: NewBlob, bytes: &[u8]| {
        let mut upload = store.begin_blob(new).await?;
        upload.write(bytes).await?;
        upload.finish(Timestamp(1)).await
    };
    let bytes = [7; 100];
    let all = (0..4).map(|_| send(announced("", &bytes), &bytes));
    // Two at a time have room.
    let stored = futures_util::future::join_all(all).await;
    assert!(stored.iter().filter(|stored| stored.is_ok()).count() >= 2, "{stored:?}");
    for new in [new_blob(""), announced("", &bytes)] {
        assert!(send(new, &bytes).await.unwrap().existed);
    }
    for (new, other) in [
        (new_blob(""), &[8; 100][..]),
        (new_blob(""), &[8]),
        (announced("", &[8]), &[8]),
        // Another caller does not learn that somebody has them.
        (new_blob("ann"), &bytes),
    ] {
        let full = send(new, other).await;
        assert!(matches!(full, Err(StoreError::BlobsFull { max: 100 })), "{full:?}");
    }
    let early = store.begin_blob(announced("", &[8])).await;
    assert!(matches!(early.map(|_| ()), Err(StoreError::BlobsFull { max: 100 })));
}
