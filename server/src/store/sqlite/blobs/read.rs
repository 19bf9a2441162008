//! Reading a blob's file. Everything is hashed, also what is skipped, and the last piece is held back until the digest is
//! known to be right.

use std::fs::File;
use std::io::{self, Read as _};

use agentloop_core::blob::BlobDigest;
use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

use super::{Blobs, blocking};
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
pub(super) struct Reader {
    row: BlobRow,
    /// Bytes at the beginning that are not wanted.
    skipped: u64,
    /// Bytes that were read.
    read: u64,
    /// `None` at the end.
    file: Option<ReadFile>,
    /// The piece that comes next.
    held: Option<Vec<u8>>,
}

impl Reader {
    pub(super) async fn open(blobs: Blobs, row: BlobRow, skipped: u64) -> Result<Self, StoreError> {
        let digest = row.digest.clone();
        let open = move || match File::open(blobs.folder().file(&digest)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => file.and_then(|file| Ok(Some((file.metadata()?.len(), file)))),
        };
        match blocking("open a blob", open).await? {
            Some((length, file)) if length == row.size => {
                let file = Some(ReadFile { file, hash: Sha256::new() });
                Ok(Self { row, skipped, read: 0, file, held: None })
            }
            Some((length, _)) => {
                Err(damaged(&row, &format!("its file has {length} bytes, and should have {}", row.size)))
            }
            None => Err(damaged(&row, "its file is gone")),
        }
    }

    /// Ends the read, if all is as it was.
    fn end(&mut self, file: ReadFile) -> Result<Option<Vec<u8>>, StoreError> {
        let digest = BlobDigest::of_hash(file.hash.finalize().into());
        if self.read != self.row.size || digest != self.row.digest {
            return Err(damaged(&self.row, "its file has other bytes"));
        }
        Ok(self.held.take())
    }
}

#[async_trait]
impl BlobReader for Reader {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        while let Some(mut file) = self.file.take() {
            let (mut piece, file) =
                blocking("read a blob", move || file.piece().map(|piece| (piece, file))).await?;
            if piece.is_empty() {
                return self.end(file);
            }
            self.file = Some(file);
            let unwanted = self.skipped.saturating_sub(self.read).min(piece.len() as u64);
            self.read += piece.len() as u64;
            piece.drain(..usize::try_from(unwanted).unwrap_or(piece.len()));
            if piece.is_empty() {
                continue;
            }
            if let Some(before) = self.held.replace(piece) {
                return Ok(Some(before));
            }
        }
        Ok(None)
    }
}

fn damaged(row: &BlobRow, why: &str) -> StoreError {
    StoreError::DamagedBlob { digest: row.digest.clone(), why: why.to_owned() }
}
