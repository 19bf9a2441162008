//! The contract, served. Wire types go no further in than this module.

pub mod agent_loop;
pub mod convert;
pub mod incoming;
pub mod intake;
pub mod sessions;
pub mod status;
pub mod too_large;
pub mod tool_host;
pub mod tools;

mod disconnect;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod page;
mod policy;

#[cfg(test)]
mod tests;
