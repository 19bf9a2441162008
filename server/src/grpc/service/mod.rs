//! The services of the contract: convert, ask the engine, convert.

pub mod agent_loop;
pub(in crate::grpc) mod policy;
pub mod sessions;
pub mod tool_host;
pub mod tools;
