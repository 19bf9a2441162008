//! Followers of something that changes: each learns which keys changed since it looked last, and reads their present state.
//! So a follower that is slow holds no more than one entry for each key.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The keys that changed since one follower looked.
#[derive(Debug)]
pub(crate) struct Changes<K> {
    keys: Mutex<BTreeSet<K>>,
    changed: Notify,
}

/// The followers of one thing. Those that are gone are forgotten.
#[derive(Debug)]
pub(crate) struct Followers<K>(Vec<Weak<Changes<K>>>);

impl<K> Default for Followers<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord + Clone> Followers<K> {
    /// A new follower. To it, all of these keys have changed.
    pub(crate) fn follow(&mut self, keys: BTreeSet<K>) -> Arc<Changes<K>> {
        let changes = Arc::new(Changes { keys: Mutex::new(keys), changed: Notify::new() });
        self.0.retain(|follower| follower.strong_count() > 0);
        self.0.push(Arc::downgrade(&changes));
        changes
    }

    /// Notes that this key has changed.
    pub(crate) fn mark(&self, key: &K) {
        for follower in self.0.iter().filter_map(Weak::upgrade) {
            follower.keys.lock().insert(key.clone());
            follower.changed.notify_one();
        }
    }
}

impl<K: Ord> Changes<K> {
    /// Takes some of the keys that changed, at most this many.
    pub(crate) fn take(&self, max: usize) -> BTreeSet<K> {
        let mut keys = self.keys.lock();
        std::iter::from_fn(|| keys.pop_first()).take(max).collect()
    }

    /// True if no key has changed that was not taken yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.lock().is_empty()
    }

    /// Waits until a key has changed.
    pub(crate) async fn wait(&self) {
        while self.is_empty() {
            self.changed.notified().await;
        }
    }
}
