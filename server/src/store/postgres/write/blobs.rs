//! The rows of blobs, and of uploads that end or are given up.

use std::collections::HashMap;

use agentloop_core::blob::BlobDigest;
use agentloop_core::id::TenantId;
use agentloop_core::time::{Millis, Timestamp};
use sqlx::{Error, PgConnection, Row as _};

use crate::store::NewBlob;
use crate::store::postgres::rows::{self, clean};
use crate::store::support::number::int;

/// True for a blob of the row `b` that an entry refers to.
macro_rules! referred {
    () => {
        "EXISTS (SELECT 1 FROM session_blobs AS r JOIN sessions AS s ON s.session_no = r.session_no
                 WHERE r.digest = b.digest AND s.tenant = b.tenant)"
    };
}

/// True for a blob of the row `b` that the caller `$3` may read; with NULL, for every blob.
macro_rules! readable {
    () => {
        "($3::text IS NULL OR b.owner = $3
          OR EXISTS (SELECT 1 FROM session_blobs AS r JOIN sessions AS s ON s.session_no = r.session_no
                     WHERE r.digest = b.digest AND s.tenant = b.tenant AND s.created_by = $3))"
    };
}

const KEEP: &str = "
    INSERT INTO blobs (tenant, digest, owner, size_bytes, media_type, touched_at)
    VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT (tenant, digest, owner) DO UPDATE
    SET touched_at = greatest(blobs.touched_at, excluded.touched_at),
        media_type = CASE WHEN blobs.media_type = '' THEN excluded.media_type ELSE blobs.media_type END
    RETURNING media_type";

const CLAIM: &str = concat!(
    "UPDATE blobs AS b SET touched_at = greatest(touched_at, $4) WHERE tenant = $1 AND digest = $2 AND ",
    readable!(),
    " RETURNING size_bytes"
);

/// Locks the bytes of blobs, which the end of another upload locks before it relies on them. Those that somebody has locked
/// are in use.
const LOCK_BYTES: &str = "
    SELECT upload_no, digest FROM blob_uploads WHERE digest = ANY ($1) ORDER BY upload_no FOR UPDATE SKIP LOCKED";

/// Deletes rows whose bytes are locked, or gone. They may have been claimed since they were found: PostgreSQL looks again at the
/// row that is deleted, and at no other.
const SWEEP: &str = concat!(
    "DELETE FROM blobs AS b USING unnest($2::text[], $3::text[], $4::text[]) AS u (tenant, digest, owner)
     WHERE b.tenant = u.tenant AND b.digest = u.digest AND b.owner = u.owner AND b.touched_at < $1
       AND (b.digest = ANY ($5) OR NOT EXISTS (SELECT 1 FROM blob_uploads AS n WHERE n.digest = b.digest))
       AND NOT ",
    referred!(),
    " RETURNING b.digest, b.size_bytes"
);

/// Bytes that are locked and nobody has any more.
const UNOWNED: &str = "
    SELECT u.upload_no, u.digest FROM blob_uploads AS u
    WHERE u.upload_no = ANY ($1) AND NOT EXISTS (SELECT 1 FROM blobs AS b WHERE b.digest = u.digest)";

/// Uploads that were never ended. The next piece of one that goes on is refused.
const UNENDED: &str = "
    SELECT upload_no FROM blob_uploads WHERE digest IS NULL AND began_at < $1
    ORDER BY upload_no FOR UPDATE SKIP LOCKED";

/// Deletes specs that no run has used for long. A writer that is about to use one locks its note first, or knew it to be
/// stored after it was written. This deletes the note first, too.
const SWEEP_SPECS: &str = "
    WITH unused AS (
        DELETE FROM unused_specs AS u
        WHERE u.since < now() - make_interval(secs => $1)
          AND NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.spec_digest = u.digest)
        RETURNING u.digest)
    DELETE FROM specs WHERE digest IN (SELECT digest FROM unused)";

/// Time for which a spec is kept that may have no run any more. Servers may think for a part of it that it is stored.
pub(super) const SPECS_UNUSED_FOR: Millis = Millis::secs(2 * 60 * 60);

pub(in crate::store::postgres) use readable;
pub(in crate::store::postgres) use referred;

