//! Blobs: their bytes are pieces in a table, under the number of their upload.
//!
//! **Invariant:** an upload is nobody's until the write that ends it, which gives it its digest and makes the row of the blob.
//! After a crash an upload has no digest. The next start of a server alone, or a sweep, deletes it.

use std::sync::Arc;

use agentloop_core::blob::BlobDigest;
use agentloop_core::id::TenantId;
use agentloop_core::time::{Millis, Timestamp};
use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest as _, Sha256};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::connect::readers::Readers;
use super::owner::ServerKind;
use super::replica::skew::{Skew, TIME, skew};
use super::rows::{self, clean};
use super::write::blobs::{BlobKey, BlobOp, BlobResult, EndedUpload, readable, referred};
use super::write::own::WeakWriteSender;
use crate::audit;
use crate::clock::{Clock as _, SystemClock};
use crate::lifecycle::Tasks;
use crate::store::sql::query::Query;
use crate::store::sql::read::{all, one};
use crate::store::sql::reader::SqlReader as _;
use crate::store::support::blob_pieces::{CheckedPieces, damaged};
use crate::store::support::blob_usage::BlobUsage;
use crate::store::support::number::int;
use crate::store::support::write::closed;
use crate::store::{BlobBounds, BlobReader, BlobRow, BlobStore, BlobUpload, NewBlob, StoreError, StoredBlob};

/// Bytes of a piece, but for the last one of a blob.
const PIECE_BYTES: usize = 256 * 1024;
/// Time for which the bytes of all blobs are taken to be those that were counted, beside what this server stores. Other replicas may
/// store more than the bounds allow in that time.
const COUNTED_FOR: Millis = Millis::secs(60);
/// Rows that one write of a sweep deletes, at most.
const SWEPT_AT_ONCE: u32 = 64;

/// A caller's own row; one that was stored by those who read everything, for them; or else the one that was used last the
/// longest time ago. Storing bytes that are there does not change the type that others see.
const FIND: &str = concat!(
    "SELECT b.size_bytes, b.media_type FROM blobs AS b WHERE b.tenant = $1 AND b.digest = $2 AND ",
    readable!(),
    " ORDER BY (b.owner = coalesce($3, '')) DESC, b.touched_at, b.owner LIMIT 1"
);

/// The next rows after the one of tenant `$2`, digest `$3` and owner `$4` that nobody has used for a time.
const UNUSED: &str = concat!(
    "SELECT b.tenant, b.digest, b.owner FROM blobs AS b
     WHERE (b.tenant, b.digest, b.owner) > ($2, $3, $4) AND b.touched_at < $1 AND NOT ",
    referred!(),
    " ORDER BY b.tenant, b.digest, b.owner LIMIT $5"
);

/// The blobs of a store. Clones share them.
#[derive(Clone)]
pub(in crate::store::postgres) struct Blobs(Arc<Inner>);

struct Inner {
    bounds: BlobBounds,
    server: ServerKind,
    db: Readers,
    writes: WeakWriteSender,
    tasks: Tasks,
    /// When the bytes were counted. Locked while they are.
    counted_at: tokio::sync::Mutex<Timestamp>,
    /// Locked from the check of the bounds for a whole upload until it counts.
    keeping: tokio::sync::Mutex<()>,
    usage: Mutex<BlobUsage>,
    /// The difference of this replica's clock from the database's, once it was needed.
    skew: tokio::sync::OnceCell<Option<Skew>>,
}

impl Blobs {
    pub(in crate::store::postgres) fn new(
        bounds: BlobBounds,
        server: ServerKind,
        db: Readers,
        writes: WeakWriteSender,
        tasks: Tasks,
    ) -> Self {
        let (counted_at, keeping, usage, skew) = Default::default();
        Self(Arc::new(Inner { bounds, server, db, writes, tasks, counted_at, keeping, usage, skew }))
    }

