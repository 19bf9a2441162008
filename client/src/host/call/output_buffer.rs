//! Output of a running call, buffered for a moment. Many tiny frames look like abuse to an HTTP/2 peer.

use agentloop_proto::v1::{OutputChunk, OutputStream, connect_request::Frame};

use crate::host::{call::frame_bound::FrameBound, call::key::CallKey};

/// A buffer of this size is sent at once.
const BUFFER_BYTES: usize = 32 * 1024;
/// The contract's bound on the output in one frame.
const CHUNK_BYTES_MAX: usize = 64 * 1024;

/// Output of one call that is not sent yet, all of one stream.
#[derive(Debug, Default)]
pub(crate) struct OutputBuffer {
    stream: OutputStream,
    bytes: Vec<u8>,
    chunk_seq: u64,
}

impl OutputBuffer {
    pub(crate) fn push(
        &mut self,
        key: &CallKey,
        stream: OutputStream,
        bytes: &[u8],
        bound: FrameBound,
    ) -> Vec<Frame> {
        let mut frames = Vec::new();
        if stream != self.stream || self.bytes.len() + bytes.len() > BUFFER_BYTES {
            frames.extend(self.flush(key, bound));
        }
        self.stream = stream;
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= BUFFER_BYTES {
            frames.extend(self.flush(key, bound));
        }
        frames
    }

    pub(crate) fn flush(&mut self, key: &CallKey, bound: FrameBound) -> Vec<Frame> {
        let bytes = std::mem::take(&mut self.bytes);
        let chunks = bytes.chunks(CHUNK_BYTES_MAX.min(bound.payload_bytes(&key.call_id)));
        chunks.map(|data| self.chunk(key, data)).collect()
    }

    fn chunk(&mut self, key: &CallKey, data: &[u8]) -> Frame {
        self.chunk_seq += 1;
        Frame::OutputChunk(OutputChunk {
            call_id: key.call_id.clone(),
            attempt: key.attempt,
            chunk_seq: self.chunk_seq,
            stream: self.stream.into(),
            data: data.to_vec(),
        })
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
        let (key, any) = (CallKey::new("c", 1), FrameBound::default());
        let mut buffer = OutputBuffer::default();
        assert_eq!(buffer.push(&key, OutputStream::Stdout, b"ab", any), []);
        assert_eq!(buffer.push(&key, OutputStream::Stdout, b"cd", any), []);
        let frames = buffer.push(&key, OutputStream::Stderr, b"e", any);
        assert_eq!(chunk(frames.first()), (1, OutputStream::Stdout, 4));
        assert_eq!(chunk(buffer.flush(&key, any).first()), (2, OutputStream::Stderr, 1));
        assert_eq!(buffer.flush(&key, any), []);
    }

    #[test]
    fn no_chunk_is_larger_than_the_contract_allows() {
        let (key, any) = (CallKey::new("c", 1), FrameBound::default());
        let mut buffer = OutputBuffer::default();
        buffer.push(&key, OutputStream::Stdout, &[0; 100], any);
        let frames = buffer.push(&key, OutputStream::Stdout, &[0; 64 * 1024], any);
        let sizes: Vec<usize> = frames.iter().map(|frame| chunk(Some(frame)).2).collect();
        assert_eq!(sizes, [100, 64 * 1024]);
    }

    #[test]
    fn no_chunk_is_larger_than_the_server_accepts() {
        let (key, bound) = (CallKey::new("c", 1), FrameBound::new(64 * 1024));
        let mut buffer = OutputBuffer::default();
        let frames = buffer.push(&key, OutputStream::Stdout, &[0; 64 * 1024], bound);
        assert!(frames.iter().all(|frame| bound.fits(frame)));
        let chunks: Vec<_> = frames.iter().map(|frame| chunk(Some(frame))).collect();
        assert_eq!(chunks.iter().map(|chunk| chunk.0).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(chunks.iter().map(|chunk| chunk.2).sum::<usize>(), 64 * 1024);
    }
}
