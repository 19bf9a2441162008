//! The age of the present hub, and the last loss of a hub that was there for long, as this replica sees them.
//!
//! A hub that loses the database keeps its hosts for a while. The next hub waits for these hosts. The wait counts from the
//! loss of the last hub that was there for long: hubs that are lost soon after do not prolong it. So calls of hosts that are
//! gone are given up in any case.

use std::time::Duration;

use agentloop_core::cluster::shard::OwnerNo;
use agentloop_core::time::Millis;
use tokio::time::Instant;

use crate::cluster::DEPOSED_AFTER;

/// A hub that was there for this long had its hosts with it.
const LONG: Duration = Duration::from_secs(30);

/// The replica that is the hub, and the last loss of one that was there for long.
#[derive(Debug, Default)]
pub(super) struct HubHistory {
    /// Number of the hub, and since when it is seen.
    hub: Option<(OwnerNo, Instant)>,
    lost: Option<Instant>,
}

impl HubHistory {
    /// The hub is this replica now; `None` if nobody is.
    pub(super) fn note(&mut self, hub: Option<OwnerNo>) {
        let now = Instant::now();
        match self.hub {
            Some((before, _)) if Some(before) == hub => return,
            Some((_, since)) if now - since >= LONG => self.lost = Some(now),
            Some(_) | None => {}
        }
        self.hub = hub.map(|hub| (hub, now));
    }

    /// The time for which the hub before may yet keep its hosts.
    pub(super) fn kept_for(&self) -> Millis {
        let Some(lost) = self.lost else { return Millis(0) };
        let over = u64::try_from(lost.elapsed().as_millis()).unwrap_or(u64::MAX);
        Millis(DEPOSED_AFTER.0.saturating_sub(over))
    }
}
