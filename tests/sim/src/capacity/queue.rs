//! Places where work waits, and the list of what happens next.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// Things that happen, in the order of their times.
#[derive(Debug)]
pub(super) struct Agenda<E> {
    coming: BinaryHeap<At<E>>,
    number: u64,
}

#[derive(Debug)]
struct At<E> {
    time: f64,
    /// The order of things at the same time: the one that was noted first comes first.
    number: u64,
    event: E,
}

impl<E> Agenda<E> {
    pub(super) fn new() -> Self {
        Self { coming: BinaryHeap::new(), number: 0 }
    }

    pub(super) fn note(&mut self, time: f64, event: E) {
        self.number += 1;
        self.coming.push(At { time, number: self.number, event });
    }

    pub(super) fn next(&mut self) -> Option<(f64, E)> {
        self.coming.pop().map(|At { time, event, .. }| (time, event))
    }
}

impl<E> Ord for At<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives the greatest first.
        other.time.total_cmp(&self.time).then(other.number.cmp(&self.number))
    }
}

impl<E> PartialOrd for At<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for At<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for At<E> {}

/// Cores that take work in the order in which it comes.
#[derive(Debug)]
pub(super) struct Cores<W> {
    count: usize,
    free: usize,
    waiting: VecDeque<(f64, W)>,
    /// Seconds of work that was begun, of all cores.
    pub(super) busy: f64,
}

impl<W> Cores<W> {
    pub(super) fn new(count: usize) -> Self {
        Self { count, free: count, waiting: VecDeque::new(), busy: 0.0 }
    }

    /// Takes work that lasts so long. Returns the work that begins now with its length, if a core is free.
    pub(super) fn takes(&mut self, length: f64, work: W) -> Option<(f64, W)> {
        self.waiting.push_back((length, work));
        self.begins()
    }

    /// A core has ended its work. Returns the work that begins now.
    pub(super) fn ends(&mut self) -> Option<(f64, W)> {
        self.free += 1;
        self.begins()
    }

    fn begins(&mut self) -> Option<(f64, W)> {
        if self.free == 0 {
            return None;
        }
        let (length, work) = self.waiting.pop_front()?;
        self.free -= 1;
        self.busy += length;
        Some((length, work))
    }

    /// The part of this time that the cores were busy.
    pub(super) fn utilisation(&self, busy_before: f64, time: f64) -> f64 {
        (self.busy - busy_before) / (time * self.count as f64)
    }
}
