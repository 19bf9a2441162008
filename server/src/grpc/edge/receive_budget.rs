//! Limits the memory of messages that are received but incomplete, over all callers together.
//!
//! The size of a message and the number of streams per connection are limited, but their product exceeds a machine's
//! memory. A message is decoded only when it is complete, so a caller could hold memory by not finishing it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use agentloop_proto::v1::ErrorReason;
use http_body::{Frame, SizeHint};
use tonic::body::Body;
use tonic::codegen::{Bytes, http::Request};
use tonic::{Code, Status};

use crate::grpc::edge::message_prefix::{MessagePrefix, PREFIX_BYTES};
use crate::grpc::status::retryable;

/// Bytes of incomplete messages in memory at a time, over all callers.
const UNFINISHED_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The first bytes of each message are not counted, so small messages pass even when the budget is used up.
const UNCOUNTED_BYTES: usize = 16 * 1024;

/// The budget that all requests share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ReceiveBudget {
    counted: Arc<AtomicUsize>,
    max: usize,
}

impl ReceiveBudget {
    /// The budget of a server, 256 MiB.
    #[must_use]
    pub fn new() -> Self {
        Self::with_max(UNFINISHED_BYTES_MAX)
    }

    fn with_max(max: usize) -> Self {
        Self { counted: Arc::default(), max }
    }

    /// Wraps a request's body. It fails with RESOURCE_EXHAUSTED when a message exceeds the budget.
    #[must_use]
    pub fn limit(&self, request: Request<Body>) -> Request<Body> {
        let message =
            Unfinished { budget: self.clone(), prefix: Vec::new(), missing: 0, bytes: 0, counted: 0 };
        request.map(|body| Body::new(LimitedBody { body, message }))
    }
}

impl Default for ReceiveBudget {
    fn default() -> Self {
        Self::new()
    }
}

/// The incomplete message of one stream.
#[derive(Debug)]
struct Unfinished {
    budget: ReceiveBudget,
    /// The bytes so far of an incomplete gRPC prefix.
    prefix: Vec<u8>,
    /// Bytes of the message that have not arrived yet.
    missing: usize,
    /// Bytes of the message that have arrived.
    bytes: usize,
    /// Bytes of them that are counted in the budget.
    counted: usize,
}

/// The budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Full;

impl Unfinished {
    fn receive(&mut self, mut data: &[u8]) -> Result<(), Full> {
        while !data.is_empty() {
            if self.missing == 0 {
                data = self.read_prefix(data);
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

    /// Reads as much of the prefix as there is, and returns the rest of the data.
    fn read_prefix<'d>(&mut self, data: &'d [u8]) -> &'d [u8] {
        let (some, rest) = data.split_at(data.len().min(PREFIX_BYTES - self.prefix.len()));
        self.prefix.extend_from_slice(some);
        if let Some(prefix) = MessagePrefix::read(&self.prefix) {
            self.missing = prefix.message_bytes;
            self.prefix.clear();
        }
        rest
    }

    fn count(&mut self) -> Result<(), Full> {
        let more = self.bytes.saturating_sub(UNCOUNTED_BYTES).saturating_sub(self.counted);
        let before = self.budget.counted.fetch_add(more, Ordering::Relaxed);
        self.counted += more;
        if more > 0 && before + more > self.budget.max { Err(Full) } else { Ok(()) }
    }

    /// Returns the message's bytes to the budget: it is complete, or its stream ended.
    fn release(&mut self) {
        self.budget.counted.fetch_sub(self.counted, Ordering::Relaxed);
        (self.bytes, self.counted) = (0, 0);
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.release();
    }
}

struct LimitedBody {
    body: Body,
    message: Unfinished,
}

impl http_body::Body for LimitedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && self.message.receive(data) == Err(Full)
        {
            return Poll::Ready(Some(Err(budget_exhausted())));
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

fn budget_exhausted() -> Status {
    let message = "too many large messages are being sent to the server at once; try again later";
    retryable(Code::ResourceExhausted, ErrorReason::QueueFull, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unfinished(budget: &ReceiveBudget) -> Unfinished {
        Unfinished { budget: budget.clone(), prefix: Vec::new(), missing: 0, bytes: 0, counted: 0 }
    }

    fn message(bytes: usize) -> Vec<u8> {
        let length = u32::try_from(bytes).unwrap().to_be_bytes();
        [&[0], length.as_slice(), &vec![7; bytes]].concat()
    }

    fn counted(budget: &ReceiveBudget) -> usize {
        budget.counted.load(Ordering::Relaxed)
    }

    #[test]
    fn only_what_is_unfinished_and_large_counts() {
        let budget = ReceiveBudget::with_max(100_000);
        let mut one = unfinished(&budget);
        let large = message(UNCOUNTED_BYTES + 1_000);
        for _ in 0..1_000 {
            for piece in large.chunks(999) {
                assert_eq!(one.receive(piece), Ok(()));
                assert!(counted(&budget) <= 1_000);
            }
            assert_eq!(counted(&budget), 0, "it is whole");
        }
        assert_eq!(one.receive(&large[..UNCOUNTED_BYTES]), Ok(()));
        assert_eq!(counted(&budget), 0, "it is small");
        assert_eq!(one.receive(&large[UNCOUNTED_BYTES..UNCOUNTED_BYTES + 105]), Ok(()));
        assert_eq!(counted(&budget), 100);
        drop(one);
        assert_eq!(counted(&budget), 0, "it is given up");
    }

    #[test]
    fn messages_are_told_apart_wherever_they_are_cut() {
        let budget = ReceiveBudget::with_max(100_000);
        let all =
            [message(0), message(UNCOUNTED_BYTES + 7), message(3), message(0), message(40_000)].concat();
        for size in [1, 2, 3, 5, 7, 4_096, all.len()] {
            let mut one = unfinished(&budget);
            for piece in all.chunks(size) {
                assert_eq!(one.receive(piece), Ok(()));
            }
            assert_eq!((one.missing, one.bytes, one.prefix.len(), counted(&budget)), (0, 0, 0, 0), "{size}");
        }
    }

    #[test]
    fn all_streams_share_the_bound_and_the_small_pass() {
        let budget = ReceiveBudget::with_max(10_000);
        let large = message(UNCOUNTED_BYTES + 6_000);
        let cut = &large[..large.len() - 1];
        let (mut one, mut other, mut small) = (unfinished(&budget), unfinished(&budget), unfinished(&budget));
        assert_eq!(one.receive(cut), Ok(()));
        assert_eq!(other.receive(cut), Err(Full));
        assert_eq!(small.receive(&message(UNCOUNTED_BYTES)), Ok(()));
        drop(other);
        assert_eq!(one.receive(&large[large.len() - 1..]), Ok(()));
        assert_eq!(unfinished(&budget).receive(cut), Ok(()));
        assert_eq!(counted(&budget), 0);
    }
}
