//! The port for blobs: contents that are too large for a message, by the SHA-256 of their bytes.
//!
//! **Invariants:** a blob that an entry of a session refers to is not deleted. A blob that was stored or claimed is not deleted
//! within the time that [`BlobStore::sweep_blobs`] is given. Both hold over a crash at any instant.

use agentloop_core::blob::BlobDigest;
use agentloop_core::id::TenantId;
use agentloop_core::time::Timestamp;
use async_trait::async_trait;

use super::StoreError;

/// Bounds on the bytes of blobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobBounds {
    /// Bytes of one blob.
    pub max_bytes: u64,
    /// Bytes of all blobs of all tenants. One that several have counts once.
    pub total_bytes: u64,
}

impl BlobBounds {
    /// Bytes that stored blobs and uploads under way may have together. Uploads may have [`Self::max_bytes`] more than there is
    /// room for: only at its end an upload shows whether its bytes are stored already.
    pub(in crate::store) fn bytes_with_uploads(&self) -> u64 {
        self.total_bytes.saturating_add(self.max_bytes)
    }

    /// Refuses a blob that is too large.
    ///
    /// # Errors
    /// [`StoreError::BlobTooLarge`].
    pub(in crate::store) fn check_size(&self, size: u64) -> Result<(), StoreError> {
        let max = self.max_bytes;
        if size > max { Err(StoreError::BlobTooLarge { max }) } else { Ok(()) }
    }
}

impl Default for BlobBounds {
    fn default() -> Self {
        Self { max_bytes: 1024 * 1024 * 1024, total_bytes: 16 * 1024 * 1024 * 1024 }
    }
}

/// A blob that is about to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBlob {
    /// The tenant that the blob belongs to.
    pub tenant: TenantId,
    /// The caller that stores it, if callers see only their own. Nobody else reads it then until a session refers to it.
    pub owner: Option<String>,
    /// The digest that the bytes must have, if it is known.
    pub digest: Option<BlobDigest>,
    /// The length that the bytes must have, if it is known.
    pub size: Option<u64>,
    /// Type of the contents.
    pub media_type: String,
}

/// A blob as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobRow {
    /// The SHA-256 of its bytes.
    pub digest: BlobDigest,
    /// Its length in bytes.
    pub size: u64,
    /// Type of the contents, as it was last given. An upload that gives none leaves it as it was.
    pub media_type: String,
}

/// A blob that has been stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlob {
    /// Its digest, length and type.
    pub row: BlobRow,
    /// True if the same owner had stored it before.
    pub existed: bool,
}

/// An upload. Dropped before its end, it leaves nothing.
#[async_trait]
pub trait BlobUpload: Send {
    /// Adds these bytes behind those before.
    ///
    /// # Errors
    /// [`StoreError::BlobTooLarge`], [`StoreError::BlobsFull`], [`StoreError::BlobMismatch`] if there are more bytes than
    /// announced, [`StoreError::Unavailable`].
    async fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError>;

    /// Makes the blob durable. It counts as stored at `now`, however long the upload took.
    ///
    /// # Errors
    /// [`StoreError::BlobsFull`], unless the same owner has stored the same bytes; [`StoreError::BlobMismatch`],
    /// [`StoreError::Unavailable`].
    async fn finish(self: Box<Self>, now: Timestamp) -> Result<StoredBlob, StoreError>;
}

/// The bytes of a blob, in pieces.
#[async_trait]
pub trait BlobReader: Send {
    /// The next piece; `None` at the end. The last piece comes only if all bytes have the digest.
    ///
    /// # Errors
    /// [`StoreError::DamagedBlob`], [`StoreError::Unavailable`].
    async fn next(&mut self) -> Result<Option<Vec<u8>>, StoreError>;
}

/// Blobs. A store without them keeps the defaults.
#[async_trait]
pub trait BlobStore: Send + Sync + 'static {
    /// Most bytes of one blob; 0 in a store without blobs.
    fn blob_bytes_max(&self) -> u64 {
        0
    }

    /// Begins an upload of the announced blob.
    ///
    /// # Errors
    /// [`StoreError::NoBlobs`], [`StoreError::BlobTooLarge`] and [`StoreError::BlobsFull`] for the announced size and digest.
    async fn begin_blob(&self, _new: NewBlob) -> Result<Box<dyn BlobUpload>, StoreError> {
        Err(StoreError::NoBlobs)
    }

    /// A tenant's blob. With `only_of`, only one that this caller has stored, or that one of its sessions refers to.
    async fn blob(
        &self,
        _tenant: &TenantId,
        _only_of: Option<&str>,
        _digest: &BlobDigest,
    ) -> Result<Option<BlobRow>, StoreError> {
        Ok(None)
    }

    /// The bytes of a blob after the first `offset` ones.
    ///
    /// # Errors
    /// [`StoreError::DamagedBlob`], [`StoreError::Unavailable`].
    async fn read_blob(&self, _row: &BlobRow, _offset: u64) -> Result<Box<dyn BlobReader>, StoreError> {
        Err(StoreError::NoBlobs)
    }

    /// Keeps these blobs until an entry refers to them, as if they were stored anew. Returns the length of each; `None` for
    /// one that [`Self::blob`] does not find.
    async fn claim_blobs(
        &self,
        _tenant: &TenantId,
        _only_of: Option<&str>,
        digests: &[BlobDigest],
        _now: Timestamp,
    ) -> Result<Vec<Option<u64>>, StoreError> {
        Ok(vec![None; digests.len()])
    }

    /// Deletes the blobs that no session refers to and that were last stored or claimed before this time. Returns their
    /// number.
    async fn sweep_blobs(&self, _before: Timestamp) -> Result<u64, StoreError> {
        Ok(0)
    }
}
