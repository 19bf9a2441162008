//! How often a run was lost or faulted, and who is bringing it up again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentloop_core::id::RunKey;

/// Runs whose store failed and that a task is trying to bring up again, one task for each run. The flag says whether the
/// run was lost again since the last try.
#[derive(Debug, Clone, Default)]
pub(in crate::engine) struct Revivals(Arc<Mutex<HashMap<RunKey, bool>>>);

/// The right to be the one task that brings a run up again.
pub(super) struct Revival {
    all: Revivals,
    key: RunKey,
}

impl Revivals {
    /// `None` if a task is bringing the run up already; it then tries once more.
    pub(super) fn begin(&self, key: &RunKey) -> Option<Revival> {
        match self.runs().entry(key.clone()) {
            Entry::Occupied(mut again) => {
                again.insert(true);
                None
            }
            Entry::Vacant(new) => {
                new.insert(false);
                Some(Revival { all: self.clone(), key: key.clone() })
            }
        }
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunKey, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Revival {
    /// What was asked for before is about to be done.
    pub(super) fn begins(&self) {
        self.all.runs().insert(self.key.clone(), false);
    }

    /// Whether nobody has asked again. Then somebody else may be the one from here on.
    pub(super) fn is_done(&self) -> bool {
        let mut runs = self.all.runs();
        let again = runs.get(&self.key).copied().unwrap_or(false);
        if !again {
            runs.remove(&self.key);
        }
        !again
    }
}

/// How often something happened to each run in this process.
#[derive(Debug, Default)]
pub(in crate::engine) struct RunCounts(Mutex<HashMap<RunKey, u32>>);

impl RunCounts {
    /// Counts one more, and gives the count.
    pub(super) fn bump(&self, key: &RunKey) -> u32 {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key.clone()).or_default();
        *count += 1;
        *count
    }

    pub(super) fn forget(&self, key: &RunKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::id::{RunId, TenantId};

    use super::*;

    #[test]
    fn a_run_that_is_lost_while_it_is_brought_up_is_brought_up_once_more() {
        let (all, key) = (Revivals::default(), RunKey::new(TenantId::local(), RunId::parse("r").unwrap()));
        let revival = all.begin(&key).unwrap();
        assert!(all.begin(&key).is_none(), "one is at it");
        revival.begins();
        assert!(revival.is_done(), "what was asked for before it began is done by it");

        let revival = all.begin(&key).unwrap();
        revival.begins();
        assert!(all.begin(&key).is_none());
        assert!(!revival.is_done(), "it was asked for meanwhile");
        revival.begins();
        assert!(revival.is_done());
        assert!(all.begin(&key).is_some(), "whoever comes next is the one");
    }
}
