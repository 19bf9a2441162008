//! Blobs that results name: they are claimed before the result is recorded, and those that nobody names are deleted.

use std::time::Duration;

use agentloop_core::blob::BlobDigest;
use agentloop_core::id::TenantId;
use agentloop_core::message::{Attachments, File, FileSource};
use agentloop_core::time::{Millis, Timestamp};

use crate::engine::Engine;
use crate::store::{Store, StoreError};

/// The shortest time that a blob is kept which no session refers to: a host uploads it before it sends its result.
pub const UNUSED_KEPT_LEAST: Millis = Millis::secs(60 * 60);

/// The wait before the first pass, in which a start has other things to do.
const FIRST_PASS: Duration = Duration::from_secs(60);
/// The wait between two passes.
const PASS_EVERY: Duration = Duration::from_secs(10 * 60);

/// The fault of a file whose contents should be a blob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadBlob {
    /// There is no such blob.
    #[error(
        "the file {name:?} names the blob {digest}, which is not stored; put it before the result that names it"
    )]
    Unknown {
        /// Name of the file.
        name: String,
        /// The digest that the file names.
        digest: BlobDigest,
    },
    /// The blob has another length than the file says.
    #[error("the file {name:?} says that it has {said} bytes, and its blob has {size}")]
    OtherSize {
        /// Name of the file.
        name: String,
        /// Length that the file says.
        said: u64,
        /// Length of the blob.
        size: u64,
    },
}

/// Keeps the blobs that a result names until the result is recorded, and fills in the lengths that its files leave out.
/// With `only_of`, the caller of this name must be able to read them.
pub(in crate::engine) async fn claim(
    store: &dyn Store,
    tenant: &TenantId,
    only_of: Option<&str>,
    attachments: &mut Attachments,
    now: Timestamp,
) -> Result<Result<(), BadBlob>, StoreError> {
    let digests: Vec<BlobDigest> = attachments.blobs().cloned().collect();
    if digests.is_empty() {
        return Ok(Ok(()));
    }
    let sizes = store.claim_blobs(tenant, only_of, &digests, now).await?;
    let mut sizes = sizes.into_iter();
    for File { name, size: said, source, .. } in &mut attachments.files {
        let FileSource::Blob { digest } = source else { continue };
        match sizes.next().flatten() {
            None => return Ok(Err(BadBlob::Unknown { name: name.clone(), digest: digest.clone() })),
            Some(size) if *said != 0 && *said != size => {
                return Ok(Err(BadBlob::OtherSize { name: name.clone(), said: *said, size }));
            }
            Some(size) => *said = size,
        }
    }
    Ok(Ok(()))
}

impl Engine {
    /// As a result's blobs are claimed, for a result that a caller brings.
    ///
    /// # Errors
    /// The store's.
    pub async fn claim_blobs(
        &self,
        tenant: &TenantId,
        only_of: Option<&str>,
        attachments: &mut Attachments,
    ) -> Result<Result<(), BadBlob>, StoreError> {
        claim(&**self.store(), tenant, only_of, attachments, self.now()).await
    }

    /// Deletes blobs that no session refers to and that were stored long enough ago. Returns their number.
    ///
    /// # Errors
    /// The store's. Blobs that were deleted before stay deleted.
    pub async fn sweep_blobs(&self) -> Result<u64, StoreError> {
        let kept = self.deps().options.unused_blobs_kept.max(UNUSED_KEPT_LEAST);
        let before = Timestamp(self.now().0.saturating_sub(kept.0));
        self.store().sweep_blobs(before).await
    }
}

/// Sweeps again and again, until the server stops.
pub(in crate::engine) async fn watch(engine: Engine) {
    let mut wait = FIRST_PASS;
    while !engine.has_stopped_after(wait).await {
        wait = PASS_EVERY;
        match engine.sweep_blobs().await {
            Ok(0) => {}
            Ok(deleted) => tracing::info!(deleted, "deleted blobs that no session refers to"),
            Err(error) => {
                tracing::warn!(%error, "cannot delete blobs that are not used; trying again in ten minutes")
            }
        }
    }
}
