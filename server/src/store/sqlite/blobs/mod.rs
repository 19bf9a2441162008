//! Blobs: their bytes are files in a folder beside the database, their rows are in it.
//!
//! **Invariant:** a file in the folder has a row, from before it gets its name until after it is deleted. So what a crash
//! leaves behind is found by its row, and files that another copy of the database knows are left alone.

mod folder;
mod read;
mod upload;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agentloop_core::blob::BlobDigest;
use agentloop_core::id::TenantId;
use agentloop_core::time::Timestamp;
use async_trait::async_trait;
use parking_lot::MutexGuard;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqlitePool};

pub(in crate::store::sqlite) use self::folder::BlobFolder;
use self::read::StoredBlobReader;
use self::upload::Upload;
use super::write::blobs::{BlobKey, BlobOp, BlobResult, readable, referred};
use super::write::own::SqliteOp;
use super::write::own::WeakWriteSender;
use super::{SqliteStore, rows};
use crate::lifecycle::Tasks;
use crate::store::support::blob_usage::BlobUsage;
use crate::store::support::number::int;
use crate::store::support::write::closed;
use crate::store::{BlobBounds, BlobReader, BlobRow, BlobStore, BlobUpload, NewBlob, StoreError};

/// Rows that one look of a sweep finds.
const SWEPT_AT_ONCE: i64 = 64;

/// A caller's own row; one that was stored by those who read everything, for them; or else the one that was used last the
/// longest time ago. Storing bytes that are there does not change the type that others see.
const FIND: &str = concat!(
    "SELECT b.size_bytes, b.media_type FROM blobs AS b
     WHERE b.tenant = ?1 AND b.digest = ?2 AND b.stored = 1 AND ",
    readable!(),
    " ORDER BY b.owner = coalesce(?3, '') DESC, b.touched_at, b.owner LIMIT 1"
);

