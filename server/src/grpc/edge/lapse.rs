//! Ends streams whose credential ends while they are open: it expires, or it is revoked.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Bytes, http};

use crate::auth::{Authenticator, Identity, UsePermit};
use crate::clock::Clock;
use crate::grpc::status::unauthenticated;

/// The message of streams that end.
const MESSAGE: &str = "the credentials of this stream have expired or were revoked: present others";
/// The shortest time between two looks at the clock.
const SHORTEST: Duration = Duration::from_millis(1);

/// Resolves when a credential ends.
pub(super) struct Lapse(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Lapse {
    /// The end of the credential that proved this identity.
    pub(super) fn of(authenticator: Arc<Authenticator>, clock: Arc<dyn Clock>, identity: Identity) -> Self {
        Self(Box::pin(lapse(authenticator, clock, identity)))
    }
}

async fn lapse(authenticator: Arc<Authenticator>, clock: Arc<dyn Clock>, identity: Identity) {
    let mut changes = authenticator.changes();
    loop {
        let now = clock.now();
        if !authenticator.is_current(&identity, now) {
            return;
        }
        let expired = async {
            match identity.expires {
                Some(expires) => {
                    let left = Duration::from_millis(expires.0.saturating_sub(now.0));
                    tokio::time::sleep(left.max(SHORTEST)).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = expired => {}
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

/// Ends the response with UNAUTHENTICATED when the credential ends. `use_permit` counts as long as the response is sent.
pub(super) fn lapsing_response(
    response: http::Response<Body>,
    lapse: Lapse,
    use_permit: Option<UsePermit>,
) -> http::Response<Body> {
    // An RPC that has failed has its status in the headers, and no more.
    if response.headers().contains_key(Status::GRPC_STATUS) {
        return response;
    }
    response.map(|body| {
        Body::new(LapsingBody { body: Some(body), lapse, is_response: true, _use_permit: use_permit })
    })
}

/// Fails the stream of requests when the credential ends: nothing is taken any more, whatever the client goes on to send.
pub(super) fn lapsing_request(request: http::Request<Body>, lapse: Lapse) -> http::Request<Body> {
    request
        .map(|body| Body::new(LapsingBody { body: Some(body), lapse, is_response: false, _use_permit: None }))
}

struct LapsingBody {
    /// `None` after the credential has ended.
    body: Option<Body>,
    lapse: Lapse,
    is_response: bool,
    _use_permit: Option<UsePermit>,
}

impl http_body::Body for LapsingBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.body.is_some() && self.lapse.0.as_mut().poll(cx).is_ready() {
            self.body = None;
            let status = unauthenticated(MESSAGE);
            let mut trailers = http::HeaderMap::new();
            return Poll::Ready(Some(match self.is_response {
                true => status.add_header(&mut trailers).map(|()| Frame::trailers(trailers)),
                false => Err(status),
            }));
        }
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), http_body::Body::size_hint)
    }
}
