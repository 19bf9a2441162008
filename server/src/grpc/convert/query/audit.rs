//! Conversion of the audit log.

use agentloop_core::time::Timestamp;
use agentloop_proto::v1 as wire;
use tonic::Status;

use super::filter::time_of;
use crate::audit::{AuditFilter, AuditRow, BrokenLink, ChainOutcome, ChainVerdict};
use crate::grpc::convert::{short, timestamp};
use crate::grpc::status::Violations;

/// The filter of a request of this tenant.
///
/// # Errors
/// INVALID_ARGUMENT with every invalid field.
pub fn filter(tenant: String, filter: wire::AuditFilter) -> Result<AuditFilter, Status> {
    let mut bad = Violations::default();
    let mut time = |field: &str, at: Option<prost_types::Timestamp>| {
        at.and_then(|at| bad.take(&format!("filter.{field}"), time_of(&at)))
    };
    let (from, before) = (time("from_time", filter.from_time), time("to_time", filter.to_time));
    let mut text =
        |field: &str, text: String| bad.take(&format!("filter.{field}"), short(text)).unwrap_or_default();
    let filter = AuditFilter {
        tenant,
        who: text("principal", filter.principal),
        what: text("rpc", filter.rpc),
        run: text("run_id", filter.run_id),
        session: text("session_id", filter.session_id),
        from,
        before,
        denied: filter.denied,
    };
    bad.check()?;
    Ok(filter)
}

/// Converts a row of the audit log.
#[must_use]
pub fn record(row: AuditRow) -> wire::AuditRecord {
    let entry = row.entry;
    wire::AuditRecord {
        no: row.no,
        at: Some(timestamp(Timestamp(entry.at_ms))),
        principal: entry.who,
        tenant: entry.tenant,
        peer: entry.from,
        rpc: entry.what,
        session_id: entry.session,
        run_id: entry.run,
        request_id: entry.request,
        tool: entry.tool,
        allowed: entry.allowed,
        reason: entry.why,
        previous_hash: row.prev_hash,
        hash: row.hash,
    }
}

/// Converts the result of a check. `known_hash` is the hash that it looked for, or empty.
#[must_use]
pub fn outcome(outcome: ChainOutcome, known_hash: &str) -> wire::VerifyAuditResponse {
    match outcome {
        ChainOutcome::Whole(ChainVerdict { rows, first, last, hash }) => wire::VerifyAuditResponse {
            records: rows,
            first_no: first,
            last_no: last,
            last_hash: hash,
            known_hash_found: !known_hash.is_empty(),
            ..Default::default()
        },
        ChainOutcome::Broken(BrokenLink { no, problem }) => {
            wire::VerifyAuditResponse { broken_no: no, problem, ..Default::default() }
        }
    }
}
