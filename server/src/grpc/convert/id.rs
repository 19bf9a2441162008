//! Parses the ids in requests, and names the field of one that is missing or wrong.

use tonic::Status;

use crate::audit;
use crate::grpc::status::Violations;

/// Parses an id that a request must have.
pub(in crate::grpc) fn required<T, E: std::fmt::Display>(
    field: &str,
    text: String,
    parse: impl FnOnce(String) -> Result<T, E>,
) -> Result<T, Status> {
    if text.is_empty() {
        return Err(Violations::single(field, "is required"));
    }
    audit::about(field, &text);
    parse(text).map_err(|problem| Violations::single(field, problem.to_string()))
}

/// Parses an id that a request may leave empty.
pub(in crate::grpc) fn optional<T, E: std::fmt::Display>(
    field: &str,
    text: String,
    parse: impl FnOnce(String) -> Result<T, E>,
) -> Result<Option<T>, Status> {
    if text.is_empty() { Ok(None) } else { required(field, text, parse).map(Some) }
}
