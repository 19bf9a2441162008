//! Streams that go on at the next owner, so that their caller notices a pause and nothing else.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::unfold;
use http_body::Frame;
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{self, HeaderMap};

use crate::grpc::edge::forward::bodies::{NextFrame, end_with, next_frame, of_frames};
use crate::grpc::edge::forward::kept::Kept;
use crate::grpc::edge::forward::leave::shutting_down;
use crate::grpc::edge::forward::messages::Messages;
use crate::grpc::edge::forward::outcome::{Until, nobody, refusal, unanswered};
use crate::grpc::edge::forward::resume::Place;
use crate::grpc::edge::forward::routing::{Moved, Routing, SEARCH_WAIT};
use crate::grpc::edge::forward::send::{Sent, send};
use crate::grpc::status::leaves_it_to_another;

/// A stream that broke sooner, without any message, brought nothing.
const SHORT: Duration = Duration::from_secs(1);
/// Streams in a row that may bring nothing. There is a moment between two.
const FRUITLESS_MAX: u32 = 50;

/// Has a call with a stream done, and goes on from `place` wherever the stream breaks.
pub(super) async fn follow(routing: Arc<Routing>, call: Kept, place: Place) -> http::Response<Body> {
    let sent = send(&routing, &call, true, Until::Begun).await;
    // The stream of this replica's own services ends with this replica.
    let Some(number) = sent.from.filter(|_| refusal(&sent.response).is_none()) else { return sent.response };
    let moved = sent.moved(&routing);
    let stopping = routing.stopping_stream();
    let (parts, body) = sent.response.into_parts();
    let following = Following {
        routing,
        call,
        place,
        source: Source::new(Some(number), body, moved),
        stopping,
        fruitless: 0,
        forgot_input: false,
    };
    let frames = unfold(Some(following), async |following| following?.step().await);
    http::Response::from_parts(parts, of_frames(frames))
}

/// A stream on its way to its caller.
struct Following {
    routing: Arc<Routing>,
    call: Kept,
    place: Place,
    source: Source,
    /// True once the input of the run is not kept any more.
    forgot_input: bool,
    /// Resolves when this replica stops.
    stopping: Moved,
    /// Streams in a row that brought nothing.
    fruitless: u32,
}

/// The stream of one owner.
struct Source {
    /// Number of the owner; `None` for this replica.
    number: Option<i64>,
    body: Body,
    moved: Moved,
    messages: Messages,
    began: Instant,
    is_fruitful: bool,
}

/// What comes from a source.
enum Next {
    Bytes(tonic::codegen::Bytes),
    /// The owner ended the stream, with these trailers.
    Ended(HeaderMap),
    /// The owner is not the owner any more, or the link broke.
    Broken,
}

impl Source {
    fn new(number: Option<i64>, body: Body, moved: Moved) -> Self {
        let (messages, began) = (Messages::default(), Instant::now());
        Self { number, body, moved, messages, began, is_fruitful: false }
    }

    async fn next(&mut self) -> Next {
        let frame = tokio::select! {
            biased;
            () = &mut self.moved => return Next::Broken,
            frame = next_frame(&mut self.body) => frame,
        };
        let Some(Ok(frame)) = frame else { return Next::Broken };
        match frame.into_data() {
            Ok(bytes) => Next::Bytes(bytes),
            Err(frame) => frame.into_trailers().map_or(Next::Broken, Next::Ended),
        }
    }
}

impl Following {
    /// The next frame for the caller, and what follows it.
    async fn step(mut self) -> Option<(NextFrame, Option<Self>)> {
        loop {
            while let Some(message) = self.source.messages.pop() {
                self.source.is_fruitful = true;
                if self.place.passes(&message) {
                    self.forget_input();
                    return Some((Ok(Frame::data(message)), Some(self)));
                }
            }
            let next = tokio::select! {
                biased;
                () = &mut self.stopping => return Some((end_with(&shutting_down()), None)),
                next = self.source.next() => next,
            };
            let told = match next {
                Next::Bytes(bytes) => {
                    self.source.messages.push(bytes);
                    continue;
                }
                Next::Ended(trailers) => {
                    let status = Status::from_header_map(&trailers).filter(leaves_it_to_another);
                    if status.is_none() {
                        return Some((Ok(Frame::trailers(trailers)), None));
                    }
                    status
                }
                Next::Broken => None,
            };
            if let Err(status) = Box::pin(self.resume(told)).await {
                return Some((end_with(&status), None));
            }
        }
    }

    /// Goes on at the next owner. `told` is the status with which an owner that stops ended its stream.
    async fn resume(&mut self, told: Option<Status>) -> Result<(), Status> {
        self.give_up_source();
        let brought_nothing = !self.source.is_fruitful && self.source.began.elapsed() < SHORT;
        self.fruitless = if brought_nothing { self.fruitless + 1 } else { 0 };
        let end = Instant::now() + SEARCH_WAIT;
        match (self.source.number, told) {
            // This replica's own services ended it: it is about to end.
            (None, told) => return Err(told.unwrap_or_else(unanswered)),
            (Some(number), Some(told)) => {
                if !self.routing.other_than(number, end).await {
                    return Err(told);
                }
            }
            (Some(_), None) if self.fruitless > FRUITLESS_MAX => return Err(nobody()),
            (Some(number), None) => self.routing.pause(number, end).await,
        }
        let sent: Sent = send(&self.routing, &self.place.call(&self.call), true, Until::Begun).await;
        if let Some(status) = refusal(&sent.response) {
            return Err(status);
        }
        let moved = sent.moved(&self.routing);
        self.source = Source::new(sent.from, sent.response.into_body(), moved);
        Ok(())
    }

    /// Keeps only what names the run, once it is known: the input may be large, and the stream may be open for days.
    fn forget_input(&mut self) {
        if !self.forgot_input && self.place.names_the_run() {
            self.call = self.place.call(&self.call);
            self.forgot_input = true;
        }
    }

    /// Resets the stream of the old owner, which may be well and go on sending.
    fn give_up_source(&mut self) {
        self.source.body = Body::empty();
    }
}
