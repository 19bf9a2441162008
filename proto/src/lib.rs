//! The `agentloop.v1` contract as Rust types, clients and service traits.
//!
//! Everything here but [`EventFrame`] is generated from `proto/agentloop/v1/*.proto`, which is also the reference manual.

mod frame;

pub use frame::EventFrame;

/// The messages and services of package `agentloop.v1`.
#[expect(
    clippy::large_enum_variant,
    reason = "generated: which messages are large follows from the contract"
)]
pub mod v1 {
    tonic::include_proto!("agentloop.v1");
    include!(concat!(env!("OUT_DIR"), "/servers/agentloop.v1.rs"));
}

/// The contract as an encoded `FileDescriptorSet`, comments included: what server reflection serves.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agentloop.bin"));
