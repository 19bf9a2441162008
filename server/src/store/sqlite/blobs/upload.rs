//! An upload: its bytes go into a file of their own, and are counted and hashed on their way.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::PathBuf;

use agentloop_core::blob::BlobDigest;
use agentloop_core::time::Timestamp;
use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

use super::{Blobs, blocking};
use crate::audit;
use crate::store::sqlite::write::blobs::{BlobKey, BlobOp, BlobResult};
use crate::store::support::write::closed;
use crate::store::{BlobRow, BlobUpload, NewBlob, StoreError, StoredBlob};

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 256 * 1024;

/// The part of an upload that blocks its thread while it works.
struct UploadFile {
    file: File,
    hash: Sha256,
    buffer: Vec<u8>,
}

impl UploadFile {
    fn flush(&mut self) -> io::Result<()> {
        self.hash.update(&self.buffer);
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Makes the bytes durable, and returns their digest.
    fn end(mut self) -> io::Result<BlobDigest> {
        self.flush()?;
        self.file.sync_all()?;
        Ok(BlobDigest::of_hash(self.hash.finalize().into()))
    }
}

/// The reservation of an upload: its file and its bytes. Dropped, it gives both back.
struct UploadReservation {
    blobs: Blobs,
    path: PathBuf,
    /// Bytes that are reserved.
    bytes: u64,
}

impl Drop for UploadReservation {
    fn drop(&mut self) {
        self.blobs.usage().uploading -= self.bytes;
        // A finished upload has another name by now.
        let _absent = fs::remove_file(&self.path);
    }
}

/// An upload under way.
pub(super) struct Upload {
    new: NewBlob,
    /// `None` after a failure.
    file: Option<UploadFile>,
    place: UploadReservation,
}

impl Upload {
    pub(super) async fn begin(blobs: Blobs, new: NewBlob) -> Result<Self, StoreError> {
        blobs.check_size(new.size.unwrap_or_default())?;
        blobs.count().await?;
        if let (Some(digest), Some(size)) = (&new.digest, new.size) {
            blobs.check_bounds(&key_of(&new, digest), size).await?;
        }
        let create = move || -> io::Result<(File, UploadReservation)> {
            let (file, path) = blobs.folder().new_upload(blobs.next_upload())?;
            // Made here: a caller that goes away meanwhile leaves no file.
            Ok((file, UploadReservation { blobs, path, bytes: 0 }))
        };
        let (file, place) = blocking("create a file for an upload", create).await?;
        let file = UploadFile { file, hash: Sha256::new(), buffer: Vec::new() };
        Ok(Self { new, file: Some(file), place })
    }

    fn take_file(&mut self) -> Result<UploadFile, StoreError> {
        let what = "the upload failed before".to_owned();
        self.file.take().ok_or(StoreError::Unavailable { what })
    }
}

#[async_trait]
impl BlobUpload for Upload {
    async fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let size = self.place.bytes.saturating_add(bytes.len() as u64);
        self.place.blobs.check_size(size)?;
        if let Some(announced) = self.new.size.filter(|announced| size > *announced) {
            let problem = format!("is {announced}, and there are more bytes");
            return Err(StoreError::BlobMismatch { field: "size_bytes", problem });
        }
        self.place.blobs.reserve(bytes.len() as u64)?;
        self.place.bytes = size;
        let mut file = self.take_file()?;
        file.buffer.extend_from_slice(bytes);
        if file.buffer.len() >= BUFFER_BYTES {
            file = blocking("write an upload", move || file.flush().map(|()| file)).await?;
        }
        self.file = Some(file);
        Ok(())
    }

    async fn finish(mut self: Box<Self>, now: Timestamp) -> Result<StoredBlob, StoreError> {
        let file = self.take_file()?;
        let size = self.place.bytes;
        if let Some(announced) = self.new.size.filter(|announced| size != *announced) {
            let problem = format!("is {announced}, and there are {size} bytes");
            return Err(StoreError::BlobMismatch { field: "size_bytes", problem });
        }
        let digest = blocking("write an upload", move || file.end()).await?;
        if let Some(announced) = self.new.digest.as_ref().filter(|announced| **announced != digest) {
            let problem = format!("is {announced}, and the bytes have {digest}");
            return Err(StoreError::BlobMismatch { field: "digest", problem });
        }
        // In a task of its own: a caller that goes away meanwhile leaves a whole blob.
        let blobs = self.place.blobs.clone();
        let keeping = audit::within(audit::current(), async move { keep(*self, digest, now).await });
        let keeping = blobs.tasks().spawn_contained("keep blob", keeping);
        keeping.await.ok().flatten().ok_or_else(closed)?
    }
}

/// Gives the uploaded bytes their name, between the two writes of their row.
async fn keep(upload: Upload, digest: BlobDigest, now: Timestamp) -> Result<StoredBlob, StoreError> {
    let Upload { new, place, .. } = upload;
    let (blobs, size) = (place.blobs.clone(), place.bytes);
    let key = key_of(&new, &digest);
    let _files = blobs.lock_files().await;
    blobs.check_bounds(&key, size).await?;
    let announce = BlobOp::Announce { key: key.clone(), size, media_type: new.media_type, now };
    let BlobResult::Announced { existed, is_first, media_type } = blobs.write(announce).await? else {
        unreachable!("an announcement has its own result")
    };
    if is_first {
        blobs.usage().add(size);
    }
    let (at, path, digest) = (blobs.clone(), place.path.clone(), key.digest.clone());
    blocking("keep an upload", move || at.folder().keep(&path, &digest)).await?;
    blobs.write(BlobOp::Store { key: key.clone() }).await?;
    Ok(StoredBlob { row: BlobRow { digest: key.digest, size, media_type }, existed })
}

fn key_of(new: &NewBlob, digest: &BlobDigest) -> BlobKey {
    let owner = new.owner.clone().unwrap_or_default();
    BlobKey { tenant: new.tenant.clone(), digest: digest.clone(), owner }
}
