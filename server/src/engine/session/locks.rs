//! Locks per session: what was checked under the lock is still true when it is acted on.

use std::collections::HashMap;
use std::sync::Arc;

use agentloop_core::id::{SessionId, SessionKey, TenantId};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// A lock for each session, shared by readers or held by one writer. Only this process writes to its store, so a lock in
/// memory is enough. There is one as long as somebody holds it or waits for it, so calls and runs bound their number.
#[derive(Default)]
pub(in crate::engine) struct SessionLocks(Mutex<HashMap<SessionKey, UsedLock>>);

struct UsedLock {
    lock: Arc<RwLock<()>>,
    /// The callers that hold the lock or wait for it.
    uses: usize,
}

/// The use of a lock. The last one removes it from the table.
struct LockUse<'a> {
    locks: &'a SessionLocks,
    key: SessionKey,
}

/// Holds a session's lock until it is dropped.
pub(in crate::engine) struct HeldLock<'a, G> {
    // The lock is released before its use ends.
    _guard: G,
    _use: LockUse<'a>,
}

impl SessionLocks {
    /// Waits for the session's lock and holds it alone until the guard is dropped.
    pub(in crate::engine) async fn exclusive(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> HeldLock<'_, OwnedRwLockWriteGuard<()>> {
        let (lock, used) = self.lock_of(tenant, session);
        HeldLock { _guard: lock.write_owned().await, _use: used }
    }

    /// Waits until nobody holds the session's lock alone, and shares it until the guard is dropped. The holder must not
    /// take a second one: a writer that waits between the two would deadlock it.
    pub(in crate::engine) async fn shared(
        &self,
        tenant: &TenantId,
        session: &SessionId,
    ) -> HeldLock<'_, OwnedRwLockReadGuard<()>> {
        let (lock, used) = self.lock_of(tenant, session);
        HeldLock { _guard: lock.read_owned().await, _use: used }
    }

    fn lock_of(&self, tenant: &TenantId, session: &SessionId) -> (Arc<RwLock<()>>, LockUse<'_>) {
        let key = SessionKey::new(tenant.clone(), session.clone());
        let mut locks = self.table();
        let used = locks.entry(key.clone()).or_insert_with(|| UsedLock { lock: Arc::default(), uses: 0 });
        used.uses += 1;
        (used.lock.clone(), LockUse { locks: self, key })
    }

    fn table(&self) -> MutexGuard<'_, HashMap<SessionKey, UsedLock>> {
        self.0.lock()
    }
}

impl Drop for LockUse<'_> {
    fn drop(&mut self) {
        let mut locks = self.locks.table();
        if let Some(used) = locks.get_mut(&self.key) {
            used.uses -= 1;
            if used.uses == 0 {
                locks.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::task::unconstrained;

    use super::*;

    fn session(number: usize) -> SessionId {
        SessionId::parse(format!("s{number}")).unwrap()
    }

    #[tokio::test]
    async fn a_session_that_is_locked_for_long_holds_up_no_other() {
        let (locks, tenant) = (SessionLocks::default(), TenantId::local());
        let deletion = locks.exclusive(&tenant, &session(0)).await;
        for number in 1..1_000 {
            let other = session(number);
            let lock = unconstrained(locks.shared(&tenant, &other));
            assert!(lock.now_or_never().is_some(), "session {number}");
        }
        assert!(locks.shared(&tenant, &session(0)).now_or_never().is_none(), "its own is locked");
        drop(deletion);
        assert!(locks.shared(&tenant, &session(0)).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_lock_is_kept_while_somebody_waits_for_it_and_not_longer() {
        let (locks, tenant) = (SessionLocks::default(), TenantId::local());
        let session = session(0);
        let first = locks.shared(&tenant, &session).await;
        let mut second = Box::pin(locks.exclusive(&tenant, &session));
        let mut third = Box::pin(locks.shared(&tenant, &session));
        assert!(futures_util::poll!(&mut second).is_pending());
        assert!(futures_util::poll!(&mut third).is_pending(), "the writer is before it");
        drop(first);
        let second = second.await;
        assert!(futures_util::poll!(&mut third).is_pending());
        drop(second);
        drop(third.await);
        assert!(locks.table().is_empty());
        let held = locks.exclusive(&tenant, &session).await;
        assert!(locks.shared(&tenant, &session).now_or_never().is_none());
        assert_eq!(locks.table().len(), 1);
        drop(held);
        assert!(locks.table().is_empty(), "also after one that gave up");
    }
}
