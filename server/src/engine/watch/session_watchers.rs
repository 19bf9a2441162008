//! The subscribers of each session, and the parts of it at which each is to look.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use agentloop_core::id::{SessionId, SessionKey, TenantId};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The parts of a session at which its subscribers are to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum SessionSignal {
    /// There may be a new run.
    Runs,
    /// The session's row may be another one.
    Row,
    /// The session was deleted.
    Deleted,
}

/// The subscribers of each session that has any.
type Subscribers = HashMap<SessionKey, Vec<Weak<Changes>>>;

/// The subscribers of sessions.
#[derive(Default)]
pub(in crate::engine) struct SessionWatchers {
    /// Number of subscribers, so that nobody looks at the table while there are none.
    count: AtomicUsize,
    table: Mutex<Subscribers>,
}

/// The parts at which a subscriber has not looked yet.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) runs: AtomicBool,
    pub(super) row: AtomicBool,
    pub(super) deleted: AtomicBool,
    pub(super) arrived: Notify,
}

impl SessionWatchers {
    /// Tells the session's subscribers to look. Call it after the change is durable; once too often does no harm.
    pub(in crate::engine) fn changed(&self, tenant: &TenantId, session: &SessionId, what: SessionSignal) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let key = SessionKey::new(tenant.clone(), session.clone());
        let table = self.table.lock();
        for changes in table.get(&key).into_iter().flatten().filter_map(Weak::upgrade) {
            let flag = match what {
                SessionSignal::Runs => &changes.runs,
                SessionSignal::Row => &changes.row,
                SessionSignal::Deleted => &changes.deleted,
            };
            flag.store(true, Ordering::Relaxed);
            changes.arrived.notify_one();
        }
    }

    pub(super) fn enter(self: &Arc<Self>, tenant: &TenantId, session: &SessionId) -> Entered {
        let changes = Arc::<Changes>::default();
        let key = SessionKey::new(tenant.clone(), session.clone());
        self.table.lock().entry(key.clone()).or_default().push(Arc::downgrade(&changes));
        self.count.fetch_add(1, Ordering::Relaxed);
        Entered { watchers: self.clone(), key, changes }
    }
}

/// One subscriber's entry in the table, until it is dropped.
pub(super) struct Entered {
    watchers: Arc<SessionWatchers>,
    key: SessionKey,
    pub(super) changes: Arc<Changes>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.watchers.count.fetch_sub(1, Ordering::Relaxed);
        let mut table = self.watchers.table.lock();
        if let Some(of_session) = table.get_mut(&self.key) {
            of_session.retain(|changes| !std::ptr::eq(changes.as_ptr(), Arc::as_ptr(&self.changes)));
            if of_session.is_empty() {
                table.remove(&self.key);
            }
        }
    }
}
