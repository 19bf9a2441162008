//! A message that is too large, or is none, never reaches a handler: what the transport says of it is put into the
//! contract's words.

use agentloop_proto::v1::ErrorReason;
use tonic::body::Body;
use tonic::codegen::http::Response;
use tonic::{Code, Status};

use super::status::status;

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
