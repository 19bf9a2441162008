//! A bare tonic server that streams the same frames.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use agentloop_client::v1::{RunStreamRequest, RunStreamResponse};
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt as _};
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

/// Answers every call with the frames of a file, this many milliseconds apart, until it is killed.
pub(crate) async fn run(frames: &Path, pace: u64) -> Result<(), Failure> {
    let bytes = std::fs::read(frames)?;
    let mut rest = &bytes[..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        frames.push(RunStreamResponse::decode_length_delimited(&mut rest)?);
    }
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
    crate::ready(&format!("http://{}", listener.local_addr()?));
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let service = Frames { frames: frames.into(), pace: Duration::from_millis(pace) };
    Ok(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await?)
}

#[derive(Clone)]
struct Frames {
    frames: Arc<[RunStreamResponse]>,
    pace: Duration,
}

impl NamedService for Frames {
    const NAME: &'static str = "agentloop.v1.AgentLoop";
}

type Answer = Pin<Box<dyn Stream<Item = Result<RunStreamResponse, Status>> + Send>>;

impl ServerStreamingService<RunStreamRequest> for Frames {
    type Response = RunStreamResponse;
    type ResponseStream = Answer;
    type Future = BoxFuture<'static, Result<Response<Answer>, Status>>;

    fn call(&mut self, _: Request<RunStreamRequest>) -> Self::Future {
        let Self { frames, pace } = self.clone();
        Box::pin(async move {
            let frames = (0..frames.len()).map(move |at| Ok(frames[at].clone()));
            let frames = futures_util::stream::iter(frames);
            if pace.is_zero() {
                return Ok(Response::new(Box::pin(frames) as Answer));
            }
            let paced = frames.then(move |frame| async move {
                tokio::time::sleep(pace).await;
                frame
            });
            Ok(Response::new(Box::pin(paced) as Answer))
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