/// The key of a blob's row, as the table has it.
#[derive(Debug, Clone, Default)]
pub(in crate::store) struct BlobKey {
    pub(in crate::store::postgres) tenant: String,
    pub(in crate::store::postgres) digest: String,
    pub(in crate::store::postgres) owner: String,
}

/// An upload that has all its pieces.
#[derive(Debug)]
pub(in crate::store) struct EndedUpload {
    pub(in crate::store) no: i64,
    pub(in crate::store) new: NewBlob,
    pub(in crate::store) digest: BlobDigest,
    pub(in crate::store) size: u64,
    pub(in crate::store) ended_at: Timestamp,
}

/// A write to the rows of blobs.
#[derive(Debug)]
pub(in crate::store) enum BlobOp {
    /// Ends an upload: its pieces become a blob.
    Keep(EndedUpload),
    /// It is about to be referred to.
    Claim { tenant: TenantId, only_of: Option<String>, digests: Vec<BlobDigest>, now: Timestamp },
    /// Deletes those of these that are still not used, and uploads that were never ended.
    Sweep { before: Timestamp, unused: Vec<BlobKey> },
}

/// The result of a [`BlobOp`].
#[derive(Debug)]
pub(in crate::store) enum BlobResult {
    /// The result of [`BlobOp::Keep`].
    Kept {
        /// True if the same blob of the same owner was stored.
        existed: bool,
        /// True if nobody had these bytes.
        is_first: bool,
        /// Type of the contents, as the row has it.
        media_type: String,
    },
    /// The result of [`BlobOp::Keep`] for an upload that took so long that a sweep has deleted it.
    GivenUp,
    /// For `Claim`: the length of each blob.
    Claimed(Vec<Option<u64>>),
    /// The result of [`BlobOp::Sweep`].
    Swept {
        /// Number of rows that were deleted.
        rows: u64,
        /// Bytes that nobody has any more.
        bytes: u64,
    },
}

/// Carries out a write, in a transaction that is open.
pub(in crate::store::postgres) async fn write(
    db: &mut PgConnection,
    op: &BlobOp,
) -> Result<BlobResult, Error> {
    match op {
        BlobOp::Keep(upload) => keep(db, upload).await,
        BlobOp::Claim { tenant, only_of, digests, now } => {
            let mut sizes = vec![None; digests.len()];
            // Rows are locked in the same order by all servers.
            let mut sorted: Vec<_> = digests.iter().zip(&mut sizes).collect();
            sorted.sort_unstable_by_key(|(digest, _)| *digest);
            for (digest, size) in sorted {
                let claimed = sqlx::query(CLAIM)
                    .bind(tenant.as_str())
                    .bind(digest.digits())
                    .bind(only_of.as_deref())
                    .bind(int(now.0))
                    .fetch_all(&mut *db)
                    .await?;
                *size = claimed.first().map(|row| rows::number(row, "size_bytes")).transpose()?;
            }
            Ok(BlobResult::Claimed(sizes))
        }
        BlobOp::Sweep { before, unused } => sweep(db, *before, unused).await,
    }
}

async fn keep(db: &mut PgConnection, upload: &EndedUpload) -> Result<BlobResult, Error> {
    let EndedUpload { no, new, digest, size, ended_at } = upload;
    let owner = new.owner.as_deref().map(clean).unwrap_or_default();
    let sql =
        "SELECT EXISTS (SELECT 1 FROM blobs WHERE tenant = $1 AND digest = $2 AND owner = $3) AS existed";
    let query = sqlx::query(sql).bind(new.tenant.as_str()).bind(digest.digits()).bind(&*owner);
    let row = query.fetch_one(&mut *db).await?;
    let existed: bool = row.try_get("existed")?;
    // A sweep locks the bytes before it looks for those who have them.
    let sql = "SELECT upload_no FROM blob_uploads WHERE digest = $1 FOR KEY SHARE";
    let there = sqlx::query(sql).bind(digest.digits()).fetch_optional(&mut *db).await?.is_some();
    if there {
        forget(db, &[*no]).await?;
    } else {
        let sql = "UPDATE blob_uploads SET digest = $2 WHERE upload_no = $1 AND digest IS NULL";
        let ended = sqlx::query(sql).bind(*no).bind(digest.digits()).execute(&mut *db).await?;
        if ended.rows_affected() == 0 {
            return Ok(BlobResult::GivenUp);
        }
    }
    let kept = sqlx::query(KEEP)
        .bind(new.tenant.as_str())
        .bind(digest.digits())
        .bind(&*owner)
        .bind(int(*size))
        .bind(clean(&new.media_type))
        .bind(int(ended_at.0))
        .fetch_one(db)
        .await?;
    Ok(BlobResult::Kept { existed, is_first: !there, media_type: kept.try_get("media_type")? })
}

