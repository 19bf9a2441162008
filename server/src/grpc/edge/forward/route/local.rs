//! The services of this replica, and its audit log.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::watch;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::service::Routes;
use tower::Service as _;

use crate::auth::Principal;
use crate::grpc::edge::audit::{AuditLog, AuditedRpc, record_rpc};

/// The place for the services of this replica. Clones share it.
#[derive(Clone)]
pub struct LocalServices(Arc<watch::Sender<Option<ServiceSet>>>);

/// Services that take RPCs, with the audit log that they write.
#[derive(Clone)]
pub(in crate::grpc::edge) struct ServiceSet {
    routes: Routes,
    audit: Option<AuditLog>,
}

impl LocalServices {
    /// A place without services.
    #[must_use]
    pub fn none() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    /// Puts the services there: from now on they take the RPCs of this replica's callers and of other replicas.
    /// With a log, each RPC is written to it.
    pub fn open(&self, routes: Routes, audit: Option<AuditLog>) {
        self.0.send_replace(Some(ServiceSet { routes: routes.prepare(), audit }));
    }

    /// Puts the same services there as in another place.
    #[cfg(test)]
    pub(in crate::grpc::edge::forward) fn open_as(&self, other: &Self) {
        self.0.send_replace(other.get());
    }

    /// The services, if they are there.
    pub(in crate::grpc::edge) fn get(&self) -> Option<ServiceSet> {
        self.0.borrow().clone()
    }

    /// Tells when the services come.
    pub(in crate::grpc::edge) fn subscribe(&self) -> watch::Receiver<Option<ServiceSet>> {
        self.0.subscribe()
    }

    /// The audit log, if there is one by now.
    pub(in crate::grpc) fn audit(&self) -> Option<AuditLog> {
        self.0.borrow().as_ref().and_then(|opened| opened.audit.clone())
    }
}

impl ServiceSet {
    /// Has an RPC done. The principal is in its extensions.
    pub(in crate::grpc::edge) async fn call(mut self, request: http::Request<Body>) -> http::Response<Body> {
        let Some(audit) = self.audit else { return infallible(self.routes.call(request).await) };
        let principal = request.extensions().get::<Arc<Principal>>().cloned();
        let rpc = AuditedRpc::of(&request);
        let act = audit.begin_act(&rpc, principal.as_deref());
        infallible(record_rpc(audit, rpc, act, self.routes.call(request)).await)
    }
}

fn infallible<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
