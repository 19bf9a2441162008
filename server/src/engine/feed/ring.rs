//! The last items that were sent, for listeners that each read at their own pace. Bounded in number and in bytes: who
//! falls behind loses what is oldest, and is told that it did. What all have read is let go at once.

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentloop_core::time::{Millis, Timestamp};
use tokio::sync::Notify;

/// What a listener gets in place of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Missed {
    /// Items are lost that it had not read. What it is given next is the oldest that is left.
    Some,
    /// It was behind, and had not read for too long: it gets nothing any more.
    All,
    /// Nothing is sent any more, and what was is void.
    Closed,
}

/// Sends to those who listen.
pub(in crate::engine) struct Ring<T> {
    items_max: usize,
    bytes_max: usize,
    state: Mutex<State<T>>,
    sent: Notify,
}

struct State<T> {
    items: VecDeque<Item<T>>,
    bytes: usize,
    /// The number of the first item.
    first: u64,
    places: BTreeMap<u64, Place>,
    /// How many of them get nothing any more.
    given_up: usize,
    joined: u64,
    closed: bool,
}

/// What was sent.
struct Item<T> {
    what: T,
    bytes: usize,
    /// Listeners that are to read it yet.
    unread: usize,
}

/// How far a listener is.
struct Place {
    next: u64,
    read_at: Timestamp,
    patience: Patience,
    given_up: bool,
}

/// How long a listener that is behind may go without reading.
pub(in crate::engine) struct Patience {
    /// No longer than this.
    pub(in crate::engine) stall: Millis,
    /// Counts those that did.
    pub(in crate::engine) stalled: Arc<AtomicU64>,
}

/// One who listens; no longer, once it is dropped.
pub(in crate::engine) struct Listener<T> {
    ring: Arc<Ring<T>>,
    id: u64,
}

impl<T> Ring<T> {
    /// Keeps at most so many items for those who have not read them, and at most so many bytes.
    pub(in crate::engine) fn new(items_max: usize, bytes_max: usize) -> Arc<Self> {
        let (items, places) = (VecDeque::new(), BTreeMap::new());
        let state =
            Mutex::new(State { items, bytes: 0, first: 0, places, given_up: 0, joined: 0, closed: false });
        Arc::new(Self { items_max, bytes_max, state, sent: Notify::new() })
    }

    /// How many listen.
    pub(in crate::engine) fn listeners(&self) -> usize {
        self.state().places.len()
    }

    /// Hears everything from here on.
    pub(in crate::engine) fn listen(self: &Arc<Self>, now: Timestamp, patience: Patience) -> Listener<T> {
        let mut state = self.state();
        state.joined += 1;
        let (id, next) = (state.joined, state.end());
        state.places.insert(id, Place { next, read_at: now, patience, given_up: false });
        drop(state);
        Listener { ring: self.clone(), id }
    }

    /// Sends an item of so many bytes. Never waits: what does not fit is lost to those who have not read it.
    pub(in crate::engine) fn send(&self, item: T, bytes: usize, now: Timestamp) {
        self.send_all([(item, bytes)], now);
    }

    /// Sends items, each of so many bytes, as [`Ring::send`] does: who listens is woken once for all of them.
    pub(in crate::engine) fn send_all(&self, items: impl IntoIterator<Item = (T, usize)>, now: Timestamp) {
        let mut state = self.state();
        for (what, bytes) in items {
            let unread = state.places.len() - state.given_up;
            if unread == 0 {
                break;
            }
            state.items.push_back(Item { what, bytes, unread });
            state.bytes += bytes;
            let mut lost = false;
            while state.items.len() > self.items_max || state.bytes > self.bytes_max {
                state.drop_first();
                lost = true;
            }
            // Only who lost something can be behind.
            if lost {
                state.give_up_on_stalled(now);
            }
        }
        drop(state);
        self.sent.notify_waiters();
    }

    /// Ends it for everyone who listens, now and later.
    pub(in crate::engine) fn close(&self) {
        self.state().closed = true;
        self.sent.notify_waiters();
    }

