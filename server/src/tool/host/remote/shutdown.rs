//! The shutdown of the service for hosts. Before a host joins, it is checked if that has begun, and if this replica
//! takes hosts.

use std::time::Duration;

use tokio::time::Instant;

use super::RemoteTools;

/// The wait for this replica to become the one that takes hosts, for a host that was sent here.
const HUB_WAIT: Duration = Duration::from_secs(5);
/// Time between two looks of a shutdown if hosts have confirmed their offers.
const OFFERS_CHECK_EVERY: Duration = Duration::from_millis(10);

/// The reply to a host that wants its welcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tool) enum TakesHosts {
    Yes,
    ShuttingDown,
}

impl RemoteTools {
    /// Begins the shutdown: no more calls are placed and no hosts accepted. Returns when every host has said of each call
    /// if it begins it, but waits no longer than `wait`.
    pub async fn close_offers(&self, wait: Duration) {
        {
            let mut state = self.lock();
            state.closing = true;
            self.hub_changed.notify_waiters();
            state.fleet.stop_granting();
        }
        let until = Instant::now() + wait;
        while self.has_open_offers() && Instant::now() < until {
            tokio::time::sleep(OFFERS_CHECK_EVERY).await;
        }
    }

    /// True while a connected host has not said yet if it begins a call, or room is granted for a call.
    #[must_use]
    pub fn has_open_offers(&self) -> bool {
        self.lock().fleet.has_open_offers()
    }

    /// Goes on with the shutdown. Hosts are told to connect elsewhere; no more calls are placed and no hosts accepted.
    /// Running calls go on, and their results are recorded.
    pub fn go_away(&self) {
        let mut state = self.lock();
        state.closing = true;
        self.hub_changed.notify_waiters();
        let out = state.fleet.go_away(self.options.reconnect_after);
        self.perform(&mut state, out, self.now());
    }

    /// Ends every host's stream, at the end of the shutdown.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closing = true;
        self.hub_changed.notify_waiters();
        let out = state.fleet.close_all();
        self.perform(&mut state, out, self.now());
    }

    /// True once a shutdown has begun.
    pub(in crate::tool) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    /// Tells if hosts are taken here. A replica to which hosts are sent becomes the hub within moments. `None` if it has not.
    pub(in crate::tool) async fn takes_hosts(&self) -> Option<TakesHosts> {
        let known = || {
            let state = self.lock();
            match (state.closing, state.is_hub) {
                (true, _) => Some(TakesHosts::ShuttingDown),
                (false, true) => Some(TakesHosts::Yes),
                (false, false) => None,
            }
        };
        let told = async {
            loop {
                let changed = self.hub_changed.notified();
                if let Some(takes) = known() {
                    return takes;
                }
                changed.await;
            }
        };
        tokio::time::timeout(HUB_WAIT, told).await.ok()
    }
}