/// The rows after a key whose blob may be deleted.
pub(super) const UNUSED: &str = concat!(
    "SELECT b.tenant, b.digest, b.owner FROM blobs AS b
     WHERE (b.tenant, b.digest, b.owner) > (?1, ?2, ?3) AND b.touched_at < ?4 AND (b.stored = 0 OR NOT ",
    referred!(),
    ") ORDER BY b.tenant, b.digest, b.owner LIMIT ?5"
);

/// The blobs of a store. Clones share them.
#[derive(Clone)]
pub(in crate::store::sqlite) struct Blobs(Arc<Inner>);

struct Inner {
    folder: BlobFolder,
    bounds: BlobBounds,
    readers: SqlitePool,
    writes: WeakWriteSender,
    tasks: Tasks,
    /// Held while a file gets its name or loses it, with the writes of its row.
    files: tokio::sync::Mutex<()>,
    usage: parking_lot::Mutex<BlobUsage>,
    last_upload: AtomicU64,
}

impl Blobs {
    pub(in crate::store::sqlite) fn new(
        folder: BlobFolder,
        bounds: BlobBounds,
        readers: SqlitePool,
        writes: WeakWriteSender,
        tasks: Tasks,
    ) -> Self {
        let (files, usage, last_upload) = Default::default();
        Self(Arc::new(Inner { folder, bounds, readers, writes, tasks, files, usage, last_upload }))
    }

    fn folder(&self) -> &BlobFolder {
        &self.0.folder
    }

    fn tasks(&self) -> &Tasks {
        &self.0.tasks
    }

    fn next_upload(&self) -> u64 {
        self.0.last_upload.fetch_add(1, Ordering::Relaxed)
    }

    fn usage(&self) -> MutexGuard<'_, BlobUsage> {
        self.0.usage.lock()
    }

    async fn lock_files(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.files.lock().await
    }

    async fn write(&self, op: BlobOp) -> Result<BlobResult, StoreError> {
        let writes = self.0.writes.upgrade().ok_or_else(closed)?;
        writes.own(SqliteOp::Blob(op)).await
    }

    fn check_size(&self, size: u64) -> Result<(), StoreError> {
        self.0.bounds.check_size(size)
    }

    /// Reserves so many more bytes.
    fn reserve(&self, bytes: u64) -> Result<(), StoreError> {
        self.usage().reserve(bytes, self.0.bounds)
    }

    /// Checks that the bounds leave so many bytes beside those that are stored, unless they are this stored blob.
    async fn check_bounds(&self, key: &BlobKey, size: u64) -> Result<(), StoreError> {
        let checked = self.usage().check_bounds(size, self.0.bounds);
        if checked.is_err() && self.is_stored(key).await? { Ok(()) } else { checked }
    }

    async fn is_stored(&self, key: &BlobKey) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM blobs WHERE tenant = ?1 AND digest = ?2 AND owner = ?3 AND stored = 1";
        let query = sqlx::query(sql).bind(key.tenant.as_str()).bind(key.digest.digits()).bind(&*key.owner);
        let found = query.fetch_optional(&self.0.readers).await;
        Ok(found.map_err(|error| rows::failure(format_args!("blob {}", key.digest), &error))?.is_some())
    }

    /// Counts the bytes of stored blobs, once.
    async fn count(&self) -> Result<(), StoreError> {
        let is_counted = || self.usage().stored.is_some();
        // Uploads begin without a wait for those that end, once the bytes are counted.
        if is_counted() {
            return Ok(());
        }
        let _files = self.lock_files().await;
        if is_counted() {
            return Ok(());
        }
        let sql = "SELECT coalesce(sum(size_bytes), 0) AS bytes
                   FROM (SELECT max(size_bytes) AS size_bytes FROM blobs GROUP BY digest)";
        let row = sqlx::query(sql).fetch_one(&self.0.readers).await;
        let bytes = row.and_then(|row| rows::number(&row, "bytes"));
        self.usage().stored = Some(bytes.map_err(|error| rows::failure("bytes of blobs", &error))?);
        Ok(())
    }

    async fn find(
        &self,
        tenant: &TenantId,
        only_of: Option<&str>,
        digest: &BlobDigest,
    ) -> Result<Option<BlobRow>, StoreError> {
        let query = sqlx::query(FIND).bind(tenant.as_str()).bind(digest.digits()).bind(only_of);
        let found = query.fetch_optional(&self.0.readers).await.and_then(|row| {
            row.map(|row| {
                let (size, media_type) = (rows::number(&row, "size_bytes")?, row.try_get("media_type")?);
                Ok(BlobRow { digest: digest.clone(), size, media_type })
            })
            .transpose()
        });
        found.map_err(|error| rows::failure(format_args!("blob {digest}"), &error))
    }

    /// Deletes a blob, unless somebody has used it since, or refers to it.
    async fn sweep(&self, key: BlobKey, before: Timestamp) -> Result<bool, StoreError> {
        let _files = self.lock_files().await;
        if self.write(BlobOp::Retire { key: key.clone(), before }).await? != BlobResult::Done(true) {
            return Ok(false);
        }
        let sql = "SELECT size_bytes,
                          (SELECT count(*) FROM blobs AS o WHERE o.digest = b.digest) > 1 AS is_shared
                   FROM blobs AS b WHERE b.tenant = ?1 AND b.digest = ?2 AND b.owner = ?3";
        let query = sqlx::query(sql).bind(key.tenant.as_str()).bind(key.digest.digits()).bind(&*key.owner);
        let facts = query
            .fetch_one(&self.0.readers)
            .await
            .and_then(|row| Ok((rows::number(&row, "size_bytes")?, row.try_get::<bool, _>("is_shared")?)));
        let (size, is_shared) = facts.map_err(|error| rows::failure("a blob that is not used", &error))?;
        if !is_shared {
            let (at, digest) = (self.clone(), key.digest.clone());
            if let Err(error) = blocking("delete a blob", move || at.folder().delete(&digest)).await {
                // Its row stays, so the next sweep finds it again. Those after it are deleted all the same.
                tracing::warn!(digest = %key.digest, %error, "cannot delete the file of an unused blob");
                return Ok(false);
            }
            self.usage().remove(size);
        }
        self.write(BlobOp::Forget { key }).await?;
        Ok(true)
    }

    /// The keys after this one of blobs that may be deleted.
    async fn unused(&self, after: &BlobKeyText, before: Timestamp) -> Result<Vec<BlobKeyText>, StoreError> {
        let query = sqlx::query(UNUSED).bind(&after.tenant).bind(&after.digits).bind(&after.owner);
        let query = query.bind(int(before.0)).bind(SWEPT_AT_ONCE);
        let found = query.fetch_all(&self.0.readers).await;
        let keys = found.and_then(|rows| rows.iter().map(BlobKeyText::read).collect());
        keys.map_err(|error| rows::failure("blobs that are not used", &error))
    }
}

