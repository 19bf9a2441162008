//! The account of the memory that live runs hold. Each holder charges it, and what is charged is released by drop.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentloop_core::id::TenantId;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot};

use crate::fair::FairQueue;

/// The account of the memory that live runs hold. Clones are one account.
///
/// [`Charge`]s say what is held already and always succeed. [`Self::try_reserve`] and [`Self::reserve`] ask for room
/// before something is made. So the sum passes the bound only by what is made without asking: it is small, or the next
/// reservation of its holder waits for it.
///
/// A holder that waits for a reservation holds nothing but standing charges. So the reservation that is next is always
/// granted in the end: at the latest when nothing but standing charges is left. None that comes later takes its place.
#[derive(Clone)]
pub struct MemoryLedger(Arc<Account>);

struct Account {
    bytes_max: usize,
    used: AtomicUsize,
    /// Bytes of standing charges, which are part of `used`.
    standing: AtomicUsize,
    /// Reservations that wait. Tenants are served in turn.
    waiting: Mutex<FairQueue<TenantId, Waiting>>,
    /// The length of `waiting`, which is read without its lock.
    waiting_len: AtomicUsize,
    /// Notified when a reservation begins to wait: holders that can do without their memory give it back.
    wanted: Notify,
}

struct Waiting {
    bytes: usize,
    granted: oneshot::Sender<Charge>,
}

/// Bytes that are charged to a ledger until this is dropped.
pub struct Charge {
    ledger: MemoryLedger,
    bytes: usize,
    is_standing: bool,
}

impl MemoryLedger {
    /// An account with this bound.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Account {
            bytes_max,
            used: AtomicUsize::new(0),
            standing: AtomicUsize::new(0),
            waiting: Mutex::default(),
            waiting_len: AtomicUsize::new(0),
            wanted: Notify::new(),
        }))
    }

    /// An account without a bound.
    #[must_use]
    pub fn unbounded() -> Self {
        Self::new(usize::MAX)
    }

    /// The bound.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.0.bytes_max
    }

    /// Bytes that are charged now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Bytes that may still be reserved.
    #[must_use]
    pub fn free(&self) -> usize {
        self.0.bytes_max.saturating_sub(self.used())
    }

    /// True if a reservation waits.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.0.waiting_len.load(Ordering::Relaxed) > 0
    }

    /// Completes when a reservation begins to wait after this call.
    pub fn wanted(&self) -> Notified<'_> {
        self.0.wanted.notified()
    }

    /// Charges bytes that are held already, whether or not there is room.
    #[must_use]
    pub fn charge(&self, bytes: usize) -> Charge {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
        Charge { ledger: self.clone(), bytes, is_standing: false }
    }

    /// As [`Self::charge`], for bytes that their holder keeps while it waits for a reservation.
    #[must_use]
    pub fn charge_standing(&self, bytes: usize) -> Charge {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
        self.0.standing.fetch_add(bytes, Ordering::Relaxed);
        Charge { ledger: self.clone(), bytes, is_standing: true }
    }

    /// Charges these bytes if there is room and nobody waits for it.
    #[must_use]
    pub fn try_reserve(&self, bytes: usize) -> Option<Charge> {
        if self.is_wanted() { None } else { self.take(bytes) }
    }

    /// Charges these bytes as soon as there is room. Reservations of a tenant are granted in the order in which they were
    /// made, those of several tenants in turn. More than the bound is granted when nothing else is held: whoever asks for
    /// it must refuse it first.
    pub async fn reserve(&self, tenant: &TenantId, bytes: usize) -> Charge {
        let granted = {
            let mut waiting = self.waiting();
            if waiting.is_empty()
                && let Some(charge) = self.take(bytes)
            {
                return charge;
            }
            let (sender, granted) = oneshot::channel();
            waiting.push(tenant.clone(), Waiting { bytes, granted: sender });
            self.0.waiting_len.store(waiting.len(), Ordering::Relaxed);
            granted
        };
        // What was freed before this waited has woken nobody.
        self.grant();
        self.0.wanted.notify_waiters();
        granted.await.expect("a reservation waits until it is granted or dropped")
    }

    /// Charges the bytes if there is room, or if nothing but standing charges is held.
    fn take(&self, bytes: usize) -> Option<Charge> {
        let standing = self.0.standing.load(Ordering::Relaxed);
        let room = |used: usize| {
            let after = used.saturating_add(bytes);
            (after <= self.0.bytes_max || used <= standing).then_some(after)
        };
        self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(Charge { ledger: self.clone(), bytes, is_standing: false })
    }

    /// Grants the next reservations, as long as they fit.
    fn grant(&self) {
        // A charge that nobody takes is released after the lock.
        let mut refused = Vec::new();
        let mut waiting = self.waiting();
        while let Some(first) = waiting.first() {
            if first.granted.is_closed() {
                waiting.pop();
                continue;
            }
            let Some(charge) = self.take(first.bytes) else { break };
            if let Some(first) = waiting.pop()
                && let Err(charge) = first.granted.send(charge)
            {
                refused.push(charge);
                break;
            }
        }
        self.0.waiting_len.store(waiting.len(), Ordering::Relaxed);
        drop(waiting);
        drop(refused);
    }

    fn waiting(&self) -> MutexGuard<'_, FairQueue<TenantId, Waiting>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Charge {
    /// Bytes that are charged.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charges more, whether or not there is room.
    pub fn grow(&mut self, bytes: usize) {
        self.set(self.bytes + bytes);
    }

    fn release(&self, bytes: usize) {
        if self.is_standing {
            self.ledger.0.standing.fetch_sub(bytes, Ordering::Relaxed);
        }
        self.ledger.0.used.fetch_sub(bytes, Ordering::Relaxed);
        if bytes > 0 && self.ledger.is_wanted() {
            self.ledger.grant();
        }
    }

    /// Charges this much in place of what was charged.
    pub fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes >= before {
            self.ledger.0.used.fetch_add(bytes - before, Ordering::Relaxed);
            if self.is_standing {
                self.ledger.0.standing.fetch_add(bytes - before, Ordering::Relaxed);
            }
        } else {
            self.release(before - bytes);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}

