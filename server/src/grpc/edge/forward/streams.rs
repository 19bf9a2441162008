//! Streams that go on at the next owner, so that their caller notices a pause and nothing else. The owner may be this replica.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use agentloop_core::cluster::shard::shard_of;
use futures_util::stream::unfold;
use http_body::Frame;
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{self, HeaderMap};

use crate::grpc::edge::forward::caller_presence::CallerPresence;
use crate::grpc::edge::forward::outcome::{no_owner_status, refusal};
use crate::grpc::edge::forward::request::buffered_rpc::BufferedRpc;
use crate::grpc::edge::forward::request::forwarded_rpc::ForwardedRpc as _;
use crate::grpc::edge::forward::request::messages::Messages;
use crate::grpc::edge::forward::request::resume::StreamPosition;
use crate::grpc::edge::forward::route::route_key::RouteKey;
use crate::grpc::edge::forward::route::routing::{EndSignal, Recipient, Routing, RpcHandler, SEARCH_WAIT};
use crate::grpc::edge::forward::route::rpc_place::RpcPlace;
use crate::grpc::edge::forward::route::shutdown::shutting_down;
use crate::grpc::edge::forward::send::{SendOptions, may_be_sent_again, send};
use crate::grpc::edge::forward::wire::bodies::{NextFrame, end_with, next_frame, of_frames};
use crate::grpc::edge::forward::wire::metadata::LOOK_AGAIN;
use crate::grpc::status::leaves_it_to_another;

/// A stream that broke sooner and without any message counts as fruitless.
const SHORT: Duration = Duration::from_secs(1);
/// Fruitless streams in a row before the caller is refused. There is a pause after each.
const FRUITLESS_MAX: u32 = 50;

/// Has an RPC with a stream done, and goes on from `position` wherever the stream breaks.
pub(super) async fn follow(
    routing: Arc<Routing>,
    rpc: BufferedRpc,
    route_key: RouteKey,
    position: StreamPosition,
) -> http::Response<Body> {
    let mut caller = CallerPresence::new(&routing, position.join(&rpc));
    let sent = send(&routing, &rpc, &route_key, SendOptions::stream(), caller.at()).await;
    let Some(from) = sent.from.filter(|_| refusal(&sent.response).is_none()) else {
        caller.stays();
        return sent.response;
    };
    let (parts, body) = sent.response.into_parts();
    let source = Source::new(&routing, from, body);
    let (fruitless, forgot_input) = (0, false);
    let stream =
        ForwardedStream { routing, rpc, route_key, position, source, caller, fruitless, forgot_input };
    let frames = unfold(Some(stream), async |stream| stream?.next_frame().await);
    http::Response::from_parts(parts, of_frames(frames))
}

/// A stream on its way to its caller.
struct ForwardedStream {
    routing: Arc<Routing>,
    rpc: BufferedRpc,
    route_key: RouteKey,
    position: StreamPosition,
    source: Source,
    caller: CallerPresence,
    /// True once the input of the run is not kept any more.
    forgot_input: bool,
    /// Fruitless streams in a row.
    fruitless: u32,
}

/// The stream of one owner, which may be this replica.
struct Source {
    recipient: Recipient,
    handler: RpcHandler,
    body: Body,
    ownership_lost: EndSignal,
    /// Resolves when this replica stops. Its own services end their streams themselves.
    stopping: EndSignal,
    messages: Messages,
    began: Instant,
    is_fruitful: bool,
}

/// The next item of a source.
enum NextItem {
    Bytes(tonic::codegen::Bytes),
    /// The owner ended the stream, with these trailers.
    Ended(HeaderMap),
    /// The owner is not the owner any more, or the link broke.
    Broken,
    /// This replica stops, so its caller has to connect to another one.
    Stopping,
}

impl Source {
    fn new(routing: &Arc<Routing>, (recipient, handler): (Recipient, RpcHandler), body: Body) -> Self {
        let (ownership_lost, stopping) = (routing.ownership_lost(recipient), routing.stopping_for(recipient));
        let (messages, began) = (Messages::default(), Instant::now());
        Self { recipient, handler, body, ownership_lost, stopping, messages, began, is_fruitful: false }
    }

