//! State that is shared between watchers of runs and the transport between replicas.
//!
//! An engine knows the changes of its own runs. While somebody watches a list of runs here, the transport between replicas brings
//! the changes at other replicas.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agentloop_core::time::Millis;
use tokio::sync::watch;
use tokio::time::timeout;

/// The time for which changes are kept, and other replicas are followed, after the last watcher has left.
pub(super) const KEPT_FOR: Millis = Millis::secs(60);
/// The longest wait of a snapshot until the other replicas are followed.
const FOLLOWED_WAIT: Duration = Duration::from_secs(1);

/// The state of following the changes at other replicas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum FollowState {
    /// There is no transport between replicas.
    #[default]
    NoPeers,
    /// Some replicas are not followed yet.
    NotYet,
    /// All replicas are followed that can be.
    Followed,
}

/// State that the watchers share with the transport between replicas.
#[derive(Default)]
pub(super) struct Peers {
    /// Number of watchers of runs. The other replicas are followed while there are any.
    pub(super) watchers: watch::Sender<usize>,
    pub(super) following: watch::Sender<FollowState>,
    /// True if a snapshot began before the other replicas were followed.
    pub(super) began_alone: AtomicBool,
}

impl Peers {
    pub(super) fn has_peers(&self) -> bool {
        *self.following.borrow() != FollowState::NoPeers
    }

    pub(super) fn watched_by(&self, watchers: usize) {
        self.watchers.send_replace(watchers);
    }

    /// Waits until the other replicas are followed, if there are any. Gives up after a second: a list without their changes is better
    /// than none.
    pub(super) async fn wait(&self) {
        let mut following = self.following.subscribe();
        let _late = timeout(FOLLOWED_WAIT, following.wait_for(|now| *now != FollowState::NotYet)).await;
    }

    /// Notes that a snapshot begins. If other replicas are not followed yet, it may miss changes there, and begins again once they are.
    pub(super) fn note_snapshot(&self) {
        if *self.following.borrow() == FollowState::NotYet {
            self.began_alone.store(true, Ordering::Relaxed);
        }
    }
}
