//! The age of the present hub, and the last loss of a hub that was there for long, as this replica sees them.
//!
//! A hub that loses the database keeps its hosts for a while. The next hub waits for these hosts. The wait counts from the
//! loss of the last hub that was there for long: hubs that are lost soon after do not prolong it. So calls of hosts that are
//! gone are given up in any case.

use std::time::Duration;

use agentloop_core::cluster::shard::OwnerNo;
use agentloop_core::time::Millis;
use tokio::time::Instant;

use crate::cluster::{DEPOSED_AFTER, HUB, Ownership, ShardOwner};

/// A hub that was there for this long had its hosts with it.
const LONG: Duration = Duration::from_secs(30);

/// The replica that is the hub, and the last loss of one that was there for long.
#[derive(Debug)]
pub(super) struct HubHistory {
    /// Number of this replica.
    me: OwnerNo,
    /// True once the owners of shards have been known.
    has_looked: bool,
    hub: Option<Hub>,
    lost: Option<Instant>,
}

#[derive(Debug)]
struct Hub {
    number: OwnerNo,
    /// The time at which it became the hub. `None` if that was before this replica knew of any: it may have been there for long.
    since: Option<Instant>,
}

impl HubHistory {
    /// As this replica begins.
    pub(super) fn new(me: OwnerNo) -> Self {
        Self { me, has_looked: false, hub: None, lost: None }
    }

    /// Notes the hub that this shows.
    pub(super) fn note(&mut self, ownership: &Ownership) {
        let number = match ownership.owner(HUB) {
            ShardOwner::Here => Some(self.me),
            ShardOwner::Peer(peer) => Some(peer.number),
            ShardOwner::Nobody => None,
        };
        let is_first = !self.has_looked;
        self.has_looked |= number.is_some() || ownership.is_valid();
        let now = Instant::now();
        match &self.hub {
            Some(before) if Some(before.number) == number => return,
            Some(Hub { since, .. }) if since.is_none_or(|since| now - since >= LONG) => self.lost = Some(now),
            Some(_) | None => {}
        }
        let since = |number| (!is_first || number == self.me).then_some(now);
        self.hub = number.map(|number| Hub { number, since: since(number) });
    }

    /// The time for which the hub before may yet keep its hosts.
    pub(super) fn kept_for(&self) -> Millis {
        let Some(lost) = self.lost else { return Millis(0) };
        let over = u64::try_from(lost.elapsed().as_millis()).unwrap_or(u64::MAX);
        Millis(DEPOSED_AFTER.0.saturating_sub(over))
    }
}
