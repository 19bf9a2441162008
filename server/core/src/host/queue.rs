//! Calls that wait for one tool, served fairly: runs take turns, and each run's calls keep their order.

use std::collections::{BTreeMap, VecDeque};

use crate::id::{CallId, RunId};

/// The queue. A run with a thousand calls delays another run's one call by one turn.
#[derive(Debug, Clone, Default)]
pub(super) struct FairQueue {
    turns: VecDeque<RunId>,
    by_run: BTreeMap<RunId, VecDeque<CallId>>,
    len: usize,
}

impl FairQueue {
    /// Puts a call behind its run's others. It must not be in the queue.
    pub(super) fn push(&mut self, call: CallId) {
        let calls = self.by_run.entry(call.run.clone()).or_default();
        if calls.is_empty() {
            self.turns.push_back(call.run.clone());
        }
        calls.push_back(call);
        self.len += 1;
    }

    /// Whether there is a call that fits.
    pub(super) fn has(&self, fits: impl Fn(&CallId) -> bool) -> bool {
        self.next(fits).is_some()
    }

    /// Takes the next call that fits; its run goes to the end of the line.
    pub(super) fn pop(&mut self, fits: impl Fn(&CallId) -> bool) -> Option<CallId> {
        let (turn, place) = self.next(fits)?;
        let run = self.turns.remove(turn)?;
        let calls = self.by_run.get_mut(&run)?;
        let call = calls.remove(place)?;
        if calls.is_empty() {
            self.by_run.remove(&run);
        } else {
            self.turns.push_back(run);
        }
        self.len -= 1;
        Some(call)
    }

    /// The next call that fits: its run's place in the line, and its own among its run's.
    fn next(&self, fits: impl Fn(&CallId) -> bool) -> Option<(usize, usize)> {
        self.turns.iter().enumerate().find_map(|(turn, run)| {
            let place = self.by_run.get(run)?.iter().position(&fits)?;
            Some((turn, place))
        })
    }

    /// Takes a call out, wherever it stands.
    pub(super) fn remove(&mut self, call: &CallId) {
        let Some(calls) = self.by_run.get_mut(&call.run) else { return };
        let before = calls.len();
        calls.retain(|waiting| waiting != call);
        self.len -= before - calls.len();
        if calls.is_empty() {
            self.by_run.remove(&call.run);
            self.turns.retain(|run| *run != call.run);
        }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All that wait, by run.
    pub(super) fn iter(&self) -> impl Iterator<Item = &CallId> {
        self.by_run.values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::CallSlot;

    fn call(run: &str, index: u32) -> CallId {
        CallId { run: RunId::parse(run).unwrap(), slot: CallSlot(1, index) }
    }

    fn drain(queue: &mut FairQueue) -> Vec<String> {
        std::iter::from_fn(|| queue.pop(|_| true)).map(|call| call.to_string()).collect()
    }

    #[test]
    fn runs_take_turns() {
        let mut queue = FairQueue::default();
        for index in 0..3 {
            queue.push(call("big", index));
        }
        queue.push(call("small", 0));
        queue.push(call("other", 0));
        assert_eq!(queue.len(), 5);
        assert_eq!(drain(&mut queue), ["big/1.0", "small/1.0", "other/1.0", "big/1.1", "big/1.2"]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_call_that_does_not_fit_lets_others_by() {
        let mut queue = FairQueue::default();
        for (run, index) in [("a", 0), ("a", 1), ("b", 0)] {
            queue.push(call(run, index));
        }
        let another = |id: &CallId| *id != call("a", 0);
        assert_eq!(queue.pop(another), Some(call("a", 1)));
        assert_eq!(queue.pop(another), Some(call("b", 0)));
        assert!(!queue.has(another));
        assert_eq!(queue.pop(another), None);
        assert_eq!(drain(&mut queue), ["a/1.0"]);
    }

    #[test]
    fn a_call_leaves_from_anywhere() {
        let mut queue = FairQueue::default();
        for (run, index) in [("a", 0), ("a", 1), ("b", 0), ("a", 2)] {
            queue.push(call(run, index));
        }
        queue.remove(&call("a", 1));
        queue.remove(&call("b", 0));
        queue.remove(&call("b", 7));
        queue.remove(&call("c", 0));
        assert_eq!((queue.len(), queue.iter().count()), (2, 2));
        assert_eq!(drain(&mut queue), ["a/1.0", "a/1.2"]);
    }

    #[test]
    fn a_run_that_comes_back_has_one_turn() {
        let mut queue = FairQueue::default();
        queue.push(call("a", 0));
        queue.remove(&call("a", 0));
        queue.push(call("a", 1));
        queue.push(call("b", 0));
        queue.push(call("a", 2));
        assert_eq!(drain(&mut queue), ["a/1.1", "b/1.0", "a/1.2"]);
    }
}
