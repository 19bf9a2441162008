//! A queue that serves its lanes in turn, so that a lane with many items delays another's first one by one item only.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Items that wait, by lane. Items of one lane keep their order.
#[derive(Debug)]
pub struct FairQueue<K, T> {
    /// Lanes that have items, in the order in which they are served.
    order: VecDeque<K>,
    by_lane: HashMap<K, VecDeque<T>>,
    len: usize,
}

impl<K, T> Default for FairQueue<K, T> {
    fn default() -> Self {
        Self { order: VecDeque::new(), by_lane: HashMap::new(), len: 0 }
    }
}

impl<K: Clone + Eq + Hash, T> FairQueue<K, T> {
    /// Adds an item behind the others of its lane.
    pub fn push(&mut self, lane: K, item: T) {
        let items = self.by_lane.entry(lane.clone()).or_default();
        if items.is_empty() {
            self.order.push_back(lane);
        }
        items.push_back(item);
        self.len += 1;
    }

    /// The item that [`Self::pop`] returns next.
    #[must_use]
    pub fn first(&self) -> Option<&T> {
        self.by_lane.get(self.order.front()?)?.front()
    }

    /// The next item of each lane, in no order.
    pub fn firsts(&self) -> impl Iterator<Item = &T> {
        self.by_lane.values().filter_map(VecDeque::front)
    }

    /// Removes and returns the next item. Its lane is served last from then on.
    pub fn pop(&mut self) -> Option<T> {
        self.pop_if(|_| true)
    }

    /// As [`Self::pop`], for the first lane in turn whose next item is accepted. Lanes that are passed over keep their turn.
    pub fn pop_if(&mut self, mut accepts: impl FnMut(&T) -> bool) -> Option<T> {
        let next = |lane| self.by_lane.get(lane).and_then(VecDeque::front);
        let at = self.order.iter().position(|lane| next(lane).is_some_and(&mut accepts))?;
        let lane = self.order.remove(at)?;
        let items = self.by_lane.get_mut(&lane)?;
        let item = items.pop_front();
        if items.is_empty() {
            self.by_lane.remove(&lane);
        } else {
            self.order.push_back(lane);
        }
        self.len -= usize::from(item.is_some());
        item
    }

    /// True if the lane has items.
    #[must_use]
    pub fn has(&self, lane: &K) -> bool {
        self.by_lane.contains_key(lane)
    }

    /// The number of items of a lane.
    #[must_use]
    pub fn len_of(&self, lane: &K) -> usize {
        self.by_lane.get(lane).map_or(0, VecDeque::len)
    }

    /// The number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_served_in_turn_and_keep_their_order() {
        let mut queue = FairQueue::default();
        for number in 0..3 {
            queue.push("noisy", number);
        }
        queue.push("quiet", 10);
        queue.push("other", 20);
        assert_eq!((queue.len(), queue.first()), (5, Some(&0)));
        assert_eq!((queue.len_of(&"noisy"), queue.len_of(&"absent")), (3, 0));
        let mut firsts: Vec<_> = queue.firsts().copied().collect();
        firsts.sort_unstable();
        assert_eq!(firsts, [0, 10, 20]);
        let served: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(served, [0, 10, 20, 1, 2]);
        assert!(queue.is_empty() && queue.first().is_none());
    }

    #[test]
    fn a_lane_that_is_passed_over_keeps_its_turn() {
        let mut queue = FairQueue::default();
        for number in [1, 2, 11, 12] {
            queue.push(if number < 10 { "small" } else { "large" }, number);
        }
        assert!(queue.has(&"small") && !queue.has(&"other"));
        assert_eq!(queue.pop_if(|number| *number > 10), Some(11));
        assert_eq!(queue.pop_if(|number| *number > 100), None);
        assert_eq!([queue.pop(), queue.pop(), queue.pop()], [Some(1), Some(12), Some(2)]);
        assert!(queue.is_empty() && !queue.has(&"small"));
    }

    #[test]
    fn a_lane_that_comes_back_waits_its_turn() {
        let mut queue = FairQueue::default();
        queue.push("a", 1);
        queue.push("b", 2);
        assert_eq!(queue.pop(), Some(1));
        queue.push("a", 3);
        queue.push("b", 4);
        assert_eq!([queue.pop(), queue.pop(), queue.pop(), queue.pop()], [Some(2), Some(3), Some(4), None]);
    }
}
