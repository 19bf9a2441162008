//! The calls of the public port, behind the check of credentials: each goes to whoever owns the database.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::http;
use tower::{Layer, Service};

use crate::cluster::Standings;
use crate::grpc::edge::forward::budget::KeptBudget;
use crate::grpc::edge::forward::ending::done_here;
use crate::grpc::edge::forward::kept::Kept;
use crate::grpc::edge::forward::links::Links;
use crate::grpc::edge::forward::local::LocalServices;
use crate::grpc::edge::forward::metadata::strip;
use crate::grpc::edge::forward::outcome::Until;
use crate::grpc::edge::forward::passing::pass;
use crate::grpc::edge::forward::refusals::Refusals;
use crate::grpc::edge::forward::replayable::ReplayableCall;
use crate::grpc::edge::forward::resume::Place;
use crate::grpc::edge::forward::routing::{Routing, Target};
use crate::grpc::edge::forward::rules::Rule;
use crate::grpc::edge::forward::send::send;
use crate::grpc::edge::forward::streams::follow;
use crate::ids::Ids;

/// The calls that go to the owner. Each replica answers the others itself: health and reflection.
const CONTRACT: &str = "/agentloop.v1.";

/// Sends the calls of the contract to the owner. Put it behind the layer that knows the caller.
#[derive(Clone)]
pub struct Front(Arc<Inner>);

struct Inner {
    routing: Arc<Routing>,
    ids: Arc<dyn Ids>,
    message_bytes_max: usize,
    budget: KeptBudget,
}

impl Front {
    /// A front that follows `standings`. `local` has the services of this replica while it owns the database. `ids` makes the ids
    /// that callers leave to the server. `message_bytes_max` bounds a request that is sent on, in bytes.
    ///
    /// When `stop` is cancelled, the calls that were sent on end with UNAVAILABLE (`SHUTTING_DOWN`), so that their callers connect
    /// to another replica.
    #[must_use]
    pub fn new(
        standings: Standings,
        links: Links,
        local: LocalServices,
        ids: Arc<dyn Ids>,
        message_bytes_max: usize,
        stop: CancellationToken,
    ) -> Self {
        let routing = Arc::new(Routing { standings, links, local, stop, told: OnceCell::new() });
        Self(Arc::new(Inner { routing, ids, message_bytes_max, budget: KeptBudget::new() }))
    }

    /// Takes the calls that are refused before they come here, and the task that tells the owner of them.
    pub fn refusals(&self) -> (Refusals, impl Future<Output = ()> + Send + use<>) {
        Refusals::new(self.0.routing.clone())
    }
}

impl<S> Layer<S> for Front {
    type Service = Fronted<S>;

    fn layer(&self, inner: S) -> Fronted<S> {
        Fronted { inner, front: self.clone() }
    }
}

/// The services of every replica behind a [`Front`].
#[derive(Clone)]
pub struct Fronted<S> {
    inner: S,
    front: Front,
}

type Boxed<E> = Pin<Box<dyn Future<Output = Result<http::Response<Body>, E>> + Send>>;

impl<S> Service<http::Request<Body>> for Fronted<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<S::Future, Boxed<S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        strip(request.headers_mut());
        if !request.uri().path().starts_with(CONTRACT) {
            return Either::Left(self.inner.call(request));
        }
        let front = self.front.clone();
        Either::Right(Box::pin(async move { Ok(front.0.serve(request).await) }))
    }
}

impl Inner {
    async fn serve(&self, request: http::Request<Body>) -> http::Response<Body> {
        let routing = &self.routing;
        // Most calls of an owner: nothing is kept of them.
        if let Some(Target::Local(services)) = routing.present() {
            return done_here(routing, services, request).await;
        }
        let rule = Rule::of(request.uri().path());
        if let Rule::Upload | Rule::Unknown = rule {
            let call = ReplayableCall::of(request, &self.budget);
            return Box::pin(pass(routing, call, rule == Rule::Upload)).await;
        }
        let mut call = match Kept::read(request, self.message_bytes_max, &self.budget).await {
            Ok(call) => call,
            Err(refused) => return refused.into_http(),
        };
        call.set_ids(&*self.ids);
        match rule {
            Rule::Repeated => Box::pin(send(routing, &call, true, Until::Whole)).await.response,
            Rule::RepeatedForRun => {
                let repeats = call.names_a_run();
                Box::pin(send(routing, &call, repeats, Until::Whole)).await.response
            }
            Rule::Events => {
                let place = Place::before_events(&call);
                Box::pin(follow(routing.clone(), call, place)).await
            }
            Rule::Changes => Box::pin(follow(routing.clone(), call, Place::before_changes())).await,
            Rule::Download | Rule::Upload | Rule::Unknown => Box::pin(pass(routing, call, true)).await,
        }
    }
}
