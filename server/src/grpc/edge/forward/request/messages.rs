//! Cuts a stream of bytes at its messages, so that a caller never gets a part of one.

use bytes::{Buf as _, Bytes, BytesMut};

use crate::grpc::edge::message_prefix::{MessagePrefix, PREFIX_BYTES};

/// The messages of one stream.
#[derive(Debug, Default)]
pub(in crate::grpc::edge::forward) struct Messages {
    /// The beginning of a message whose rest has not arrived.
    begun: BytesMut,
    /// Bytes that follow it.
    rest: Bytes,
}

impl Messages {
    /// Takes the next bytes, once [`take`](Self::take) has nothing more.
    pub(in crate::grpc::edge::forward) fn push(&mut self, bytes: Bytes) {
        self.rest = bytes;
    }

    /// The next whole messages with their prefixes, as many as arrived together and pass. Those that arrived whole are not copied.
    pub(in crate::grpc::edge::forward) fn take(
        &mut self,
        mut passes: impl FnMut(&[u8]) -> bool,
    ) -> Option<Bytes> {
        if !self.begun.is_empty()
            && let Some(message) = self.complete_begun()
            && passes(&message)
        {
            return Some(message);
        }
        let mut end = 0;
        while self.begun.is_empty()
            && let Some(length) = whole_length(&self.rest[end..])
        {
            if passes(&self.rest[end..end + length]) {
                end += length;
                continue;
            }
            let passed = self.rest.split_to(end);
            self.rest.advance(length);
            end = 0;
            if !passed.is_empty() {
                return Some(passed);
            }
        }
        let passed = self.rest.split_to(end);
        if passed.is_empty() {
            self.begun.extend_from_slice(&std::mem::take(&mut self.rest));
            return None;
        }
        Some(passed)
    }

    /// The message that has begun, if its rest is there now.
    fn complete_begun(&mut self) -> Option<Bytes> {
        for wanted in [Some(PREFIX_BYTES), None] {
            let wanted = wanted.or_else(|| length_of_first(&self.begun))?;
            let missing = wanted.saturating_sub(self.begun.len()).min(self.rest.len());
            self.begun.extend_from_slice(&self.rest.split_to(missing));
        }
        let length = whole_length(&self.begun)?;
        Some(self.begun.split_to(length).freeze())
    }
}

/// Length of the first message with its prefix, if all of it is there.
fn whole_length(bytes: &[u8]) -> Option<usize> {
    length_of_first(bytes).filter(|length| *length <= bytes.len())
}

/// Length of the first message with its prefix, if the prefix is there.
fn length_of_first(bytes: &[u8]) -> Option<usize> {
    MessagePrefix::read(bytes)?.message_bytes.checked_add(PREFIX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(text: &str) -> Vec<u8> {
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        [&[0], length.as_slice(), text.as_bytes()].concat()
    }

    #[test]
    fn messages_are_whole_however_their_bytes_arrive() {
        let texts = ["", "a", "some text", "no", "more"];
        let all: Vec<u8> = texts.iter().flat_map(|text| framed(text)).collect();
        let wanted: Vec<u8> =
            texts.iter().filter(|text| **text != "no").flat_map(|text| framed(text)).collect();
        for size in 1..=all.len() {
            let mut messages = Messages::default();
            let (mut got, mut seen) = (Vec::new(), Vec::new());
            for piece in all.chunks(size) {
                messages.push(Bytes::copy_from_slice(piece));
                while let Some(piece) = messages.take(|message| {
                    seen.push(message.to_vec());
                    !message.ends_with(b"no")
                }) {
                    got.push(piece);
                }
            }
            assert_eq!(seen, texts.map(framed), "each once, in pieces of {size}");
            assert_eq!(got.concat(), wanted, "in pieces of {size}");
            messages.push(Bytes::copy_from_slice(&framed("broken")[..8]));
            assert!(messages.take(|_| true).is_none());
        }
    }

    #[test]
    fn messages_that_arrive_together_stay_together() {
        let all =
            Bytes::from([framed("a"), framed("b"), framed("no"), framed("c"), framed("broken")].concat());
        let mut messages = Messages::default();
        messages.push(all.slice(..all.len() - 1));
        let mut take = || messages.take(|message| !message.ends_with(b"no"));
        assert_eq!(take().unwrap(), [framed("a"), framed("b")].concat());
        assert_eq!(take().unwrap(), framed("c"));
        assert_eq!(take(), None);
        messages.push(all.slice(all.len() - 1..));
        assert_eq!(messages.take(|_| true).unwrap(), framed("broken"));
        assert_eq!(messages.take(|_| true), None);
    }
}