impl fmt::Debug for MemoryLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, bytes_max) = (self.used(), self.0.bytes_max);
        f.debug_struct("MemoryLedger")
            .field("used", &used)
            .field("bytes_max", &bytes_max)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn tenants_are_served_in_turn() {
        let red = TenantId::parse("red").unwrap();
        let (ledger, quiet) = (MemoryLedger::new(100), TenantId::parse("quiet").unwrap());
        let held = ledger.charge(100);
        let mut noisy: Vec<_> = (0..1_000).map(|_| Box::pin(ledger.reserve(&red, 100))).collect();
        for one in &mut noisy {
            assert!(poll!(one.as_mut()).is_pending());
        }
        let mut other = Box::pin(ledger.reserve(&quiet, 100));
        assert!(poll!(other.as_mut()).is_pending());
        drop(held);
        let Poll::Ready(first) = poll!(noisy[0].as_mut()) else { panic!("it came first") };
        drop(first);
        let Poll::Ready(second) = poll!(other.as_mut()) else { panic!("it is the other tenant's turn") };
        drop(second);
        assert!(poll!(noisy[1].as_mut()).is_ready());
    }

    #[test]
    fn what_is_dropped_is_released() {
        let ledger = MemoryLedger::new(100);
        let mut held = ledger.charge(70);
        assert!(ledger.try_reserve(31).is_none());
        let more = ledger.try_reserve(30).unwrap();
        assert_eq!((ledger.used(), ledger.free(), more.bytes()), (100, 0, 30));
        held.grow(10);
        assert_eq!(ledger.used(), 110, "what is held already is charged past the bound");
        held.set(5);
        drop(more);
        assert_eq!(ledger.used(), 5);
        drop(held);
        assert_eq!(ledger.used(), 0);
    }

    #[tokio::test]
    async fn reservations_are_granted_in_their_order() {
        let red = TenantId::parse("red").unwrap();
        let ledger = MemoryLedger::new(100);
        let mut held = ledger.charge(90);
        let mut large = Box::pin(ledger.reserve(&red, 60));
        let mut small = Box::pin(ledger.reserve(&red, 5));
        assert!(poll!(large.as_mut()).is_pending() && poll!(small.as_mut()).is_pending());
        assert!(ledger.try_reserve(1).is_none(), "nobody passes those that wait");
        held.set(30);
        let large = large.await;
        assert_eq!(ledger.used(), 95);
        let small = small.await;
        assert_eq!((large.bytes(), small.bytes()), (60, 5));
        assert!(!ledger.is_wanted());
        drop((large, small, held));
        assert_eq!(ledger.used(), 0);
    }

    #[tokio::test]
    async fn a_reservation_that_is_given_up_holds_nobody_back() {
        let red = TenantId::parse("red").unwrap();
        let ledger = MemoryLedger::new(100);
        let held = ledger.charge(50);
        let mut first = Box::pin(ledger.reserve(&red, 80));
        let mut second = Box::pin(ledger.reserve(&red, 40));
        assert!(poll!(first.as_mut()).is_pending() && poll!(second.as_mut()).is_pending());
        drop(first);
        drop(held);
        assert_eq!(second.await.bytes(), 40);
        assert_eq!(ledger.used(), 0);
    }

    #[tokio::test]
    async fn more_than_the_bound_waits_for_everything_else() {
        let red = TenantId::parse("red").unwrap();
        let ledger = MemoryLedger::new(100);
        let held = ledger.charge(1);
        let mut waiting = Box::pin(ledger.reserve(&red, 200));
        assert!(poll!(waiting.as_mut()).is_pending());
        drop(held);
        assert_eq!(waiting.await.bytes(), 200);
    }

    #[tokio::test]
    async fn holders_that_all_wait_go_on_one_by_one() {
        let red = TenantId::parse("red").unwrap();
        let ledger = MemoryLedger::new(100);
        let standing = [(), ()].map(|()| ledger.charge_standing(45));
        let mut waiting = [(), ()].map(|()| Box::pin(ledger.reserve(&red, 60)));
        let [first, second] = &mut waiting;
        let Poll::Ready(granted) = poll!(first.as_mut()) else { panic!("nothing else is held") };
        assert!(poll!(second.as_mut()).is_pending(), "one at a time");
        drop(granted);
        drop(second.await);
        drop(waiting);
        drop(standing);
        assert_eq!(ledger.used(), 0);
    }

    #[tokio::test]
    async fn holders_hear_that_memory_is_wanted() {
        let red = TenantId::parse("red").unwrap();
        let ledger = MemoryLedger::new(100);
        let held = ledger.charge(100);
        let mut wanted = Box::pin(ledger.wanted());
        assert!(poll!(wanted.as_mut()).is_pending());
        let mut waiting = Box::pin(ledger.reserve(&red, 1));
        assert!(poll!(waiting.as_mut()).is_pending());
        wanted.await;
        drop(held);
        assert_eq!(waiting.await.bytes(), 1);
    }
}
