//! Where a call goes now: to the services of this replica, or to the owner.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use crate::cluster::{Standing, Standings};
use crate::grpc::edge::forward::links::Links;
use crate::grpc::edge::forward::local::{LocalServices, Opened};

/// Time for which a call waits for an owner.
pub(super) const SEARCH_WAIT: Duration = Duration::from_secs(10);
/// Time without a valid lease after which an owner lets go of its own streams.
pub(super) const DEPOSED_AFTER: Duration = Duration::from_secs(15);
/// The wait before a peer is asked again that did not take a call.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Where calls may go.
pub(super) struct Routing {
    pub(super) standings: Standings,
    pub(super) links: Links,
    pub(super) local: LocalServices,
    /// Cancelled when this replica stops.
    pub(super) stop: CancellationToken,
    /// Set when the owner has been told that this replica stops.
    pub(super) told: OnceCell<()>,
}

/// Where a call goes.
pub(super) enum Target {
    /// This replica owns the database.
    Local(Opened),
    /// Another one owns the database.
    Owner {
        /// The number that the call means.
        number: i64,
        /// The link to it.
        link: Channel,
    },
}

/// Resolves when the owner that a call went to is the owner no more. Never for the services of this replica.
pub(super) type Moved = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Routing {
    /// Where a call goes at this moment; `None` if nobody takes it.
    pub(super) fn present(&self) -> Option<Target> {
        let standing = self.standings.borrow();
        match &*standing {
            Standing::Owner => self.local.get().map(Target::Local),
            Standing::Standby { owner: None } => None,
            Standing::Standby { owner: Some(peer) } => match self.links.to(peer) {
                Ok(link) => Some(Target::Owner { number: peer.number, link }),
                Err(error) => {
                    tracing::warn!(%error, "calls cannot be sent on; correct cluster.advertise there, or the certificates");
                    None
                }
            },
        }
    }

    /// Where a call goes. Waits for an owner until the given moment; `None` if there is none by then.
    pub(super) async fn target(&self, until: Instant) -> Option<Target> {
        let (mut standings, mut local) = (self.standings.clone(), self.local.news());
        loop {
            standings.mark_unchanged();
            local.mark_unchanged();
            if let Some(target) = self.present() {
                return Some(target);
            }
            tokio::select! {
                changed = standings.changed() => changed.ok()?,
                changed = local.changed() => changed.ok()?,
                () = sleep_until(until) => return None,
            }
        }
    }

    /// Number of the owner, if another replica is.
    pub(super) fn owner(&self) -> Option<i64> {
        match &*self.standings.borrow() {
            Standing::Owner => None,
            Standing::Standby { owner } => owner.as_ref().map(|peer| peer.number),
        }
    }

    /// Resolves when the replica of this number is not the owner any more.
    pub(super) fn moved(&self, number: i64) -> Moved {
        let mut standings = self.standings.clone();
        Box::pin(async move {
            let known = standings.wait_for(|standing| !is_owned_by(standing, number)).await.is_ok();
            if !known {
                // The process ends; its streams end with it.
                std::future::pending::<()>().await;
            }
        })
    }

    /// Resolves when this replica has had no valid lease for some time. Then its own streams are of no use: another replica may
    /// own the database, while this one cannot reach it and does not know.
    pub(super) fn deposed(&self) -> Moved {
        let mut standings = self.standings.clone();
        Box::pin(async move {
            loop {
                if standings.wait_for(|standing| *standing != Standing::Owner).await.is_err() {
                    std::future::pending::<()>().await;
                }
                let again = standings.wait_for(|standing| *standing == Standing::Owner);
                if timeout_at(Instant::now() + DEPOSED_AFTER, again).await.is_err() {
                    return;
                }
            }
        })
    }

    /// Waits before the same owner is asked again: a moment, or until another one owns the database.
    pub(super) async fn pause(&self, number: i64, until: Instant) {
        let end = until.min(Instant::now() + ASK_AGAIN);
        let _still_there = timeout_at(end, self.moved(number)).await;
    }

    /// Waits until another replica owns the database. Returns false if none does by then.
    pub(super) async fn other_than(&self, number: i64, until: Instant) -> bool {
        timeout_at(until, self.moved(number)).await.is_ok()
    }
}

fn is_owned_by(standing: &Standing, number: i64) -> bool {
    matches!(standing, Standing::Standby { owner: Some(peer) } if peer.number == number)
}
