//! An event as a server sends it.

use bytes::Bytes;
use prost::Message as _;

use crate::v1::RunEvent;

/// A [`RunStreamResponse`](crate::v1::RunStreamResponse) or a [`SubscribeResponse`](crate::v1::SubscribeResponse) whose
/// event is encoded already, so that all whom it is sent to can share that. On the wire there is no difference.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct EventFrame {
    /// The bytes of the encoded [`RunEvent`].
    #[prost(bytes = "bytes", tag = "1")]
    pub event: Bytes,
}

impl From<&RunEvent> for EventFrame {
    fn from(event: &RunEvent) -> Self {
        Self { event: event.encode_to_vec().into() }
    }
}

#[cfg(test)]
mod tests {
    use prost_types::field_descriptor_proto::{Label, Type};
    use prost_types::{DescriptorProto, FileDescriptorSet};

    use super::*;
    use crate::v1::{RunStreamResponse, SubscribeResponse};

    #[test]
    fn the_answers_it_stands_for_have_nothing_but_the_event() {
        let set = FileDescriptorSet::decode(crate::FILE_DESCRIPTOR_SET).unwrap();
        let messages: Vec<&DescriptorProto> = set.file.iter().flat_map(|file| &file.message_type).collect();
        for name in ["RunStreamResponse", "SubscribeResponse"] {
            let message = messages.iter().find(|message| message.name() == name).unwrap();
            let [field] = &message.field[..] else { panic!("{name} has other fields than one") };
            assert_eq!((field.name(), field.number()), ("event", 1));
            assert_eq!((field.r#type(), field.type_name()), (Type::Message, ".agentloop.v1.RunEvent"));
            assert_eq!(field.label(), Label::Optional);
        }
    }

    #[test]
    fn on_the_wire_there_is_no_difference() {
        let event = RunEvent { seq: 7, run_id: "r".into(), ..RunEvent::default() };
        let sent = EventFrame::from(&event).encode_to_vec();
        assert_eq!(sent, RunStreamResponse { event: Some(event.clone()) }.encode_to_vec());
        assert_eq!(sent, SubscribeResponse { event: Some(event) }.encode_to_vec());
    }
}
