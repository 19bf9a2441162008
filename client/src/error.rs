//! Errors of a call, decoded from the gRPC status and its details.

use std::{collections::HashMap, error::Error as _, time::Duration};

use agentloop_proto::v1::ErrorReason;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// The reason why a call failed. A failed run is not an error: the error is in its result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The endpoint or the token given to the builder is invalid.
    #[error("invalid endpoint: {0}")]
    Endpoint(String),
    /// No answer came: the connection could not be made, was lost, or took too long. The call may have taken effect or
    /// not; every call of this client may be repeated.
    #[error("cannot reach the server: {0}")]
    Unreachable(String),
    /// The server answered with an error status.
    #[error(transparent)]
    Status(Box<StatusError>),
    /// The answer lacks a field that the contract requires; holds its name.
    #[error("the server's answer lacks `{0}`")]
    Incomplete(&'static str),
    /// A file of this machine cannot be read or written.
    #[error("{0}")]
    File(#[from] std::io::Error),
    /// The bytes of a blob that came do not have its digest.
    #[error("the bytes that came are not those of the blob")]
    OtherBytes,
}

/// An error status of the server.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}{}", describe(violations))]
#[non_exhaustive]
pub struct StatusError {
    /// The gRPC status code of the answer.
    pub code: Code,
    /// The reason, for people. Programs should not depend on its words.
    pub message: String,
    /// The reason from the contract's list. Absent if the response is not from an agentloop server, such as from a proxy.
    pub reason: Option<ErrorReason>,
    /// Details of the reason by name, such as `run_id` with SESSION_BUSY.
    pub metadata: HashMap<String, String>,
    /// The invalid fields of the request.
    pub violations: Vec<FieldViolation>,
    /// The wait before the next attempt, if the server gives one.
    pub retry_after: Option<Duration>,
}

/// A field of a request that the server refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldViolation {
    /// Path of the field, such as `input.prompt`.
    pub field: String,
    /// The fault of its value, for people.
    pub description: String,
}

fn describe(violations: &[FieldViolation]) -> String {
    // One without a field is about the whole message, and says no more than the status.
    let with_field = violations.iter().filter(|v| !v.field.is_empty());
    with_field.map(|v| format!("\n  {}: {}", v.field, v.description)).collect()
}

impl Error {
    /// The reason from the contract's list, if the server gave one.
    pub fn reason(&self) -> Option<ErrorReason> {
        self.status().and_then(|status| status.reason)
    }

    /// The gRPC status code, if the server answered.
    pub fn code(&self) -> Option<Code> {
        self.status().map(|status| status.code)
    }

    /// The error status, if the server answered.
    pub fn status(&self) -> Option<&StatusError> {
        match self {
            Error::Status(status) => Some(status),
            Error::Endpoint(_)
            | Error::Unreachable(_)
            | Error::Incomplete(_)
            | Error::File(_)
            | Error::OtherBytes => None,
        }
    }

    /// True if no server answered, or the server is going away.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Error::Unreachable(_)) || self.code() == Some(Code::Unavailable)
    }

    /// True if the same call may succeed a little later.
    pub(crate) fn is_transient(&self) -> bool {
        self.is_unreachable() || self.reason() == Some(ErrorReason::OwnershipLost)
    }

    /// The wait that the server gives.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.status().and_then(|status| status.retry_after)
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        if is_transport(&status) || is_cut_by_balancer(&status) {
            return Error::Unreachable(root_cause(&status));
        }
        Error::Status(Box::new(StatusError::from(status)))
    }
}

impl From<Status> for StatusError {
    fn from(status: Status) -> Self {
        let details = status.get_error_details();
        let info = details.error_info();
        let violations = details.bad_request().map(|bad| bad.field_violations.as_slice()).unwrap_or_default();
        StatusError {
            code: status.code(),
            message: status.message().to_owned(),
            reason: info
                .and_then(|info| ErrorReason::from_str_name(&format!("ERROR_REASON_{}", info.reason))),
            metadata: info.map(|info| info.metadata.clone()).unwrap_or_default(),
            violations: violations
                .iter()
                .map(|v| FieldViolation { field: v.field.clone(), description: v.description.clone() })
                .collect(),
            retry_after: details.retry_info().and_then(|retry| retry.retry_delay),
        }
    }
}