/// Deletes the pieces of uploads, and the uploads.
async fn forget(db: &mut PgConnection, uploads: &[i64]) -> Result<(), Error> {
    for sql in [
        "DELETE FROM blob_pieces WHERE upload_no = ANY ($1)",
        "DELETE FROM blob_uploads WHERE upload_no = ANY ($1)",
    ] {
        sqlx::query(sql).bind(uploads).execute(&mut *db).await?;
    }
    Ok(())
}

/// Several servers may sweep at once, while others upload and claim.
async fn sweep(db: &mut PgConnection, before: Timestamp, unused: &[BlobKey]) -> Result<BlobResult, Error> {
    sqlx::query(SWEEP_SPECS).bind(SPECS_UNUSED_FOR.duration().as_secs_f64()).execute(&mut *db).await?;
    let swept = sweep_rows(db, before, unused).await?;
    let unended = sqlx::query(UNENDED).bind(int(before.0)).fetch_all(&mut *db).await?;
    let unended = unended.iter().map(|row| row.try_get("upload_no")).collect::<Result<Vec<i64>, _>>()?;
    if !unended.is_empty() {
        forget(db, &unended).await?;
    }
    Ok(swept)
}

/// Deletes those rows of blobs that are still not used, and the bytes that nobody has afterwards.
async fn sweep_rows(
    db: &mut PgConnection,
    before: Timestamp,
    unused: &[BlobKey],
) -> Result<BlobResult, Error> {
    if unused.is_empty() {
        return Ok(BlobResult::Swept { rows: 0, bytes: 0 });
    }
    let texts = |of: fn(&BlobKey) -> &str| unused.iter().map(of).collect::<Vec<_>>();
    let (tenants, digests, owners) =
        (texts(|key| &key.tenant), texts(|key| &key.digest), texts(|key| &key.owner));
    let (mut locked, mut uploads) = (Vec::<String>::new(), Vec::<i64>::new());
    for row in sqlx::query(LOCK_BYTES).bind(&digests).fetch_all(&mut *db).await? {
        locked.push(row.try_get("digest")?);
        uploads.push(row.try_get("upload_no")?);
    }
    let query = sqlx::query(SWEEP).bind(int(before.0)).bind(tenants).bind(digests).bind(owners);
    let mut sizes = HashMap::<String, u64>::new();
    let swept = query.bind(locked).fetch_all(&mut *db).await?;
    for row in &swept {
        sizes.insert(row.try_get("digest")?, rows::number(row, "size_bytes")?);
    }
    let unowned = sqlx::query(UNOWNED).bind(uploads).fetch_all(&mut *db).await?;
    let (mut gone, mut bytes) = (Vec::new(), 0);
    for row in &unowned {
        gone.push(row.try_get("upload_no")?);
        bytes += sizes.get(&row.try_get::<String, _>("digest")?).copied().unwrap_or_default();
    }
    forget(db, &gone).await?;
    Ok(BlobResult::Swept { rows: swept.len() as u64, bytes })
}

/// Deletes uploads of earlier servers that were never ended.
pub(in crate::store::postgres) async fn forget_unfinished(db: &mut PgConnection) -> Result<(), Error> {
    let sql = "WITH gone AS (DELETE FROM blob_uploads WHERE digest IS NULL RETURNING upload_no)
               DELETE FROM blob_pieces WHERE upload_no IN (SELECT upload_no FROM gone)";
    sqlx::query(sql).execute(db).await.map(|_| ())
}
