//! The handle of the transport between replicas for watched lists of runs. From it the transport learns when to follow the
//! changes at other replicas. It reports back if it follows them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::timeout;

use crate::clock::Clock;
use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::watch::change::RunChange;
use crate::engine::watch::peers::{FollowState, KEPT_FOR, Peers};
use crate::engine::watch::tap::RunTap;
use crate::engine::watch::watchers::RunWatchers;

/// Tells the transport between replicas when somebody watches a list of runs. The transport says when it follows the other replicas.
/// As long as there is no such handle, watchers do not wait for other replicas.
pub struct PeerFollowing {
    watchers: Arc<RunWatchers>,
    clock: Arc<dyn Clock>,
}

impl PeerFollowing {
    /// Waits until somebody watches a list of runs.
    pub async fn begins(&self) {
        let mut watchers = self.peers().watchers.subscribe();
        // The sender lives as long as this.
        let _closed = watchers.wait_for(|watchers| *watchers > 0).await;
    }

    /// Waits until nobody has watched for a minute.
    pub async fn ends(&self) {
        let mut watchers = self.peers().watchers.subscribe();
        loop {
            drop(watchers.wait_for(|watchers| *watchers == 0).await);
            if timeout(KEPT_FOR.duration(), watchers.wait_for(|watchers| *watchers > 0)).await.is_err() {
                return;
            }
        }
    }

    /// True after [`Self::set_followed`], until [`Self::set_unfollowed`].
    #[must_use]
    pub fn is_followed(&self) -> bool {
        *self.peers().following.borrow() == FollowState::Followed
    }

    /// Says that the changes at all other replicas arrive from now on, except those of replicas that refused. Watchers that
    /// wait for this begin. Those that began earlier begin again. If a stream is opened later, call
    /// [`Engine::reset_run_watchers`]: there is a gap before its first change.
    pub fn set_followed(&self) {
        if self.peers().began_alone.swap(false, Ordering::Relaxed) {
            self.watchers.reset_watchers(self.clock.now());
        }
        self.peers().following.send_replace(FollowState::Followed);
    }

    /// Says that the changes at other replicas do not arrive any more.
    pub fn set_unfollowed(&self) {
        self.peers().following.send_replace(FollowState::NotYet);
        self.watchers.reset_watchers(self.clock.now());
    }

    fn peers(&self) -> &Peers {
        &self.watchers.peers
    }
}

impl Drop for PeerFollowing {
    fn drop(&mut self) {
        self.peers().following.send_replace(FollowState::NoPeers);
    }
}

impl Engine {
    /// The changes of the runs of this engine from now on, for another replica.
    ///
    /// # Errors
    /// [`EngineError::ShuttingDown`]
    pub fn tap_run_changes(&self) -> Result<RunTap, EngineError> {
        self.check_running()?;
        let changes = self.deps().watchers.runs.tap();
        Ok(RunTap { changes, stop: self.deps().tasks.soft().clone() })
    }

    /// Tells those who watch here of a change at another replica.
    pub fn peer_changed(&self, change: RunChange) {
        let deps = self.deps();
        let (now, stall) = (deps.clock.now(), deps.options.subscriber_stall);
        deps.count_slow(deps.watchers.runs.peer_changed(change, now, stall));
    }

    /// Changes at another replica may have been missed: all watchers begin again, and tokens from before are not continued.
    pub fn reset_run_watchers(&self) {
        let deps = self.deps();
        deps.watchers.runs.reset_watchers(deps.clock.now());
    }

    /// The handle for the transport between replicas, which holds it as long as it works. Each engine has at most one.
    #[must_use]
    pub fn peer_following(&self) -> PeerFollowing {
        let deps = self.deps();
        deps.watchers.runs.peer_following(&deps.clock)
    }
}

impl RunWatchers {
    pub(super) fn peer_following(self: &Arc<Self>, clock: &Arc<dyn Clock>) -> PeerFollowing {
        let following = PeerFollowing { watchers: self.clone(), clock: clock.clone() };
        following.set_unfollowed();
        following
    }
}