/// True if the status was made here, from an error of the connection. A status that the server sent has no source.
fn is_transport(status: &Status) -> bool {
    let is_of_connection = matches!(
        status.code(),
        // The last one is that of a connection that is given up for too many resets (ENHANCE_YOUR_CALM of HTTP/2).
        Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled | Code::ResourceExhausted
    );
    is_of_connection && status.source().is_some() && status.details().is_empty()
}

/// True if there was no connection, so that the server knows nothing of the call.
pub(crate) fn is_unconnected(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// True if the response is that of a balancer whose server is gone: a stream without a status at its end, or a page.
/// The library tells them by nothing but its text.
fn is_cut_by_balancer(status: &Status) -> bool {
    let said = [
        "protocol error: missing grpc-status",
        "protocol error: received message with invalid compression flag",
    ];
    let is_of_library =
        matches!(status.code(), Code::Unknown | Code::Internal) && status.details().is_empty();
    is_of_library && said.iter().any(|text| status.message().starts_with(text))
}

/// The message of the innermost error. It is the specific one, such as "connection refused".
fn root_cause(status: &Status) -> String {
    let mut error: &dyn std::error::Error = status;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn details_are_decoded() {
        let mut details = ErrorDetails::new();
        details
            .set_error_info("SESSION_BUSY", "agentloop.v1", [("run_id".to_owned(), "r-1".to_owned())])
            .add_bad_request_violation("input.prompt", "is empty")
            .set_retry_info(Some(Duration::from_secs(2)));
        let error = Error::from(Status::with_error_details(Code::FailedPrecondition, "busy", details));

        assert_eq!(error.reason(), Some(ErrorReason::SessionBusy));
        assert_eq!(error.code(), Some(Code::FailedPrecondition));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(2)));
        assert_eq!(error.status().expect("a status").metadata["run_id"], "r-1");
        assert_eq!(error.to_string(), "busy\n  input.prompt: is empty");
        assert!(!error.is_transient());
    }

    #[tokio::test]
    async fn a_call_without_a_connection_was_not_sent() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("a bound socket has an address"));
        drop(listener);
        let endpoint = tonic::transport::Endpoint::from_shared(url).expect("a good address");
        let mut client =
            agentloop_proto::v1::agent_loop_client::AgentLoopClient::new(endpoint.connect_lazy());
        let status = client.get_run(agentloop_proto::v1::GetRunRequest::default()).await;
        assert!(is_unconnected(&status.expect_err("nobody listens")));
        assert!(!is_unconnected(&Status::unavailable("restarting")));
    }

    #[test]
    fn a_violation_without_a_field_is_not_told_twice() {
        let mut details = ErrorDetails::new();
        details.add_bad_request_violation("", "cannot be decoded");
        let status = Status::with_error_details(Code::InvalidArgument, "cannot be decoded", details);
        assert_eq!(Error::from(status).to_string(), "cannot be decoded");
    }

    /// The form that a balancer gives to a server that was killed: the end of a stream without a status, or a page.
    #[test]
    fn an_answer_that_a_balancer_cut_is_unreachable() {
        let cut = "protocol error: missing grpc-status trailer, stream was terminated without a final status";
        let page =
            "protocol error: received message with invalid compression flag: 60 (valid flags are 0 and 1)";
        for status in [Status::unknown(cut), Status::internal(page)] {
            assert!(Error::from(status.clone()).is_transient(), "{status}");
        }
        assert!(!Error::from(Status::internal("of the server")).is_transient());
    }

    #[test]
    fn an_error_of_the_connection_is_unreachable() {
        let io = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused");
        let error = Error::from(Status::from_error(Box::new(io)));
        assert!(error.is_unreachable() && error.is_transient(), "{error:?}");
        assert!(error.to_string().contains("connection refused"), "{error}");
    }

    #[test]
    fn a_connection_that_is_given_up_is_unreachable_and_a_server_that_is_full_is_not() {
        let full = Status::resource_exhausted("too many");
        let mut given_up = full.clone();
        given_up.set_source(std::sync::Arc::new(std::io::Error::other("too many streams were reset")));
        assert!(Error::from(given_up).is_unreachable());
        assert!(!Error::from(full).is_transient());
    }

    #[test]
    fn a_status_of_the_server_keeps_its_code() {
        let error = Error::from(Status::internal("a fault"));
        assert_eq!(error.code(), Some(Code::Internal));
        assert!(!error.is_transient());
        assert!(Error::from(Status::unavailable("later")).is_transient());
    }
}
