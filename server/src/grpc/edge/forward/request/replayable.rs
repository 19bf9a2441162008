//! An RPC with a stream of requests. Its first bytes are kept until its response begins, so that it can begin at another owner.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http_body::{Body as _, Frame};
use parking_lot::Mutex;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Bytes, http};

use crate::grpc::edge::forward::request::budget::{BudgetShare, BufferBudget};
use crate::grpc::edge::forward::request::forwarded_rpc::{ForwardedRpc, Head};
use crate::grpc::edge::forward::wire::bodies::NextFrame;

/// Bytes of one RPC that are kept at most: more than the declarations of most hosts. An RPC that sends more before its response
/// begins is sent once.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// An RPC whose stream of requests has no response yet.
pub(in crate::grpc::edge::forward) struct ReplayableRpc {
    head: Head,
    requests: Arc<Mutex<Requests>>,
}

struct Requests {
    /// The caller's stream; `None` after its end.
    rest: Option<Body>,
    /// Bytes that attempts have read from the caller's stream, from the first one on.
    kept: Vec<u8>,
    /// Bytes of it that the newest attempt has had.
    had: usize,
    /// False once there was more than is kept, the caller's stream broke, or the response has begun.
    is_kept: bool,
    share: BudgetShare,
    /// Number of the newest attempt. An older one gets nothing any more.
    newest: u64,
}

/// The requests as one attempt sends them.
struct AttemptBody {
    requests: Arc<Mutex<Requests>>,
    number: u64,
}

impl ReplayableRpc {
    pub(in crate::grpc::edge::forward) fn of(request: http::Request<Body>, budget: &BufferBudget) -> Self {
        let (parts, rest) = request.into_parts();
        let requests = Requests {
            rest: Some(rest),
            kept: Vec::new(),
            had: 0,
            is_kept: true,
            share: budget.empty_share(),
            newest: 0,
        };
        Self { head: Head::of(parts), requests: Arc::new(Mutex::new(requests)) }
    }
}

impl ForwardedRpc for ReplayableRpc {
    fn head(&self) -> &Head {
        &self.head
    }

    fn body(&self) -> Body {
        let mut requests = self.requests.lock();
        requests.newest += 1;
        requests.had = 0;
        Body::new(AttemptBody { requests: self.requests.clone(), number: requests.newest })
    }

    fn is_whole(&self) -> bool {
        self.requests.lock().is_kept
    }
}

impl Drop for ReplayableRpc {
    fn drop(&mut self) {
        self.requests.lock().stop_keeping();
    }
}

impl Requests {
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<NextFrame>> {
        if self.had < self.kept.len() {
            let piece = Bytes::copy_from_slice(&self.kept[self.had..]);
            self.had = self.kept.len();
            self.forget();
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(rest).poll_frame(cx));
        match &frame {
            None => self.rest = None,
            Some(Err(_)) => {
                self.rest = None;
                self.stop_keeping();
            }
            Some(Ok(frame)) => {
                if let Some(piece) = frame.data_ref() {
                    self.keep(piece);
                }
            }
        }
        Poll::Ready(frame)
    }

    fn keep(&mut self, piece: &Bytes) {
        if !self.is_kept {
            return;
        }
        if self.kept.len() + piece.len() > KEPT_BYTES_MAX || !self.share.grow(piece.len()) {
            return self.stop_keeping();
        }
        self.kept.extend_from_slice(piece);
        self.had = self.kept.len();
    }

    fn stop_keeping(&mut self) {
        self.is_kept = false;
        self.forget();
    }

    /// Forgets what was read, unless it is still to be sent.
    fn forget(&mut self) {
        if !self.is_kept && self.had == self.kept.len() {
            (self.kept, self.had) = (Vec::new(), 0);
            self.share.give_back();
        }
    }
}

impl http_body::Body for AttemptBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<NextFrame>> {
        let mut requests = self.requests.lock();
        if requests.newest != self.number {
            return Poll::Ready(Some(Err(Status::cancelled("the RPC was sent to another replica"))));
        }
        requests.next(cx)
    }
}
