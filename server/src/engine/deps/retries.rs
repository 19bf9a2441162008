//! Runs whose store failed: at most one task retries each, and counters per run limit how often.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use agentloop_core::id::RunKey;
use parking_lot::Mutex;
use tokio::sync::watch;

/// Runs that a task is trying to make live again, one task for each run.
#[derive(Debug, Clone, Default)]
pub(in crate::engine) struct RunRetries {
    /// The flag is true if another failure of the run was reported since the last try began.
    runs: Arc<Mutex<HashMap<RunKey, bool>>>,
    /// Changes when the waits of all of them end.
    wakes: watch::Sender<()>,
}

/// Held by the one task that retries a run.
pub(in crate::engine) struct RetryGuard {
    retries: RunRetries,
    key: RunKey,
}

impl RunRetries {
    /// Registers the caller as the task that retries the run. `None` if another task does so already; that task then
    /// makes one more try.
    pub(in crate::engine) fn begin(&self, key: &RunKey) -> Option<RetryGuard> {
        match self.runs.lock().entry(key.clone()) {
            Entry::Occupied(mut failed_again) => {
                failed_again.insert(true);
                None
            }
            Entry::Vacant(new) => {
                new.insert(false);
                Some(RetryGuard { retries: self.clone(), key: key.clone() })
            }
        }
    }

    /// Ends the waits of all retries: the store responds again.
    pub(in crate::engine) fn wake_all(&self) {
        self.wakes.send_replace(());
    }

    /// Number of runs that are retried.
    pub(in crate::engine) fn len(&self) -> usize {
        self.runs.lock().len()
    }
}

impl RetryGuard {
    /// Follows the ends of waits, from the last try on.
    pub(in crate::engine) fn wakes(&self) -> watch::Receiver<()> {
        self.retries.wakes.subscribe()
    }

    /// Called before each try. Failures reported until now are covered by it.
    pub(in crate::engine) fn start_try(&self) {
        self.retries.runs.lock().insert(self.key.clone(), false);
    }

    /// True if no failure was reported since the try began. The run is then unregistered and another task may retry it.
    pub(in crate::engine) fn is_done(&self) -> bool {
        let mut runs = self.retries.runs.lock();
        let failed_again = runs.get(&self.key).copied().unwrap_or(false);
        if !failed_again {
            runs.remove(&self.key);
        }
        !failed_again
    }
}

/// Counts something per run, in this process only.
#[derive(Debug, Default)]
pub(in crate::engine) struct RunCounts(Mutex<HashMap<RunKey, u32>>);

impl RunCounts {
    /// Adds one and returns the new count.
    pub(in crate::engine) fn increment(&self, key: &RunKey) -> u32 {
        let mut counts = self.0.lock();
        let count = counts.entry(key.clone()).or_default();
        *count += 1;
        *count
    }

    pub(in crate::engine) fn forget(&self, key: &RunKey) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::id::{RunId, TenantId};

    use super::*;

    #[test]
    fn a_run_that_is_lost_while_it_is_brought_up_is_brought_up_once_more() {
        let (all, key) = (RunRetries::default(), RunKey::new(TenantId::local(), RunId::parse("r").unwrap()));
        let retry = all.begin(&key).unwrap();
        assert!(all.begin(&key).is_none(), "one task retries already");
        retry.start_try();
        assert!(retry.is_done(), "the failure before the try is covered by it");

        let retry = all.begin(&key).unwrap();
        retry.start_try();
        assert!(all.begin(&key).is_none());
        assert!(!retry.is_done(), "the run failed again during the try");
        retry.start_try();
        assert!(retry.is_done());
        assert!(all.begin(&key).is_some(), "another task may retry the run now");
    }
}
