//! The check of a blob that is read piece by piece. Everything is hashed, also what is skipped, and the last piece is held back
//! until the digest is known to be right.

use agentloop_core::blob::BlobDigest;

use crate::store::{BlobRow, StoreError};

/// The pieces of a blob on their way to its reader, who hashes them.
pub(in crate::store) struct CheckedPieces {
    row: BlobRow,
    /// Bytes at the beginning that are not wanted.
    skipped: u64,
    /// Bytes that were read.
    read: u64,
    /// The piece that comes next.
    last: Option<Vec<u8>>,
}

impl CheckedPieces {
    /// The pieces of this blob after so many bytes.
    pub(in crate::store) fn new(row: BlobRow, skipped: u64) -> Self {
        Self { row, skipped, read: 0, last: None }
    }

    /// The digest that the blob must have.
    pub(in crate::store) fn digest(&self) -> &BlobDigest {
        &self.row.digest
    }

    /// Takes the next piece. Returns the wanted piece before it, if there is one.
    pub(in crate::store) fn push(&mut self, mut piece: Vec<u8>) -> Option<Vec<u8>> {
        let unwanted = self.skipped.saturating_sub(self.read).min(piece.len() as u64);
        self.read += piece.len() as u64;
        piece.drain(..usize::try_from(unwanted).unwrap_or(piece.len()));
        if piece.is_empty() { None } else { self.last.replace(piece) }
    }

    /// Ends the blob, whose pieces have this hash. Returns the last wanted piece, if there is one.
    ///
    /// # Errors
    /// [`StoreError::DamagedBlob`] with this reason, if the bytes are not those of the blob.
    pub(in crate::store) fn end(&mut self, hash: [u8; 32], why: &str) -> Result<Option<Vec<u8>>, StoreError> {
        if self.read != self.row.size || BlobDigest::of_hash(hash) != self.row.digest {
            return Err(damaged(&self.row, why));
        }
        Ok(self.last.take())
    }
}

/// The error for a blob whose bytes are not what they were.
pub(in crate::store) fn damaged(row: &BlobRow, why: &str) -> StoreError {
    StoreError::DamagedBlob { digest: row.digest.clone(), why: why.to_owned() }
}
