//! Jobs after they were written with the end of their run.

use agentloop_core::time::Timestamp;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Error, Sqlite, SqliteConnection};

use crate::store::JobId;
use crate::store::codec::int;

pub(in crate::store::sqlite) const RETRY: &str = "
    UPDATE jobs SET due_at = ?4, attempts = attempts + 1, error = ?5
    WHERE run_no = (SELECT run_no FROM runs WHERE tenant = ?1 AND run_id = ?2) AND kind = ?3";

pub(in crate::store::sqlite) const FINISH: &str = "
    DELETE FROM jobs WHERE run_no = (SELECT run_no FROM runs WHERE tenant = ?1 AND run_id = ?2) AND kind = ?3";

/// Notes a failed try, and when the next one is due.
pub(in crate::store::sqlite) async fn retry(
    db: &mut SqliteConnection,
    job: &JobId,
    due_at: Timestamp,
    error: &str,
) -> Result<(), Error> {
    keyed(RETRY, job).bind(int(due_at.0)).bind(error).execute(db).await?;
    Ok(())
}

/// Removes a job.
pub(in crate::store::sqlite) async fn finish(db: &mut SqliteConnection, job: &JobId) -> Result<(), Error> {
    keyed(FINISH, job).execute(db).await?;
    Ok(())
}

/// With a job's key as its first three parameters.
fn keyed<'q>(sql: &'static str, job: &'q JobId) -> Query<'q, Sqlite, SqliteArguments> {
    sqlx::query(sql).bind(job.tenant.as_str()).bind(job.run.as_str()).bind(job.kind.to_string())
}
