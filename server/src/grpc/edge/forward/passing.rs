//! Streams that cannot go on at another owner. They end when theirs is the owner no more, and their caller begins anew.

use std::sync::Arc;

use tonic::body::Body;
use tonic::codegen::http;

use crate::grpc::edge::forward::call::Call;
use crate::grpc::edge::forward::ending::broken_off;
use crate::grpc::edge::forward::outcome::Until;
use crate::grpc::edge::forward::routing::Routing;
use crate::grpc::edge::forward::send::send;

/// Has a call done whose answer is a stream, or whose requests are. It begins at another owner if its answer has not begun.
pub(super) async fn pass(routing: &Arc<Routing>, call: impl Call) -> http::Response<Body> {
    let sent = send(routing, &call, true, Until::Begun).await;
    let moved = sent.moved(routing);
    broken_off(sent.response, moved, routing.stopping_stream())
}
