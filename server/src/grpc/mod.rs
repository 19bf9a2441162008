//! The contract, served. Wire types go no further in than this module.

pub mod convert;
pub mod edge;
pub mod service;
pub mod status;

pub use self::edge::{incoming, intake, too_large};
pub use self::service::{agent_loop, sessions, tool_host, tools};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests;
