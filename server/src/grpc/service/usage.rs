//! `GetUsage`: the usage of the runs that the caller may see.

use agentloop_core::limits::{PAGE_BYTES_MAX, USAGE_ROWS_MAX};
use agentloop_core::time::Millis;
use agentloop_proto::v1 as wire;
use prost::Message as _;
use tonic::Status;

use crate::auth::{Quota, QuotaScope, QuotaUse};
use crate::engine::Engine;
use crate::grpc::caller::Caller;
use crate::grpc::convert::duration;
use crate::grpc::convert::query::usage;
use crate::grpc::status::Violations;

/// Makes the response to a request for usage.
///
/// # Errors
/// INVALID_ARGUMENT if a field is invalid or there are too many rows; the store's.
pub(super) async fn usage_of(
    engine: &Engine,
    caller: &Caller,
    request: wire::GetUsageRequest,
) -> Result<wire::GetUsageResponse, Status> {
    let mut query = usage::query(request, engine.now())?;
    query.created_by = caller.reads_only_of().map(str::to_owned);
    let rows = engine.store().usage(caller.tenant(), &query).await?;
    if rows.len() > USAGE_ROWS_MAX {
        return Err(too_many());
    }
    let rows = rows.into_iter().map(usage::row).collect();
    let uses = engine.quota_uses(caller.tenant(), caller.name()).await?;
    let window = engine.quotas().map(|quotas| quotas.limits().window);
    let quotas = uses.into_iter().map(|used| quota(used, caller.name(), window)).collect();
    let response = wire::GetUsageResponse { rows, quotas };
    if response.encoded_len() > PAGE_BYTES_MAX { Err(too_many()) } else { Ok(response) }
}

fn quota(used: QuotaUse, name: Option<&str>, window: Option<Millis>) -> wire::Quota {
    let holder = match used.scope {
        QuotaScope::Principal => name.unwrap_or_default(),
        QuotaScope::Tenant => "tenant",
    };
    let second = (used.quota == Quota::RequestsPerSecond).then_some(Millis::secs(1));
    wire::Quota {
        name: used.quota.name(used.scope).to_owned(),
        holder: holder.to_owned(),
        limit: used.limit,
        used: used.used,
        window: second.or(window.filter(|_| used.quota.has_window())).map(duration),
    }
}

fn too_many() -> Status {
    let problem = format!(
        "leads to more than {USAGE_ROWS_MAX} rows, or to more than a message holds; take longer buckets, a shorter time or fewer groups"
    );
    Violations::single("bucket", problem)
}
