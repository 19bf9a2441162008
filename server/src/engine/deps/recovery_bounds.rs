//! Bounds of what comes up at the same time: after a restart, after a gain of shards, and when runs wake.

use std::collections::HashSet;
use std::hash::Hash;

use agentloop_core::id::{RunKey, TenantId};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// Runs that are brought up at the same time: after a restart, and when they wake.
pub(in crate::engine) const BRING_UP_TOGETHER: usize = 32;

/// Bounds of the recoveries of an engine: the first one, and one for each gain of shards. All tenants share them.
///
/// Shards may come again and again while there is no memory for their runs. So a recovery leaves to an earlier one what that has
/// yet to begin.
pub(in crate::engine) struct RecoveryBounds {
    /// Runs that are brought up at the same time.
    pub(in crate::engine) together: Semaphore,
    /// Lists of paused runs that are read at the same time.
    pub(in crate::engine) lists: Semaphore,
    /// Runs that a recovery has yet to bring up.
    pub(in crate::engine) runs: Outstanding<RunKey>,
    /// Tenants whose paused runs a recovery has yet to read.
    pub(in crate::engine) tenants: Outstanding<TenantId>,
}

/// Work that somebody has taken on, and not begun.
pub(in crate::engine) struct Outstanding<T>(Mutex<HashSet<T>>);

impl<T: Clone + Eq + Hash> Outstanding<T> {
    /// Takes this work on. False if somebody has it before them, who will find things as they are now, or later.
    pub(in crate::engine) fn take_on(&self, work: &T) -> bool {
        self.0.lock().insert(work.clone())
    }

    /// Notes that this work begins: what happens from now on, it may not find.
    pub(in crate::engine) fn begin(&self, work: &T) {
        self.0.lock().remove(work);
    }
}

impl<T> Default for Outstanding<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl Default for RecoveryBounds {
    fn default() -> Self {
        let (runs, tenants) = Default::default();
        Self { together: Semaphore::new(BRING_UP_TOGETHER), lists: Semaphore::new(1), runs, tenants }
    }
}
