//! Rewrites the transport's own errors into errors of the contract. The transport refuses messages that are too large
//! or cannot be decoded before a handler sees them.

use agentloop_proto::v1::ErrorReason;
use tonic::body::Body;
use tonic::codegen::http::Response;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::grpc::status::{Violations, status};

/// Replaces an error of the transport by the contract's error. Other responses are unchanged.
#[must_use]
pub fn with_contract_status(response: Response<Body>) -> Response<Body> {
    match Status::from_header_map(response.headers()) {
        // The contract's own errors of this code carry details.
        Some(error) if error.code() == Code::OutOfRange && error.details().is_empty() => {
            status(Code::ResourceExhausted, ErrorReason::MessageTooLarge, error.message(), []).into_http()
        }
        // The server's own INTERNAL always has details, so this one is about bytes that cannot be decoded.
        Some(error) if error.code() == Code::Internal && error.details().is_empty() => {
            Violations::single("", error.message()).into_http()
        }
        Some(_) | None => response,
    }
}

/// The reason of a RESOURCE_EXHAUSTED response, for metrics. Streams that end with one later are not seen here.
#[must_use]
pub fn overload_reason(response: &Response<Body>) -> Option<&'static str> {
    let error = Status::from_header_map(response.headers())?;
    if error.code() != Code::ResourceExhausted {
        return None;
    }
    let named = error.get_details_error_info().map(|details| details.reason).unwrap_or_default();
    let reason = ErrorReason::from_str_name(&format!("ERROR_REASON_{named}")).unwrap_or_default();
    Some(reason.as_str_name().trim_start_matches("ERROR_REASON_"))
}
