//! Messages of the contract as canonical protobuf JSON, which grpcurl prints, too.

use std::sync::LazyLock;

use agentloop_client::FILE_DESCRIPTOR_SET;
use prost::Message;
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage};

static CONTRACT: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the contract was compiled with us"));

/// A message of the contract on one line. `name` is its name within `agentloop.v1`.
pub(crate) fn line(name: &str, message: &impl Message) -> String {
    let descriptor = CONTRACT
        .get_message_by_name(&format!("agentloop.v1.{name}"))
        .expect("every caller names a message of the contract");
    let mut dynamic = DynamicMessage::new(descriptor);
    dynamic.transcode_from(message).expect("the message is of this type");
    serde_json::to_string(&dynamic).expect("a message of the contract has a JSON form")
}

/// A message of the contract from its JSON. Fields that this version does not know are left out.
///
/// # Errors
/// When it is not a message of this name.
pub(crate) fn parse<M: Message + Default>(name: &str, value: serde_json::Value) -> Result<M, String> {
    let descriptor = CONTRACT
        .get_message_by_name(&format!("agentloop.v1.{name}"))
        .expect("every caller names a message of the contract");
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let dynamic = DynamicMessage::deserialize_with_options(descriptor, value, &options)
        .map_err(|error| error.to_string())?;
    dynamic.transcode_to().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use agentloop_client::v1::{RunEvent, RunStarted, RunStatus, run_event::Event};

    use super::*;

    #[test]
    fn a_message_is_canonical_json_on_one_line() {
        let event = RunEvent {
            seq: 7,
            run_id: "r".into(),
            at: Some(prost_types::Timestamp { seconds: 0, nanos: 0 }),
            status: RunStatus::Preparing.into(),
            event: Some(Event::RunStarted(RunStarted { agent: "a\nb".into(), ..RunStarted::default() })),
            ..RunEvent::default()
        };
        assert_eq!(
            line("RunEvent", &event),
            r#"{"seq":"7","runId":"r","at":"1970-01-01T00:00:00Z","status":"RUN_STATUS_PREPARING","runStarted":{"agent":"a\nb"}}"#
        );
    }
}
