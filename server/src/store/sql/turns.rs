//! Due jobs of tenants in turn.

use agentloop_core::id::TenantId;
use sqlx::Error;

use crate::store::Job;

/// The queries for jobs that are due at one moment.
pub(in crate::store) trait DueJobs: Sync {
    /// The tenants with due jobs, by their ids, that come after this text.
    fn tenants(&self, after: &str) -> impl Future<Output = Result<Vec<TenantId>, Error>> + Send;

    /// The jobs of a tenant, the one that is due longest first.
    fn jobs(&self, tenant: &TenantId) -> impl Future<Output = Result<Vec<Job>, Error>> + Send;
}

/// Due jobs of the tenants that come after this one by their ids, then of those up to it: at most `limit` tenants.
///
/// # Errors
/// SQL's own.
pub(in crate::store) async fn due_in_turn(
    queries: &impl DueJobs,
    after: Option<&TenantId>,
    limit: u32,
) -> Result<Vec<Job>, Error> {
    let after = after.map_or("", TenantId::as_str);
    let mut tenants = queries.tenants(after).await?;
    if !after.is_empty() {
        let begin = queries.tenants("").await?;
        tenants.extend(begin.into_iter().take_while(|tenant| tenant.as_str() <= after));
        tenants.truncate(limit as usize);
    }
    let mut due = Vec::new();
    for tenant in &tenants {
        due.extend(queries.jobs(tenant).await?);
    }
    Ok(due)
}
