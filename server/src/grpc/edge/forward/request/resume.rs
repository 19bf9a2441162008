//! The position that a caller has reached in a stream, and the RPC that goes on from there.

use agentloop_core::id::{RunId, RunKey, SessionId};
use agentloop_proto::v1 as wire;
use prost::Message;

use crate::grpc::edge::forward::request::buffered_rpc::BufferedRpc;
use crate::grpc::edge::forward::request::forwarded_rpc::ForwardedRpc as _;
use crate::grpc::edge::forward::route::route_key::RouteKey;
use crate::grpc::edge::message_prefix::PREFIX_BYTES;

/// The RPC that goes on with the events of a run.
const SUBSCRIBE: &str = "/agentloop.v1.AgentLoop/Subscribe";
/// The RPC that starts or joins a run, and has its result.
const RUN: &str = "/agentloop.v1.AgentLoop/Run";
/// The RPC that joins a run, and shows its events.
const RUN_STREAM: &str = "/agentloop.v1.AgentLoop/RunStream";

/// The position that a caller has reached.
pub(in crate::grpc::edge::forward) enum StreamPosition {
    /// In the events that `Subscribe` shows: the last durable one, 0 before the first.
    Subscription(u64),
    /// In the events of a run that the caller started or joined.
    Run(RunPosition),
    /// In a list of changes: the last token, empty before the first.
    Changes(String),
}

/// The position in the events of a run that the caller started or joined.
pub(in crate::grpc::edge::forward) struct RunPosition {
    /// The last durable event that the caller has; 0 before the first.
    after: u64,
    /// The run that the RPC names.
    named: String,
    /// The run that the events are of, and its session; empty before the first.
    run: String,
    session: String,
    on_disconnect: i32,
    /// The id of the RPC's own run, if its messages may go to another one. An RPC with this id would not find that run.
    own_run: Option<String>,
}

/// An RPC that joins a run, with its caller's policy, and shows its events.
pub(in crate::grpc::edge::forward) struct JoinRpc {
    pub(in crate::grpc::edge::forward) rpc: BufferedRpc,
    pub(in crate::grpc::edge::forward) route_key: RouteKey,
}

/// The field of an event's message that has its position.
#[derive(Clone, PartialEq, Message)]
struct EventMessage {
    #[prost(message, optional, tag = "1")]
    event: Option<EventSeq>,
}

#[derive(Clone, PartialEq, Message)]
struct EventSeq {
    #[prost(uint64, tag = "1")]
    seq: u64,
}

/// The fields of the first event's message that name its run and session.
#[derive(Clone, PartialEq, Message)]
struct FirstMessage {
    #[prost(message, optional, tag = "1")]
    event: Option<EventIds>,
}

#[derive(Clone, PartialEq, Message)]
struct EventIds {
    #[prost(string, tag = "2")]
    run_id: String,
    #[prost(string, tag = "3")]
    session_id: String,
}

/// The position in `WatchRunsResponse` and `SubscribeSessionResponse`.
#[derive(Clone, PartialEq, Message)]
struct ChangeMessage {
    #[prost(string, tag = "5")]
    resume_token: String,
}

impl StreamPosition {
    /// The beginning of the stream of `RunStream` or `Subscribe`. The request of `Run` has the same first field.
    pub(in crate::grpc::edge::forward) fn before_events(rpc: &BufferedRpc) -> Self {
        if rpc.head().path() == SUBSCRIBE {
            return Self::Subscription(0);
        }
        let input = rpc.message().and_then(|message| wire::RunStreamRequest::decode(message).ok()?.input);
        let input = input.unwrap_or_default();
        Self::Run(RunPosition {
            after: 0,
            named: input.run_id.clone().unwrap_or_default(),
            run: String::new(),
            session: String::new(),
            on_disconnect: input.on_disconnect,
            own_run: (input.on_busy_session() == wire::BusySessionPolicy::Steer)
                .then_some(input.run_id.unwrap_or_default()),
        })
    }

    /// The beginning of a stream of changes.
    pub(in crate::grpc::edge::forward) fn before_changes() -> Self {
        Self::Changes(String::new())
    }

