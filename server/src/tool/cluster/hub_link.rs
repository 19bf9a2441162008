//! Keeps the connection to the hub: finds out which replica it is, and opens a link to it whenever there is none.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use tokio::time::{Instant, timeout};

use super::ClusterTools;
use super::frame::{ToHub, ToOwner, decode};
use super::hub_history::HubHistory;
use super::queue::{self, LinkFrames, LinkSender};
use crate::cluster::{HUB, Ownerships, Peer, ShardOwner};
use crate::ids::random_fraction;
use crate::tool::host::rows::CheckedRows;
use crate::tool::host::state::LinkNo;

/// Time to open a link.
const OPEN_WAIT: Duration = Duration::from_secs(5);
/// The wait before a link is opened again. It doubles with each failure, up to the longest.
const WAIT_MIN: Duration = Duration::from_millis(20);
const WAIT_MAX: Duration = Duration::from_secs(1);
/// A link that has lived for this long was a good one.
const GOOD_AFTER: Duration = Duration::from_secs(5);

/// The frames that come over a link. It ends when the link does.
pub type LinkInbound = BoxStream<'static, Vec<u8>>;

/// Opens links to other replicas.
#[async_trait]
pub trait LinkDialer: Send + Sync + 'static {
    /// Opens a link to this replica, which sends it these frames.
    ///
    /// # Errors
    /// The reason for which there is no link.
    async fn dial(&self, peer: &Peer, frames: LinkFrames) -> Result<LinkInbound, String>;
}

impl ClusterTools {
    /// Keeps the connection to the hub until the sender of `ownerships` is gone. While the hub is not known, everything stays as it
    /// is: the last hub still has the hosts. Run it once, on a task of its own.
    pub async fn keep_linked(self: Arc<Self>, mut ownerships: Ownerships, dialer: Arc<dyn LinkDialer>) {
        let _set_before = self.ownerships.set(ownerships.clone());
        let (mut wait, mut hub_history) = (WAIT_MIN, HubHistory::new(self.me));
        while !self.lock().is_closed {
            let hub = {
                let ownership = ownerships.borrow_and_update();
                hub_history.note(&ownership);
                ownership.owner(HUB)
            };
            match hub {
                ShardOwner::Here if self.is_hub() => {}
                ShardOwner::Here => {
                    let mut later = ownerships.clone();
                    tokio::select! { biased;
                        _moved = later.wait_for(|now| !matches!(now.owner(HUB), ShardOwner::Here)) => {}
                        stored = self.stored_tools() => self.become_hub(hub_history.kept_for(), stored),
                    }
                }
                ShardOwner::Nobody => {}
                ShardOwner::Peer(peer) => {
                    self.leave_hub();
                    let began = Instant::now();
                    let moved = tokio::select! {
                        moved = moved_from(&mut ownerships, &peer) => Some(moved),
                        () = self.link_to(&peer, &*dialer) => None,
                    };
                    match moved {
                        Some(true) => {
                            wait = WAIT_MIN;
                            continue;
                        }
                        Some(false) => return,
                        None => {}
                    }
                    if began.elapsed() >= GOOD_AFTER {
                        wait = WAIT_MIN;
                    }
                    // When a hub is lost, all replicas lose their links at one time. They should not all dial at one time.
                    let pause = wait.mul_f64(0.5 + 0.5 * random_fraction());
                    wait = (wait * 2).min(WAIT_MAX);
                    tokio::select! {
                        () = tokio::time::sleep(pause) => continue,
                        changed = ownerships.changed() => {
                            if changed.is_err() {
                                return;
                            }
                            continue;
                        }
                    }
                }
            }
            if ownerships.changed().await.is_err() {
                return;
            }
        }
    }

    /// The tools in the store, once it responds.
    async fn stored_tools(&self) -> CheckedRows {
        loop {
            match self.rows.read().await {
                Ok(stored) => {
                    let own = self.own.clone();
                    match tokio::task::spawn_blocking(move || own.check_stored(stored)).await {
                        Ok(checked) => return checked,
                        Err(fault) => {
                            tracing::error!(%fault, "the tools in the store cannot be checked; trying again")
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "this replica takes the tool hosts as soon as it can read the tools in the store");
                }
            }
            tokio::time::sleep(WAIT_MAX).await;
        }
    }

    /// Opens a link, and serves it until it ends.
    async fn link_to(&self, peer: &Peer, dialer: &dyn LinkDialer) {
        let (sender, frames) = queue::channel();
        let (from, version) = (self.me, env!("CARGO_PKG_VERSION").to_owned());
        sender.send(&ToHub::Hello { from, to: peer.number, version, marks: true });
        let opening = async {
            let mut inbound = dialer.dial(peer, frames).await?;
            let welcome = inbound.next().await.and_then(|frame| decode::<ToOwner>(&frame));
            match welcome {
                Some(ToOwner::Welcome { version, says_queued }) => Ok((inbound, version, says_queued)),
                _ => Err("it does not have the tool hosts".to_owned()),
            }
        };
        let (inbound, version, says_queued) = match timeout(OPEN_WAIT, opening).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(problem)) => {
                tracing::debug!(replica = peer.number.0, problem, "no link to the tool hosts yet");
                return;
            }
            Err(_late) => {
                tracing::debug!(replica = peer.number.0, "no link to the tool hosts in time");
                return;
            }
        };
        tracing::info!(replica = peer.number.0, version, "the link to the tool hosts is open");
        self.serve_link(sender, inbound, says_queued).await;
        tracing::info!(replica = peer.number.0, "the link to the tool hosts has ended");
    }

    async fn serve_link(&self, sender: LinkSender, mut inbound: LinkInbound, says_queued: bool) {
        let link = self.opened(sender.clone(), says_queued);
        let _close = CloseOnDrop { cluster: self, link };
        let mut sending = pin!(self.keep_sending(link, &sender));
        loop {
            tokio::select! {
                () = sender.ended() => return,
                () = &mut sending => return,
                frame = inbound.next() => match frame {
                    Some(frame) => {
                        if let Some(frame) = decode::<ToOwner>(&frame) {
                            self.handle_frame(link, frame).await;
                        }
                    }
                    None => return,
                },
            }
        }
    }
}

/// Waits until another replica than `peer` is known to be the hub. Returns false when the sender of `ownerships` is gone.
async fn moved_from(ownerships: &mut Ownerships, peer: &Peer) -> bool {
    loop {
        if ownerships.changed().await.is_err() {
            return false;
        }
        match ownerships.borrow_and_update().owner(HUB) {
            ShardOwner::Peer(now) if now == *peer => {}
            ShardOwner::Nobody => {}
            ShardOwner::Here | ShardOwner::Peer(_) => return true,
        }
    }
}

/// Ends the connection over a link also when its task is dropped.
struct CloseOnDrop<'a> {
    cluster: &'a ClusterTools,
    link: LinkNo,
}

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.cluster.closed(self.link);
    }
}
