//! Reading a blob's file.

use std::fs::File;
use std::io::{self, Read as _};

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

use super::{Blobs, blocking};
use crate::store::support::blob_pieces::{CheckedPieces, damaged};
use crate::store::{BlobReader, BlobRow, StoreError};

/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 256 * 1024;

/// The part of a read that blocks its thread while it works.
struct ReadFile {
    file: File,
    hash: Sha256,
}

impl ReadFile {
    fn piece(&mut self) -> io::Result<Vec<u8>> {
        let mut piece = Vec::new();
        (&self.file).take(PIECE_BYTES).read_to_end(&mut piece)?;
        self.hash.update(&piece);
        Ok(piece)
    }
}

/// A read under way.
pub(super) struct StoredBlobReader {
    pieces: CheckedPieces,
    /// `None` at the end.
    file: Option<ReadFile>,
}

impl StoredBlobReader {
    pub(super) async fn open(blobs: Blobs, row: BlobRow, skipped: u64) -> Result<Self, StoreError> {
        let digest = row.digest.clone();
        let open = move || match File::open(blobs.folder().file(&digest)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => file.and_then(|file| Ok(Some((file.metadata()?.len(), file)))),
        };
        match blocking("open a blob", open).await? {
            Some((length, file)) if length == row.size => {
                let file = Some(ReadFile { file, hash: Sha256::new() });
                Ok(Self { pieces: CheckedPieces::new(row, skipped), file })
            }
            Some((length, _)) => {
                Err(damaged(&row, &format!("its file has {length} bytes, and should have {}", row.size)))
            }
            None => Err(damaged(&row, "its file is gone")),
        }
    }
}

#[async_trait]
impl BlobReader for StoredBlobReader {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        while let Some(mut file) = self.file.take() {
            let (piece, file) =
                blocking("read a blob", move || file.piece().map(|piece| (piece, file))).await?;
            if piece.is_empty() {
                return self.pieces.end(file.hash.finalize().into(), "its file has other bytes");
            }
            self.file = Some(file);
            if let Some(before) = self.pieces.push(piece) {
                return Ok(Some(before));
            }
        }
        Ok(None)
    }
}