    /// Notes a message that the caller is about to get. Returns false for a durable event that the caller has already.
    pub(in crate::grpc::edge::forward) fn passes(&mut self, framed: &[u8]) -> bool {
        let message = framed.get(PREFIX_BYTES..).unwrap_or_default();
        let after = match self {
            Self::Changes(last) => {
                let token = ChangeMessage::decode(message).map(|change| change.resume_token);
                if let Some(token) = token.ok().filter(|token| !token.is_empty()) {
                    *last = token;
                }
                return true;
            }
            Self::Subscription(after) => after,
            Self::Run(position) => &mut position.after,
        };
        let event = EventMessage::decode(message).ok().and_then(|message| message.event);
        // A transient event has no position.
        let Some(event) = event.filter(|event| event.seq > 0) else { return true };
        if event.seq <= *after {
            return false;
        }
        *after = event.seq;
        if let Self::Run(position) = self
            && position.run.is_empty()
            && let Some(first) = FirstMessage::decode(message).ok().and_then(|message| message.event)
        {
            (position.run, position.session) = (first.run_id, first.session_id);
        }
        true
    }

    /// True once the run is known, so that its id is all that is needed of the RPC.
    pub(in crate::grpc::edge::forward) fn names_the_run(&self) -> bool {
        matches!(self, Self::Run(position) if position.after > 0)
    }

    /// The session of the run that the caller started or joined, once it is known.
    pub(in crate::grpc::edge::forward) fn session(&self) -> Option<SessionId> {
        let Self::Run(position) = self else { return None };
        SessionId::parse(position.session.as_str()).ok()
    }

    /// The RPC that joins the run of a `Run`, if that is to end with its caller. Other RPCs have none.
    pub(in crate::grpc::edge::forward) fn join_of_run(rpc: &BufferedRpc) -> Option<JoinRpc> {
        (rpc.head().path() == RUN).then(|| Self::before_events(rpc)).and_then(|first| first.join(rpc))
    }

    /// The RPC that joins the run, if the run is to end with this caller.
    pub(in crate::grpc::edge::forward) fn join(&self, first: &BufferedRpc) -> Option<JoinRpc> {
        let Self::Run(position) = self else { return None };
        position.join(first)
    }

    /// The RPC that goes on from here. Of one that started a run, only the run's id is needed from its first event on.
    pub(in crate::grpc::edge::forward) fn rpc(&self, first: &BufferedRpc) -> BufferedRpc {
        let mut rpc = first.clone();
        match self {
            Self::Subscription(0) | Self::Run(RunPosition { after: 0, .. }) => {}
            // The last value of a field counts.
            Self::Subscription(after_seq) => {
                let fields = wire::SubscribeRequest { after_seq: *after_seq, ..Default::default() };
                rpc.set(&fields.encode_to_vec());
            }
            Self::Run(position) => return position.rpc(first),
            Self::Changes(token) => {
                // `WatchRuns` has it as its second field too.
                let fields =
                    wire::SubscribeSessionRequest { resume_token: token.clone(), ..Default::default() };
                rpc.set(&fields.encode_to_vec());
            }
        }
        rpc
    }
}

impl RunPosition {
    /// `RunStream` arms `on_disconnect` at the new owner too. A run that was steered has the policy of whoever started it.
    fn rpc(&self, first: &BufferedRpc) -> BufferedRpc {
        let (run_id, after_seq) = (self.run.clone(), self.after);
        if self.own_run.as_ref().is_some_and(|own| *own != run_id) {
            let request = wire::SubscribeRequest { run_id, after_seq, ..Default::default() };
            return first.with(SUBSCRIBE, &request.encode_to_vec());
        }
        self.join_run(first, run_id)
    }

    fn join(&self, first: &BufferedRpc) -> Option<JoinRpc> {
        let is_others = match &self.own_run {
            Some(own) => *own != self.run,
            None => false,
        };
        if self.on_disconnect != i32::from(wire::DisconnectPolicy::Cancel) || is_others {
            return None;
        }
        let run = if self.run.is_empty() { &self.named } else { &self.run };
        let key = RunKey::new(first.head().tenant(), RunId::parse(run.as_str()).ok()?);
        let rpc = self.join_run(first, run.clone());
        Some(JoinRpc { rpc, route_key: RouteKey::Run(key) })
    }

    fn join_run(&self, first: &BufferedRpc, run_id: String) -> BufferedRpc {
        let on_disconnect = self.on_disconnect;
        let input = wire::RunInput { run_id: Some(run_id), on_disconnect, ..Default::default() };
        let request = wire::RunStreamRequest { input: Some(input), after_seq: self.after };
        first.with(RUN_STREAM, &request.encode_to_vec())
    }
}
