//! One request and its response on an HTTP/2 connection.
//!
//! The task of the caller talks to the connection itself. A client library in between would pass each request through queues and
//! tasks of its own, which cost CPU for each one.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt as _;
use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use http_body::{Body as _, Frame};
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::codegen::{Bytes, http};

use crate::grpc::edge::forward::wire::bodies::next_frame;

/// Sends a request, and waits for the beginning of its response. If this or the body of the response is dropped before the end,
/// the peer is told that nobody waits any more.
///
/// # Errors
/// The connection broke, or the peer has reset the stream.
pub(super) async fn exchange(
    mut connection: SendRequest<Bytes>,
    request: http::Request<Body>,
) -> Result<http::Response<Body>, h2::Error> {
    let (head, body) = request.into_parts();
    let is_empty = body.is_end_stream();
    let (response, stream) = connection.send_request(http::Request::from_parts(head, ()), is_empty)?;
    let sending = if is_empty { None } else { send(body, stream) };
    let response = response.await?;
    Ok(response.map(|stream| Body::new(ReceivedBody { stream, has_data: true, _sending: sending })))
}

/// Sends the part of the body that is there. A task sends what comes later.
fn send(body: Body, stream: SendStream<Bytes>) -> Option<Sending> {
    let mut sending = Box::pin(send_all(body, stream));
    if (&mut sending).now_or_never().is_some() {
        return None;
    }
    #[expect(clippy::disallowed_methods, reason = "it ends with its stream, as a task of the transport does")]
    Some(Sending(tokio::spawn(sending)))
}

async fn send_all(mut body: Body, mut stream: SendStream<Bytes>) {
    while !body.is_end_stream() {
        let frame = tokio::select! {
            biased;
            _reset = std::future::poll_fn(|cx| stream.poll_reset(cx)) => return,
            frame = next_frame(&mut body) => frame,
        };
        let frame = match frame {
            None => break,
            Some(Err(_broken)) => return stream.send_reset(Reason::CANCEL),
            Some(Ok(frame)) => frame,
        };
        let sent = match frame.into_data() {
            Ok(data) => {
                // An empty piece takes none.
                if !data.is_empty() && !has_room(&mut stream).await {
                    return;
                }
                let is_last = body.is_end_stream();
                match stream.send_data(data, is_last) {
                    Ok(()) if is_last => return,
                    sent => sent,
                }
            }
            Err(frame) => match frame.into_trailers() {
                Ok(trailers) => return drop(stream.send_trailers(trailers)),
                // HTTP knows no others.
                Err(_other) => Ok(()),
            },
        };
        if sent.is_err() {
            return;
        }
    }
    // An error says that the stream has ended already.
    let _ended = stream.send_data(Bytes::new(), true);
}

/// Waits until the peer takes more. False: the stream has ended.
async fn has_room(stream: &mut SendStream<Bytes>) -> bool {
    stream.reserve_capacity(1);
    while stream.capacity() == 0 {
        match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(Ok(_room)) => {}
            Some(Err(_)) | None => return false,
        }
    }
    true
}

/// The task that sends a body. It ends with the response.
struct Sending(JoinHandle<()>);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The body of a response.
struct ReceivedBody {
    stream: RecvStream,
    /// False once all data has come: trailers may follow.
    has_data: bool,
    _sending: Option<Sending>,
}

impl http_body::Body for ReceivedBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let this = &mut *self;
        if this.has_data {
            match ready!(this.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    // It fails for a stream that has ended, which needs no room.
                    let _ended = this.stream.flow_control().release_capacity(data.len());
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(of_error(error)),
                None => this.has_data = false,
            }
        }
        match ready!(this.stream.poll_trailers(cx)) {
            Ok(trailers) => Poll::Ready(trailers.map(Frame::trailers).map(Ok)),
            Err(error) => Poll::Ready(of_error(error)),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }
}

/// A stream that the peer gave up without a fault just ends.
fn of_error<T>(error: h2::Error) -> Option<Result<T, h2::Error>> {
    match error.reason() {
        Some(Reason::NO_ERROR | Reason::CANCEL) => None,
        _ => Some(Err(error)),
    }
}
