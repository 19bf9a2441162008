//! Rows of blobs. A row is written before its file gets its name, and goes after its file is deleted.

use agentloop_core::blob::BlobDigest;
use agentloop_core::id::TenantId;
use agentloop_core::time::Timestamp;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Error, Row as _, Sqlite, SqliteConnection};

use crate::store::sqlite::rows;
use crate::store::support::number::int;

/// The key of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct BlobKey {
    pub(in crate::store::sqlite) tenant: TenantId,
    pub(in crate::store::sqlite) digest: BlobDigest,
    /// Empty where nobody owns it.
    pub(in crate::store::sqlite) owner: String,
}

/// A write to the rows of blobs.
#[derive(Debug)]
pub(in crate::store) enum BlobOp {
    /// Its file is about to get its name.
    Announce { key: BlobKey, size: u64, media_type: String, now: Timestamp },
    /// Its file has its name.
    Store { key: BlobKey },
    /// It is about to be referred to.
    Claim { tenant: TenantId, only_of: Option<String>, digests: Vec<BlobDigest>, now: Timestamp },
    /// Its file may be deleted, unless it was touched since, or something refers to it.
    Retire { key: BlobKey, before: Timestamp },
    /// Its file is deleted.
    Forget { key: BlobKey },
}

impl BlobOp {
    /// The tenant whose blobs it is about.
    pub(in crate::store::sqlite) fn tenant(&self) -> &TenantId {
        match self {
            Self::Announce { key, .. }
            | Self::Store { key }
            | Self::Retire { key, .. }
            | Self::Forget { key } => &key.tenant,
            Self::Claim { tenant, .. } => tenant,
        }
    }
}

/// The result of a [`BlobOp`].
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store) enum BlobResult {
    /// The result of [`BlobOp::Announce`].
    Announced {
        /// True if the same blob of the same owner is stored.
        existed: bool,
        /// True if there was no row with this digest, of anybody.
        is_first: bool,
        /// Type of the contents, as the row has it.
        media_type: String,
    },
    /// The result of `Claim`: the length of each blob.
    Claimed(Vec<Option<u64>>),
    /// The result of the others: true if there is such a row; for `Retire`, if its file may be deleted.
    Done(bool),
}

/// True for a blob of the row `b` that an entry refers to.
macro_rules! referred {
    () => {
        "EXISTS (SELECT 1 FROM session_blobs AS r JOIN sessions AS s ON s.session_no = r.session_no
                 WHERE r.digest = b.digest AND s.tenant = b.tenant)"
    };
}
pub(in crate::store::sqlite) use referred;

/// True for a blob of the row `b` that the caller `?3` may read; with NULL, for every blob.
macro_rules! readable {
    () => {
        "(?3 IS NULL OR b.owner = ?3
          OR EXISTS (SELECT 1 FROM session_blobs AS r JOIN sessions AS s ON s.session_no = r.session_no
                     WHERE r.digest = b.digest AND s.tenant = b.tenant AND s.created_by = ?3))"
    };
}
pub(in crate::store::sqlite) use readable;

const ANNOUNCE: &str = "
    INSERT INTO blobs (tenant, digest, owner, size_bytes, media_type, touched_at, stored)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)
    ON CONFLICT (tenant, digest, owner) DO UPDATE
    SET touched_at = max(touched_at, excluded.touched_at),
        media_type = iif(stored = 0 OR media_type = '', excluded.media_type, media_type)
    RETURNING media_type";

const CLAIM: &str = concat!(
    "UPDATE blobs AS b SET touched_at = max(touched_at, ?4)
     WHERE tenant = ?1 AND digest = ?2 AND stored = 1 AND ",
    readable!(),
    " RETURNING size_bytes"
);

const RETIRE: &str = concat!(
    "UPDATE blobs AS b SET stored = 0
     WHERE tenant = ?1 AND digest = ?2 AND owner = ?3 AND touched_at < ?4
       AND (stored = 0 OR NOT ",
    referred!(),
    ")"
);

/// Carries out a write.
pub(in crate::store::sqlite) async fn write(
    db: &mut SqliteConnection,
    op: &BlobOp,
) -> Result<BlobResult, Error> {
    match op {
        BlobOp::Announce { key, size, media_type, now } => announce(db, key, *size, media_type, *now).await,
        BlobOp::Store { key } => {
            done(
                db,
                keyed("UPDATE blobs SET stored = 1 WHERE tenant = ?1 AND digest = ?2 AND owner = ?3", key),
            )
            .await
        }
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
        BlobOp::Retire { key, before } => done(db, keyed(RETIRE, key).bind(int(before.0))).await,
        BlobOp::Forget { key } => {
            let sql = "DELETE FROM blobs WHERE tenant = ?1 AND digest = ?2 AND owner = ?3 AND stored = 0";
            done(db, keyed(sql, key)).await
        }
    }
}

async fn announce(
    db: &mut SqliteConnection,
    key: &BlobKey,
    size: u64,
    media_type: &str,
    now: Timestamp,
) -> Result<BlobResult, Error> {
    let sql = "SELECT count(*) AS same,
                      coalesce(sum(tenant = ?1 AND owner = ?3 AND stored = 1), 0) AS own
               FROM blobs WHERE digest = ?2";
    let row = keyed(sql, key).fetch_one(&mut *db).await?;
    let (same, own): (i64, i64) = (row.try_get("same")?, row.try_get("own")?);
    let announced = keyed(ANNOUNCE, key).bind(int(size)).bind(media_type).bind(int(now.0));
    let media_type = announced.fetch_one(db).await?.try_get("media_type")?;
    Ok(BlobResult::Announced { existed: own > 0, is_first: same == 0, media_type })
}

async fn done(
    db: &mut SqliteConnection,
    query: Query<'_, Sqlite, SqliteArguments>,
) -> Result<BlobResult, Error> {
    Ok(BlobResult::Done(query.execute(db).await?.rows_affected() > 0))
}

fn keyed<'q>(sql: &'static str, key: &'q BlobKey) -> Query<'q, Sqlite, SqliteArguments> {
    sqlx::query(sql).bind(key.tenant.as_str()).bind(key.digest.digits()).bind(key.owner.as_str())
}
