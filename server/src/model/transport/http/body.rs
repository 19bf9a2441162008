//! The body of a request: pieces that are sent one after the other.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The body of a request, in pieces. Pieces may be shared with other requests; they are not copied.
#[derive(Clone)]
pub(crate) struct HttpBody(VecDeque<Bytes>);

impl HttpBody {
    pub(crate) fn new(pieces: Vec<Bytes>) -> Self {
        Self(pieces.into())
    }

    fn len(&self) -> u64 {
        self.0.iter().map(|piece| piece.len() as u64).sum()
    }

    #[cfg(test)]
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.0.iter().flatten().copied().collect()
    }
}

impl From<HttpBody> for reqwest::Body {
    fn from(HttpBody(mut pieces): HttpBody) -> Self {
        // The client can repeat a body of one piece when a connection turns out to be closed.
        match pieces.len() {
            0 | 1 => pieces.pop_front().unwrap_or_default().into(),
            _ => Self::wrap(HttpBody(pieces)),
        }
    }
}

/// Its length is known, so it is sent with `content-length`: not every server takes chunks.
impl Body for HttpBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len())
    }
}

/// Without the content, which is the conversation.
impl fmt::Debug for HttpBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("bytes", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_every_body_is_known() {
        for pieces in [&["one"][..], &["one", "two", "three"]] {
            let body =
                HttpBody::new(pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect());
            let bytes = pieces.concat().len() as u64;
            assert_eq!(body.to_vec(), pieces.concat().as_bytes());
            let sent = reqwest::Body::from(body);
            assert_eq!(Body::size_hint(&sent).exact(), Some(bytes));
        }
    }
}
