//! Locks per session: what was checked under the lock is still true when it is acted on.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use agentloop_core::id::{SessionId, TenantId};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Sessions share locks, so that their number is bounded. Two sessions with the same lock sometimes wait for each other.
const LOCKS: usize = 64;

/// A lock for each session, shared by readers or held by one writer. Only this process writes to its store, so a lock in
/// memory is enough.
pub(in crate::engine) struct SessionLocks {
    locks: [RwLock<()>; LOCKS],
}

impl Default for SessionLocks {
    fn default() -> Self {
        Self { locks: std::array::from_fn(|_| RwLock::default()) }
    }
}

impl SessionLocks {
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
        let gate = usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or(0);
        &self.locks[gate]
    }
}
