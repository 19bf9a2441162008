//! Cuts a stream of bytes into its messages, so that a caller never gets a part of one.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::grpc::edge::forward::kept::PREFIX_BYTES;

/// The messages of one stream.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// The beginning of a message whose rest has not arrived.
    begun: BytesMut,
    whole: VecDeque<Bytes>,
}

impl Messages {
    /// Takes the next bytes. Messages that arrive whole are not copied.
    pub(super) fn push(&mut self, mut bytes: Bytes) {
        while self.begun.is_empty()
            && let Some(length) = length_of_first(&bytes).filter(|length| *length <= bytes.len())
        {
            self.whole.push_back(bytes.split_to(length));
        }
        self.begun.extend_from_slice(&bytes);
        while let Some(length) = length_of_first(&self.begun).filter(|length| *length <= self.begun.len()) {
            self.whole.push_back(self.begun.split_to(length).freeze());
        }
    }

    /// The next whole message, with its prefix.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        self.whole.pop_front()
    }
}

/// Length of the first message with its prefix, if the prefix is there.
fn length_of_first(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(1..PREFIX_BYTES)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(length)).ok()?.checked_add(PREFIX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_whole_however_their_bytes_arrive() {
        let texts = ["", "a", "some text", "more"];
        let framed = |text: &str| {
            let length = u32::try_from(text.len()).unwrap().to_be_bytes();
            [&[0], length.as_slice(), text.as_bytes()].concat()
        };
        let all: Vec<u8> = texts.iter().flat_map(|text| framed(text)).collect();
        for size in 1..=all.len() {
            let mut messages = Messages::default();
            let mut got = Vec::new();
            for piece in all.chunks(size) {
                messages.push(Bytes::copy_from_slice(piece));
                got.extend(std::iter::from_fn(|| messages.pop()));
            }
            assert_eq!(got, texts.map(framed), "in pieces of {size}");
            messages.push(Bytes::copy_from_slice(&framed("broken")[..8]));
            assert!(messages.pop().is_none());
        }
    }
}
