//! The prefix that gRPC puts before each message: one byte of flags and four of length.

use bytes::Bytes;

/// Length of the prefix, in bytes.
pub(in crate::grpc::edge) const PREFIX_BYTES: usize = 5;

/// The prefix of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::grpc::edge) struct MessagePrefix {
    pub(in crate::grpc::edge) is_compressed: bool,
    /// Length of the message that follows.
    pub(in crate::grpc::edge) message_bytes: usize,
}

impl MessagePrefix {
    /// Reads the prefix at the beginning of these bytes. `None` if they are fewer.
    pub(in crate::grpc::edge) fn read(bytes: &[u8]) -> Option<Self> {
        let (&[flags, a, b, c, d], _) = bytes.split_first_chunk::<PREFIX_BYTES>()?;
        Some(Self { is_compressed: flags != 0, message_bytes: u32::from_be_bytes([a, b, c, d]) as usize })
    }
}

/// A message with its prefix, which is not compressed. Its bytes are these parts, one after the other.
pub(in crate::grpc::edge) fn framed(parts: &[&[u8]]) -> Bytes {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut framed = Vec::with_capacity(PREFIX_BYTES + length);
    framed.push(0);
    framed.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    parts.iter().for_each(|part| framed.extend_from_slice(part));
    framed.into()
}
