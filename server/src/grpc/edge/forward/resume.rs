//! The place that a caller has reached in a stream, and the call that goes on from there.

use agentloop_proto::v1 as wire;
use prost::Message;
use tonic::codegen::Bytes;

use crate::grpc::edge::forward::kept::{Kept, PREFIX_BYTES};

/// The call that goes on with the events of a run.
const SUBSCRIBE: &str = "/agentloop.v1.AgentLoop/Subscribe";

/// The place that a caller has reached.
pub(super) enum Place {
    /// In the events of a run.
    Run {
        /// The last durable event that the caller has; 0 before the first.
        after: u64,
        /// The run that the events are of; empty before the first.
        run: String,
        /// True if the messages of the call went to another run. The call itself would not find that run's events again.
        steers: bool,
    },
    /// In a list of changes: the last token, empty before the first.
    Changes(String),
}

/// The fields of an event's message that say where it stands.
#[derive(Clone, PartialEq, Message)]
struct EventMessage {
    #[prost(message, optional, tag = "1")]
    event: Option<EventPlace>,
}

#[derive(Clone, PartialEq, Message)]
struct EventPlace {
    #[prost(uint64, tag = "1")]
    seq: u64,
    #[prost(string, tag = "2")]
    run_id: String,
}

/// The same of `WatchRunsResponse` and `SubscribeSessionResponse`.
#[derive(Clone, PartialEq, Message)]
struct ChangeMessage {
    #[prost(string, tag = "5")]
    resume_token: String,
}

impl Place {
    /// The beginning of a stream of events.
    pub(super) fn before_events(call: &Kept) -> Self {
        let input = call.message().and_then(|message| wire::RunRequest::decode(message).ok()?.input);
        let steers = call.head.path() != SUBSCRIBE
            && input.is_some_and(|input| input.on_busy_session() == wire::BusySessionPolicy::Steer);
        Self::Run { after: 0, run: String::new(), steers }
    }

    /// The beginning of a stream of changes.
    pub(super) fn before_changes() -> Self {
        Self::Changes(String::new())
    }

    /// Notes a message that the caller is about to get. False for a durable event that it has.
    pub(super) fn passes(&mut self, framed: &Bytes) -> bool {
        let message = framed.get(PREFIX_BYTES..).unwrap_or_default();
        match self {
            Self::Run { after, run, .. } => {
                let event = EventMessage::decode(message).ok().and_then(|message| message.event);
                // A transient event has no place.
                let Some(event) = event.filter(|event| event.seq > 0) else { return true };
                let is_new = event.seq > *after;
                if is_new {
                    *after = event.seq;
                    *run = event.run_id;
                }
                is_new
            }
            Self::Changes(last) => {
                let token = ChangeMessage::decode(message).map(|change| change.resume_token);
                if let Some(token) = token.ok().filter(|token| !token.is_empty()) {
                    *last = token;
                }
                true
            }
        }
    }

    /// The call that goes on from here. `RunStream` is called again with the same run, which arms `on_disconnect` at the new
    /// owner too.
    pub(super) fn call(&self, first: &Kept) -> Kept {
        let mut call = first.clone();
        match self {
            Self::Run { after: 0, .. } => {}
            Self::Run { after, run, steers: true } => {
                let request =
                    wire::SubscribeRequest { run_id: run.clone(), after_seq: *after, ..Default::default() };
                return first.with(SUBSCRIBE, &request.encode_to_vec());
            }
            // Both requests have `after_seq` as their second field.
            Self::Run { after, steers: false, .. } => {
                let fields = wire::SubscribeRequest { after_seq: *after, ..Default::default() };
                call.set(&fields.encode_to_vec());
            }
            Self::Changes(token) => {
                // Both requests have `resume_token` as their second field.
                let fields =
                    wire::SubscribeSessionRequest { resume_token: token.clone(), ..Default::default() };
                call.set(&fields.encode_to_vec());
            }
        }
        call
    }
}
