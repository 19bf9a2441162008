//! RPCs that go to the services of this replica as they come, and streams that end before their services end them.

use futures_util::stream::unfold;
use http_body::Frame;
use tonic::body::Body;
use tonic::codegen::http;

use crate::grpc::edge::forward::outcome::{broken_off_status, refusal};
use crate::grpc::edge::forward::route::local::ServiceSet;
use crate::grpc::edge::forward::route::routing::{EndSignal, Recipient, Routing};
use crate::grpc::edge::forward::route::shutdown::shutting_down;
use crate::grpc::edge::forward::wire::bodies::{end_with, next_frame, of_frames};
use crate::grpc::rpc::ForwardMode;

/// Has an RPC done by the services of this replica, once and as it comes. Its stream ends when this replica
/// [lets go](Routing::ownership_lost) of it; the services themselves end it when this replica stops.
pub(in crate::grpc::edge::forward) async fn done_here(
    routing: &Routing,
    services: ServiceSet,
    recipient: Recipient,
    mode: ForwardMode,
    request: http::Request<Body>,
) -> http::Response<Body> {
    let response = services.call(request).await;
    match mode {
        ForwardMode::Unary
        | ForwardMode::UnaryIfNamed
        | ForwardMode::UnaryOnce
        | ForwardMode::UnaryOfSession => response,
        ForwardMode::Events
        | ForwardMode::Changes
        | ForwardMode::Download
        | ForwardMode::Upload
        | ForwardMode::HostStream => {
            broken_off(response, routing.ownership_lost(recipient), Box::pin(std::future::pending()))
        }
    }
}

/// The response, which ends with UNAVAILABLE when the owner moves, the link breaks or this replica stops.
pub(in crate::grpc::edge::forward) fn broken_off(
    response: http::Response<Body>,
    ownership_lost: EndSignal,
    stopping: EndSignal,
) -> http::Response<Body> {
    if refusal(&response).is_some() {
        return response;
    }
    response.map(|body| {
        of_frames(unfold(Some((body, ownership_lost, stopping)), async |open| {
            let (mut body, mut ownership_lost, mut stopping) = open?;
            let frame = tokio::select! {
                biased;
                () = &mut stopping => return Some((end_with(&shutting_down()), None)),
                () = &mut ownership_lost => None,
                frame = next_frame(&mut body) => frame.and_then(Result::ok),
            };
            match frame {
                None => Some((end_with(&broken_off_status()), None)),
                Some(frame) if frame.is_trailers() => Some((Ok(frame), None)),
                Some(frame) => Some((Ok::<Frame<_>, _>(frame), Some((body, ownership_lost, stopping)))),
            }
        }))
    })
}
