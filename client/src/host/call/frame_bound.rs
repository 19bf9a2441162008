//! The largest frame that the server accepts.

use agentloop_proto::v1::connect_request::Frame;

/// Upper bound of a frame's bytes other than the call id and the payload: tags, lengths, numbers.
const OVERHEAD_BYTES: usize = 64;

/// The largest message that the server accepts, in bytes, from its last `welcome`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameBound {
    pub(crate) bytes: usize,
}

impl Default for FrameBound {
    fn default() -> Self {
        FrameBound::new(0)
    }
}

impl FrameBound {
    /// The bound of a `welcome`; 0 means no bound.
    pub(crate) fn new(bytes: u64) -> Self {
        let bytes = if bytes == 0 { usize::MAX } else { usize::try_from(bytes).unwrap_or(usize::MAX) };
        FrameBound { bytes }
    }

    pub(crate) fn fits(self, frame: &Frame) -> bool {
        frame.encoded_len() <= self.bytes
    }

    /// The payload that fits into a frame about this call, at least one byte.
    pub(crate) fn payload_bytes(self, call_id: &str) -> usize {
        self.bytes.saturating_sub(call_id.len() + OVERHEAD_BYTES).max(1)
    }
}
