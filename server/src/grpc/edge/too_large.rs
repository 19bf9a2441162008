//! A message that is too large, or is none, never reaches a handler: what the transport says of it is put into the
//! contract's words.

use agentloop_proto::v1::ErrorReason;
use tonic::body::Body;
use tonic::codegen::http::Response;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::grpc::status::status;

/// The response as it is, or the contract's error in place of the transport's.
#[must_use]
pub fn in_the_contracts_words(response: Response<Body>) -> Response<Body> {
    match Status::from_header_map(response.headers()) {
        // The contract's own errors of this code carry details.
        Some(error) if error.code() == Code::OutOfRange && error.details().is_empty() => {
            status(Code::ResourceExhausted, ErrorReason::MessageTooLarge, error.message(), []).into_http()
        }
        // Ours is never said without details: this is about bytes that cannot be decoded.
        Some(error) if error.code() == Code::Internal && error.details().is_empty() => {
            status(Code::InvalidArgument, ErrorReason::InvalidField, error.message(), []).into_http()
        }
        Some(_) | None => response,
    }
}

/// Why a response is a refusal because something is full, in a word of the contract. A stream that ends with one is not
/// seen here.
#[must_use]
pub fn refused_for(response: &Response<Body>) -> Option<&'static str> {
    let error = Status::from_header_map(response.headers())?;
    if error.code() != Code::ResourceExhausted {
        return None;
    }
    let named = error.get_details_error_info().map(|details| details.reason).unwrap_or_default();
    let reason = ErrorReason::from_str_name(&format!("ERROR_REASON_{named}")).unwrap_or_default();
    Some(reason.as_str_name().trim_start_matches("ERROR_REASON_"))
}
