//! Changes of jobs, which appends have written: retries and deletions.

use agentloop_core::time::Timestamp;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Error, Sqlite, SqliteConnection};

use crate::store::JobId;
use crate::store::support::number::int;

pub(in crate::store::sqlite) const RETRY: &str = "
    UPDATE jobs SET due_at = ?4, attempts = attempts + 1, error = ?5
    WHERE run_no = (SELECT run_no FROM runs WHERE tenant = ?1 AND run_id = ?2) AND kind = ?3";

pub(in crate::store::sqlite) const FINISH: &str = "
    DELETE FROM jobs WHERE run_no = (SELECT run_no FROM runs WHERE tenant = ?1 AND run_id = ?2) AND kind = ?3";

/// Records a failed attempt, and when the next one is due.
pub(in crate::store::sqlite) async fn retry(
    db: &mut SqliteConnection,
    job: &JobId,
    due_at: Timestamp,
    error: &str,
) -> Result<(), Error> {
    keyed(RETRY, job).bind(int(due_at.0)).bind(error).execute(db).await?;
    Ok(())
}

/// Deletes a job that is done or given up.
pub(in crate::store::sqlite) async fn finish(db: &mut SqliteConnection, job: &JobId) -> Result<(), Error> {
    keyed(FINISH, job).execute(db).await?;
    Ok(())
}

/// A query whose first three parameters are a job's key.
fn keyed<'q>(sql: &'static str, job: &'q JobId) -> Query<'q, Sqlite, SqliteArguments> {
    sqlx::query(sql).bind(job.tenant.as_str()).bind(job.run.as_str()).bind(job.kind.to_string())
}
