//! Queries for queues of sessions.

use agentloop_core::id::{RunId, RunKey, SessionId, TenantId};
use agentloop_core::tool::Digest;
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteRow;

use super::{all, one, rows, runs};
use crate::store::append::ORDINARY_QUEUE_NO;
use crate::store::{Interrupted, StoreError};

pub(in crate::store::sqlite) const NEXT_QUEUED: &str = "
    SELECT r.run_id FROM sessions AS s
    JOIN runs AS r ON r.session_no = s.session_no
    WHERE s.tenant = ?1 AND s.session_id = ?2 AND r.queue_no IS NOT NULL AND s.live_run_no IS NULL
    ORDER BY r.queue_no LIMIT 1";

pub(in crate::store::sqlite) const QUEUE_HEADS: &str = "
    SELECT r.tenant, r.run_id FROM runs AS r
    JOIN sessions AS s ON s.session_no = r.session_no
    WHERE r.queue_no IS NOT NULL AND s.live_run_no IS NULL
      AND NOT EXISTS (
          SELECT 1 FROM runs AS before
          WHERE before.session_no = r.session_no
            AND before.queue_no IS NOT NULL AND before.queue_no < r.queue_no)
    ORDER BY r.session_no";

/// The number is [`ORDINARY_QUEUE_NO`]: statements are constants.
pub(in crate::store::sqlite) const INTERRUPTED: &str = "
    SELECT r.tenant, live.run_id AS live_run, r.run_id FROM runs AS r
    JOIN sessions AS s ON s.session_no = r.session_no
    JOIN runs AS live ON live.run_no = s.live_run_no
    WHERE r.queue_no IS NOT NULL AND r.queue_no < 1099511627776
      AND NOT EXISTS (
          SELECT 1 FROM runs AS before
          WHERE before.session_no = r.session_no
            AND before.queue_no IS NOT NULL AND before.queue_no < r.queue_no)";

pub(in crate::store::sqlite) const INTERRUPTED_IN: &str = "
    SELECT r.tenant, live.run_id AS live_run, r.run_id FROM sessions AS s
    JOIN runs AS live ON live.run_no = s.live_run_no
    JOIN runs AS r ON r.session_no = s.session_no
    WHERE s.tenant = ?1 AND s.session_id = ?2 AND r.queue_no IS NOT NULL AND r.queue_no < 1099511627776
    ORDER BY r.queue_no LIMIT 1";

const _: () = assert!(ORDINARY_QUEUE_NO == 1_099_511_627_776, "the number in the statements");

pub(in crate::store::sqlite) const STEERED: &str = "
    SELECT r.run_id, e.payload ->> '$.steer.digest' AS digest
    FROM steers AS t
    JOIN runs AS r ON r.run_no = t.run_no
    JOIN run_events AS e ON e.run_no = t.run_no AND e.seq = t.seq
    WHERE t.tenant = ?1 AND t.request_id = ?2";

/// The run that may enter this session now.
pub(in crate::store::sqlite) async fn next_queued(
    db: &SqlitePool,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Option<RunId>, StoreError> {
    let query = sqlx::query(NEXT_QUEUED).bind(tenant.as_str()).bind(session.as_str());
    one(db, query, |row| rows::run_id(row, "run_id"))
        .await
        .map_err(|error| rows::failure(format_args!("queue of {tenant}/{session}"), &error))
}

/// The runs that may enter their sessions now, one for each session.
pub(in crate::store::sqlite) async fn queue_heads(db: &SqlitePool) -> Result<Vec<RunKey>, StoreError> {
    let found = all(db, sqlx::query(QUEUE_HEADS), runs::key).await;
    found.map_err(|error| rows::failure("queues", &error))
}

/// Every live run that a queued run interrupts.
pub(in crate::store::sqlite) async fn interrupted(db: &SqlitePool) -> Result<Vec<Interrupted>, StoreError> {
    let found = all(db, sqlx::query(INTERRUPTED), row).await;
    found.map_err(|error| rows::failure("interrupted runs", &error))
}

/// The live run of one session, if a queued run interrupts it.
pub(in crate::store::sqlite) async fn interrupted_in(
    db: &SqlitePool,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Option<Interrupted>, StoreError> {
    let query = sqlx::query(INTERRUPTED_IN).bind(tenant.as_str()).bind(session.as_str());
    one(db, query, row)
        .await
        .map_err(|error| rows::failure(format_args!("queue of {tenant}/{session}"), &error))
}

fn row(row: &SqliteRow) -> Result<Interrupted, sqlx::Error> {
    Ok(Interrupted {
        tenant: rows::tenant_id(row, "tenant")?,
        run: rows::run_id(row, "live_run")?,
        by: rows::run_id(row, "run_id")?,
    })
}

/// The run that a request handed its messages to, and the digest of the request.
pub(in crate::store::sqlite) async fn steered(
    db: &SqlitePool,
    tenant: &TenantId,
    id: &RunId,
) -> Result<Option<(RunId, Digest)>, StoreError> {
    let query = sqlx::query(STEERED).bind(tenant.as_str()).bind(id.as_str());
    one(db, query, |row| Ok((rows::run_id(row, "run_id")?, rows::digest(row, "digest")?)))
        .await
        .map_err(|error| rows::failure(format_args!("request {tenant}/{id}"), &error))
}
