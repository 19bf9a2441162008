//! The two versions of the reflection service. Each is built for its first call: the contract's descriptors with all their
//! comments take some MiB in memory, and nobody ever requests them from most servers.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use agentloop_proto::FILE_DESCRIPTOR_SET;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_reflection::server::Builder;
use tower::Service;

/// Adds reflection to the services.
pub(super) fn with_reflection(routes: Routes) -> Routes {
    const BUILDS: &str = "the descriptors were compiled with this program";
    let current = BuiltOnUse::new(|| builder().build_v1().expect(BUILDS));
    // Many tools still use the older version.
    let older = BuiltOnUse::new(|| builder().build_v1alpha().expect(BUILDS));
    routes.add_service(current).add_service(older)
}

fn builder() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // With these, clients without proto files can read the details of an error.
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
}

/// A service that is built for its first call.
struct BuiltOnUse<S, F>(Arc<LazyLock<S, F>>);

impl<S, F: FnOnce() -> S> BuiltOnUse<S, F> {
    fn new(build: F) -> Self {
        Self(Arc::new(LazyLock::new(build)))
    }
}

impl<S, F> Clone for BuiltOnUse<S, F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: NamedService, F> NamedService for BuiltOnUse<S, F> {
    const NAME: &'static str = S::NAME;
}

impl<S, F> Service<Request<Body>> for BuiltOnUse<S, F>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone,
    F: FnOnce() -> S,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = S::Future;

    /// A service of tonic is always ready.
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> S::Future {
        S::clone(&self.0).call(request)
    }
}
