//! Reachability of the other replicas, for operators.

use std::time::Duration;

use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::http::{self, HeaderValue, Method, Version};

use crate::cluster::{Ownerships, Peer};
use crate::grpc::edge::forward::outcome::{AttemptOutcome, ResponseExtent, send_over_link};
use crate::grpc::edge::forward::wire::links::Links;
use crate::grpc::edge::forward::wire::metadata::REPLICA;

/// The path of an RPC that does nothing.
pub(in crate::grpc::edge) const HERE: &str = "/agentloop.replica/Here";
/// Longest wait for the response.
const RESPONSE_WAIT: Duration = Duration::from_secs(2);

/// Calls other replicas over the links that their RPCs take.
#[derive(Clone)]
pub struct Reach {
    ownerships: Ownerships,
    links: Links,
}

impl Reach {
    /// A check that takes the links which RPCs take.
    #[must_use]
    pub fn new(ownerships: Ownerships, links: Links) -> Self {
        Self { ownerships, links }
    }

    /// The reason for which this replica cannot call that one now. `None` if it can. This replica can be checked, too:
    /// then it dials the address that it gives the others.
    pub async fn problem(&self, peer: &Peer) -> Option<String> {
        let link = match self.links_to(peer).to(peer, &self.ownerships.borrow()) {
            Ok(link) => link,
            Err(bad) => return Some(bad.to_string()),
        };
        let mut request = http::Request::new(Body::empty());
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = http::Uri::from_static(HERE);
        request.headers_mut().insert(REPLICA, HeaderValue::from(peer.number.0));
        let sent = send_over_link((*link).clone(), request, ResponseExtent::Begun);
        match timeout(RESPONSE_WAIT, sent).await {
            // One of an earlier version refuses the RPC, so it was reached, too.
            Ok(AttemptOutcome::Responded(_) | AttemptOutcome::Stopping(_)) => None,
            Ok(AttemptOutcome::NotDone) => Some("another replica has its address".to_owned()),
            Ok(AttemptOutcome::NotReached(why)) => Some(why),
            Ok(AttemptOutcome::Broken) => Some("the connection to it broke".to_owned()),
            Err(_late) => Some(format!("it does not respond within {} s", RESPONSE_WAIT.as_secs())),
        }
    }

    /// The links that RPCs take. There is none to this replica itself, so that one is made for this time only.
    fn links_to(&self, peer: &Peer) -> Links {
        match peer.number == self.ownerships.borrow().me() {
            true => self.links.apart(),
            false => self.links.clone(),
        }
    }
}
