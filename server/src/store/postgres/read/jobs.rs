//! Jobs by their time.

use agentloop_core::time::Timestamp;
use sqlx::PgPool;

use super::{all, rows};
use crate::store::{Job, StoreError};

const DUE_JOBS: &str = "
    SELECT r.tenant, r.run_id, s.session_id, j.kind, j.due_at, j.attempts, j.error
    FROM jobs AS j
    JOIN runs AS r ON r.run_no = j.run_no
    JOIN sessions AS s ON s.session_no = r.session_no
    ORDER BY j.due_at, j.run_no, j.kind LIMIT $1";

/// Jobs that are due, and the time at which the next one is.
pub(in crate::store::postgres) async fn due_jobs(
    db: &PgPool,
    now: Timestamp,
    limit: u32,
) -> Result<(Vec<Job>, Option<Timestamp>), StoreError> {
    let query = sqlx::query(DUE_JOBS).bind(i64::from(limit) + 1);
    let mut waiting = all(db, query, rows::job).await.map_err(|error| rows::failure("due jobs", &error))?;
    let due = waiting.iter().take_while(|job| job.due_at <= now).count().min(limit as usize);
    let next = waiting.get(due).map(|job| job.due_at);
    waiting.truncate(due);
    Ok((waiting, next))
}
