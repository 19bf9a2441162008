//! The account of the memory that live runs hold. Each holder charges it, and what is charged is released by drop.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use agentloop_core::id::TenantId;
use parking_lot::Mutex;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot};

use super::part::{Holding, MemoryShare, Parts, WaitingPart};
use crate::fair::FairQueue;

/// The account of the memory that live runs hold. Clones are one account.
///
/// **Charges and reservations.** A [`Charge`] counts memory that is held already, and always succeeds. A reservation
/// ([`Self::try_reserve`], [`Self::reserve`]) counts memory before it is used, and succeeds only within the bound. So the sum
/// passes the bound only by charges without a reservation. Such a charge is small, or its holder's next reservation waits for it.
///
/// **Every reservation is granted in the end.** While a holder waits for one, it holds nothing but standing charges. So the
/// next one is granted at the latest when nothing but these is left, and no later one takes its place.
///
/// **Tenants.** In a [`Self::divided`] account, each tenant leaves memory to others, as `MemoryShare::needed` says. A reservation that
/// waits for this does not hold up those of other tenants. One within its tenant's equal part does not wait behind these, so
/// each tenant gets its part as memory is given back. One beyond that part may wait as long as others need theirs.
#[derive(Clone)]
pub struct MemoryLedger {
    account: Arc<Account>,
    /// The tenant that is charged; none in an account that is not divided.
    part: Option<Arc<MemoryShare>>,
}

struct Account {
    bytes_max: usize,
    used: AtomicUsize,
    /// Bytes of standing charges, which are part of `used`.
    standing: AtomicUsize,
    /// Reservations that wait. Tenants are served in turn.
    waiting: Mutex<FairQueue<TenantId, WaitingReservation>>,
    /// The length of `waiting`, which is read without its lock. A waiter writes it, and then reads the bytes that are held. A
    /// holder that gives bytes back changes those, and then reads this length. A fence between the two steps of each makes sure
    /// that one of them sees the other's change.
    waiting_len: AtomicUsize,
    /// Notified when a reservation begins to wait: holders that can do without their memory give it back.
    wanted: Notify,
    /// The bytes that each tenant holds, where they leave memory to each other.
    parts: Option<Parts>,
}

struct WaitingReservation {
    part: Option<WaitingPart>,
    bytes: usize,
    granted: oneshot::Sender<Charge>,
}

/// Bytes that are charged to a ledger until this is dropped.
pub struct Charge {
    ledger: MemoryLedger,
    bytes: usize,
    holding: Holding,
}

/// A reservation in the queue. If it is given up, those behind it may fit.
struct Waiter<'a> {
    ledger: &'a MemoryLedger,
    /// `None` once it is granted.
    granted: Option<oneshot::Receiver<Charge>>,
}

