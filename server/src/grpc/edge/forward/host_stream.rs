//! The stream of a tool host that goes through this replica to the hub, and its end when this replica stops.
//!
//! A stop has two steps, as at the hub. First this replica says for the host that it drains, so the hub offers it no more
//! calls. A moment later it tells the host to connect again. In between, an offer on its way reaches the host, and the host's
//! reply reaches the hub. So no offered call is lost before its host has heard of it.

use std::sync::Arc;

use agentloop_proto::v1;
use agentloop_proto::v1::connect_request::Frame as HostFrame;
use agentloop_proto::v1::connect_response::Frame as ServerFrame;
use futures_util::stream::unfold;
use http_body::Frame;
use prost::Message as _;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http;

use crate::grpc::edge::forward::outcome::{broken_off_status, refusal};
use crate::grpc::edge::forward::request::boundary::Boundary;
use crate::grpc::edge::forward::route::routing::{EndSignal, Routing};
use crate::grpc::edge::forward::route::shutdown::shutting_down;
use crate::grpc::edge::forward::wire::bodies::{NextFrame, end_with, next_frame, of_frames};
use crate::grpc::edge::message_prefix::framed;

/// The frames of a host, and what is known of them.
struct FromHost {
    body: Body,
    boundary: Boundary,
    /// `None` once the host was said to drain.
    stopping: Option<EndSignal>,
}

/// The requests of a host. When this replica stops, they say that the host takes no more calls.
pub(super) fn requests(routing: &Arc<Routing>, body: Body) -> Body {
    let stopping = Some(routing.stopping_stream());
    let host = FromHost { body, boundary: Boundary::default(), stopping };
    of_frames(unfold(Some(host), async |host| host?.next().await))
}

impl FromHost {
    async fn next(mut self) -> Option<(NextFrame, Option<Self>)> {
        // Before its first message nobody knows the host.
        let may_drain = self.boundary.messages() > 0 && self.boundary.is_between();
        let frame = match self.stopping.as_mut().filter(|_| may_drain) {
            Some(stopping) => tokio::select! {
                biased;
                () = stopping => None,
                frame = next_frame(&mut self.body) => Some(frame),
            },
            None => Some(next_frame(&mut self.body).await),
        };
        let Some(frame) = frame else {
            self.stopping = None;
            let draining = v1::Draining { reason: shutting_down().message().to_owned() };
            let draining = v1::ConnectRequest { frame: Some(HostFrame::Draining(draining)) };
            return Some((Ok(Frame::data(framed(&[&draining.encode_to_vec()]))), Some(self)));
        };
        let frame = frame?;
        let Ok(passed) = &frame else { return Some((frame, None)) };
        self.boundary.pass(passed);
        Some((frame, Some(self)))
    }
}

/// The frames for a host.
struct ToHost {
    body: Body,
    boundary: Boundary,
    ownership_lost: EndSignal,
    /// Resolves when the host has had time for the offers on its way.
    stopped: EndSignal,
}

/// The step after a frame for a host.
enum HostStreamStep {
    Pass(Box<ToHost>),
    /// The stream ends well after a `go_away`.
    End,
}

/// The responses for a host. They end with UNAVAILABLE when the hub moves or the link breaks. When this replica stops, the host
/// is told to connect again, a moment after it was said to drain. The runs of this replica have stopped by then, because they
/// wait for replies to their own offers.
pub(super) fn responses(
    routing: &Arc<Routing>,
    response: http::Response<Body>,
    ownership_lost: EndSignal,
    runs_stopped: CancellationToken,
) -> http::Response<Body> {
    if refusal(&response).is_some() {
        return response;
    }
    let waiting = routing.clone();
    let stopped: EndSignal = Box::pin(async move {
        waiting.stopped().await;
        runs_stopped.cancelled().await;
    });
    response.map(|body| {
        let host = Box::new(ToHost { body, boundary: Boundary::default(), ownership_lost, stopped });
        of_frames(unfold(Some(HostStreamStep::Pass(host)), async |next| match next? {
            HostStreamStep::Pass(host) => Some(host.next().await),
            HostStreamStep::End => Some((end_with(&Status::ok("")), None)),
        }))
    })
}

impl ToHost {
    async fn next(mut self: Box<Self>) -> (NextFrame, Option<HostStreamStep>) {
        let frame = tokio::select! {
            biased;
            () = &mut self.stopped => return self.go_away(),
            () = &mut self.ownership_lost => None,
            frame = next_frame(&mut self.body) => frame.and_then(Result::ok),
        };
        match frame {
            None => (end_with(&broken_off_status()), None),
            Some(frame) if frame.is_trailers() => (Ok(frame), None),
            Some(frame) => {
                self.boundary.pass(&frame);
                (Ok(frame), Some(HostStreamStep::Pass(self)))
            }
        }
    }

    /// Tells the host to connect again. In the middle of a message nothing can be said.
    fn go_away(&self) -> (NextFrame, Option<HostStreamStep>) {
        if !self.boundary.is_between() {
            return (end_with(&shutting_down()), None);
        }
        let reason = shutting_down().message().to_owned();
        let go_away = v1::GoAway { reconnect_after: Some(prost_types::Duration::default()), reason };
        let go_away = v1::ConnectResponse { frame: Some(ServerFrame::GoAway(go_away)) };
        (Ok(Frame::data(framed(&[&go_away.encode_to_vec()]))), Some(HostStreamStep::End))
    }
}
