//! Output of a running call, held back for a moment: many tiny frames look like abuse to an HTTP/2 peer.

use agentloop_proto::v1::{OutputChunk, OutputStream, connect_request::Frame};

use super::calls::CallKey;

/// A buffer this long is sent at once.
const BUFFER_BYTES: usize = 32 * 1024;

/// Output of one call that was not sent yet.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    stream: OutputStream,
    bytes: Vec<u8>,
    chunk_seq: u64,
}

impl Buffer {
    pub(crate) fn push(&mut self, key: &CallKey, stream: OutputStream, bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        if stream != self.stream || self.bytes.len() + bytes.len() > BUFFER_BYTES {
            frames.extend(self.flush(key));
        }
        self.stream = stream;
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= BUFFER_BYTES {
            frames.extend(self.flush(key));
        }
        frames
    }

    pub(crate) fn flush(&mut self, key: &CallKey) -> Option<Frame> {
        if self.bytes.is_empty() {
            return None;
        }
        self.chunk_seq += 1;
        Some(Frame::OutputChunk(OutputChunk {
            call_id: key.call_id.clone(),
            attempt: key.attempt,
            chunk_seq: self.chunk_seq,
            stream: self.stream.into(),
            data: std::mem::take(&mut self.bytes),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(frame: Option<&Frame>) -> (u64, OutputStream, usize) {
        match frame {
            Some(Frame::OutputChunk(chunk)) => (chunk.chunk_seq, chunk.stream(), chunk.data.len()),
            other => panic!("no output: {other:?}"),
        }
    }

    #[test]
    fn small_pieces_go_together_and_streams_apart() {
        let key = CallKey::new("c", 1);
        let mut buffer = Buffer::default();
        assert_eq!(buffer.push(&key, OutputStream::Stdout, b"ab"), []);
        assert_eq!(buffer.push(&key, OutputStream::Stdout, b"cd"), []);
        let frames = buffer.push(&key, OutputStream::Stderr, b"e");
        assert_eq!(chunk(frames.first()), (1, OutputStream::Stdout, 4));
        assert_eq!(chunk(buffer.flush(&key).as_ref()), (2, OutputStream::Stderr, 1));
        assert_eq!(buffer.flush(&key), None);
    }

    #[test]
    fn no_chunk_is_larger_than_a_frame_takes() {
        let key = CallKey::new("c", 1);
        let mut buffer = Buffer::default();
        buffer.push(&key, OutputStream::Stdout, &[0; 100]);
        let frames = buffer.push(&key, OutputStream::Stdout, &[0; 64 * 1024]);
        let sizes: Vec<usize> = frames.iter().map(|frame| chunk(Some(frame)).2).collect();
        assert_eq!(sizes, [100, 64 * 1024]);
    }
}
