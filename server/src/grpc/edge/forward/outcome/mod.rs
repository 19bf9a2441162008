//! One attempt to have an RPC done, and its outcome.

pub(in crate::grpc::edge::forward) mod ending;
pub(in crate::grpc::edge) mod refusals;

use agentloop_core::cluster::shard::OwnerNo;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http;

use crate::grpc::edge::forward::route::local::ServiceSet;
use crate::grpc::edge::forward::wire::bodies::{next_frame, of_frames};
use crate::grpc::edge::forward::wire::connection::LinkError;
use crate::grpc::edge::forward::wire::links::PeerLink;
use crate::grpc::edge::forward::wire::metadata::LOOK_AGAIN;
use crate::grpc::status::{leaves_it_to_another, owner_unavailable};

/// The outcome of one attempt.
pub(in crate::grpc::edge::forward) enum AttemptOutcome {
    /// The RPC was done, or refused.
    Responded(http::Response<Body>),
    /// The replica stops, or has lost the session. The response says so.
    Stopping(http::Response<Body>),
    /// The replica was not the one to do the RPC.
    NotDone,
    /// There was no connection to the replica, for this reason. It did not see the RPC.
    NotReached(String),
    /// The link broke, or the session was given away. The RPC may have been done.
    Broken,
}

/// The part of a response that an attempt waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::grpc::edge::forward) enum ResponseExtent {
    /// Its beginning: what follows is a stream.
    Begun,
    /// All of it, so that a link that breaks in the middle is noticed before the caller has a part.
    Whole,
}

/// Sends an RPC over a link, and waits for its response.
pub(in crate::grpc::edge::forward) async fn send_over_link(
    link: PeerLink,
    request: http::Request<Body>,
    extent: ResponseExtent,
) -> AttemptOutcome {
    let response = match link.send(request).await {
        Ok(response) => response,
        Err(LinkError::NotReached(why)) => return AttemptOutcome::NotReached(why.to_string()),
        Err(error @ LinkError::Broken(_)) => {
            tracing::debug!(%error, "the link to another replica broke");
            return AttemptOutcome::Broken;
        }
    };
    match (outcome(response), extent) {
        (AttemptOutcome::Responded(response), ResponseExtent::Whole) if refusal(&response).is_none() => {
            whole(response).await.map_or(AttemptOutcome::Broken, AttemptOutcome::Responded)
        }
        (outcome, _) => outcome,
    }
}

/// Has an RPC done by the services of this replica.
pub(in crate::grpc::edge::forward) async fn serve_here(
    services: ServiceSet,
    request: http::Request<Body>,
) -> AttemptOutcome {
    outcome(services.call(request).await)
}

fn outcome(response: http::Response<Body>) -> AttemptOutcome {
    match refusal(&response) {
        _ if response.headers().contains_key(LOOK_AGAIN) => AttemptOutcome::NotDone,
        Some(status) if leaves_it_to_another(&status) => AttemptOutcome::Stopping(response),
        Some(_) | None => AttemptOutcome::Responded(response),
    }
}

/// The status of a response that has nothing else.
pub(in crate::grpc::edge::forward) fn refusal(response: &http::Response<Body>) -> Option<Status> {
    response.headers().get(Status::GRPC_STATUS)?;
    Status::from_header_map(response.headers())
}

/// Reads a single response to its end; `None` if that does not come. The owner bounds its length.
async fn whole(response: http::Response<Body>) -> Option<http::Response<Body>> {
    let (parts, mut body) = response.into_parts();
    let mut frames = Vec::new();
    loop {
        let frame = next_frame(&mut body).await?.ok()?;
        let is_last = frame.is_trailers();
        frames.push(Ok(frame));
        if is_last {
            let body = of_frames(futures_util::stream::iter(frames));
            return Some(http::Response::from_parts(parts, body));
        }
    }
}

/// The owner of the RPC's session was not reached in time.
pub(in crate::grpc::edge::forward) fn not_reached_status(number: OwnerNo) -> Status {
    owner_unavailable(&format!(
        "replica {number}, which has to do this RPC, cannot be reached by this one; try again"
    ))
}

/// The owner of the RPC's session did not take it in time.
pub(in crate::grpc::edge::forward) fn not_taken_status(number: OwnerNo) -> Status {
    owner_unavailable(&format!(
        "replica {number}, which has to do this RPC, does not take it: it cannot reach the database, or another replica has \
         its address; try again"
    ))
}

/// No owner took the RPC in time.
pub(in crate::grpc::edge::forward) fn no_owner_status() -> Status {
    owner_unavailable("no replica owns the session of this RPC for now; try again")
}

/// A replica had the RPC, and its response did not come.
pub(in crate::grpc::edge::forward) fn no_response_status() -> Status {
    owner_unavailable(
        "the replica that did this RPC was lost, or its work moved to another one, before the response came; look whether the \
         RPC was done, and try again",
    )
}

/// A replica served the stream, and does not go on with it.
pub(in crate::grpc::edge::forward) fn broken_off_status() -> Status {
    owner_unavailable(
        "the replica that served this stream was lost, or its work moved to another one; open the stream again",
    )
}
