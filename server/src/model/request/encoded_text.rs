//! Encoded messages in pieces: requests send the pieces without a copy, and conversations with the same messages share
//! them.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::memory::{Charged, Pool};

/// A piece is closed once it has this many bytes. A shorter one is copied into each request.
const PIECE_BYTES_MIN: usize = 64 * 1024;

/// A piece that is complete.
type CompletePiece = Arc<Charged<Vec<u8>>>;

/// Pieces that conversations share.
pub(in crate::model) type PiecePool = Pool<Vec<u8>>;

/// Encoded messages. They are only added to.
#[derive(Debug, Default)]
pub(in crate::model) struct EncodedText {
    complete: Vec<CompletePiece>,
    complete_bytes: usize,
    /// The piece that is being written.
    last: Vec<u8>,
}

/// A part of an encoded text.
#[derive(Debug)]
pub(in crate::model) enum Piece<'a> {
    /// Short: requests copy it.
    Copied(&'a [u8]),
    /// Requests send it without a copy.
    Shared(Bytes),
}

/// The part of a complete piece that a request holds.
struct SentPiece(CompletePiece);

impl AsRef<[u8]> for SentPiece {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Piece<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl EncodedText {
    /// Number of bytes of all pieces together.
    pub(in crate::model) fn len(&self) -> usize {
        self.complete_bytes + self.last.len()
    }

    /// Bytes of complete pieces.
    pub(in crate::model) fn complete_bytes(&self) -> usize {
        self.complete_bytes
    }

    /// The place to write to.
    pub(in crate::model) fn writer(&mut self) -> &mut Vec<u8> {
        &mut self.last
    }

    /// The position in the whole text of a position in [`Self::writer`].
    pub(in crate::model) fn position(&self, in_writer: usize) -> usize {
        self.complete_bytes + in_writer
    }

    /// Closes the last piece if it is large. The same messages give the same pieces if this is called after each of them.
    pub(in crate::model) fn close_piece(&mut self, pool: &PiecePool) {
        if self.last.len() < PIECE_BYTES_MIN {
            return;
        }
        let mut piece = std::mem::take(&mut self.last);
        piece.shrink_to_fit();
        self.complete_bytes += piece.len();
        let bytes = piece.len();
        self.complete.push(pool.share(piece, bytes, |piece| piece));
    }

    /// Frees the capacity that no text uses.
    pub(in crate::model) fn trim(&mut self) {
        trim(&mut self.last);
    }

    /// Memory that is not shared.
    pub(in crate::model) fn own_bytes(&self) -> usize {
        self.last.capacity() + self.complete.capacity() * size_of::<CompletePiece>()
    }

    /// Everything, to send. Complete pieces are not copied.
    pub(in crate::model) fn all(&self) -> Vec<Piece<'_>> {
        self.range(0..self.len())
    }

    /// A part of it, to send.
    pub(in crate::model) fn range(&self, range: Range<usize>) -> Vec<Piece<'_>> {
        let mut found = Vec::with_capacity(self.complete.len() + 1);
        let mut begin = 0;
        for piece in &self.complete {
            let end = begin + piece.len();
            if range.start < end && begin < range.end {
                let whole = Bytes::from_owner(SentPiece(piece.clone()));
                let within = range.start.saturating_sub(begin)..range.end.min(end) - begin;
                found.push(Piece::Shared(whole.slice(within)));
            }
            begin = end;
        }
        if range.end > begin {
            let within = range.start.saturating_sub(begin)..range.end - begin;
            found.push(Piece::Copied(&self.last[within]));
        }
        found
    }
}

/// Shrinks spare capacity to an eighth of the length.
fn trim(text: &mut Vec<u8>) {
    let room = text.len() / 8;
    if text.capacity() - text.len() > 2 * room {
        text.shrink_to(text.len() + room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryLedger;

    fn concat(pieces: &[Piece<'_>]) -> Vec<u8> {
        pieces.iter().flat_map(|piece| piece.as_ref()).copied().collect()
    }

    fn text(messages: &[&[u8]], pool: &PiecePool) -> EncodedText {
        let mut text = EncodedText::default();
        for message in messages {
            text.writer().extend_from_slice(message);
            text.close_piece(pool);
        }
        text
    }

    #[test]
    fn a_range_is_the_same_however_the_text_is_cut() {
        let pool = PiecePool::new(&MemoryLedger::unbounded());
        let lengths = [20_000, 40_000, 60_000, 80_000, 100_000, 500];
        let messages: Vec<Vec<u8>> = (b'a'..).zip(lengths).map(|(byte, length)| vec![byte; length]).collect();
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let (whole, text) = (messages.concat(), text(&messages, &pool));
        assert!(text.complete.len() > 1 && !text.last.is_empty());
        assert_eq!(text.len(), whole.len());
        assert_eq!(concat(&text.all()), whole);
        for begin in (0..whole.len()).step_by(17_003) {
            for end in (begin..whole.len()).step_by(23_011) {
                assert_eq!(concat(&text.range(begin..end)), whole[begin..end], "{begin}..{end}");
            }
        }
    }

    #[test]
    fn conversations_with_the_same_messages_share_the_pieces() {
        let ledger = MemoryLedger::unbounded();
        let pool = PiecePool::new(&ledger);
        let large = vec![b'x'; PIECE_BYTES_MIN];
        let texts = [text(&[&large, b"a"], &pool), text(&[&large, b"b"], &pool)];
        assert_eq!(ledger.used(), large.len());
        let sent: Vec<Bytes> = texts[0]
            .all()
            .into_iter()
            .filter_map(|piece| match piece {
                Piece::Shared(bytes) => Some(bytes),
                Piece::Copied(_) => None,
            })
            .collect();
        drop(texts);
        assert_eq!(ledger.used(), large.len(), "what is being sent is in memory");
        drop(sent);
        assert_eq!(ledger.used(), 0);
    }
}