/// A key as its columns have it.
#[derive(Debug, Clone, Default)]
struct BlobKeyText {
    tenant: String,
    digits: String,
    owner: String,
}

impl BlobKeyText {
    fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            tenant: row.try_get("tenant")?,
            digits: row.try_get("digest")?,
            owner: row.try_get("owner")?,
        })
    }

    fn parse(&self) -> Result<BlobKey, StoreError> {
        let tenant = TenantId::parse(&*self.tenant).ok();
        let digest = BlobDigest::parse(format!("sha256:{}", self.digits)).ok();
        match (tenant, digest) {
            (Some(tenant), Some(digest)) => Ok(BlobKey { tenant, digest, owner: self.owner.clone() }),
            _ => Err(StoreError::Corrupt { what: format!("the row of the blob {}", self.digits) }),
        }
    }
}

/// Does something that blocks its thread, elsewhere.
async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await.unwrap_or_else(|failed| Err(failed.into()));
    done.map_err(|error| StoreError::Unavailable { what: format!("cannot {what}: {error}") })
}

#[async_trait]
impl BlobStore for SqliteStore {
    fn blob_bytes_max(&self) -> u64 {
        self.blobs.0.bounds.max_bytes
    }

    async fn begin_blob(&self, new: NewBlob) -> Result<Box<dyn BlobUpload>, StoreError> {
        Ok(Box::new(Upload::begin(self.blobs.clone(), new).await?))
    }

    async fn blob(
        &self,
        tenant: &TenantId,
        only_of: Option<&str>,
        digest: &BlobDigest,
    ) -> Result<Option<BlobRow>, StoreError> {
        self.blobs.find(tenant, only_of, digest).await
    }

    async fn read_blob(&self, row: &BlobRow, offset: u64) -> Result<Box<dyn BlobReader>, StoreError> {
        Ok(Box::new(StoredBlobReader::open(self.blobs.clone(), row.clone(), offset).await?))
    }

    async fn claim_blobs(
        &self,
        tenant: &TenantId,
        only_of: Option<&str>,
        digests: &[BlobDigest],
        now: Timestamp,
    ) -> Result<Vec<Option<u64>>, StoreError> {
        let (tenant, only_of) = (tenant.clone(), only_of.map(str::to_owned));
        match self.blobs.write(BlobOp::Claim { tenant, only_of, digests: digests.to_vec(), now }).await? {
            BlobResult::Claimed(sizes) => Ok(sizes),
            other => unreachable!("the result of a claim is {other:?}"),
        }
    }

    async fn sweep_blobs(&self, before: Timestamp) -> Result<u64, StoreError> {
        let (mut swept, mut after) = (0, BlobKeyText::default());
        loop {
            let keys = self.blobs.unused(&after, before).await?;
            let Some(last) = keys.last().cloned() else { return Ok(swept) };
            for key in keys {
                match key.parse() {
                    Ok(key) => swept += u64::from(self.blobs.sweep(key, before).await?),
                    Err(error) => tracing::error!(%error, "a row of a blob is damaged; it is left alone"),
                }
            }
            after = last;
        }
    }
}
