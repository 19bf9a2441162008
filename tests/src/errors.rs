//! Reads and asserts the details of error statuses.

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// The reason in the `ErrorInfo`; empty where there is none.
pub fn reason(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

/// Metadata of the `ErrorInfo`; empty where there is none.
pub fn metadata(status: &Status, key: &str) -> String {
    let info = status.get_details_error_info();
    info.and_then(|info| info.metadata.get(key).cloned()).unwrap_or_default()
}

/// The invalid fields that the error names.
pub fn fields(status: &Status) -> Vec<String> {
    let bad = status.get_details_bad_request();
    bad.into_iter().flat_map(|bad| bad.field_violations).map(|violation| violation.field).collect()
}

/// Asserts that a call failed with this code and reason.
///
/// # Panics
/// When it did not.
#[track_caller]
pub fn assert_refused<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, wanted: &str) -> Status {
    let status = result.expect_err("the call is refused");
    assert_eq!((status.code(), reason(&status).as_str()), (code, wanted), "{status:?}");
    let info = status.get_details_error_info().expect("every error has its reason");
    assert_eq!(info.domain, "agentloop.v1");
    status
}

/// Asserts that a call failed with exactly these invalid fields.
///
/// # Panics
/// When it did not.
#[track_caller]
pub fn assert_invalid<T: std::fmt::Debug>(result: Result<T, Status>, wanted: &[&str]) {
    let status = assert_refused(result, Code::InvalidArgument, "INVALID_FIELD");
    assert_eq!(fields(&status), wanted, "{status:?}");
}
