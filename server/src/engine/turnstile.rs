//! One at a time through a narrow place: what is counted there is still so many when it is acted upon.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use agentloop_core::id::{SessionId, TenantId};
use tokio::sync::{Mutex, MutexGuard};

/// Sessions share gates, so that these are bounded; those that share one wait for each other now and then.
const GATES: usize = 64;

/// Lets those who join the queue of one session pass one after the other. Only this process adds to the queues of its
/// store, so this is enough to keep a bound.
pub(super) struct Turnstile {
    gates: [Mutex<()>; GATES],
}

impl Default for Turnstile {
    fn default() -> Self {
        Self { gates: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Turnstile {
    /// Waits until nobody else is at the queue of this session, and keeps others away until the guard is dropped.
    pub(super) async fn pass(&self, tenant: &TenantId, session: &SessionId) -> MutexGuard<'_, ()> {
        // Who shares a gate with whom is the same in every process, so that what a seed replays goes the same way.
        let mut hasher = DefaultHasher::new();
        (tenant, session).hash(&mut hasher);
        let gate = usize::try_from(hasher.finish() % GATES as u64).unwrap_or(0);
        self.gates[gate].lock().await
    }
}