    fn usage(&self) -> MutexGuard<'_, BlobUsage> {
        self.0.usage.lock()
    }

    async fn write(&self, op: BlobOp) -> Result<BlobResult, StoreError> {
        let writes = self.0.writes.upgrade().ok_or_else(closed)?;
        writes.own(op).await
    }

    fn check_size(&self, size: u64) -> Result<(), StoreError> {
        self.0.bounds.check_size(size)
    }

    /// A time of this server's clock as the rows of blobs have it. Replicas delete each other's blobs, and the clock of one may be
    /// wrong, so they use the database's.
    async fn shared_time(&self, at: Timestamp) -> Result<Timestamp, StoreError> {
        if self.0.server == ServerKind::Alone {
            return Ok(at);
        }
        let measure = || async {
            let sent = SystemClock.now();
            let theirs = one(&self.0.db, Query::new(TIME), |row| rows::time(row, "now")).await;
            let theirs = theirs.map_err(|error| rows::failure("time of the database", &error))?;
            Ok::<_, StoreError>(theirs.and_then(|theirs| skew(sent, SystemClock.now(), theirs)))
        };
        let skew = *self.0.skew.get_or_try_init(measure).await?;
        Ok(skew.map_or(at, |skew| skew.at_database(at)))
    }

    #[cfg(test)]
    pub(in crate::store::postgres) fn set_skew(&self, skew: Skew) {
        self.0.skew.set(Some(skew)).expect("it was not needed before");
    }

    /// Reserves so many more bytes.
    fn reserve(&self, bytes: u64) -> Result<(), StoreError> {
        self.usage().reserve(bytes, self.0.bounds)
    }

    /// Checks that the bounds leave so many bytes beside those that are stored, unless they are a blob that this owner stored.
    async fn check_bounds(&self, new: &NewBlob, digest: &BlobDigest, size: u64) -> Result<(), StoreError> {
        let checked = self.usage().check_bounds(size, self.0.bounds);
        if checked.is_err() && self.is_stored(new, digest).await? { Ok(()) } else { checked }
    }

    async fn is_stored(&self, new: &NewBlob, digest: &BlobDigest) -> Result<bool, StoreError> {
        let owner = new.owner.as_deref().map(clean).unwrap_or_default();
        let sql = "SELECT 1 FROM blobs WHERE tenant = $1 AND digest = $2 AND owner = $3";
        let query = Query::new(sql).with(new.tenant.as_str()).with(digest.digits()).with(&*owner);
        let found = self.0.db.row(query).await;
        Ok(found.map_err(|error| rows::failure(format_args!("blob {digest}"), &error))?.is_some())
    }

    /// The next rows behind this one that nobody has used since a time.
    async fn unused(&self, before: Timestamp, last: &BlobKey) -> Result<Vec<BlobKey>, StoreError> {
        let query = Query::new(UNUSED)
            .with(int(before.0))
            .with(last.tenant.as_str())
            .with(last.digest.as_str())
            .with(last.owner.as_str())
            .with(SWEPT_AT_ONCE);
        let key = |row: &PgRow| {
            let text = |column: &str| row.try_get(column);
            Ok(BlobKey { tenant: text("tenant")?, digest: text("digest")?, owner: text("owner")? })
        };
        all(&self.0.db, query, key).await.map_err(|error| rows::failure("unused blobs", &error))
    }

    /// Counts the bytes of stored blobs: once, or from time to time if there may be other servers that store some.
    async fn count(&self) -> Result<(), StoreError> {
        let mut counted_at = self.0.counted_at.lock().await;
        let now = SystemClock.now();
        let is_counted = self.usage().stored.is_some();
        if is_counted && (self.0.server == ServerKind::Alone || now.since(*counted_at) < COUNTED_FOR) {
            return Ok(());
        }
        let sql = "SELECT coalesce(sum(b.size_bytes), 0)::bigint AS bytes
                   FROM (SELECT max(size_bytes) AS size_bytes FROM blobs GROUP BY digest) AS b";
        let bytes = one(&self.0.db, Query::new(sql), |row| rows::number(row, "bytes")).await;
        let bytes = bytes.map_err(|error| rows::failure("bytes of blobs", &error))?.unwrap_or(0);
        self.usage().stored = Some(bytes);
        *counted_at = now;
        Ok(())
    }
}

/// The error of an upload that a sweep has deleted.
fn given_up() -> StoreError {
    let what = "the upload took so long that it was given up; begin it again";
    StoreError::Unavailable { what: what.to_owned() }
}

/// An upload under way.
struct Upload {
    blobs: Blobs,
    new: NewBlob,
    no: i64,
    hash: Sha256,
    /// Bytes that are not written yet.
    buffer: Vec<u8>,
    pieces: i64,
    /// All bytes so far. They are reserved.
    bytes: u64,
    is_kept: bool,
}

