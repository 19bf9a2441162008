//! The gRPC services. Generated wire types are used in this module, and in `app/serving`, which registers the services. Everything
//! below works with the core's types.

mod access;
mod bounded;
mod caller;
pub mod convert;
pub mod edge;
mod repetition;
mod rpc;
pub mod service;
pub mod status;

pub use self::edge::{incoming, receive_budget, transport_errors};
pub use self::service::{agent_loop, server, sessions, tool_host, tools};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests;
