//! Due jobs, of tenants in turn.

use agentloop_core::id::TenantId;
use agentloop_core::time::Timestamp;
use sqlx::Error;

use super::{all, one, rows};
use crate::store::number::int;
use crate::store::postgres::reader_pool::ReaderPool;
use crate::store::postgres::scope::Scope;
use crate::store::sql::turns::{DueJobs, due_in_turn};
use crate::store::{Job, StoreError};

/// Tenants with due jobs, by their ids after another one. The query goes from tenant to tenant by the index, whatever the number
/// of their jobs.
const TENANTS_WITH_JOBS: &str = "
    WITH RECURSIVE each_one (tenant) AS (
        SELECT (SELECT min(j.tenant) FROM jobs AS j WHERE j.tenant > $1)
        UNION ALL
        SELECT (SELECT min(j.tenant) FROM jobs AS j WHERE j.tenant > one.tenant)
        FROM each_one AS one WHERE one.tenant IS NOT NULL
    )
    SELECT one.tenant FROM each_one AS one
    WHERE EXISTS (
        SELECT 1 FROM jobs AS j
        WHERE j.tenant = one.tenant AND j.due_at <= $2
          AND ($4::bigint[] IS NULL OR EXISTS (
              SELECT 1 FROM runs AS r WHERE r.run_no = j.run_no AND r.shard = ANY ($4))))
    LIMIT $3";

const DUE_JOBS: &str = "
    SELECT j.tenant, r.run_id, s.session_id, j.kind, j.due_at, j.attempts, j.error
    FROM jobs AS j
    JOIN runs AS r ON r.run_no = j.run_no
    JOIN sessions AS s ON s.session_no = r.session_no
    WHERE j.tenant = $1 AND j.due_at <= $2 AND ($4::bigint[] IS NULL OR r.shard = ANY ($4))
    ORDER BY j.due_at, j.run_no, j.kind LIMIT $3";

const NEXT_DUE: &str = "SELECT due_at FROM jobs WHERE due_at > $1 ORDER BY due_at LIMIT 1";

/// The queries for jobs that are due at this time.
struct DueAt<'a> {
    db: &'a ReaderPool,
    now: Timestamp,
    limit: u32,
    /// The shards whose jobs are meant. `None`: all.
    shards: Option<Vec<i64>>,
}

impl DueJobs for DueAt<'_> {
    async fn tenants(&self, after: &str) -> Result<Vec<TenantId>, Error> {
        let (now, limit) = (int(self.now.0), i64::from(self.limit));
        let query =
            sqlx::query(TENANTS_WITH_JOBS).bind(after).bind(now).bind(limit).bind(self.shards.as_deref());
        all(self.db, query, |row| rows::tenant_id(row, "tenant")).await
    }

    async fn jobs(&self, tenant: &TenantId) -> Result<Vec<Job>, Error> {
        let (now, limit) = (int(self.now.0), i64::from(self.limit));
        let query = sqlx::query(DUE_JOBS).bind(tenant.as_str()).bind(now).bind(limit);
        let query = query.bind(self.shards.as_deref());
        all(self.db, query, rows::job).await
    }
}

/// Due jobs of the tenants that come after this one, and the time at which the next one becomes due.
pub(in crate::store::postgres) async fn due_jobs(
    db: &ReaderPool,
    scope: &Scope,
    now: Timestamp,
    after: Option<&TenantId>,
    limit: u32,
) -> Result<(Vec<Job>, Option<Timestamp>), StoreError> {
    let failure = |error| rows::failure("due jobs", &error);
    let due = due_in_turn(&DueAt { db, now, limit, shards: scope.listed() }, after, limit)
        .await
        .map_err(failure)?;
    let next = sqlx::query(NEXT_DUE).bind(int(now.0));
    let next = one(db, next, |row| rows::time(row, "due_at")).await.map_err(failure)?;
    Ok((due, next))
}
