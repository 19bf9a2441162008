//! Timers as data: at most one time per key, with the earliest first.

use std::collections::{BTreeMap, BTreeSet};

use crate::time::Timestamp;

/// A set of timers. Both maps hold the same timers.
#[derive(Debug, Clone)]
pub(super) struct Timers<K> {
    by_key: BTreeMap<K, Timestamp>,
    by_time: BTreeSet<(Timestamp, K)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { by_key: BTreeMap::new(), by_time: BTreeSet::new() }
    }
}

impl<K: Clone + Ord> Timers<K> {
    /// Sets the timer of a key. A timer that was set before is moved.
    pub(super) fn set(&mut self, key: K, at: Timestamp) {
        if let Some(before) = self.by_key.insert(key.clone(), at) {
            self.by_time.remove(&(before, key.clone()));
        }
        self.by_time.insert((at, key));
    }

    /// Removes the timer of a key, if it is set.
    pub(super) fn clear(&mut self, key: &K) {
        if let Some(at) = self.by_key.remove(key) {
            self.by_time.remove(&(at, key.clone()));
        }
    }

    /// The earliest time of any timer.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Removes and returns the earliest timer that is due.
    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
    }

    /// The time of a timer, if it is set.
    #[cfg(test)]
    pub(super) fn get(&self, key: &K) -> Option<Timestamp> {
        self.by_key.get(key).copied()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.by_key.len(), self.by_time.len(), "both indexes hold the same timers");
        self.by_key.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_go_off_in_order_and_once() {
        let mut timers = Timers::default();
        timers.set("b", Timestamp(2));
        timers.set("a", Timestamp(1));
        timers.set("c", Timestamp(3));
        assert_eq!(timers.next(), Some(Timestamp(1)));
        assert_eq!(timers.pop_due(Timestamp(0)), None);
        assert_eq!(timers.pop_due(Timestamp(2)), Some("a"));
        assert_eq!(timers.pop_due(Timestamp(2)), Some("b"));
        assert_eq!(timers.pop_due(Timestamp(2)), None);
        assert_eq!(timers.len(), 1);
    }

    #[test]
    fn setting_again_moves_and_clearing_removes() {
        let mut timers = Timers::default();
        timers.set("a", Timestamp(1));
        timers.set("a", Timestamp(9));
        assert_eq!((timers.next(), timers.len()), (Some(Timestamp(9)), 1));
        timers.clear(&"a");
        timers.clear(&"a");
        assert_eq!((timers.next(), timers.len()), (None, 0));
    }
}
