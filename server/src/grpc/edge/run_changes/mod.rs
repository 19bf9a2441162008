//! The changes of runs. Each replica sends its own to the replicas where somebody watches a list of runs: one gRPC stream of pages
//! over the port for replicas. A page is a JSON array of changes, as many as fit into a message.

mod follow;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use agentloop_core::limits::{LABELS_MAX, SHORT_TEXT_BYTES_MAX};
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
/// Changes in one page.
const PAGE_CHANGES_MAX: usize = 32;
/// Size of one page.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of a byte of text in JSON, at most: `\u0001`.
const JSON_TIMES_LARGER: usize = 6;

// The largest labels of a run leave half of a page to its other fields.
const _: () = assert!(JSON_TIMES_LARGER * LABELS_MAX * SHORT_TEXT_BYTES_MAX < PAGE_BYTES_MAX / 2);

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
    Box::pin(stream::unfold((tap, VecDeque::new()), async |(mut tap, mut changes)| {
        if changes.is_empty() {
            changes.extend(tap.next(PAGE_CHANGES_MAX).await?);
        }
        Some((page(&mut changes), (tap, changes)))
    }))
}

/// Takes the first changes, as many as fit into a page. One that fits into no page is left out: an error would end the stream, and
/// all lists at the other replica would begin again.
fn page(changes: &mut VecDeque<Arc<RunChange>>) -> Result<Vec<u8>, Status> {
    let mut page = b"[".to_vec();
    while let Some(change) = changes.front() {
        let (begin, is_first) = (page.len(), page.len() == 1);
        if !is_first {
            page.push(b',');
        }
        serde_json::to_writer(&mut page, change).map_err(|error| Status::from_error(Box::new(error)))?;
        if page.len() >= PAGE_BYTES_MAX {
            page.truncate(begin);
            if !is_first {
                break;
            }
            tracing::warn!(
                "a change of a run is too large for the other replicas; lists that are watched there do not show it"
            );
        }
        changes.pop_front();
    }
    page.push(b']');
    Ok(page)
}

/// The changes of a page, and the number of those that this version cannot read.
fn read(page: &[u8]) -> Result<(Vec<RunChange>, usize), serde_json::Error> {
    let all: Vec<&RawValue> = serde_json::from_slice(page)?;
    let changes: Vec<RunChange> =
        all.iter().filter_map(|change| serde_json::from_str(change.get()).ok()).collect();
    let unreadable = all.len() - changes.len();
    Ok((changes, unreadable))
}