    /// Whether it was closed.
    pub(in crate::engine) fn is_closed(&self) -> bool {
        self.state().closed
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    /// The number of the item that is sent next.
    fn end(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    fn drop_first(&mut self) {
        if let Some(item) = self.items.pop_front() {
            self.bytes -= item.bytes;
            self.first += 1;
        }
    }

    fn drop_what_all_have_read(&mut self) {
        while self.items.front().is_some_and(|item| item.unread == 0) {
            self.drop_first();
        }
    }

    /// Takes what a listener has not read as read: it does not want it any more.
    fn release_from(&mut self, next: u64) {
        let read = usize::try_from(next.saturating_sub(self.first)).unwrap_or(usize::MAX);
        for item in self.items.iter_mut().skip(read) {
            item.unread -= 1;
        }
        self.drop_what_all_have_read();
    }

    /// Whether someone still reads is found out by those who send: who is not asked for its items never says so.
    fn give_up_on_stalled(&mut self, now: Timestamp) {
        let first = self.first;
        let mut stalled = Vec::new();
        for place in self.places.values_mut().filter(|place| !place.given_up && place.next < first) {
            if now.since(place.read_at) > place.patience.stall {
                place.given_up = true;
                place.patience.stalled.fetch_add(1, Ordering::Relaxed);
                stalled.push(place.next);
            }
        }
        self.given_up += stalled.len();
        stalled.into_iter().for_each(|next| self.release_from(next));
    }
}

impl<T: Clone> Listener<T> {
    /// The next item, or what became of it. Nothing is lost where this is dropped before it is done.
    pub(in crate::engine) async fn hear(&self) -> Result<T, Missed> {
        loop {
            if let Some(heard) = self.try_hear() {
                return heard;
            }
            let mut sent = pin!(self.ring.sent.notified());
            sent.as_mut().enable();
            // It may have come before that.
            if let Some(heard) = self.try_hear() {
                return heard;
            }
            sent.await;
        }
    }

    fn try_hear(&self) -> Option<Result<T, Missed>> {
        let mut state = self.ring.state();
        let State { items, first, places, closed, .. } = &mut *state;
        if *closed {
            return Some(Err(Missed::Closed));
        }
        let place = places.get_mut(&self.id).expect("a listener has its place");
        if place.given_up {
            return Some(Err(Missed::All));
        }
        if place.next < *first {
            place.next = *first;
            return Some(Err(Missed::Some));
        }
        let at = usize::try_from(place.next - *first).expect("within what is held");
        let item = items.get_mut(at)?;
        let what = item.what.clone();
        item.unread -= 1;
        place.next += 1;
        state.drop_what_all_have_read();
        Some(Ok(what))
    }
}

impl<T> Listener<T> {
    /// What it has was taken from it now.
    pub(in crate::engine) fn read(&self, now: Timestamp) {
        if let Some(place) = self.ring.state().places.get_mut(&self.id) {
            place.read_at = now;
        }
    }
}

impl<T> Drop for Listener<T> {
    fn drop(&mut self) {
        let mut state = self.ring.state();
        match state.places.remove(&self.id) {
            Some(place) if place.given_up => state.given_up -= 1,
            Some(place) => state.release_from(place.next),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000);

    fn patience() -> Patience {
        Patience { stall: Millis(100), stalled: Arc::default() }
    }

    #[tokio::test]
    async fn everyone_hears_everything_and_what_was_heard_is_let_go() {
        let ring = Ring::new(4, 100);
        let (one, two) = (ring.listen(NOW, patience()), ring.listen(NOW, patience()));
        ring.send("a", 10, NOW);
        ring.send("b", 20, NOW);
        assert_eq!((one.hear().await, one.hear().await), (Ok("a"), Ok("b")));
        assert_eq!(ring.state().bytes, 30);
        assert_eq!(two.hear().await, Ok("a"));
        assert_eq!(ring.state().bytes, 20);
        drop(two);
        assert_eq!(ring.state().bytes, 0);
        assert_eq!(ring.listeners(), 1);
        let hearing = one.hear();
        let mut hearing = pin!(hearing);
        assert!(futures_util::poll!(hearing.as_mut()).is_pending());
        ring.send("c", 1, NOW);
        assert_eq!(hearing.await, Ok("c"));
    }

    #[tokio::test]
    async fn who_falls_behind_loses_the_oldest_by_number_or_by_bytes() {
        for (items_max, bytes_max) in [(2, 100), (100, 20)] {
            let ring = Ring::new(items_max, bytes_max);
            let slow = ring.listen(NOW, patience());
            for item in ["a", "b", "c"] {
                ring.send(item, 10, NOW);
            }
            assert_eq!(ring.state().bytes, 20);
            assert_eq!(slow.hear().await, Err(Missed::Some));
            assert_eq!((slow.hear().await, slow.hear().await), (Ok("b"), Ok("c")));
        }
    }

    #[tokio::test]
    async fn what_is_sent_together_is_heard_in_order_and_bounded_all_the_same() {
        let ring = Ring::new(2, 100);
        let listener = ring.listen(NOW, patience());
        ring.send_all([("a", 1), ("b", 1)], NOW);
        assert_eq!((listener.hear().await, listener.hear().await), (Ok("a"), Ok("b")));
        ring.send_all([("c", 1), ("d", 1), ("e", 1)], NOW);
        assert_eq!(listener.hear().await, Err(Missed::Some));
        assert_eq!((listener.hear().await, listener.hear().await), (Ok("d"), Ok("e")));
        // It is given up in the middle of them, and told: what comes after that is held for nobody.
        let hearing = listener.hear();
        let mut hearing = pin!(hearing);
        assert!(futures_util::poll!(hearing.as_mut()).is_pending());
        ring.send_all([("f", 1), ("g", 1), ("h", 1), ("i", 1)], NOW.after(Millis(101)));
        assert_eq!(hearing.await, Err(Missed::All));
        assert_eq!(ring.state().bytes, 0);
    }

    #[tokio::test]
    async fn an_item_larger_than_everything_is_missed_by_all_and_held_by_none() {
        let ring = Ring::new(4, 100);
        let fast = ring.listen(NOW, patience());
        ring.send("huge", 101, NOW);
        assert_eq!(ring.state().bytes, 0);
        assert_eq!(fast.hear().await, Err(Missed::Some));
        ring.send("a", 1, NOW);
        assert_eq!(fast.hear().await, Ok("a"));
    }

    #[tokio::test]
    async fn who_is_behind_and_never_asks_is_given_up() {
        let (ring, stalled) = (Ring::new(1, 100), Arc::<AtomicU64>::default());
        let of = || Patience { stall: Millis(100), stalled: stalled.clone() };
        let (idle, busy) = (ring.listen(NOW, of()), ring.listen(NOW, of()));
        let late = NOW.after(Millis(101));
        ring.send("a", 1, NOW);
        ring.send("b", 1, NOW);
        busy.read(late);
        assert_eq!(stalled.load(Ordering::Relaxed), 0);
        ring.send("c", 1, late);
        ring.send("d", 1, late);
        assert_eq!(stalled.load(Ordering::Relaxed), 1, "counted once");
        assert_eq!(busy.hear().await, Err(Missed::Some));
        assert_eq!(busy.hear().await, Ok("d"));
        assert_eq!(ring.state().bytes, 0, "nothing is held for it");
        assert_eq!(idle.hear().await, Err(Missed::All));
    }
}
