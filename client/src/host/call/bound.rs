//! The largest frame that the server takes.

use agentloop_proto::v1::connect_request::Frame;

/// What a frame has beside a call's id and its payload, at most: tags, lengths, numbers.
const OVERHEAD_BYTES: usize = 64;

/// How many bytes of a message the server takes, as its last welcome has it.
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
    /// As a welcome says it; 0 is none.
    pub(crate) fn new(bytes: u64) -> Self {
        let bytes = if bytes == 0 { usize::MAX } else { usize::try_from(bytes).unwrap_or(usize::MAX) };
        FrameBound { bytes }
    }

    pub(crate) fn takes(self, frame: &Frame) -> bool {
        frame.encoded_len() <= self.bytes
    }

    /// Bytes that have room in a frame about a call, at least one.
    pub(crate) fn beside(self, call_id: &str) -> usize {
        self.bytes.saturating_sub(call_id.len() + OVERHEAD_BYTES).max(1)
    }
}
