//! Callers that wait for a run or follow its events.

use std::collections::HashMap;
use std::sync::Arc;

use agentloop_core::id::RunKey;
use parking_lot::{Mutex, MutexGuard};

/// Number of callers of each run that has any. Clones share the numbers.
#[derive(Debug, Clone, Default)]
pub(in crate::engine) struct Callers(Arc<Mutex<HashMap<RunKey, usize>>>);

/// One caller of a run, until it is dropped.
pub(crate) struct CallerGuard {
    callers: Callers,
    key: RunKey,
}

impl Callers {
    /// Counts a caller of the run until the guard is dropped.
    pub(in crate::engine) fn enter(&self, key: RunKey) -> CallerGuard {
        *self.runs().entry(key.clone()).or_default() += 1;
        CallerGuard { callers: self.clone(), key }
    }

    /// True if somebody waits for the run or follows it.
    pub(in crate::engine) fn has_any(&self, key: &RunKey) -> bool {
        self.runs().contains_key(key)
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunKey, usize>> {
        self.0.lock()
    }
}

impl CallerGuard {
    /// The run that it is a caller of.
    pub(in crate::engine) fn key(&self) -> &RunKey {
        &self.key
    }
}

impl Drop for CallerGuard {
    fn drop(&mut self) {
        let mut runs = self.callers.runs();
        if let Some(count) = runs.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                runs.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::id::{RunId, TenantId};

    use super::*;

    #[test]
    fn a_run_has_a_caller_until_the_last_one_is_gone() {
        let key = RunKey::new(TenantId::local(), RunId::parse("r").unwrap());
        let callers = Callers::default();
        let (first, second) = (callers.enter(key.clone()), callers.enter(key.clone()));
        drop(first);
        assert!(callers.has_any(&key));
        drop(second);
        assert!(!callers.has_any(&key));
    }
}
