//! One file per service of the contract. Each RPC converts the request, calls the engine and converts the result.

pub mod agent_loop;
pub mod blobs;
mod call_titles;
mod export;
pub(in crate::grpc) mod ownership;
pub(in crate::grpc) mod policy;
pub mod server;
pub mod sessions;
pub mod tool_host;
pub mod tools;
mod usage;
