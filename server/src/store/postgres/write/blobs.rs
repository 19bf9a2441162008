//! The rows of blobs, and of uploads that end or are given up.

use agentloop_core::blob::BlobDigest;
use agentloop_core::id::TenantId;
use agentloop_core::time::Timestamp;
use sqlx::{Error, PgConnection, Row as _};

use crate::store::NewBlob;
use crate::store::number::int;
use crate::store::postgres::rows::{self, clean};

/// Rows that one write of a sweep deletes.
const SWEPT_AT_ONCE: i64 = 64;

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
        media_type = CASE WHEN excluded.media_type = '' THEN blobs.media_type ELSE excluded.media_type END";

const CLAIM: &str = concat!(
    "UPDATE blobs AS b SET touched_at = greatest(touched_at, $4) WHERE tenant = $1 AND digest = $2 AND ",
    readable!(),
    " RETURNING size_bytes"
);

const SWEEP: &str = concat!(
    "DELETE FROM blobs AS d USING (
         SELECT b.tenant, b.digest, b.owner FROM blobs AS b WHERE b.touched_at < $1 AND NOT ",
    referred!(),
    " LIMIT $2) AS u
     WHERE d.tenant = u.tenant AND d.digest = u.digest AND d.owner = u.owner
     RETURNING d.digest, d.size_bytes"
);

pub(in crate::store::postgres) use readable;

/// A write to the rows of blobs.
#[derive(Debug)]
pub(in crate::store::postgres) enum BlobOp {
    /// Ends an upload: its pieces become a blob.
    Keep { upload: i64, new: NewBlob, digest: BlobDigest, size: u64, now: Timestamp },
    /// It is about to be referred to.
    Claim { tenant: TenantId, only_of: Option<String>, digests: Vec<BlobDigest>, now: Timestamp },
    /// Deletes some that are not used, and uploads that were never ended.
    Sweep { before: Timestamp },
}

/// The result of a [`BlobOp`].
#[derive(Debug)]
pub(in crate::store::postgres) enum BlobResult {
    /// The result of [`BlobOp::Keep`].
    Kept {
        /// True if the same blob of the same owner was stored.
        existed: bool,
        /// True if nobody had these bytes.
        is_first: bool,
    },
    /// Of `Claim`: the length of each blob.
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
        BlobOp::Keep { upload, new, digest, size, now } => keep(db, *upload, new, digest, *size, *now).await,
        BlobOp::Claim { tenant, only_of, digests, now } => {
            let mut sizes = Vec::with_capacity(digests.len());
            for digest in digests {
                let claimed = sqlx::query(CLAIM)
                    .bind(tenant.as_str())
                    .bind(digest.digits())
                    .bind(only_of.as_deref())
                    .bind(int(now.0))
                    .fetch_all(&mut *db)
                    .await?;
                sizes.push(claimed.first().map(|row| rows::number(row, "size_bytes")).transpose()?);
            }
            Ok(BlobResult::Claimed(sizes))
        }
        BlobOp::Sweep { before } => sweep(db, *before).await,
    }
}

async fn keep(
    db: &mut PgConnection,
    upload: i64,
    new: &NewBlob,
    digest: &BlobDigest,
    size: u64,
    now: Timestamp,
) -> Result<BlobResult, Error> {
    let owner = new.owner.as_deref().map(clean).unwrap_or_default();
    let sql =
        "SELECT EXISTS (SELECT 1 FROM blobs WHERE tenant = $1 AND digest = $2 AND owner = $3) AS existed,
                      EXISTS (SELECT 1 FROM blob_uploads WHERE digest = $2) AS there";
    let query = sqlx::query(sql).bind(new.tenant.as_str()).bind(digest.digits()).bind(&*owner);
    let row = query.fetch_one(&mut *db).await?;
    let (existed, there): (bool, bool) = (row.try_get("existed")?, row.try_get("there")?);
    if there {
        forget(db, &[upload]).await?;
    } else {
        let sql = "UPDATE blob_uploads SET digest = $2 WHERE upload_no = $1";
        sqlx::query(sql).bind(upload).bind(digest.digits()).execute(&mut *db).await?;
    }
    sqlx::query(KEEP)
        .bind(new.tenant.as_str())
        .bind(digest.digits())
        .bind(&*owner)
        .bind(int(size))
        .bind(clean(&new.media_type))
        .bind(int(now.0))
        .execute(db)
        .await?;
    Ok(BlobResult::Kept { existed, is_first: !there })
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

async fn sweep(db: &mut PgConnection, before: Timestamp) -> Result<BlobResult, Error> {
    let swept = sqlx::query(SWEEP).bind(int(before.0)).bind(SWEPT_AT_ONCE).fetch_all(&mut *db).await?;
    let digests = swept.iter().map(|row| row.try_get("digest")).collect::<Result<Vec<String>, _>>()?;
    let sql = "SELECT u.upload_no, u.digest FROM blob_uploads AS u
               WHERE u.digest = ANY ($1) AND NOT EXISTS (SELECT 1 FROM blobs AS b WHERE b.digest = u.digest)
                  OR u.digest IS NULL AND u.began_at < $2";
    let (mut uploads, mut bytes) = (Vec::new(), 0);
    for row in sqlx::query(sql).bind(digests).bind(int(before.0)).fetch_all(&mut *db).await? {
        uploads.push(row.try_get("upload_no")?);
        let of: Option<String> = row.try_get("digest")?;
        for row in &swept {
            if of.as_deref() == Some(row.try_get("digest")?) {
                bytes += rows::number(row, "size_bytes")?;
                break;
            }
        }
    }
    forget(db, &uploads).await?;
    Ok(BlobResult::Swept { rows: swept.len() as u64, bytes })
}

/// Deletes uploads of earlier servers that were never ended.
pub(in crate::store::postgres) async fn forget_unfinished(db: &mut PgConnection) -> Result<(), Error> {
    let sql = "WITH gone AS (DELETE FROM blob_uploads WHERE digest IS NULL RETURNING upload_no)
               DELETE FROM blob_pieces WHERE upload_no IN (SELECT upload_no FROM gone)";
    sqlx::query(sql).execute(db).await.map(|_| ())
}
