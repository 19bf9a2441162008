//! The largest request of each method. An import may be larger than the others, since a tool call comes with its result.

use std::convert::Infallible;
use std::task::{Context, Poll};

use agentloop_core::limits::IMPORT_TIMES_LARGER;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tower::Service;

/// The method whose requests may be larger.
const IMPORT: &str = "/agentloop.v1.Sessions/ImportEntries";

/// The largest request to this path, in bytes, where others have at most `max`.
pub(super) fn request_bytes_max(path: &str, max: usize) -> usize {
    if path == IMPORT { import_bytes_max(max) } else { max }
}

/// The largest request to import, in bytes, where other requests have at most `max`.
#[must_use]
pub const fn import_bytes_max(max: usize) -> usize {
    max.saturating_mul(IMPORT_TIMES_LARGER)
}

/// A service that has imports served apart: by the same service, with the larger bound.
#[derive(Debug, Clone)]
pub struct ImportsApart<S> {
    imports: S,
    others: S,
}

impl<S> ImportsApart<S> {
    /// `imports` takes requests of at most [`import_bytes_max`].
    #[must_use]
    pub fn new(imports: S, others: S) -> Self {
        Self { imports, others }
    }
}

impl<S: NamedService> NamedService for ImportsApart<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for ImportsApart<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = S::Future;

    // Services of the contract are always ready.
    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> S::Future {
        let is_import = request.uri().path() == IMPORT;
        if is_import { self.imports.call(request) } else { self.others.call(request) }
    }
}