    async fn next(&mut self) -> NextItem {
        let frame = tokio::select! {
            biased;
            () = &mut self.stopping => return NextItem::Stopping,
            () = &mut self.ownership_lost => return NextItem::Broken,
            frame = next_frame(&mut self.body) => frame,
        };
        let Some(Ok(frame)) = frame else { return NextItem::Broken };
        match frame.into_data() {
            Ok(bytes) => NextItem::Bytes(bytes),
            Err(frame) => frame.into_trailers().map_or(NextItem::Broken, NextItem::Ended),
        }
    }
}

impl ForwardedStream {
    /// The next frame for the caller, and what follows it.
    async fn next_frame(mut self) -> Option<(NextFrame, Option<Self>)> {
        match self.advance().await {
            ControlFlow::Continue(frame) => Some((frame, Some(self))),
            ControlFlow::Break(last) => {
                self.caller.stays();
                Some((last, None))
            }
        }
    }

    /// The next frame for the caller, or the last one.
    async fn advance(&mut self) -> ControlFlow<NextFrame, NextFrame> {
        loop {
            let Self { source, position, .. } = self;
            let passed = source.messages.take(|message| {
                source.is_fruitful = true;
                position.passes(message)
            });
            if let Some(messages) = passed {
                self.forget_input();
                return ControlFlow::Continue(Ok(Frame::data(messages)));
            }
            let end_status = match self.source.next().await {
                NextItem::Stopping => return ControlFlow::Break(end_with(&shutting_down())),
                NextItem::Bytes(bytes) => {
                    self.source.messages.push(bytes);
                    continue;
                }
                NextItem::Ended(trailers) if trailers.contains_key(LOOK_AGAIN) => None,
                NextItem::Ended(trailers) => {
                    let status = Status::from_header_map(&trailers).filter(leaves_it_to_another);
                    if status.is_none() {
                        return ControlFlow::Break(Ok(Frame::trailers(trailers)));
                    }
                    status
                }
                NextItem::Broken => None,
            };
            if let Err(status) = Box::pin(self.resume(end_status)).await {
                return ControlFlow::Break(end_with(&status));
            }
        }
    }

    /// Goes on at the next owner. `end_status` is the one with which a replica that stops ended its stream.
    async fn resume(&mut self, end_status: Option<Status>) -> Result<(), Status> {
        self.give_up_source();
        let brought_nothing = !self.source.is_fruitful && self.source.began.elapsed() < SHORT;
        self.fruitless = if brought_nothing { self.fruitless + 1 } else { 0 };
        let recipient = self.source.recipient;
        let give_up = Instant::now() + SEARCH_WAIT;
        match end_status {
            Some(status)
                if self.fruitless > FRUITLESS_MAX
                    || !may_be_sent_again(&self.routing, recipient, give_up).await =>
            {
                return Err(status);
            }
            Some(_) => {}
            None if self.fruitless > FRUITLESS_MAX => return Err(no_owner_status()),
            None => self.routing.pause(recipient, Instant::now() + SEARCH_WAIT).await,
        }
        let rpc = self.position.rpc(&self.rpc);
        // An RPC that is reset before its response begins may not have reached the owner.
        let (routing, at) = (&self.routing, RpcPlace::default());
        let sent = send(routing, &rpc, &self.route_key, SendOptions::stream(), &at).await;
        match (refusal(&sent.response), sent.from) {
            (None, Some(from)) => {
                self.source = Source::new(&self.routing, from, sent.response.into_body());
                self.caller.at().set(Some(self.source.recipient));
                Ok(())
            }
            (status, _) => Err(status.unwrap_or_else(no_owner_status)),
        }
    }

    /// Keeps only what names the run, once it is known: the input may be large, and the stream may be open for days. The run's
    /// session says from here on who the owner is.
    fn forget_input(&mut self) {
        if self.forgot_input || !self.position.names_the_run() {
            return;
        }
        self.forgot_input = true;
        self.rpc = self.position.rpc(&self.rpc);
        self.caller.set_join(self.position.join(&self.rpc));
        let Some(session) = self.position.session() else { return };
        let shard = shard_of(&self.rpc.head().tenant(), &session);
        self.route_key = RouteKey::Shard(shard);
        let recipient = Recipient { shard: Some(shard), ..self.source.recipient };
        if recipient != self.source.recipient {
            (self.source.ownership_lost, self.source.recipient) =
                (self.routing.ownership_lost(recipient), recipient);
            self.caller.at().set(Some(recipient));
        }
    }

    /// Resets the stream of the old owner, which may be well and go on sending.
    fn give_up_source(&mut self) {
        self.caller.at().set(None);
        self.source.handler.give_up();
        self.source.body = Body::empty();
    }
}
