//! How often a run was lost or faulted, and who is bringing it up again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentloop_core::id::RunKey;

/// Runs that are being brought up once the store is back: each by one task. With each, whether it was asked for again
/// since it was last tried: a run that came up may be lost again before whoever brought it up is done.
#[derive(Debug, Clone, Default)]
pub(in crate::engine) struct Reviving(Arc<Mutex<HashMap<RunKey, bool>>>);

/// Whoever holds it is the one.
pub(super) struct Reviver {
    all: Reviving,
    key: RunKey,
}

impl Reviving {
    /// `None`: somebody is at it, and tries once more.
    pub(super) fn begin(&self, key: &RunKey) -> Option<Reviver> {
        match self.runs().entry(key.clone()) {
            Entry::Occupied(mut again) => {
                again.insert(true);
                None
            }
            Entry::Vacant(new) => {
                new.insert(false);
                Some(Reviver { all: self.clone(), key: key.clone() })
            }
        }
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunKey, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reviver {
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

/// How often something befell each run in this process.
#[derive(Debug, Default)]
pub(in crate::engine) struct Tally(Mutex<HashMap<RunKey, u32>>);

impl Tally {
    /// Once more; how often by now.
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
        let (all, key) = (Reviving::default(), RunKey::new(TenantId::local(), RunId::parse("r").unwrap()));
        let reviver = all.begin(&key).unwrap();
        assert!(all.begin(&key).is_none(), "one is at it");
        reviver.begins();
        assert!(reviver.is_done(), "what was asked for before it began is done by it");

        let reviver = all.begin(&key).unwrap();
        reviver.begins();
        assert!(all.begin(&key).is_none());
        assert!(!reviver.is_done(), "it was asked for meanwhile");
        reviver.begins();
        assert!(reviver.is_done());
        assert!(all.begin(&key).is_some(), "whoever comes next is the one");
    }
}
