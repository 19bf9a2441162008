//! The prefix that gRPC puts before each message: one byte of flags and four of length.

/// Length of the prefix.
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
