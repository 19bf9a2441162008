//! Messages on their way in: what all callers together have begun to send, and not finished, is bounded.
//!
//! Each message is bounded, and so is the number of streams of a connection; their product is not what a machine has.
//! A message is decoded once it is whole, so its beginning is memory that anybody can have kept by not going on.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use agentloop_proto::v1::ErrorReason;
use http_body::{Frame, SizeHint};
use tonic::body::Body;
use tonic::codegen::{Bytes, http::Request};
use tonic::{Code, Status};

use crate::grpc::status::retryable;

/// What may be there of unfinished messages, in bytes.
const UNFINISHED_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The beginning of a message that does not count: whoever has little to say gets through whatever others do.
const UNCOUNTED_BYTES: usize = 16 * 1024;
/// Before each message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// The bound that all requests share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Intake {
    counted: Arc<AtomicUsize>,
    max: usize,
}

impl Intake {
    /// With the bound of a server.
    #[must_use]
    pub fn new() -> Self {
        Self::with_max(UNFINISHED_BYTES_MAX)
    }

    fn with_max(max: usize) -> Self {
        Self { counted: Arc::default(), max }
    }

    /// The request, which ends with RESOURCE_EXHAUSTED where one of its messages is too much.
    #[must_use]
    pub fn bound(&self, request: Request<Body>) -> Request<Body> {
        let message =
            Unfinished { intake: self.clone(), prefix: Vec::new(), missing: 0, bytes: 0, counted: 0 };
        request.map(|body| Body::new(Bounded { body, message }))
    }
}

impl Default for Intake {
    fn default() -> Self {
        Self::new()
    }
}

/// The message of one stream that is not whole yet.
#[derive(Debug)]
struct Unfinished {
    intake: Intake,
    /// Of the message whose length is not known yet.
    prefix: Vec<u8>,
    /// Bytes that are still to come.
    missing: usize,
    /// Bytes that are there.
    bytes: usize,
    /// Those of them that were counted.
    counted: usize,
}

/// There is no room for more of this message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Full;

impl Unfinished {
    fn follow(&mut self, mut data: &[u8]) -> Result<(), Full> {
        while !data.is_empty() {
            if self.missing == 0 {
                data = self.begin(data);
                continue;
            }
            let some = self.missing.min(data.len());
            data = &data[some..];
            self.missing -= some;
            self.bytes += some;
            if self.missing == 0 {
                self.release();
            }
        }
        self.count()
    }

    /// Takes as much of a prefix as is there, and returns what follows.
    fn begin<'d>(&mut self, data: &'d [u8]) -> &'d [u8] {
        let (some, rest) = data.split_at(data.len().min(PREFIX_BYTES - self.prefix.len()));
        self.prefix.extend_from_slice(some);
        if let [_compressed, length @ ..] = self.prefix.as_slice()
            && let Ok(length) = <[u8; 4]>::try_from(length)
        {
            self.missing = u32::from_be_bytes(length) as usize;
            self.prefix.clear();
        }
        rest
    }

    fn count(&mut self) -> Result<(), Full> {
        let more = self.bytes.saturating_sub(UNCOUNTED_BYTES).saturating_sub(self.counted);
        let before = self.intake.counted.fetch_add(more, Ordering::Relaxed);
        self.counted += more;
        if more > 0 && before + more > self.intake.max { Err(Full) } else { Ok(()) }
    }

    /// It is whole, or given up.
    fn release(&mut self) {
        self.intake.counted.fetch_sub(self.counted, Ordering::Relaxed);
        (self.bytes, self.counted) = (0, 0);
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.release();
    }
}

struct Bounded {
    body: Body,
    message: Unfinished,
}

impl http_body::Body for Bounded {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && self.message.follow(data) == Err(Full)
        {
            return Poll::Ready(Some(Err(too_much())));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn too_much() -> Status {
    let message = "the server is being sent too many large messages at a time";
    retryable(Code::ResourceExhausted, ErrorReason::QueueFull, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unfinished(intake: &Intake) -> Unfinished {
        Unfinished { intake: intake.clone(), prefix: Vec::new(), missing: 0, bytes: 0, counted: 0 }
    }

    fn message(bytes: usize) -> Vec<u8> {
        let length = u32::try_from(bytes).unwrap().to_be_bytes();
        [&[0], length.as_slice(), &vec![7; bytes]].concat()
    }

    fn counted(intake: &Intake) -> usize {
        intake.counted.load(Ordering::Relaxed)
    }

    #[test]
    fn only_what_is_unfinished_and_large_counts() {
        let intake = Intake::with_max(100_000);
        let mut one = unfinished(&intake);
        let large = message(UNCOUNTED_BYTES + 1_000);
        for _ in 0..1_000 {
            for piece in large.chunks(999) {
                assert_eq!(one.follow(piece), Ok(()));
                assert!(counted(&intake) <= 1_000);
            }
            assert_eq!(counted(&intake), 0, "it is whole");
        }
        assert_eq!(one.follow(&large[..UNCOUNTED_BYTES]), Ok(()));
        assert_eq!(counted(&intake), 0, "it is small");
        assert_eq!(one.follow(&large[UNCOUNTED_BYTES..UNCOUNTED_BYTES + 105]), Ok(()));
        assert_eq!(counted(&intake), 100);
        drop(one);
        assert_eq!(counted(&intake), 0, "it is given up");
    }

    #[test]
    fn messages_are_told_apart_wherever_they_are_cut() {
        let intake = Intake::with_max(100_000);
        let all =
            [message(0), message(UNCOUNTED_BYTES + 7), message(3), message(0), message(40_000)].concat();
        for size in [1, 2, 3, 5, 7, 4_096, all.len()] {
            let mut one = unfinished(&intake);
            for piece in all.chunks(size) {
                assert_eq!(one.follow(piece), Ok(()));
            }
            assert_eq!((one.missing, one.bytes, one.prefix.len(), counted(&intake)), (0, 0, 0, 0), "{size}");
        }
    }

    #[test]
    fn all_streams_share_the_bound_and_the_small_pass() {
        let intake = Intake::with_max(10_000);
        let large = message(UNCOUNTED_BYTES + 6_000);
        let cut = &large[..large.len() - 1];
        let (mut one, mut other, mut small) = (unfinished(&intake), unfinished(&intake), unfinished(&intake));
        assert_eq!(one.follow(cut), Ok(()));
        assert_eq!(other.follow(cut), Err(Full));
        assert_eq!(small.follow(&message(UNCOUNTED_BYTES)), Ok(()));
        drop(other);
        assert_eq!(one.follow(&large[large.len() - 1..]), Ok(()));
        assert_eq!(unfinished(&intake).follow(cut), Ok(()));
        assert_eq!(counted(&intake), 0);
    }
}
