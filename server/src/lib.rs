//! The agent loop as a gRPC service: a library to embed, and the server behind the command `agentloop serve`. Start with
//! [`app::Server`].

#![warn(missing_docs)]
#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests start tasks of their own"))]

pub mod audit;
pub mod auth;
mod bounded_file;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod fair;
pub mod ids;
pub mod lifecycle;
pub mod mask;
pub mod memory;
mod pace;
mod schema;
pub mod secret;
pub mod telemetry;

pub mod extension;

pub mod model;
pub mod store;
pub mod tool;

pub mod engine;

pub mod grpc;

mod alarm;
pub mod app;

#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
