//! `GetUsage`: the usage of the runs that the caller may see.

use agentloop_core::limits::{PAGE_BYTES_MAX, USAGE_ROWS_MAX};
use agentloop_proto::v1 as wire;
use prost::Message as _;
use tonic::Status;

use crate::engine::Engine;
use crate::grpc::convert::usage;
use crate::grpc::edge::identity::Caller;
use crate::grpc::status::Violations;

/// Answers a request for usage.
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
    let answer = wire::GetUsageResponse { rows, ..Default::default() };
    if answer.encoded_len() > PAGE_BYTES_MAX { Err(too_many()) } else { Ok(answer) }
}

fn too_many() -> Status {
    let problem = format!(
        "leads to more than {USAGE_ROWS_MAX} rows, or to more than a message holds; take longer buckets, a shorter time or fewer groups"
    );
    Violations::single("bucket", problem)
}
