//! An RPC that is sent to an owner, and its head: everything but its messages.

use std::sync::Arc;

use agentloop_core::cluster::shard::{OwnerNo, ShardNo};
use agentloop_core::id::TenantId;
use tonic::body::Body;
use tonic::codegen::http::{self, HeaderMap, HeaderValue, Version, request::Parts};

use crate::auth::Principal;
use crate::grpc::edge::forward::wire::metadata::{CALLER, PRINCIPAL, RELAYED, REPLICA, SHARD, sent_on};
use crate::grpc::edge::forward::wire::principal;
use crate::grpc::edge::incoming::{IncomingLink, RemoteEnd};

/// An RPC that is sent to an owner.
pub(in crate::grpc::edge::forward) trait ForwardedRpc {
    /// Everything but its messages.
    fn head(&self) -> &Head;

    /// Its messages, from the first one on. After this, a body that was made before must not be used.
    fn body(&self) -> Body;

    /// True if its messages are still there from the first one on.
    fn is_whole(&self) -> bool;
}

/// Marks an RPC that a replica of an earlier version has sent here.
#[derive(Debug, Clone, Copy)]
pub(in crate::grpc::edge) struct Relayed;

/// An RPC without its messages.
#[derive(Clone)]
pub(in crate::grpc::edge::forward) struct Head(Parts);

impl Head {
    /// The head of an RPC whose caller is known.
    pub(in crate::grpc::edge::forward) fn of(parts: Parts) -> Self {
        Self(parts)
    }

    pub(in crate::grpc::edge::forward) fn path(&self) -> &str {
        self.0.uri.path()
    }

    /// The tenant of the caller.
    pub(in crate::grpc::edge::forward) fn tenant(&self) -> TenantId {
        let principal = self.0.extensions.get::<Arc<Principal>>();
        principal.map_or_else(TenantId::local, |principal| principal.tenant.clone())
    }

    /// The same caller's RPC at another path.
    pub(in crate::grpc::edge::forward) fn to_path(&self, path: &'static str) -> Self {
        let mut head = self.clone();
        head.0.uri = http::Uri::from_static(path);
        head
    }

    /// The RPC for the services of this replica, and the link that it comes over: the one of an earlier version that sent it here,
    /// or one of its own.
    pub(in crate::grpc::edge::forward) fn for_local(
        &self,
        body: Body,
    ) -> (http::Request<Body>, IncomingLink) {
        let mut request = http::Request::from_parts(self.0.clone(), body);
        let link = request.extensions_mut().get_or_insert_with(IncomingLink::here).clone();
        (request, link)
    }

    /// The RPC for the replica of this number, which owns this shard.
    pub(in crate::grpc::edge::forward) fn for_replica(
        &self,
        number: OwnerNo,
        shard: ShardNo,
        body: Body,
    ) -> http::Request<Body> {
        let mut request = http::Request::new(body);
        *request.method_mut() = self.0.method.clone();
        *request.version_mut() = Version::HTTP_2;
        // The link adds where it goes.
        *request.uri_mut() = self.path().parse().unwrap_or_default();
        *request.headers_mut() = self.headers_for_replicas();
        request.headers_mut().insert(REPLICA, HeaderValue::from(number.0));
        request.headers_mut().insert(SHARD, HeaderValue::from(shard.0));
        request
    }

    /// The headers for other replicas, without those that say which one is meant.
    fn headers_for_replicas(&self) -> HeaderMap {
        let Parts { headers, extensions, .. } = &self.0;
        let mut headers = sent_on(headers);
        if let Some(principal) = extensions.get::<Arc<Principal>>() {
            headers.insert(PRINCIPAL, principal::encode(principal));
        }
        let address = extensions.get::<RemoteEnd>().and_then(|peer| peer.address);
        if let Some(address) = address.and_then(|address| HeaderValue::try_from(address.to_string()).ok()) {
            headers.insert(CALLER, address);
        }
        if extensions.get::<Relayed>().is_some() {
            headers.insert(RELAYED, HeaderValue::from_static("1"));
        }
        headers
    }
}
