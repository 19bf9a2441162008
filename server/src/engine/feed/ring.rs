//! A bounded broadcast channel: the last items that were sent, for receivers that each read at their own pace. It is
//! bounded in items and in bytes. A receiver that falls behind loses the oldest items and is told so. Items that every
//! receiver has read are dropped at once.

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agentloop_core::time::{Millis, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The reason why a receiver gets no item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum RecvError {
    /// The receiver has lost items. The next item is the oldest one that is left.
    Lagged,
    /// The receiver was behind and did not read for too long. It gets no more items.
    Stalled,
    /// The ring is closed. Items that were not read are dropped.
    Closed,
}

/// The sending end, which all receivers share.
pub(in crate::engine) struct Ring<T> {
    items_max: usize,
    bytes_max: usize,
    state: Mutex<RingState<T>>,
    sent: Notify,
}

struct RingState<T> {
    items: VecDeque<SentItem<T>>,
    /// The sum of the items' bytes.
    bytes: usize,
    /// Number of the first item in `items`.
    first: u64,
    positions: BTreeMap<u64, RingPosition>,
    /// Number of receivers that have stalled and get no more items.
    stalled: usize,
    /// The id of the last receiver.
    last_id: u64,
    closed: bool,
}

struct SentItem<T> {
    item: T,
    bytes: usize,
    /// Receivers that have not read it yet.
    unread: usize,
}

/// A receiver's position in the ring.
struct RingPosition {
    next: u64,
    read_at: Timestamp,
    policy: StallPolicy,
    stalled: bool,
}

/// The limit for a receiver that is behind.
pub(in crate::engine) struct StallPolicy {
    /// The longest time without a read.
    pub(in crate::engine) stall: Millis,
    /// Counts the receivers that passed the limit.
    pub(in crate::engine) stalled: Arc<AtomicU64>,
}

/// One receiver. Dropping it ends the subscription.
pub(in crate::engine) struct Receiver<T> {
    ring: Arc<Ring<T>>,
    id: u64,
}

impl<T> Ring<T> {
    /// Keeps at most so many items, and at most so many bytes, for receivers that have not read them.
    pub(in crate::engine) fn new(items_max: usize, bytes_max: usize) -> Arc<Self> {
        let state = RingState {
            items: VecDeque::new(),
            bytes: 0,
            first: 0,
            positions: BTreeMap::new(),
            stalled: 0,
            last_id: 0,
            closed: false,
        };
        Arc::new(Self { items_max, bytes_max, state: Mutex::new(state), sent: Notify::new() })
    }

    /// Number of receivers, stalled ones included.
    pub(in crate::engine) fn receivers(&self) -> usize {
        self.state.lock().positions.len()
    }

    /// A receiver of everything that is sent from here on.
    pub(in crate::engine) fn subscribe(self: &Arc<Self>, now: Timestamp, policy: StallPolicy) -> Receiver<T> {
        let mut state = self.state.lock();
        state.last_id += 1;
        let (id, next) = (state.last_id, state.end());
        state.positions.insert(id, RingPosition { next, read_at: now, policy, stalled: false });
        drop(state);
        Receiver { ring: self.clone(), id }
    }

    /// Sends an item of so many bytes. Never waits: if it does not fit, the oldest items are dropped.
    pub(in crate::engine) fn send(&self, item: T, bytes: usize, now: Timestamp) {
        self.send_all([(item, bytes)], now);
    }

    /// Sends items, each with its number of bytes, as [`Ring::send`] does. Receivers are woken once for all of them.
    pub(in crate::engine) fn send_all(&self, items: impl IntoIterator<Item = (T, usize)>, now: Timestamp) {
        let mut state = self.state.lock();
        for (item, bytes) in items {
            let unread = state.positions.len() - state.stalled;
            if unread == 0 {
                break;
            }
            state.items.push_back(SentItem { item, bytes, unread });
            state.bytes += bytes;
            let mut dropped = false;
            while state.items.len() > self.items_max || state.bytes > self.bytes_max {
                state.drop_first();
                dropped = true;
            }
            // Only a receiver that has lost items can stall.
            if dropped {
                state.end_stalled(now);
            }
        }
        drop(state);
        self.sent.notify_waiters();
    }

    /// Closes the ring for all receivers, also for later ones.
    pub(in crate::engine) fn close(&self) {
        self.state.lock().closed = true;
        self.sent.notify_waiters();
    }

    pub(in crate::engine) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }
}