impl Upload {
    async fn begin(blobs: Blobs, new: NewBlob) -> Result<Self, StoreError> {
        blobs.check_size(new.size.unwrap_or_default())?;
        blobs.count().await?;
        if let (Some(digest), Some(size)) = (&new.digest, new.size) {
            blobs.check_bounds(&new, digest, size).await?;
        }
        let sql = "INSERT INTO blob_uploads (began_at) VALUES ($1) RETURNING upload_no";
        // An upload that nobody has heard of is deleted as one that was given up.
        let now = blobs.shared_time(SystemClock.now()).await?;
        let (db, now) = (&blobs.0.db, int(now.0));
        let row = db.retried(|| sqlx::query(sql).bind(now).fetch_one(&**db)).await;
        let no = row.and_then(|row| row.try_get("upload_no"));
        let no = no.map_err(|error| rows::failure("new upload", &error))?;
        let (hash, buffer) = (Sha256::new(), Vec::new());
        Ok(Self { blobs, new, no, hash, buffer, pieces: 0, bytes: 0, is_kept: false })
    }

    async fn flush(&mut self) -> Result<(), StoreError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.hash.update(&self.buffer);
        // A sweep may have deleted an upload that took too long. A piece may be there already if its connection was lost.
        let sql = "INSERT INTO blob_pieces (upload_no, piece_no, bytes)
                   SELECT upload_no, $2, $3 FROM blob_uploads WHERE upload_no = $1 FOR KEY SHARE
                   ON CONFLICT (upload_no, piece_no) DO UPDATE SET bytes = excluded.bytes";
        let (db, no, piece, bytes) =
            (&self.blobs.0.db, self.no, self.pieces, std::mem::take(&mut self.buffer));
        let insert = || sqlx::query(sql).bind(no).bind(piece).bind(bytes.as_slice()).execute(&**db);
        let written = db.retried(insert).await;
        let written = written.map_err(|error| rows::failure("piece of an upload", &error))?;
        if written.rows_affected() == 0 {
            return Err(given_up());
        }
        self.pieces += 1;
        Ok(())
    }

    /// Makes the pieces a blob, if the bounds allow it.
    async fn keep(mut self, digest: BlobDigest, now: Timestamp) -> Result<StoredBlob, StoreError> {
        let (blobs, size) = (self.blobs.clone(), self.bytes);
        let ended_at = blobs.shared_time(now).await?;
        let _keeping = blobs.0.keeping.lock().await;
        blobs.check_bounds(&self.new, &digest, size).await?;
        let upload =
            EndedUpload { no: self.no, new: self.new.clone(), digest: digest.clone(), size, ended_at };
        let (existed, is_first, media_type) = match blobs.write(BlobOp::Keep(upload)).await? {
            BlobResult::Kept { existed, is_first, media_type } => (existed, is_first, media_type),
            BlobResult::GivenUp => return Err(given_up()),
            other => unreachable!("the end of an upload has the result {other:?}"),
        };
        self.is_kept = true;
        if is_first {
            blobs.usage().add(size);
        }
        Ok(StoredBlob { row: BlobRow { digest, size, media_type }, existed })
    }
}

#[async_trait]
impl BlobUpload for Upload {
    async fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let size = self.bytes.saturating_add(bytes.len() as u64);
        self.blobs.check_size(size)?;
        if let Some(announced) = self.new.size.filter(|announced| size > *announced) {
            let problem = format!("is {announced}, and there are more bytes");
            return Err(StoreError::BlobMismatch { field: "size_bytes", problem });
        }
        self.blobs.reserve(bytes.len() as u64)?;
        self.bytes = size;
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn finish(mut self: Box<Self>, now: Timestamp) -> Result<StoredBlob, StoreError> {
        let size = self.bytes;
        if let Some(announced) = self.new.size.filter(|announced| size != *announced) {
            let problem = format!("is {announced}, and there are {size} bytes");
            return Err(StoreError::BlobMismatch { field: "size_bytes", problem });
        }
        self.flush().await?;
        let digest = BlobDigest::of_hash(std::mem::take(&mut self.hash).finalize().into());
        if let Some(announced) = self.new.digest.as_ref().filter(|announced| **announced != digest) {
            let problem = format!("is {announced}, and the bytes have {digest}");
            return Err(StoreError::BlobMismatch { field: "digest", problem });
        }
        // In a task of its own: the bytes of a caller that goes away meanwhile count.
        let tasks = self.blobs.0.tasks.clone();
        let keeping = audit::within(audit::current(), async move { self.keep(digest, now).await });
        let keeping = tasks.spawn_contained("keep blob", keeping);
        keeping.await.ok().flatten().ok_or_else(closed)?
    }
}