impl MemoryLedger {
    /// An account with this bound.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self::with(bytes_max, None)
    }

    /// An account with this bound, in which tenants leave memory to each other.
    #[must_use]
    pub fn divided(bytes_max: usize) -> Self {
        Self::with(bytes_max, Some(Parts::default()))
    }

    fn with(bytes_max: usize, parts: Option<Parts>) -> Self {
        let account = Account {
            bytes_max,
            used: AtomicUsize::new(0),
            standing: AtomicUsize::new(0),
            waiting: Mutex::default(),
            waiting_len: AtomicUsize::new(0),
            wanted: Notify::new(),
            parts,
        };
        Self { account: Arc::new(account), part: None }
    }

    /// The same account, for charges of this tenant.
    #[must_use]
    pub fn of(&self, tenant: &TenantId) -> Self {
        let part = self.account.parts.as_ref().map(|parts| parts.of(tenant));
        Self { account: self.account.clone(), part }
    }

    /// True if tenants leave memory to each other.
    #[must_use]
    pub fn is_divided(&self) -> bool {
        self.account.parts.is_some()
    }

    /// An account without a bound.
    #[must_use]
    pub fn unbounded() -> Self {
        Self::new(usize::MAX)
    }

    /// The most bytes that may be charged at a time.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.account.bytes_max
    }

    /// Bytes that are charged now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.account.used.load(Ordering::Relaxed)
    }

    /// Bytes that may still be reserved, by the tenant if it is one's account.
    #[must_use]
    pub fn free(&self) -> usize {
        let free = self.account.bytes_max.saturating_sub(self.used());
        self.part.as_ref().map_or(free, |part| part.free(free))
    }

    /// Bytes of the whole account that must be free before this many can be reserved.
    #[must_use]
    pub fn needed(&self, bytes: usize) -> usize {
        self.part.as_ref().map_or(bytes, |part| part.needed(bytes))
    }

    /// True if a reservation waits.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.account.waiting_len.load(Ordering::Relaxed) > 0
    }

    /// Completes when a reservation begins to wait after this call.
    pub fn wanted(&self) -> Notified<'_> {
        self.account.wanted.notified()
    }

    /// Charges bytes that are held already, whether or not there is enough.
    #[must_use]
    pub fn charge(&self, bytes: usize) -> Charge {
        self.charge_as(bytes, Holding::Working)
    }

    /// As [`Self::charge`], for bytes that their holder keeps while it waits for a reservation.
    #[must_use]
    pub fn charge_standing(&self, bytes: usize) -> Charge {
        self.charge_as(bytes, Holding::Standing)
    }

    fn charge_as(&self, bytes: usize, holding: Holding) -> Charge {
        self.add(bytes, holding);
        Charge { ledger: self.clone(), bytes, holding }
    }

    /// Charges these bytes if there is enough and none waits that comes before.
    #[must_use]
    pub fn try_reserve(&self, tenant: &TenantId, bytes: usize) -> Option<Charge> {
        let own = self.of(tenant);
        if self.is_wanted() && own.must_wait(&self.account.waiting.lock(), tenant, bytes) {
            None
        } else {
            own.take(bytes)
        }
    }

    /// Charges these bytes as soon as there is enough. Reservations of a tenant are granted in the order in which they were
    /// made, those of several tenants in turn. More than the bound is granted when nothing else is held: whoever requests
    /// it must refuse it first.
    pub async fn reserve(&self, tenant: &TenantId, bytes: usize) -> Charge {
        let mut waiter = {
            let (own, mut waiting) = (self.of(tenant), self.account.waiting.lock());
            if !own.must_wait(&waiting, tenant, bytes)
                && let Some(charge) = own.take(bytes)
            {
                return charge;
            }
            let (sender, granted) = oneshot::channel();
            let part = own.part.map(WaitingPart::new);
            waiting.push(tenant.clone(), WaitingReservation { part, bytes, granted: sender });
            self.account.waiting_len.store(waiting.len(), Ordering::Relaxed);
            Waiter { ledger: self, granted: Some(granted) }
        };
        fence(Ordering::SeqCst);
        // Memory may have been freed before this reservation was in the queue; nobody was woken for it.
        self.grant();
        self.account.wanted.notify_waiters();
        waiter.granted().await
    }

    /// True if a reservation comes behind those that wait: one of the same tenant, or any if its tenant has its equal part.
    fn must_wait(
        &self,
        waiting: &FairQueue<TenantId, WaitingReservation>,
        tenant: &TenantId,
        bytes: usize,
    ) -> bool {
        !waiting.is_empty() && (waiting.has(tenant) || !self.may_pass(bytes))
    }

    /// True if this many bytes may be taken although others wait.
    fn may_pass(&self, bytes: usize) -> bool {
        self.part.as_ref().is_some_and(|part| part.is_within_equal_part(bytes, self.account.bytes_max))
    }

    /// Charges the bytes if there is enough, or if nothing but standing charges is held.
    fn take(&self, bytes: usize) -> Option<Charge> {
        let standing = self.account.standing.load(Ordering::Relaxed);
        let needed = self.needed(bytes);
        let charge = |used: usize| {
            let is_enough = used.saturating_add(needed) <= self.account.bytes_max || used <= standing;
            is_enough.then_some(used.saturating_add(bytes))
        };
        self.account.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charge).ok()?;
        if let Some(part) = &self.part {
            part.add(bytes, Holding::Working);
        }
        Some(Charge { ledger: self.clone(), bytes, holding: Holding::Working })
    }

    fn add(&self, bytes: usize, holding: Holding) {
        if holding == Holding::Standing {
            self.account.standing.fetch_add(bytes, Ordering::Relaxed);
        }
        self.account.used.fetch_add(bytes, Ordering::Relaxed);
        if let Some(part) = &self.part {
            part.add(bytes, holding);
        }
    }

    /// Grants the next reservations, as long as they fit.
    fn grant(&self) {
        // A charge that nobody takes is released after the lock.
        let mut refused = Vec::new();
        let mut waiting = self.account.waiting.lock();
        loop {
            let (mut passes, mut granted) = (false, None);
            let next = waiting.pop_if(|next| {
                if next.granted.is_closed() {
                    return true;
                }
                let own =
                    Self { account: self.account.clone(), part: next.part.as_ref().map(WaitingPart::part) };
                if !passes || own.may_pass(next.bytes) {
                    granted = own.take(next.bytes);
                }
                passes = true;
                granted.is_some()
            });
            let Some(next) = next else { break };
            if let Some(charge) = granted
                && let Err(charge) = next.granted.send(charge)
            {
                refused.push(charge);
                break;
            }
        }
        self.account.waiting_len.store(waiting.len(), Ordering::Relaxed);
        drop(waiting);
        drop(refused);
    }
}

impl Waiter<'_> {
    async fn granted(&mut self) -> Charge {
        let granted = self.granted.as_mut().expect("it is granted once");
        let charge = granted.await.expect("a reservation waits until it is granted or dropped");
        self.granted = None;
        charge
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(granted) = self.granted.take() {
            drop(granted);
            self.ledger.grant();
        }
    }
}

impl Charge {
    /// Bytes that are charged.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charges more, whether or not there is enough.
    pub fn grow(&mut self, bytes: usize) {
        self.set(self.bytes + bytes);
    }

    fn release(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let account = &self.ledger.account;
        if self.holding == Holding::Standing {
            account.standing.fetch_sub(bytes, Ordering::Relaxed);
        }
        account.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(part) = &self.ledger.part {
            part.remove(bytes, self.holding);
        }
        fence(Ordering::SeqCst);
        if self.ledger.is_wanted() {
            self.ledger.grant();
        }
    }

    /// Charges this much in place of what was charged.
    pub fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes >= before {
            self.ledger.add(bytes - before, self.holding);
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
        let (used, bytes_max) = (self.used(), self.account.bytes_max);
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
mod tests;
