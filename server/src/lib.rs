//! The agent loop as a gRPC service.

pub mod secret;

pub mod model;
