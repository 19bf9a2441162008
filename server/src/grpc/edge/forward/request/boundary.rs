//! The places in a stream at which a message ends. Nothing of the messages is kept.

use http_body::Frame;
use tonic::codegen::Bytes;

use crate::grpc::edge::message_prefix::{MessagePrefix, PREFIX_BYTES};

/// The place in a stream of messages up to which its bytes have passed.
#[derive(Debug, Default)]
pub(in crate::grpc::edge::forward) struct Boundary {
    /// The beginning of a prefix whose rest has not passed.
    prefix: Vec<u8>,
    /// Bytes of the message that have not passed.
    left: usize,
    messages: u64,
}

impl Boundary {
    /// Takes note of a frame that passes.
    pub(in crate::grpc::edge::forward) fn pass(&mut self, frame: &Frame<Bytes>) {
        if let Some(bytes) = frame.data_ref() {
            self.pass_bytes(bytes);
        }
    }

    /// True between two messages, and before the first.
    pub(in crate::grpc::edge::forward) fn is_between(&self) -> bool {
        self.left == 0 && self.prefix.is_empty()
    }

    /// Messages that have passed whole.
    pub(in crate::grpc::edge::forward) fn messages(&self) -> u64 {
        self.messages
    }

    fn pass_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left == 0 {
                let missing = (PREFIX_BYTES - self.prefix.len()).min(bytes.len());
                self.prefix.extend_from_slice(&bytes[..missing]);
                bytes = &bytes[missing..];
                let Some(prefix) = MessagePrefix::read(&self.prefix) else { return };
                self.prefix.clear();
                self.left = prefix.message_bytes;
            }
            let passed = self.left.min(bytes.len());
            self.left -= passed;
            bytes = &bytes[passed..];
            self.messages += u64::from(self.left == 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_however_their_bytes_pass() {
        let message = |length: usize| {
            let prefix = u32::try_from(length).unwrap().to_be_bytes();
            [&[1], prefix.as_slice(), &vec![7; length]].concat()
        };
        let lengths = [0, 1, 0, 300, 5];
        let all: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
        let mut ends = vec![0];
        for length in lengths {
            ends.push(ends[ends.len() - 1] + PREFIX_BYTES + length);
        }
        for size in 1..=all.len() {
            let (mut boundary, mut passed) = (Boundary::default(), 0);
            for piece in all.chunks(size) {
                boundary.pass(&Frame::data(Bytes::copy_from_slice(piece)));
                passed += piece.len();
                assert_eq!(boundary.is_between(), ends.contains(&passed), "after {passed}, by {size}");
                let whole = ends.iter().filter(|end| **end <= passed).count() - 1;
                assert_eq!(boundary.messages(), whole as u64, "after {passed}, by {size}");
            }
        }
    }
}
