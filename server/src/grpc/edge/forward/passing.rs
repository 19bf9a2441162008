//! Streams that do not go on at another owner once they have begun. They end when their owner has lost the shard, and their callers
//! begin anew.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::http;

use crate::cluster::HUB;
use crate::grpc::edge::forward::host_stream;
use crate::grpc::edge::forward::outcome::ending::broken_off;
use crate::grpc::edge::forward::request::forwarded_rpc::ForwardedRpc;
use crate::grpc::edge::forward::route::route_key::RouteKey;
use crate::grpc::edge::forward::route::routing::{Replica, Routing};
use crate::grpc::edge::forward::route::rpc_place::RpcPlace;
use crate::grpc::edge::forward::send::{SendOptions, send};

/// Has an RPC done that streams its response or its requests. Until the response begins, the RPC may be sent to another owner.
pub(super) async fn pass(
    routing: &Arc<Routing>,
    rpc: impl ForwardedRpc,
    route_key: &RouteKey,
) -> http::Response<Body> {
    let at = RpcPlace::default();
    let sent = send(routing, &rpc, route_key, SendOptions::stream(), &at).await;
    let Some((recipient, _handler)) = sent.from else { return sent.response };
    broken_off(sent.response, routing.ownership_lost(recipient), routing.stopping_for(recipient))
}

/// The same for the stream of a tool host, which is taken out of use before its stream ends here.
pub(super) async fn pass_host(
    routing: &Arc<Routing>,
    rpc: impl ForwardedRpc,
    runs_stopped: CancellationToken,
) -> http::Response<Body> {
    let at = RpcPlace::default();
    let sent = send(routing, &rpc, &RouteKey::Shard(HUB), SendOptions::stream(), &at).await;
    let Some((recipient, _handler)) = sent.from else { return sent.response };
    let ownership_lost = routing.ownership_lost(recipient);
    match recipient.replica {
        Replica::Here => broken_off(sent.response, ownership_lost, routing.stopping_for(recipient)),
        Replica::Peer(_) => host_stream::responses(routing, sent.response, ownership_lost, runs_stopped),
    }
}