impl<T> RingState<T> {
    /// The number of the next item to be sent.
    fn end(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    fn drop_first(&mut self) {
        if let Some(item) = self.items.pop_front() {
            self.bytes -= item.bytes;
            self.first += 1;
        }
    }

    fn drop_read_by_all(&mut self) {
        while self.items.front().is_some_and(|item| item.unread == 0) {
            self.drop_first();
        }
    }

    /// Counts the items from `next` on as read by one receiver, which will not read them.
    fn release_from(&mut self, next: u64) {
        let read = usize::try_from(next.saturating_sub(self.first)).unwrap_or(usize::MAX);
        for item in self.items.iter_mut().skip(read) {
            item.unread -= 1;
        }
        self.drop_read_by_all();
    }

    /// Ends receivers that have stalled. The sender checks this, because a receiver that is never polled cannot.
    fn end_stalled(&mut self, now: Timestamp) {
        let first = self.first;
        let mut released = Vec::new();
        for position in
            self.positions.values_mut().filter(|position| !position.stalled && position.next < first)
        {
            if now.since(position.read_at) > position.policy.stall {
                position.stalled = true;
                position.policy.stalled.fetch_add(1, Ordering::Relaxed);
                released.push(position.next);
            }
        }
        self.stalled += released.len();
        released.into_iter().for_each(|next| self.release_from(next));
    }
}

impl<T: Clone> Receiver<T> {
    /// Waits for the next item. Dropping the future loses no item.
    pub(in crate::engine) async fn recv(&self) -> Result<T, RecvError> {
        loop {
            if let Some(received) = self.try_recv() {
                return received;
            }
            let mut sent = pin!(self.ring.sent.notified());
            sent.as_mut().enable();
            // An item may have been sent before the notification was enabled.
            if let Some(received) = self.try_recv() {
                return received;
            }
            sent.await;
        }
    }

