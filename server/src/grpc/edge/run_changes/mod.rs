//! The changes of runs. Each replica sends its own to the replicas where somebody watches a list of runs: one gRPC stream of pages
//! over the port for replicas. A page is a JSON array of changes.

mod follow;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::{Stream, stream};
use serde_json::value::RawValue;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::codegen::{BoxFuture, Service};
use tonic::{Request, Response, Status};

pub use self::follow::follow_run_changes;

use crate::engine::{Engine, RunChange, RunTap};
use crate::grpc::edge::tool_link::FrameCodec;

/// The path of the stream on the port for replicas. It names no service of the contract.
pub const PATH: &str = "/agentloop.internal.Changes/Watch";
/// Changes in one page. With the bounds on labels and texts, the largest ones fit into a message.
const PAGE_CHANGES_MAX: usize = 32;
/// Size of one page.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Serves the stream of one other replica: the changes of the runs of this engine from now on.
pub(super) async fn serve(engine: Engine, request: http::Request<Body>) -> http::Response<Body> {
    let max = Some(PAGE_BYTES_MAX);
    let mut grpc = tonic::server::Grpc::new(FrameCodec).apply_max_message_size_config(max, max);
    grpc.server_streaming(Tell(engine), request).await
}

/// The one method of the service.
struct Tell(Engine);

type Pages = Pin<Box<dyn Stream<Item = Result<Vec<u8>, Status>> + Send>>;

impl Service<Request<Vec<u8>>> for Tell {
    type Response = Response<Pages>;
    type Error = Status;
    type Future = BoxFuture<Self::Response, Status>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request<Vec<u8>>) -> Self::Future {
        // The tap is there before the response begins. So the other replica misses nothing from the beginning of the response on.
        let tap = self.0.tap_run_changes();
        Box::pin(async move { Ok(Response::new(pages(tap?))) })
    }
}

fn pages(tap: RunTap) -> Pages {
    Box::pin(stream::unfold(tap, async |mut tap| {
        let changes = tap.next(PAGE_CHANGES_MAX).await?;
        Some((page(&changes), tap))
    }))
}

fn page(changes: &[Arc<RunChange>]) -> Result<Vec<u8>, Status> {
    serde_json::to_vec(changes).map_err(|error| Status::from_error(Box::new(error)))
}

/// The changes of a page, and the number of those that this version cannot read.
fn read(page: &[u8]) -> Result<(Vec<RunChange>, usize), serde_json::Error> {
    let all: Vec<&RawValue> = serde_json::from_slice(page)?;
    let changes: Vec<RunChange> =
        all.iter().filter_map(|change| serde_json::from_str(change.get()).ok()).collect();
    let unreadable = all.len() - changes.len();
    Ok((changes, unreadable))
}
