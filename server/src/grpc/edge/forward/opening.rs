//! A call with a stream of requests. Its first ones are kept until its answer begins, so that it can begin at another owner.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use http_body::{Body as _, Frame};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Bytes, http};

use crate::grpc::edge::forward::bodies::NextFrame;
use crate::grpc::edge::forward::call::{Call, Head};
use crate::grpc::edge::forward::room::{Room, Taken};

/// Bytes of one call that are kept at most. A host sends its declarations, and then waits for the answer.
const OPENING_BYTES_MAX: usize = 1024 * 1024;

/// A call whose stream of requests has no answer yet.
pub(super) struct Opening {
    head: Head,
    requests: Arc<Mutex<Requests>>,
}

struct Requests {
    /// What was not read yet; `None` after its end.
    rest: Option<Body>,
    /// What was read.
    kept: Vec<Bytes>,
    /// Pieces of it that the newest attempt has had.
    had: usize,
    /// False once there was more than is kept, or the answer has begun.
    is_kept: bool,
    room: Taken,
    /// Number of the newest attempt. An older one gets nothing any more.
    newest: u64,
}

/// The requests as one attempt sends them.
struct Attempt {
    requests: Arc<Mutex<Requests>>,
    number: u64,
}

impl Opening {
    pub(super) fn of(request: http::Request<Body>, room: &Room) -> Self {
        let (parts, rest) = request.into_parts();
        let requests = Requests {
            rest: Some(rest),
            kept: Vec::new(),
            had: 0,
            is_kept: true,
            room: room.nothing(),
            newest: 0,
        };
        Self { head: Head::of(parts), requests: Arc::new(Mutex::new(requests)) }
    }
}

impl Call for Opening {
    fn head(&self) -> &Head {
        &self.head
    }

    fn body(&self) -> Body {
        let mut requests = lock(&self.requests);
        requests.newest += 1;
        requests.had = 0;
        Body::new(Attempt { requests: self.requests.clone(), number: requests.newest })
    }

    fn is_whole(&self) -> bool {
        lock(&self.requests).is_kept
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        lock(&self.requests).stop_keeping();
    }
}

impl Requests {
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<NextFrame>> {
        if let Some(piece) = self.kept.get(self.had).cloned() {
            self.had += 1;
            self.give_back();
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(rest).poll_frame(cx));
        match &frame {
            None | Some(Err(_)) => self.rest = None,
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
        if self.room.bytes() + piece.len() > OPENING_BYTES_MAX || !self.room.grow(piece.len()) {
            return self.stop_keeping();
        }
        self.kept.push(piece.clone());
        self.had += 1;
    }

    fn stop_keeping(&mut self) {
        self.is_kept = false;
        self.give_back();
    }

    /// Forgets what was read, unless it may be sent once more.
    fn give_back(&mut self) {
        if !self.is_kept && self.had == self.kept.len() {
            (self.kept, self.had) = (Vec::new(), 0);
            self.room.give_back();
        }
    }
}

impl http_body::Body for Attempt {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<NextFrame>> {
        let mut requests = lock(&self.requests);
        if requests.newest != self.number {
            return Poll::Ready(Some(Err(Status::cancelled("the call was sent to another replica"))));
        }
        requests.next(cx)
    }
}

fn lock(requests: &Mutex<Requests>) -> MutexGuard<'_, Requests> {
    requests.lock().unwrap_or_else(PoisonError::into_inner)
}
