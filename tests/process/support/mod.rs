//! Helpers for these tests only: `grpcurl` and memory measurement.

pub(crate) mod grpcurl;
pub(crate) mod memory;

pub(crate) use agentloop_tests::process::*;
