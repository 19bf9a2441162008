//! The agent loop as a gRPC service.

pub mod grpc;
pub mod model;
pub mod store;
pub mod tool;
