//! Streams that do not go on at another owner once they have begun. They end when theirs is the owner no more, and their caller
//! begins anew.

use std::sync::Arc;

use tonic::body::Body;
use tonic::codegen::http;

use crate::grpc::edge::forward::call::Call;
use crate::grpc::edge::forward::ending::broken_off;
use crate::grpc::edge::forward::outcome::Until;
use crate::grpc::edge::forward::routing::Routing;
use crate::grpc::edge::forward::send::send;

/// Has a call done whose answer is a stream, or whose requests are. If `repeats` is true, it begins at another owner as long as its
/// answer has not begun.
pub(super) async fn pass(routing: &Arc<Routing>, call: impl Call, repeats: bool) -> http::Response<Body> {
    let sent = send(routing, &call, repeats, Until::Begun).await;
    if sent.from.is_none() {
        // The services of this replica end it themselves.
        return sent.response;
    }
    let moved = sent.moved(routing);
    broken_off(sent.response, moved, routing.stopping_stream())
}
