//! The end of a replica. Its callers are told to connect again. The other replicas are told first, so that they do not take the
//! ends of its RPCs for callers that leave.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http;

use crate::engine::error::EngineError;
use crate::grpc::edge::forward::route::routing::{EndSignal, Recipient, Replica, Routing};
use crate::grpc::edge::forward::wire::links::PeerLink;

/// Path of the RPC with which a replica says that it stops. Only the port for replicas takes it.
pub(in crate::grpc::edge) const STOPPING: &str = "/agentloop.replica/Leave";
/// Time in which the others are told.
const TELL_WAIT: Duration = Duration::from_millis(500);
/// Time that is left to RPCs with one response at other replicas, from the moment at which this replica stops. Most need less.
/// Then their callers are told that it shuts down, so the process must live longer than this.
pub(crate) const RESPONSE_WAIT: Duration = Duration::from_millis(700);

/// The status of RPCs that end with this replica.
pub(in crate::grpc::edge::forward) fn shutting_down() -> Status {
    EngineError::ShuttingDown.into()
}

impl Routing {
    /// Resolves when this replica stops, as soon as the others have been told. From then on, an RPC that is given up here says
    /// nothing about its caller.
    pub(in crate::grpc::edge::forward) async fn stopping(&self) {
        self.stopping_since().await;
    }

    /// The same. Returns the moment at which this replica began to tell the others.
    async fn stopping_since(&self) -> Instant {
        self.stop.cancelled().await;
        let told = self.told.get_or_init(async || {
            let since = Instant::now();
            drop(timeout(TELL_WAIT, self.tell()).await);
            since
        });
        *told.await
    }

    /// The same for a stream, which outlives its RPC.
    pub(in crate::grpc::edge::forward) fn stopping_stream(self: &Arc<Self>) -> EndSignal {
        let routing = self.clone();
        Box::pin(async move { routing.stopping().await })
    }

    /// The same for a stream of this recipient. The services of this replica end their streams themselves.
    pub(in crate::grpc::edge::forward) fn stopping_for(self: &Arc<Self>, recipient: Recipient) -> EndSignal {
        match recipient.replica {
            Replica::Here => Box::pin(std::future::pending()),
            Replica::Peer(_) => self.stopping_stream(),
        }
    }

    /// Resolves when this replica stops and RPCs with one response had time for it.
    pub(in crate::grpc::edge::forward) async fn stopped(&self) {
        sleep_until(self.stopping_since().await + RESPONSE_WAIT).await;
    }

    async fn tell(&self) {
        join_all(self.links.all().into_iter().map(tell_stopping)).await;
    }
}

async fn tell_stopping(link: PeerLink) {
    let mut request = http::Request::new(Body::empty());
    *request.method_mut() = http::Method::POST;
    *request.version_mut() = http::Version::HTTP_2;
    *request.uri_mut() = http::Uri::from_static(STOPPING);
    if let Err(error) = link.send(request).await {
        tracing::debug!(%error, "a replica cannot be told that this one stops");
    }
}
