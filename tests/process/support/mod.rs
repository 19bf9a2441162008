//! What only these tests use, beside the harness for processes.

pub(crate) mod grpcurl;
pub(crate) mod memory;

pub(crate) use agentloop_tests::process::*;
