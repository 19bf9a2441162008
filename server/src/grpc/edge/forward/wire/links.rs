//! The links to other replicas: one HTTP/2 connection to each, made with the first RPC and kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use agentloop_core::cluster::shard::OwnerNo;
use parking_lot::Mutex;
use tonic::body::Body;
use tonic::codegen::http::{self, HeaderMap, HeaderValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tower::Service;

use crate::cluster::{ClusterId, Ownership, Peer};
use crate::grpc::edge::forward::wire::metadata::CLUSTER;

/// Time to make a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(1);
/// Time between two pings, also on an idle link: a peer that stands still keeps its connections open.
pub(in crate::grpc::edge) const PING_EVERY: Duration = Duration::from_secs(1);
/// A link with no response to a ping for this long is broken.
pub(in crate::grpc::edge) const PING_WAIT: Duration = Duration::from_secs(2);
/// Bytes of one stream that wait for its reader.
pub(in crate::grpc::edge) const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// Bytes of all streams together: the most that HTTP/2 knows. So callers who do not read hold up nobody else.
pub(in crate::grpc::edge) const LINK_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// All headers of an RPC together, in bytes. A principal with all the groups and patterns that it may have fits.
pub(in crate::grpc::edge) const HEADERS_BYTES_MAX: u32 = 256 * 1024;

/// Certificates for the links between replicas, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkTls {
    /// The certificate of this replica, and those that lead to its root.
    pub certificate: Vec<u8>,
    /// The key of the certificate.
    pub key: Vec<u8>,
    /// The roots of the certificates of all replicas.
    pub ca: Vec<u8>,
    /// The name that the certificates of all replicas have. `None`: each has the host of its address.
    pub name: Option<String>,
}

impl std::fmt::Debug for LinkTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkTls").field("name", &self.name).finish_non_exhaustive()
    }
}

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
    channel: Channel,
    cluster: Option<HeaderValue>,
}

impl Service<http::Request<Body>> for PeerLink {
    type Response = http::Response<Body>;
    type Error = tonic::transport::Error;
    type Future = <Channel as Service<http::Request<Body>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.channel.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        if let Some(cluster) = &self.cluster {
            request.headers_mut().insert(CLUSTER, cluster.clone());
        }
        self.channel.call(request)
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
        state.earlier.extend(state.links.values().map(|(_, channel)| Arc::downgrade(channel)));
        state.links.clear();
        state.earlier.retain(|channel| channel.strong_count() > 0);
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
        if let Some((known, channel)) = state.links.get(&peer.number)
            && known == peer
        {
            return Ok(channel.clone());
        }
        let cluster = state.cluster.clone();
        let channel = channel(peer, state.tls.as_ref()).map_err(|problem| BadLink {
            number: peer.number,
            address: peer.address.clone(),
            problem: problem.to_string(),
        })?;
        let channel = Arc::new(PeerLink { channel, cluster });
        state.links.retain(|number, _| ownership.peers().any(|peer| peer.number == *number));
        state.links.insert(peer.number, (peer.clone(), channel.clone()));
        Ok(channel)
    }

    /// All links that there are, those with earlier certificates too.
    pub(in crate::grpc::edge::forward) fn all(&self) -> Vec<PeerLink> {
        let state = self.state();
        let earlier = state.earlier.iter().filter_map(Weak::upgrade);
        let links = state.links.values().map(|(_, channel)| channel.clone()).chain(earlier);
        links.map(|channel| (*channel).clone()).collect()
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, LinksState> {
        self.0.lock()
    }
}

fn channel(peer: &Peer, tls: Option<&LinkTls>) -> Result<Channel, tonic::transport::Error> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", peer.address))?
        .connect_timeout(CONNECT_WAIT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_WAIT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(LINK_WINDOW_BYTES)
        .http2_max_header_list_size(HEADERS_BYTES_MAX)
        // Late frames of streams that callers have left count as errors.
        .http2_max_local_error_reset_streams(None);
    if let Some(tls) = tls {
        let config = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&tls.ca))
            .identity(Identity::from_pem(&tls.certificate, &tls.key));
        endpoint = endpoint.tls_config(match &tls.name {
            Some(name) => config.domain_name(name),
            None => config,
        })?;
    }
    Ok(endpoint.connect_lazy())
}
