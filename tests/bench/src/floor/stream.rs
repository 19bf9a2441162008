//! A bare tonic server that streams the same frames.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use agentloop_client::v1::{RunStreamRequest, RunStreamResponse};
use futures_util::Stream;
use futures_util::future::BoxFuture;
use prost::Message as _;
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::server::{Grpc, NamedService, ServerStreamingService};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::Failure;

/// Writes frames to a file that [`run`] reads.
pub(crate) fn save(frames: &[RunStreamResponse], file: &Path) -> Result<(), Failure> {
    let bytes: Vec<u8> = frames.iter().flat_map(RunStreamResponse::encode_length_delimited_to_vec).collect();
    Ok(std::fs::write(file, bytes)?)
}

/// Answers every call with the frames of a file, until it is killed.
pub(crate) async fn run(frames: &Path) -> Result<(), Failure> {
    let bytes = std::fs::read(frames)?;
    let mut rest = &bytes[..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        frames.push(RunStreamResponse::decode_length_delimited(&mut rest)?);
    }
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
    crate::ready(&format!("http://{}", listener.local_addr()?));
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let service = Frames(frames.into());
    Ok(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await?)
}

#[derive(Clone)]
struct Frames(Arc<[RunStreamResponse]>);

impl NamedService for Frames {
    const NAME: &'static str = "agentloop.v1.AgentLoop";
}

type Answer = Pin<Box<dyn Stream<Item = Result<RunStreamResponse, Status>> + Send>>;

impl ServerStreamingService<RunStreamRequest> for Frames {
    type Response = RunStreamResponse;
    type ResponseStream = Answer;
    type Future = BoxFuture<'static, Result<Response<Answer>, Status>>;

    fn call(&mut self, _: Request<RunStreamRequest>) -> Self::Future {
        let frames = self.0.clone();
        Box::pin(async move {
            let frames = (0..frames.len()).map(move |at| Ok(frames[at].clone()));
            Ok(Response::new(Box::pin(futures_util::stream::iter(frames)) as Answer))
        })
    }
}

impl tonic::codegen::Service<http::Request<Body>> for Frames {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let codec = ProstCodec::<RunStreamResponse, RunStreamRequest>::default();
            Ok(Grpc::new(codec).server_streaming(service, request).await)
        })
    }
}
