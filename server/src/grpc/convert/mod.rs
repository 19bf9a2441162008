//! Conversion between the generated wire types and the core's types. Outside of `grpc`, only `app/serving` sees
//! wire types, as it registers the services.

mod compaction;
pub mod event;
pub(crate) mod host;
pub(in crate::grpc) mod id;
pub mod instruction;
pub(crate) mod json;
pub mod message;
pub mod people;
pub mod query;
pub mod replica;
pub mod run;
pub mod run_input;
pub mod session;
pub mod todo;

use std::ops::RangeInclusive;

use agentloop_core::limits::{JSON_DEPTH_MAX, SHORT_TEXT_BYTES_MAX, TOOL_NAME_BYTES_MAX};
use agentloop_core::time::{Millis, Timestamp};
use agentloop_core::tool::is_name;

use crate::grpc::status::Violations;
use crate::schema::depth;

/// The last time that protobuf can express, the end of the year 9999. Other languages refuse a message with a later one.
const TIMESTAMP_MAX: Timestamp = Timestamp(253_402_300_799_999);
/// The longest duration that protobuf can express, about 10,000 years.
const DURATION_MAX: Millis = Millis(315_576_000_000_000);

/// Converts a time in milliseconds to the protobuf type. A time beyond protobuf's range becomes its last one.
#[must_use]
pub fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    let (seconds, nanos) = parts(at.min(TIMESTAMP_MAX).0);
    prost_types::Timestamp { seconds, nanos }
}

/// Converts a duration in milliseconds to the protobuf type. One beyond protobuf's range becomes its longest one.
#[must_use]
pub fn duration(length: Millis) -> prost_types::Duration {
    let (seconds, nanos) = parts(length.min(DURATION_MAX).0);
    prost_types::Duration { seconds, nanos }
}

/// Milliseconds as whole seconds and the nanoseconds beyond them.
fn parts(millis: u64) -> (i64, i32) {
    let seconds = i64::try_from(millis / 1_000).unwrap_or(i64::MAX);
    (seconds, i32::try_from(millis % 1_000 * 1_000_000).unwrap_or_default())
}

/// Parses a duration from a request, rounded up to milliseconds.
///
/// # Errors
/// When it is negative, zero or not a duration.
pub fn millis(length: &prost_types::Duration) -> Result<Millis, &'static str> {
    let seconds = u64::try_from(length.seconds).map_err(|_| "must not be negative")?;
    let nanos = u64::try_from(length.nanos).map_err(|_| "must not be negative")?;
    if nanos >= 1_000_000_000 {
        return Err("must have less than 1,000,000,000 nanos");
    }
    match seconds.saturating_mul(1_000).saturating_add(nanos.div_ceil(1_000_000)) {
        0 => Err("must be longer than zero"),
        total if total > DURATION_MAX.0 => {
            Err("must be at most 315,576,000,000 s, the longest duration of protobuf")
        }
        total => Ok(Millis(total)),
    }
}

/// Checks that a text is a JSON object of bounded depth.
///
/// # Errors
/// The problem, for the caller.
pub fn json_object(text: &str) -> Result<(), String> {
    match serde_json::from_str::<serde_json::Value>(text) {
        Err(error) => Err(unreadable(&error)),
        Ok(value) if !value.is_object() => Err("must be a JSON object".to_owned()),
        Ok(value) if depth(&value) > JSON_DEPTH_MAX => {
            Err(format!("must be nested at most {JSON_DEPTH_MAX} deep"))
        }
        Ok(_) => Ok(()),
    }
}

/// Says why a text cannot be read as JSON. Some of what the standard allows is beyond what is read here.
pub(super) fn unreadable(error: &serde_json::Error) -> String {
    let problem = error.to_string();
    if problem.starts_with("recursion limit exceeded") {
        format!("must be nested at most {JSON_DEPTH_MAX} deep")
    } else if problem.starts_with("number out of range") {
        format!("has a {problem}")
    } else {
        format!("is not JSON: {problem}")
    }
}

/// Checks the length of a short text from a request.
///
/// # Errors
/// When it is longer than `SHORT_TEXT_BYTES_MAX`.
pub fn short(text: String) -> Result<String, String> {
    if text.len() > SHORT_TEXT_BYTES_MAX {
        Err(format!("must be at most {SHORT_TEXT_BYTES_MAX} bytes"))
    } else {
        Ok(text)
    }
}

/// A number of the request. It has the same bounds as the key of the configuration that it replaces.
fn within<T: PartialOrd + Copy + std::fmt::Display>(
    field: &str,
    value: Option<T>,
    bounds: RangeInclusive<T>,
    bad: &mut Violations,
) -> Option<T> {
    let value = value?;
    if value < *bounds.start() {
        bad.add(field, format!("must be at least {}", bounds.start()));
    } else if !bounds.contains(&value) {
        bad.add(field, format!("must be at most {}", bounds.end()));
    }
    Some(value)
}

/// The name of a tool or an extension. No other name can be declared, so the configuration refuses others too.
fn name(field: &str, name: &str, bad: &mut Violations) {
    if !is_name(name) {
        bad.add(field, format!("must be 1 to {TOOL_NAME_BYTES_MAX} of [A-Za-z0-9_-]"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stay_within_what_protobuf_can_express() {
        let end = prost_types::Timestamp { seconds: 253_402_300_799, nanos: 999_000_000 };
        let longest = prost_types::Duration { seconds: 315_576_000_000, nanos: 0 };
        for beyond in [u64::MAX, u64::MAX / 2, 400_000_000_000_000] {
            assert_eq!(timestamp(Timestamp(beyond)), end);
            assert_eq!(duration(Millis(beyond)), longest);
        }
        assert_eq!(timestamp(Timestamp(1_500)), prost_types::Timestamp { seconds: 1, nanos: 500_000_000 });
        assert_eq!(duration(Millis(1_500)), prost_types::Duration { seconds: 1, nanos: 500_000_000 });
    }

    #[test]
    fn durations_of_requests_are_protobufs() {
        let read = |seconds, nanos| millis(&prost_types::Duration { seconds, nanos });
        assert_eq!(read(315_576_000_000, 0), Ok(DURATION_MAX));
        assert_eq!(read(0, 1), Ok(Millis(1)));
        for (seconds, nanos) in
            [(315_576_000_000, 1), (i64::MAX, 0), (i64::MIN, 0), (1, -1), (1, 1_000_000_000), (1, i32::MAX)]
        {
            assert!(read(seconds, nanos).is_err(), "{seconds} s, {nanos} ns");
        }
    }

    #[test]
    fn json_that_is_not_taken_is_not_said_to_be_none() {
        let problem = |text: &str| json_object(text).unwrap_err();
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
        assert_eq!(problem(&deep), format!("must be nested at most {JSON_DEPTH_MAX} deep"));
        assert_eq!(problem(r#"{"a":1e999}"#), "has a number out of range at line 1 column 10");
        assert!(problem("{").starts_with("is not JSON: "));
        assert_eq!(problem("[]"), "must be a JSON object");
    }
}
