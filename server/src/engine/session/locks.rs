//! Narrow places of sessions: what was looked at there still holds when it is acted upon.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use agentloop_core::id::{SessionId, TenantId};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Sessions share gates, so that these are bounded; those that share one wait for each other now and then.
const GATES: usize = 64;

/// A gate for each session, through which many go together, or one alone. Only this process writes to its store, so
/// this is enough to keep what was seen from changing.
pub(in crate::engine) struct Turnstile {
    gates: [RwLock<()>; GATES],
}

impl Default for Turnstile {
    fn default() -> Self {
        Self { gates: std::array::from_fn(|_| RwLock::default()) }
    }
}

impl Turnstile {
    /// Waits until nobody else is at this session, and keeps others away until the guard is dropped.
    pub(in crate::engine) async fn pass(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> RwLockWriteGuard<'_, ()> {
        self.gate(tenant, session).write().await
    }

    /// Waits until nobody is alone at this session, and keeps those who want to be away until the guard is dropped.
    /// Whoever has one must not ask for another.
    pub(in crate::engine) async fn share(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> RwLockReadGuard<'_, ()> {
        self.gate(tenant, session).read().await
    }

    fn gate(&self, tenant: &TenantId, session: &SessionId) -> &RwLock<()> {
        // Who shares a gate with whom is the same in every process, so that what a seed replays goes the same way.
        let mut hasher = DefaultHasher::new();
        (tenant, session).hash(&mut hasher);
        let gate = usize::try_from(hasher.finish() % GATES as u64).unwrap_or(0);
        &self.gates[gate]
    }
}
