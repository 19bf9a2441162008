//! Warnings of a replica that others cannot call, or that cannot call them. Without these, nobody would know before an RPC has
//! failed.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::cluster::{Ownerships, Peer};
use crate::grpc::edge::forward::reach::Reach;
use crate::grpc::edge::tls::Acceptor;

/// The wait before another replica that cannot be called is dialled once more.
const DIAL_AGAIN: Duration = Duration::from_secs(3);

/// Warns if this replica is not at the address that it gives the others, or not with its certificate: at first, and whenever its
/// certificate has changed. It takes its part all the same, since others may reach an address that it cannot dial itself.
pub(super) async fn dial_itself(reach: Reach, me: Peer, mut certificates: Option<watch::Receiver<Acceptor>>) {
    loop {
        if let Some(why) = reach.problem(&me).await {
            tracing::warn!(
                at = me.address,
                why,
                "this replica does not reach itself at the address that it gives the others; if they do not either, RPCs for its \
                 sessions fail there: correct cluster.advertise, or the certificates"
            );
        }
        let Some(changes) = &mut certificates else { return };
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Warns of each of the other replicas that this one cannot call. It dials each one at its own start, when one joins, and all
/// again when its certificate has changed. One that has ended or is about to listen is dialled once more before.
pub(super) async fn dial_others(
    reach: Reach,
    mut ownerships: Ownerships,
    mut certificates: Option<watch::Receiver<Acceptor>>,
) {
    let mut dialled = Vec::new();
    loop {
        let peers: Vec<Peer> = ownerships.borrow_and_update().peers().cloned().collect();
        dialled.retain(|peer| peers.contains(peer));
        let new = peers.into_iter().filter(|peer| !dialled.contains(peer));
        let problems = join_all(new.map(|peer| async { (reach.problem(&peer).await, peer) })).await;
        let (unreached, reached): (Vec<_>, Vec<_>) = problems.into_iter().partition(|(why, _)| why.is_some());
        dialled.extend(reached.into_iter().map(|(_, peer)| peer));
        if !unreached.is_empty() {
            sleep(DIAL_AGAIN).await;
        }
        for (_, peer) in unreached {
            if !ownerships.borrow().peers().any(|other| *other == peer) {
                continue;
            }
            if let Some(why) = reach.problem(&peer).await {
                tracing::warn!(
                    replica = peer.number.0,
                    at = peer.address,
                    why,
                    "another replica cannot be called from here, so RPCs for its sessions fail here; correct cluster.advertise \
                     there, or the certificates"
                );
            }
            dialled.push(peer);
        }
        let renewed = async {
            match &mut certificates {
                Some(certificates) => certificates.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = ownerships.changed() => if changed.is_err() { return },
            renewed = renewed => match renewed {
                Ok(()) => dialled.clear(),
                Err(_) => return,
            }
        }
    }
}
