//! RPCs that a replica of an earlier version has refused. It reports them to the hub, because it has no audit log of its own. Each
//! replica of this version has one.

use serde::Deserialize;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http;

use crate::grpc::edge::audit::{AuditLog, CountedRefusals, RefusedRpc};
use crate::grpc::edge::forward::wire::bodies::read;

/// The RPC with which a replica tells of refusals. Only the port for replicas takes it.
pub(in crate::grpc::edge) const REFUSED: &str = "/agentloop.replica/Refused";
/// Size of one report, in bytes: the texts of 64 rows fit, however they are escaped.
const REPORT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The message of one report.
#[derive(Default, Deserialize)]
struct Report {
    refused: Vec<RefusedRpc>,
    /// The number of refused RPCs that have no row of their own, by cause.
    counted: CountedRefusals,
}

/// Writes the report of another replica to the audit log, if there is one.
pub(in crate::grpc::edge) async fn take(audit: Option<AuditLog>, request: http::Request<Body>) -> Status {
    let Some(bytes) = read(request.into_body(), REPORT_BYTES_MAX).await else {
        return Status::invalid_argument("the report of refused RPCs is too large, or broke off");
    };
    let Ok(report) = serde_json::from_slice::<Report>(&bytes) else {
        return Status::invalid_argument("the report of refused RPCs cannot be read");
    };
    if let Some(audit) = audit {
        for mut refused in report.refused {
            refused.entry.allowed = false;
            audit.record_refusal(refused);
        }
        audit.add_counted(report.counted);
    }
    Status::ok("")
}
