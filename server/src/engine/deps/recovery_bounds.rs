//! Bounds of what comes up at the same time: after a restart, after a gain of shards, and when runs wake.

use tokio::sync::Semaphore;

/// Runs that are brought up at the same time: after a restart, and when they wake.
pub(in crate::engine) const BRING_UP_TOGETHER: usize = 32;

/// Bounds of the recoveries of an engine: the first one, and one for each gain of shards. All tenants share them.
pub(in crate::engine) struct RecoveryBounds {
    /// Runs that are brought up at the same time.
    pub(in crate::engine) together: Semaphore,
    /// Lists of paused runs that are read at the same time.
    pub(in crate::engine) lists: Semaphore,
}

impl Default for RecoveryBounds {
    fn default() -> Self {
        Self { together: Semaphore::new(BRING_UP_TOGETHER), lists: Semaphore::new(1) }
    }
}
