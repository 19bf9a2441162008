//! The queue of one tool, fair between runs: runs are served round-robin, and each run's calls keep their order.

use std::collections::{BTreeMap, VecDeque};

use crate::id::{CallId, RunId};

/// Calls that wait for one tool. A run with a thousand calls delays the first call of another run by one call only.
#[derive(Debug, Clone, Default)]
pub(super) struct ToolQueue {
    /// Runs that have calls here, in the order in which they are served.
    order: VecDeque<RunId>,
    by_run: BTreeMap<RunId, VecDeque<CallId>>,
    len: usize,
}

impl ToolQueue {
    /// Adds a call behind the others of its run. It must not be in the queue yet.
    pub(super) fn push(&mut self, call: CallId) {
        let calls = self.by_run.entry(call.run.clone()).or_default();
        if calls.is_empty() {
            self.order.push_back(call.run.clone());
        }
        calls.push_back(call);
        self.len += 1;
    }

    /// True if a call in the queue fits.
    pub(super) fn has(&self, fits: impl Fn(&CallId) -> bool) -> bool {
        self.next(fits).is_some()
    }

    /// Removes and returns the next call that fits. Its run is served last from then on.
    pub(super) fn pop(&mut self, fits: impl Fn(&CallId) -> bool) -> Option<CallId> {
        let QueuePosition { run, call } = self.next(fits)?;
        let run = self.order.remove(run)?;
        let calls = self.by_run.get_mut(&run)?;
        let call = calls.remove(call)?;
        if calls.is_empty() {
            self.by_run.remove(&run);
        } else {
            self.order.push_back(run);
        }
        self.len -= 1;
        Some(call)
    }

    /// The next call that fits.
    fn next(&self, fits: impl Fn(&CallId) -> bool) -> Option<QueuePosition> {
        self.order.iter().enumerate().find_map(|(run, id)| {
            let call = self.by_run.get(id)?.iter().position(&fits)?;
            Some(QueuePosition { run, call })
        })
    }

    /// Removes a call from anywhere in the queue. An unknown call changes nothing.
    pub(super) fn remove(&mut self, call: &CallId) {
        let Some(calls) = self.by_run.get_mut(&call.run) else { return };
        let before = calls.len();
        calls.retain(|waiting| waiting != call);
        self.len -= before - calls.len();
        if calls.is_empty() {
            self.by_run.remove(&call.run);
            self.order.retain(|run| *run != call.run);
        }
    }

    /// The number of calls that wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All calls that wait, run by run: not the order in which they are served.
    pub(super) fn iter(&self) -> impl Iterator<Item = &CallId> {
        self.by_run.values().flatten()
    }
}

/// The place of a call in the queue.
struct QueuePosition {
    /// Index of its run in the order of runs.
    run: usize,
    /// Index of the call among those of its run.
    call: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::CallSlot;

    fn call(run: &str, index: u32) -> CallId {
        CallId { run: RunId::parse(run).unwrap(), slot: CallSlot::from((1, index)) }
    }

    fn drain(queue: &mut ToolQueue) -> Vec<String> {
        std::iter::from_fn(|| queue.pop(|_| true)).map(|call| call.to_string()).collect()
    }

    #[test]
    fn runs_are_served_round_robin() {
        let mut queue = ToolQueue::default();
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
        let mut queue = ToolQueue::default();
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
        let mut queue = ToolQueue::default();
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
    fn a_run_that_comes_back_is_in_the_order_once() {
        let mut queue = ToolQueue::default();
        queue.push(call("a", 0));
        queue.remove(&call("a", 0));
        queue.push(call("a", 1));
        queue.push(call("b", 0));
        queue.push(call("a", 2));
        assert_eq!(drain(&mut queue), ["a/1.1", "b/1.0", "a/1.2"]);
    }
}
