//! The end of a replica that stands by. Its callers are told to connect again, and the owner is told that they have not left.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http;
use tower::ServiceExt as _;

use crate::engine::error::EngineError;
use crate::grpc::edge::forward::metadata::REPLICA;
use crate::grpc::edge::forward::routing::{Moved, Routing, Target};

/// The call with which a replica says that it stops. Only the port for replicas takes it.
pub(super) const LEAVE: &str = "/agentloop.replica/Leave";
/// Time in which the owner is told.
const TELL_WAIT: Duration = Duration::from_secs(1);
/// Time that is left to calls with one answer. Most need less.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// The status of calls that end with this replica.
pub(super) fn shutting_down() -> Status {
    EngineError::ShuttingDown.into()
}

impl Routing {
    /// Resolves when this replica stops, as soon as the owner has been told. From then on, a call that is given up here says nothing
    /// about its caller.
    pub(super) async fn stopping(&self) {
        self.stop.cancelled().await;
        self.told.get_or_init(async || drop(timeout(TELL_WAIT, self.tell()).await)).await;
    }

    /// The same for a stream, which outlives its call.
    pub(super) fn stopping_stream(self: &Arc<Self>) -> Moved {
        let routing = self.clone();
        Box::pin(async move { routing.stopping().await })
    }

    /// Resolves when this replica stops and calls with one answer had time for it.
    pub(super) async fn stopped(&self) {
        self.stopping().await;
        tokio::time::sleep(ANSWER_WAIT).await;
    }

    async fn tell(&self) {
        let Some(Target::Owner { number, link }) = self.present() else { return };
        let mut request = http::Request::new(Body::empty());
        *request.method_mut() = http::Method::POST;
        *request.version_mut() = http::Version::HTTP_2;
        *request.uri_mut() = http::Uri::from_static(LEAVE);
        request.headers_mut().insert(REPLICA, number.into());
        if let Err(error) = link.oneshot(request).await {
            tracing::debug!(%error, "the owner cannot be told that this replica stops");
        }
    }
}
