//! Conversion between the generated wire types and the core's types. No code below this module sees a wire type.

mod context;
pub mod event;
pub(crate) mod extension;
pub(crate) mod host;
pub mod human;
pub mod input;
pub mod instruction;
pub mod message;
pub(crate) mod policy;
pub mod reuse;
pub mod run;
pub(crate) mod server_frame;
pub mod session;

use agentloop_core::limits::{JSON_DEPTH_MAX, SHORT_TEXT_BYTES_MAX};
use agentloop_core::time::{Millis, Timestamp};

/// Converts a time in milliseconds to the protobuf type.
#[must_use]
pub fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: i64::try_from(at.0 / 1_000).unwrap_or(i64::MAX),
        nanos: i32::try_from(at.0 % 1_000 * 1_000_000).unwrap_or_default(),
    }
}

/// Converts a duration in milliseconds to the protobuf type.
#[must_use]
pub fn duration(length: Millis) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(length.0 / 1_000).unwrap_or(i64::MAX),
        nanos: i32::try_from(length.0 % 1_000 * 1_000_000).unwrap_or_default(),
    }
}

/// Parses a duration from a request, rounded up to milliseconds.
///
/// # Errors
/// When it is negative, zero or not a duration.
pub fn millis(length: &prost_types::Duration) -> Result<Millis, &'static str> {
    let seconds = u64::try_from(length.seconds).map_err(|_| "must not be negative")?;
    let nanos = u64::try_from(length.nanos).map_err(|_| "must not be negative")?;
    match seconds.saturating_mul(1_000).saturating_add(nanos.div_ceil(1_000_000)) {
        0 => Err("must be longer than zero"),
        total => Ok(Millis(total)),
    }
}

/// Checks that a text is a JSON object of bounded depth.
///
/// # Errors
/// The problem, for the caller.
pub fn json_object(text: &str) -> Result<(), String> {
    match serde_json::from_str::<serde_json::Value>(text) {
        Err(error) => Err(format!("is not JSON: {error}")),
        Ok(value) if !value.is_object() => Err("must be a JSON object".to_owned()),
        Ok(value) if depth(&value) > JSON_DEPTH_MAX => {
            Err(format!("must be nested at most {JSON_DEPTH_MAX} deep"))
        }
        Ok(_) => Ok(()),
    }
}

fn depth(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        serde_json::Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => 0,
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
