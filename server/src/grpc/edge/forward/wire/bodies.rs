//! Bodies of HTTP messages that are made of frames, and the reading of frames.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;
use http_body::Frame;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Bytes, http};

/// One frame of a body, or the fault that ends it.
pub(in crate::grpc::edge::forward) type NextFrame = Result<Frame<Bytes>, Status>;

/// A body whose frames come from a stream.
struct Frames<S>(Pin<Box<S>>);

impl<S: Stream<Item = NextFrame> + Send> http_body::Body for Frames<S> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<NextFrame>> {
        self.0.as_mut().poll_next(cx)
    }
}

/// A body with the frames of this stream.
pub(in crate::grpc::edge::forward) fn of_frames(
    frames: impl Stream<Item = NextFrame> + Send + 'static,
) -> Body {
    Body::new(Frames(Box::pin(frames)))
}

/// A body of these bytes alone. It says where it ends, so that they are sent in one frame.
pub(in crate::grpc::edge::forward) fn of_bytes(bytes: Bytes) -> Body {
    Body::new(Whole(Some(bytes)))
}

struct Whole(Option<Bytes>);

impl http_body::Body for Whole {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<NextFrame>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}

/// The next frame of a body.
pub(in crate::grpc::edge::forward) async fn next_frame(body: &mut Body) -> Option<NextFrame> {
    std::future::poll_fn(|cx| http_body::Body::poll_frame(Pin::new(&mut *body), cx)).await
}

/// All bytes of a body; `None` if there are more than `max`, or it breaks off.
pub(in crate::grpc::edge::forward) async fn read(mut body: Body, max: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(frame) = next_frame(&mut body).await {
        if let Some(piece) = frame.ok()?.data_ref() {
            if bytes.len() + piece.len() > max {
                return None;
            }
            bytes.extend_from_slice(piece);
        }
    }
    Some(bytes)
}

/// The frame that ends a stream with this status.
pub(in crate::grpc::edge::forward) fn end_with(status: &Status) -> NextFrame {
    let mut trailers = http::HeaderMap::new();
    status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))
}
