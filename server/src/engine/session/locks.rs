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
    /// Waits for the session's lock and holds it alone until the guard is dropped.
    pub(in crate::engine) async fn exclusive(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> RwLockWriteGuard<'_, ()> {
        self.lock_of(tenant, session).write().await
    }

    /// Waits until nobody holds the session's lock alone, and shares it until the guard is dropped. The holder must not
    /// take a second one: a writer that waits between the two would deadlock it.
    pub(in crate::engine) async fn shared(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> RwLockReadGuard<'_, ()> {
        self.lock_of(tenant, session).read().await
    }

    fn lock_of(&self, tenant: &TenantId, session: &SessionId) -> &RwLock<()> {
        // The default hasher has fixed keys: a simulation that replays a seed finds the same sessions sharing a lock.
        let mut hasher = DefaultHasher::new();
        (tenant, session).hash(&mut hasher);
        let lock = usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or(0);
        &self.locks[lock]
    }
}