    fn try_recv(&self) -> Option<Result<T, RecvError>> {
        let mut state = self.ring.state.lock();
        let RingState { items, first, positions, closed, .. } = &mut *state;
        if *closed {
            return Some(Err(RecvError::Closed));
        }
        let position = positions.get_mut(&self.id).expect("a receiver has its position until it is dropped");
        if position.stalled {
            return Some(Err(RecvError::Stalled));
        }
        if position.next < *first {
            position.next = *first;
            return Some(Err(RecvError::Lagged));
        }
        let at = usize::try_from(position.next - *first).expect("the ring holds far fewer items");
        let sent = items.get_mut(at)?;
        let item = sent.item.clone();
        sent.unread -= 1;
        position.next += 1;
        state.drop_read_by_all();
        Some(Ok(item))
    }
}

impl<T> Receiver<T> {
    /// Notes that the subscriber has taken the last item now.
    pub(in crate::engine) fn mark_read(&self, now: Timestamp) {
        if let Some(position) = self.ring.state.lock().positions.get_mut(&self.id) {
            position.read_at = now;
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.ring.state.lock();
        match state.positions.remove(&self.id) {
            Some(position) if position.stalled => state.stalled -= 1,
            Some(position) => state.release_from(position.next),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000);

    fn policy() -> StallPolicy {
        StallPolicy { stall: Millis(100), stalled: Arc::default() }
    }

    #[tokio::test]
    async fn everyone_hears_everything_and_what_was_heard_is_let_go() {
        let ring = Ring::new(4, 100);
        let (one, two) = (ring.subscribe(NOW, policy()), ring.subscribe(NOW, policy()));
        ring.send("a", 10, NOW);
        ring.send("b", 20, NOW);
        assert_eq!((one.recv().await, one.recv().await), (Ok("a"), Ok("b")));
        assert_eq!(ring.state.lock().bytes, 30);
        assert_eq!(two.recv().await, Ok("a"));
        assert_eq!(ring.state.lock().bytes, 20);
        drop(two);
        assert_eq!(ring.state.lock().bytes, 0);
        assert_eq!(ring.receivers(), 1);
        let receiving = one.recv();
        let mut receiving = pin!(receiving);
        assert!(futures_util::poll!(receiving.as_mut()).is_pending());
        ring.send("c", 1, NOW);
        assert_eq!(receiving.await, Ok("c"));
    }

    #[tokio::test]
    async fn who_falls_behind_loses_the_oldest_by_number_or_by_bytes() {
        for (items_max, bytes_max) in [(2, 100), (100, 20)] {
            let ring = Ring::new(items_max, bytes_max);
            let slow = ring.subscribe(NOW, policy());
            for item in ["a", "b", "c"] {
                ring.send(item, 10, NOW);
            }
            assert_eq!(ring.state.lock().bytes, 20);
            assert_eq!(slow.recv().await, Err(RecvError::Lagged));
            assert_eq!((slow.recv().await, slow.recv().await), (Ok("b"), Ok("c")));
        }
    }

    #[tokio::test]
    async fn what_is_sent_together_is_heard_in_order_and_bounded_all_the_same() {
        let ring = Ring::new(2, 100);
        let receiver = ring.subscribe(NOW, policy());
        ring.send_all([("a", 1), ("b", 1)], NOW);
        assert_eq!((receiver.recv().await, receiver.recv().await), (Ok("a"), Ok("b")));
        ring.send_all([("c", 1), ("d", 1), ("e", 1)], NOW);
        assert_eq!(receiver.recv().await, Err(RecvError::Lagged));
        assert_eq!((receiver.recv().await, receiver.recv().await), (Ok("d"), Ok("e")));
        // The receiver stalls in the middle of these items. The later ones are kept for nobody.
        let receiving = receiver.recv();
        let mut receiving = pin!(receiving);
        assert!(futures_util::poll!(receiving.as_mut()).is_pending());
        ring.send_all([("f", 1), ("g", 1), ("h", 1), ("i", 1)], NOW.after(Millis(101)));
        assert_eq!(receiving.await, Err(RecvError::Stalled));
        assert_eq!(ring.state.lock().bytes, 0);
    }

    #[tokio::test]
    async fn an_item_larger_than_everything_is_missed_by_all_and_held_by_none() {
        let ring = Ring::new(4, 100);
        let fast = ring.subscribe(NOW, policy());
        ring.send("huge", 101, NOW);
        assert_eq!(ring.state.lock().bytes, 0);
        assert_eq!(fast.recv().await, Err(RecvError::Lagged));
        ring.send("a", 1, NOW);
        assert_eq!(fast.recv().await, Ok("a"));
    }

    #[tokio::test]
    async fn who_is_behind_and_never_asks_is_given_up() {
        let (ring, stalled) = (Ring::new(1, 100), Arc::<AtomicU64>::default());
        let of = || StallPolicy { stall: Millis(100), stalled: stalled.clone() };
        let (idle, busy) = (ring.subscribe(NOW, of()), ring.subscribe(NOW, of()));
        let late = NOW.after(Millis(101));
        ring.send("a", 1, NOW);
        ring.send("b", 1, NOW);
        busy.mark_read(late);
        assert_eq!(stalled.load(Ordering::Relaxed), 0);
        ring.send("c", 1, late);
        ring.send("d", 1, late);
        assert_eq!(stalled.load(Ordering::Relaxed), 1, "counted once");
        assert_eq!(busy.recv().await, Err(RecvError::Lagged));
        assert_eq!(busy.recv().await, Ok("d"));
        assert_eq!(ring.state.lock().bytes, 0, "nothing is kept for it");
        assert_eq!(idle.recv().await, Err(RecvError::Stalled));
    }
}
