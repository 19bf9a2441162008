//! Streams that cannot go on at another owner. They end when theirs is the owner no more, and their caller begins anew.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http;

use crate::grpc::edge::forward::ending::{broken_off, done_here};
use crate::grpc::edge::forward::kept::{Head, Kept};
use crate::grpc::edge::forward::leave::shutting_down;
use crate::grpc::edge::forward::outcome::{Outcome, Until, ask, nobody, unanswered};
use crate::grpc::edge::forward::routing::{Routing, SEARCH_WAIT, Target};
use crate::grpc::edge::forward::send::send;

/// The wait before a stream of requests is refused that could not begin.
const REFUSED_AFTER: Duration = Duration::from_secs(1);

/// Has a call with one request and a stream of answers done.
pub(super) async fn download(routing: &Arc<Routing>, call: &Kept) -> http::Response<Body> {
    let sent = send(routing, call, true, Until::Begun).await;
    let moved = sent.moved(routing);
    broken_off(sent.response, moved, routing.stopping_stream())
}

/// Has a call with a stream of requests done. It is sent once: what was taken from the stream cannot be sent again.
pub(super) async fn upload(routing: &Arc<Routing>, request: http::Request<Body>) -> http::Response<Body> {
    let target = routing.target(Instant::now() + SEARCH_WAIT).await;
    let (number, link) = match target {
        None => return nobody().into_http(),
        Some(Target::Local(services)) => return done_here(routing, services, request).await,
        Some(Target::Owner { number, link }) => (number, link),
    };
    let (parts, body) = request.into_parts();
    let request = Head::of(parts).for_replica(number, body);
    let outcome = tokio::select! {
        biased;
        outcome = ask(link, request, Until::Begun) => outcome,
        () = routing.moved(number) => Outcome::Broken,
        () = routing.stopped() => return shutting_down().into_http(),
    };
    match outcome {
        Outcome::Answered(response) | Outcome::Stopping(response) => {
            broken_off(response, routing.moved(number), routing.stopping_stream())
        }
        Outcome::NotDone => refused_later(routing, number, nobody()).await,
        Outcome::Broken => refused_later(routing, number, unanswered()).await,
    }
}

/// The refusal, after a moment, or as soon as the owner is the owner no more. A host that is refused at once tries again at once,
/// and waits longer each time: when there is an owner again, it would wait still.
async fn refused_later(routing: &Arc<Routing>, number: i64, refusal: Status) -> http::Response<Body> {
    tokio::select! {
        _moved = routing.other_than(number, Instant::now() + REFUSED_AFTER) => refusal.into_http(),
        () = routing.stopped() => shutting_down().into_http(),
    }
}
