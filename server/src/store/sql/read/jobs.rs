//! Due jobs, of tenants in turn.

use agentloop_core::id::TenantId;
use agentloop_core::time::Timestamp;
use sqlx::Error;

use super::{all, one};
use crate::store::sql::column::{tenant_id, time};
use crate::store::sql::query::Query;
use crate::store::sql::reader::{Dialect, SqlReader};
use crate::store::sql::row::job;
use crate::store::sql::turns::{DueJobs, due_in_turn};
use crate::store::support::number::int;
use crate::store::{Job, StoreError};

pub(in crate::store) const NEXT_DUE: &str =
    "SELECT due_at FROM jobs WHERE due_at > $1 ORDER BY due_at LIMIT 1";

/// The queries for jobs that are due at this time.
struct DueAt<'a, R> {
    db: &'a R,
    now: Timestamp,
    limit: u32,
}

impl<R: SqlReader> DueJobs for DueAt<'_, R> {
    async fn tenants(&self, after: &str) -> Result<Vec<TenantId>, Error> {
        let query =
            Query::new(R::Dialect::TENANTS_WITH_JOBS).with(after).with(int(self.now.0)).with(self.limit);
        all(self.db, self.db.in_scope(query), |row| tenant_id(row, "tenant")).await
    }

    async fn jobs(&self, tenant: &TenantId) -> Result<Vec<Job>, Error> {
        let query =
            Query::new(R::Dialect::DUE_JOBS).with(tenant.as_str()).with(int(self.now.0)).with(self.limit);
        all(self.db, self.db.in_scope(query), job).await
    }
}

/// Due jobs of the tenants that come after this one, and the time at which the next one becomes due.
pub(in crate::store) async fn due_jobs<R: SqlReader>(
    db: &R,
    now: Timestamp,
    after: Option<&TenantId>,
    limit: u32,
) -> Result<(Vec<Job>, Option<Timestamp>), StoreError> {
    let failure = |error| R::failure("due jobs", &error);
    let due = due_in_turn(&DueAt { db, now, limit }, after, limit).await.map_err(failure)?;
    let next = Query::new(NEXT_DUE).with(int(now.0));
    let next = one(db, next, |row| time(row, "due_at")).await.map_err(failure)?;
    Ok((due, next))
}
