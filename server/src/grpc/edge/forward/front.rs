//! The calls of the public port, behind the check of credentials: each goes to whoever owns its session.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::http;
use tower::{Layer, Service};

use crate::cluster::locate::Locate;
use crate::cluster::{HUB, Ownerships};
use crate::grpc::edge::forward::budget::KeptBudget;
use crate::grpc::edge::forward::call::Call as _;
use crate::grpc::edge::forward::ending::done_here;
use crate::grpc::edge::forward::kept::Kept;
use crate::grpc::edge::forward::links::Links;
use crate::grpc::edge::forward::local::LocalServices;
use crate::grpc::edge::forward::metadata::strip;
use crate::grpc::edge::forward::outcome::{Until, nobody};
use crate::grpc::edge::forward::passing::pass;
use crate::grpc::edge::forward::place::{Named, Place};
use crate::grpc::edge::forward::replayable::ReplayableCall;
use crate::grpc::edge::forward::resume::Position;
use crate::grpc::edge::forward::routing::{At, Routing, SEARCH_WAIT, Target};
use crate::grpc::edge::forward::rules::{self, Rule};
use crate::grpc::edge::forward::send::send;
use crate::grpc::edge::forward::streams::follow;
use crate::grpc::edge::request_size::request_bytes_max;
use crate::ids::Ids;

/// The calls that have an owner. Each replica answers the others itself: health and reflection.
const CONTRACT: &str = "/agentloop.v1.";

/// Sends the calls of the contract to their owners. Put it behind the layer that knows the caller.
#[derive(Clone)]
pub struct Front(Arc<Inner>);

struct Inner {
    routing: Arc<Routing>,
    ids: Arc<dyn Ids>,
    message_bytes_max: usize,
    budget: KeptBudget,
}

impl Front {
    /// A front that follows `ownerships`. `local` has the services of this replica. `locate` finds the shards of runs. `ids` makes
    /// the ids that callers leave to the server. `message_bytes_max` bounds a request that is sent on, in bytes.
    ///
    /// When `stop` is cancelled, the calls that were sent on end with UNAVAILABLE (`SHUTTING_DOWN`), so that their callers connect
    /// to another replica.
    #[must_use]
    pub fn new(
        ownerships: Ownerships,
        links: Links,
        local: LocalServices,
        locate: Arc<dyn Locate>,
        ids: Arc<dyn Ids>,
        message_bytes_max: usize,
        stop: CancellationToken,
    ) -> Self {
        let routing = Arc::new(Routing::new(ownerships, links, local, locate, stop));
        Self(Arc::new(Inner { routing, ids, message_bytes_max, budget: KeptBudget::new() }))
    }

    pub(super) fn ownerships(&self) -> Ownerships {
        self.0.routing.ownerships.clone()
    }

    pub(super) fn local(&self) -> &LocalServices {
        &self.0.routing.local
    }

    /// Has a call of the contract done. Its principal, if there is one, is in its extensions.
    pub(super) async fn serve(&self, request: http::Request<Body>) -> http::Response<Body> {
        self.0.serve(request).await
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
        Either::Right(Box::pin(async move { Ok(front.serve(request).await) }))
    }
}

impl Inner {
    async fn serve(&self, request: http::Request<Body>) -> http::Response<Body> {
        // An RPC that this version does not know is refused by the services of this replica.
        let (rule, place) = rules::of(request.uri().path()).unwrap_or((Rule::Upload, Place::Here));
        let routing = &self.routing;
        match place {
            Place::Here => return self.here(rule, request).await,
            Place::Hub if rule == Rule::Upload => return self.at_hub(request).await,
            _ => {}
        }
        let bytes_max = request_bytes_max(request.uri().path(), self.message_bytes_max);
        let mut call = match Kept::read(request, bytes_max, &self.budget).await {
            Ok(call) => call,
            Err(refused) => return refused.into_http(),
        };
        let has_new_ids = call.set_ids(&*self.ids);
        let named = place.named(call.head().tenant(), call.message(), has_new_ids);
        match rule {
            Rule::Repeated => Box::pin(send(routing, &call, &named, true, Until::Whole)).await.response,
            Rule::RepeatedForRun => {
                let repeats = call.names_a_run();
                Box::pin(send(routing, &call, &named, repeats, Until::Whole)).await.response
            }
            Rule::Events => {
                let position = Position::before_events(&call);
                Box::pin(follow(routing.clone(), call, named, position)).await
            }
            Rule::Changes => Box::pin(follow(routing.clone(), call, named, Position::before_changes())).await,
            Rule::Download | Rule::Upload => Box::pin(pass(routing, call, &named)).await,
        }
    }

    /// Gives a call to the services of this replica as soon as they are there. Nothing is kept of it.
    async fn here(&self, rule: Rule, request: http::Request<Body>) -> http::Response<Body> {
        let target = match self.routing.present(At::Here) {
            Some(target) => Some(target),
            None => self.routing.target(At::Here, Instant::now() + SEARCH_WAIT).await,
        };
        let Some(target) = target else { return nobody().into_http() };
        let asked = target.asked(At::Here);
        match target {
            Target::Local(services) => done_here(&self.routing, services, asked, rule, request).await,
            Target::Owner { .. } => nobody().into_http(),
        }
    }

    /// Has a stream of requests done by the replica that keeps the tool hosts. If it is this one, nothing is kept of it.
    async fn at_hub(&self, request: http::Request<Body>) -> http::Response<Body> {
        let routing = &self.routing;
        if let Some(target) = routing.present(At::Owner(HUB)) {
            let asked = target.asked(At::Owner(HUB));
            if let Target::Local(services) = target {
                return done_here(routing, services, asked, Rule::Upload, request).await;
            }
        }
        let call = ReplayableCall::of(request, &self.budget);
        Box::pin(pass(routing, call, &Named::Shard(HUB))).await
    }
}
