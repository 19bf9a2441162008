//! The `agentloop.v1` contract as Rust types, clients and service traits.
//!
//! Everything here is generated from `proto/agentloop/v1/*.proto`, which is also the reference manual.

/// Package `agentloop.v1`.
#[expect(
    clippy::large_enum_variant,
    reason = "generated: which messages are large follows from the contract"
)]
pub mod v1 {
    tonic::include_proto!("agentloop.v1");
}

/// The contract as an encoded `FileDescriptorSet`, comments included: what server reflection serves.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agentloop.bin"));