/// Gives the reserved bytes back, and deletes what is not kept. Without a runtime, the next start does that.
impl Drop for Upload {
    fn drop(&mut self) {
        self.blobs.usage().uploading -= self.bytes;
        if self.is_kept || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (blobs, no) = (self.blobs.clone(), self.no);
        drop(self.blobs.0.tasks.spawn_contained("drop upload", async move {
            // A caller that went away while its upload was ended has left a whole blob.
            let sql = "WITH gone AS (DELETE FROM blob_uploads WHERE upload_no = $1 AND digest IS NULL RETURNING upload_no)
                       DELETE FROM blob_pieces WHERE upload_no IN (SELECT upload_no FROM gone)";
            if let Err(error) = sqlx::query(sql).bind(no).execute(&*blobs.0.db).await {
                tracing::debug!(%error, "an upload is left to the next sweep");
            }
        }));
    }
}

/// A read under way.
struct StoredBlobReader {
    db: Readers,
    pieces: CheckedPieces,
    upload: i64,
    next: i64,
    hash: Sha256,
    is_at_end: bool,
}

#[async_trait]
impl BlobReader for StoredBlobReader {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        while !self.is_at_end {
            let sql = "SELECT bytes FROM blob_pieces WHERE upload_no = $1 AND piece_no = $2";
            let found = self.db.row(Query::new(sql).with(self.upload).with(self.next)).await;
            let piece = found.and_then(|row| row.map(|row| row.try_get::<Vec<u8>, _>("bytes")).transpose());
            let piece = piece
                .map_err(|error| rows::failure(format_args!("blob {}", self.pieces.digest()), &error))?;
            let Some(piece) = piece else {
                self.is_at_end = true;
                let hash = std::mem::take(&mut self.hash).finalize();
                return self.pieces.end(hash.into(), "it has other bytes");
            };
            self.next += 1;
            self.hash.update(&piece);
            if let Some(before) = self.pieces.push(piece) {
                return Ok(Some(before));
            }
        }
        Ok(None)
    }
}

#[async_trait]
impl BlobStore for PostgresStore {
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
        let query = Query::new(FIND).with(tenant.as_str()).with(digest.digits()).with(only_of);
        let found = self.readers.row(query).await.and_then(|row| {
            row.map(|row| {
                let (size, media_type) = (rows::number(&row, "size_bytes")?, row.try_get("media_type")?);
                Ok(BlobRow { digest: digest.clone(), size, media_type })
            })
            .transpose()
        });
        found.map_err(|error| rows::failure(format_args!("blob {digest}"), &error))
    }

    async fn read_blob(&self, row: &BlobRow, offset: u64) -> Result<Box<dyn BlobReader>, StoreError> {
        let sql = "SELECT upload_no FROM blob_uploads WHERE digest = $1";
        let found = self.readers.row(Query::new(sql).with(row.digest.digits())).await;
        let upload = found.and_then(|found| found.map(|found| found.try_get("upload_no")).transpose());
        let upload = upload.map_err(|error| rows::failure(format_args!("blob {}", row.digest), &error))?;
        let upload = upload.ok_or_else(|| damaged(row, "its bytes are gone"))?;
        let pieces = CheckedPieces::new(row.clone(), offset);
        let (db, hash) = (self.readers.clone(), Sha256::new());
        Ok(Box::new(StoredBlobReader { db, pieces, upload, next: 0, hash, is_at_end: false }))
    }

    async fn claim_blobs(
        &self,
        tenant: &TenantId,
        only_of: Option<&str>,
        digests: &[BlobDigest],
        now: Timestamp,
    ) -> Result<Vec<Option<u64>>, StoreError> {
        let (tenant, only_of) = (tenant.clone(), only_of.map(|of| clean(of).into_owned()));
        let now = self.blobs.shared_time(now).await?;
        match self.blobs.write(BlobOp::Claim { tenant, only_of, digests: digests.to_vec(), now }).await? {
            BlobResult::Claimed(sizes) => Ok(sizes),
            other => unreachable!("a claim has the result {other:?}"),
        }
    }

    async fn sweep_blobs(&self, before: Timestamp) -> Result<u64, StoreError> {
        // Rows are looked for on a reading connection: among many that are used, that takes long, and every write would wait.
        let (mut swept, mut last) = (0, BlobKey::default());
        let before = self.blobs.shared_time(before).await?;
        loop {
            let unused = self.blobs.unused(before, &last).await?;
            let next = unused.last().cloned();
            let is_last = unused.len() < SWEPT_AT_ONCE as usize;
            let BlobResult::Swept { rows, bytes } =
                self.blobs.write(BlobOp::Sweep { before, unused }).await?
            else {
                unreachable!("a sweep has a result of its own")
            };
            self.blobs.usage().remove(bytes);
            swept += rows;
            match next.filter(|_| !is_last) {
                Some(key) => last = key,
                None => return Ok(swept),
            }
        }
    }
}
