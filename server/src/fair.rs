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

    /// Removes and returns the next item. Its lane is served last from then on.
    pub fn pop(&mut self) -> Option<T> {
        let lane = self.order.pop_front()?;
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
        let served: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(served, [0, 10, 20, 1, 2]);
        assert!(queue.is_empty() && queue.first().is_none());
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
