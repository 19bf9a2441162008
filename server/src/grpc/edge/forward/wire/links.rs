//! The links to other replicas: one HTTP/2 connection to each, made with the first RPC and kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use agentloop_core::cluster::shard::OwnerNo;
use parking_lot::Mutex;
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tonic::codegen::http::{self, HeaderMap, HeaderValue};
use tower::Service;

use crate::cluster::{ClusterId, Ownership, Peer};
use crate::grpc::edge::forward::wire::connection::{LinkError, LinkTls, PeerConnection};
use crate::grpc::edge::forward::wire::metadata::{CLUSTER, index_repeating};

/// A peer cannot be called: its address or the certificates are wrong.
#[derive(Debug, thiserror::Error)]
#[error("the replica {number} cannot be called at {address:?}: {problem}")]
pub struct BadLink {
    number: OwnerNo,
    address: String,
    problem: String,
}

/// A connection to another replica. Each request on it names the cluster, as far as that is known.
#[derive(Clone)]
pub(in crate::grpc::edge) struct PeerLink {
    connection: Arc<PeerConnection>,
    cluster: Option<HeaderValue>,
}

impl PeerLink {
    /// Sends a request, and waits for the beginning of its response. It connects if there is no connection.
    ///
    /// # Errors
    /// [`LinkError`]
    pub(in crate::grpc::edge) async fn send(
        &self,
        mut request: http::Request<Body>,
    ) -> Result<http::Response<Body>, LinkError> {
        if let Some(cluster) = &self.cluster {
            request.headers_mut().insert(CLUSTER, cluster.clone());
        }
        index_repeating(request.headers_mut());
        self.connection.send(request).await
    }
}

/// For tonic's clients.
impl Service<http::Request<Body>> for PeerLink {
    type Response = http::Response<Body>;
    type Error = LinkError;
    type Future = BoxFuture<Self::Response, LinkError>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), LinkError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let link = self.clone();
        Box::pin(async move { link.send(request).await })
    }
}

/// Tries to have RPCs done by other replicas since the start, by their ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SentOnCounts {
    /// The replica did the RPC, or refused it.
    pub responded: u64,
    /// The replica was not the one to do it, or stops.
    pub moved: u64,
    /// There was no connection to the replica.
    pub unreached: u64,
    /// The connection broke, or the session was given away, before the response.
    pub lost: u64,
}

/// The links to other replicas. Clones share them.
#[derive(Clone, Default)]
pub struct Links(Arc<Mutex<LinksState>>);

#[derive(Default)]
struct LinksState {
    tls: Option<LinkTls>,
    counts: SentOnCounts,
    /// The name of this replica's cluster.
    cluster: Option<HeaderValue>,
    /// The peers that were called, by their numbers.
    links: BTreeMap<OwnerNo, (Peer, Arc<PeerLink>)>,
    /// Links with earlier certificates, as long as there are RPCs on them.
    earlier: Vec<Weak<PeerLink>>,
}

impl Links {
    /// Links with TLS, or plain ones.
    #[must_use]
    pub fn new(tls: Option<LinkTls>) -> Self {
        Self(Arc::new(Mutex::new(LinksState { tls, ..LinksState::default() })))
    }

    /// Other links, with the same certificates.
    #[must_use]
    pub(in crate::grpc::edge::forward) fn apart(&self) -> Self {
        let (tls, cluster) = {
            let state = self.state();
            (state.tls.clone(), state.cluster.clone())
        };
        Self(Arc::new(Mutex::new(LinksState { tls, cluster, ..LinksState::default() })))
    }

    /// The RPCs that were sent on.
    #[must_use]
    pub fn sent_on(&self) -> SentOnCounts {
        self.state().counts
    }

    pub(in crate::grpc::edge::forward) fn count(&self, add: impl FnOnce(&mut SentOnCounts) -> &mut u64) {
        *add(&mut self.state().counts) += 1;
    }

    /// Names the cluster on links that are made from now on. Call it before the first one.
    pub fn name_cluster(&self, cluster: &ClusterId) {
        self.state().cluster = HeaderValue::try_from(&*cluster.0).ok();
    }

    /// True if a request comes from a replica of another cluster. Those of earlier versions name none.
    pub(in crate::grpc::edge) fn is_of_another_cluster(&self, headers: &HeaderMap) -> bool {
        let state = self.state();
        headers.get(CLUSTER).zip(state.cluster.as_ref()).is_some_and(|(theirs, mine)| theirs != mine)
    }

    /// Uses other certificates for links that are made from now on. RPCs under way keep theirs.
    pub fn renew(&self, tls: Option<LinkTls>) {
        let state = &mut *self.state();
        state.tls = tls;
        state.earlier.extend(state.links.values().map(|(_, link)| Arc::downgrade(link)));
        state.links.clear();
        state.earlier.retain(|link| link.strong_count() > 0);
    }

    /// The link to this peer. It connects with its first RPC, and again after it broke. A new link drops those to replicas that
    /// are gone. An RPC keeps its link until it ends. When this replica stops, it tells the peer so over this link.
    ///
    /// # Errors
    /// [`BadLink`]
    pub(in crate::grpc::edge) fn to(
        &self,
        peer: &Peer,
        ownership: &Ownership,
    ) -> Result<Arc<PeerLink>, BadLink> {
        let mut state = self.state();
        if let Some((known, link)) = state.links.get(&peer.number)
            && known == peer
        {
            return Ok(link.clone());
        }
        let cluster = state.cluster.clone();
        let connection = PeerConnection::to(&peer.address, state.tls.as_ref())
            .map_err(|problem| BadLink { number: peer.number, address: peer.address.clone(), problem })?;
        let link = Arc::new(PeerLink { connection, cluster });
        state.links.retain(|number, _| ownership.peers().any(|peer| peer.number == *number));
        state.links.insert(peer.number, (peer.clone(), link.clone()));
        Ok(link)
    }

    /// All links that there are, those with earlier certificates too.
    pub(in crate::grpc::edge::forward) fn all(&self) -> Vec<PeerLink> {
        let state = self.state();
        let earlier = state.earlier.iter().filter_map(Weak::upgrade);
        let links = state.links.values().map(|(_, link)| link.clone()).chain(earlier);
        links.map(|link| (*link).clone()).collect()
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, LinksState> {
        self.0.lock()
    }
}
