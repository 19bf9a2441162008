//! The environment of this process. The embedded server has a copy of its own, in its configuration.

use std::ffi::{OsStr, OsString};

/// The value of a variable. `None` if it is not set or empty, or is not UTF-8.
#[expect(clippy::disallowed_methods, reason = "this reads the environment for everyone")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The value of a variable, whatever its encoding.
#[expect(clippy::disallowed_methods, reason = "this reads the environment for everyone")]
pub(crate) fn variable_os(name: impl AsRef<OsStr>) -> Option<OsString> {
    std::env::var_os(name)
}
