//! Messages of the contract as canonical protobuf JSON.

use std::sync::LazyLock;

use agentloop_proto::FILE_DESCRIPTOR_SET;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};

static CONTRACT: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the contract was compiled with us"));

/// A JSON object on one line with a message as the value of its one key. `name` is the message's name within
/// `agentloop.v1`.
pub(crate) fn keyed(key: &str, name: &str, message: &impl Message) -> String {
    let descriptor = CONTRACT
        .get_message_by_name(&format!("agentloop.v1.{name}"))
        .expect("every caller names a message of the contract");
    let mut dynamic = DynamicMessage::new(descriptor);
    dynamic.transcode_from(message).expect("the message is of this type");
    let value = serde_json::to_string(&dynamic).expect("a message of the contract has a JSON form");
    format!("{{\"{key}\":{value}}}")
}
