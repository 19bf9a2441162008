//! The RPCs of the contract, for tests that must have a row for each.

use std::collections::BTreeSet;

use agentloop_client::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_types::FileDescriptorSet;

/// Every RPC of the contract, such as `AgentLoop/Run`.
///
/// # Panics
/// When the contract cannot be read.
#[must_use]
pub fn rpcs() -> BTreeSet<String> {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("the contract");
    let services = set.file.iter().flat_map(|file| &file.service);
    let rpcs = services.flat_map(|service| {
        service.method.iter().map(move |rpc| format!("{}/{}", service.name(), rpc.name()))
    });
    rpcs.collect()
}
