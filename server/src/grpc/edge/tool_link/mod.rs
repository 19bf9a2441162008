//! The link between the hub, which has the streams of all tool hosts, and another replica: one gRPC stream of frames in each
//! direction, over the port for replicas. The frames are those of [`ClusterTools`]; here they are bytes.

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Buf as _, BufMut as _};
use futures_util::{Stream, StreamExt as _};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::{self, uri::PathAndQuery};
use tonic::codegen::{BoxFuture, Service};
use tonic::{Request, Response, Status, Streaming};

use crate::cluster::{Ownerships, Peer};
use crate::grpc::convert::host::server_frame::encoded_request;
use crate::grpc::edge::forward::wire::links::{Links, PeerLink};
use crate::lifecycle::Tasks;
use crate::tool::{ClusterTools, EncodeRequest, LINK_FRAME_BYTES_MAX, LinkDialer, LinkFrames, LinkInbound};

/// The path of the link on the port for replicas. It names no service of the contract.
pub const PATH: &str = "/agentloop.internal.ToolLink/Open";

/// Encodes the requests that another replica passes on to the extension of a host.
pub const ENCODE_REQUEST: EncodeRequest = encoded_request;

/// Takes the links of other replicas, on the port for replicas. Clones share what they serve.
#[derive(Clone)]
pub struct ToolLinkService {
    cluster: Arc<ClusterTools>,
    tasks: Tasks,
}

impl ToolLinkService {
    /// Takes the links to these tools. The links run on these tasks.
    #[must_use]
    pub fn new(cluster: Arc<ClusterTools>, tasks: Tasks) -> Self {
        Self { cluster, tasks }
    }

    /// Serves one link. The response is the stream of frames to the other replica.
    pub async fn serve(&self, request: http::Request<Body>) -> http::Response<Body> {
        let max = Some(LINK_FRAME_BYTES_MAX);
        let mut grpc = tonic::server::Grpc::new(FrameCodec).apply_max_message_size_config(max, max);
        grpc.streaming(Accept { cluster: self.cluster.clone(), tasks: self.tasks.clone() }, request).await
    }
}

/// The one method of the service.
struct Accept {
    cluster: Arc<ClusterTools>,
    tasks: Tasks,
}

type Outgoing = Pin<Box<dyn Stream<Item = Result<Vec<u8>, Status>> + Send>>;

impl Service<Request<Streaming<Vec<u8>>>> for Accept {
    type Response = Response<Outgoing>;
    type Error = Status;
    type Future = BoxFuture<Self::Response, Status>;

    fn poll_ready(&mut self, _cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Status>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Streaming<Vec<u8>>>) -> Self::Future {
        let (end, frames) = self.cluster.accept();
        drop(self.tasks.spawn_contained("tool link", end.run(until_broken(request.into_inner()))));
        let outgoing: Outgoing = Box::pin(frames.map(Ok));
        Box::pin(async move { Ok(Response::new(outgoing)) })
    }
}

/// Opens the links of this replica to the hub.
pub struct ToolLinkDialer {
    links: Links,
    ownerships: Ownerships,
}

impl ToolLinkDialer {
    /// Uses the connections that calls are sent on with.
    #[must_use]
    pub fn new(links: Links, ownerships: Ownerships) -> Self {
        Self { links, ownerships }
    }
}

#[async_trait]
impl LinkDialer for ToolLinkDialer {
    async fn dial(&self, peer: &Peer, frames: LinkFrames) -> Result<LinkInbound, String> {
        let ownership = self.ownerships.borrow().clone();
        let channel = self.links.to(peer, &ownership).map_err(|bad| bad.to_string())?;
        open((*channel).clone(), frames).await
    }
}

async fn open(channel: PeerLink, frames: LinkFrames) -> Result<LinkInbound, String> {
    let mut grpc = tonic::client::Grpc::new(channel)
        .max_decoding_message_size(LINK_FRAME_BYTES_MAX)
        .max_encoding_message_size(LINK_FRAME_BYTES_MAX);
    grpc.ready().await.map_err(|broken| broken.to_string())?;
    let path = PathAndQuery::from_static(PATH);
    let opened = grpc.streaming(Request::new(frames), path, FrameCodec).await;
    let inbound = opened.map_err(|status| status.message().to_owned())?.into_inner();
    Ok(until_broken(inbound).boxed())
}

/// The frames of a stream until it ends or breaks: for a link that is the same.
fn until_broken(frames: Streaming<Vec<u8>>) -> impl Stream<Item = Vec<u8>> + Send {
    frames
        .take_while(|frame| std::future::ready(frame.is_ok()))
        .filter_map(|frame| std::future::ready(frame.ok()))
}

/// Passes frames as they are.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FrameCodec;

impl Codec for FrameCodec {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for FrameCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, frame: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&frame);
        Ok(())
    }
}

impl Decoder for FrameCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut frame = vec![0; from.remaining()];
        from.copy_to_slice(&mut frame);
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests;
