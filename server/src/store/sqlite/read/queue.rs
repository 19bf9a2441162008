//! Runs that wait for their session.

use agentloop_core::id::{RunId, SessionId, TenantId};
use sqlx::SqlitePool;

use super::{all, one, rows, runs};
use crate::store::StoreError;

pub(in super::super) const NEXT_QUEUED: &str = "
    SELECT r.run_id FROM runs AS r
    JOIN sessions AS s ON s.tenant = r.tenant AND s.session_id = r.session_id
    WHERE r.tenant = ?1 AND r.session_id = ?2 AND r.queue_no IS NOT NULL AND s.live_run IS NULL
    ORDER BY r.queue_no LIMIT 1";

pub(in super::super) const QUEUE_HEADS: &str = "
    SELECT r.tenant, r.run_id FROM runs AS r
    JOIN sessions AS s ON s.tenant = r.tenant AND s.session_id = r.session_id
    WHERE r.queue_no IS NOT NULL AND s.live_run IS NULL
      AND NOT EXISTS (
          SELECT 1 FROM runs AS before
          WHERE before.tenant = r.tenant AND before.session_id = r.session_id
            AND before.queue_no IS NOT NULL AND before.queue_no < r.queue_no)
    ORDER BY r.tenant, r.session_id";

/// Who may enter a session now.
pub(in super::super) async fn next_queued(
    db: &SqlitePool,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Option<RunId>, StoreError> {
    let query = sqlx::query(NEXT_QUEUED).bind(tenant.as_str()).bind(session.as_str());
    one(db, query, |row| rows::run_id(row, "run_id"))
        .await
        .map_err(|error| rows::failure(format_args!("queue of {tenant}/{session}"), &error))
}

/// Who may enter any session now.
pub(in super::super) async fn queue_heads(db: &SqlitePool) -> Result<Vec<(TenantId, RunId)>, StoreError> {
    let found = all(db, sqlx::query(QUEUE_HEADS), runs::key).await;
    found.map_err(|error| rows::failure("queues", &error))
}
