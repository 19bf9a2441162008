//! The parts of tenants in a ledger: what each of them holds, and how much more it may take.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use agentloop_core::id::TenantId;
use parking_lot::Mutex;

/// A tenant that takes more holds at most this many times what is left then. So one alone has nine tenths, and one that holds
/// nothing finds room.
const TIMES_WHAT_IS_LEFT: usize = 9;
/// Tenants that are kept before those that hold nothing are dropped.
const PARTS_MAX: usize = 1_024;

/// The way in which bytes are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holding {
    /// Their holder gives them back before it waits for a reservation.
    Working,
    /// Their holder keeps them while it waits for a reservation.
    Standing,
}

/// The parts of all tenants that hold something.
#[derive(Debug, Default)]
pub(super) struct Parts {
    by_tenant: Mutex<HashMap<TenantId, Weak<MemoryShare>>>,
    /// Number of tenants that hold something.
    holders: Arc<AtomicUsize>,
}

/// The bytes that one tenant holds.
#[derive(Debug)]
pub(super) struct MemoryShare {
    used: AtomicUsize,
    /// Bytes of standing charges, which are part of `used`.
    standing: AtomicUsize,
    holders: Arc<AtomicUsize>,
}

impl Parts {
    /// The part of a tenant.
    pub(super) fn of(&self, tenant: &TenantId) -> Arc<MemoryShare> {
        let mut parts = self.by_tenant.lock();
        if let Some(part) = parts.get(tenant).and_then(Weak::upgrade) {
            return part;
        }
        if parts.len() >= PARTS_MAX {
            parts.retain(|_, part| part.strong_count() > 0);
        }
        let part = Arc::new(MemoryShare {
            used: AtomicUsize::new(0),
            standing: AtomicUsize::new(0),
            holders: self.holders.clone(),
        });
        parts.insert(tenant.clone(), Arc::downgrade(&part));
        part
    }
}

impl MemoryShare {
    pub(super) fn add(&self, bytes: usize, holding: Holding) {
        if holding == Holding::Standing {
            self.standing.fetch_add(bytes, Ordering::Relaxed);
        }
        if self.used.fetch_add(bytes, Ordering::Relaxed) == 0 && bytes > 0 {
            self.holders.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn remove(&self, bytes: usize, holding: Holding) {
        if holding == Holding::Standing {
            self.standing.fetch_sub(bytes, Ordering::Relaxed);
        }
        if self.used.fetch_sub(bytes, Ordering::Relaxed) == bytes && bytes > 0 {
            self.holders.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Bytes that must be free before the tenant may take this many. One that holds nothing but standing charges need leave
    /// nothing: its runs all wait, so none of them would ever give anything back.
    pub(super) fn needed(&self, bytes: usize) -> usize {
        let used = self.used.load(Ordering::Relaxed);
        if used <= self.standing.load(Ordering::Relaxed) {
            return bytes;
        }
        bytes.saturating_add(used.saturating_add(bytes).div_ceil(TIMES_WHAT_IS_LEFT))
    }

    /// Bytes that the tenant may take while this many are free.
    pub(super) fn free(&self, free: usize) -> usize {
        let used = self.used.load(Ordering::Relaxed);
        if used <= self.standing.load(Ordering::Relaxed) {
            return free;
        }
        free.saturating_mul(TIMES_WHAT_IS_LEFT).saturating_sub(used) / (TIMES_WHAT_IS_LEFT + 1)
    }

    /// True if the tenant holds no more than its equal part of all memory when it has taken this many bytes.
    pub(super) fn is_within_equal_part(&self, bytes: usize, bytes_max: usize) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        let tenants = self.holders.load(Ordering::Relaxed) + usize::from(used == 0);
        used.saturating_add(bytes) <= bytes_max / tenants.max(1)
    }
}

/// The part of a tenant that waits. It counts among those that hold something.
#[derive(Debug)]
pub(super) struct WaitingPart(Arc<MemoryShare>);

impl WaitingPart {
    pub(super) fn new(part: Arc<MemoryShare>) -> Self {
        part.add(1, Holding::Standing);
        Self(part)
    }

    pub(super) fn part(&self) -> Arc<MemoryShare> {
        self.0.clone()
    }
}

impl Drop for WaitingPart {
    fn drop(&mut self) {
        self.0.remove(1, Holding::Standing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(parts: &Parts, tenant: &str) -> Arc<MemoryShare> {
        parts.of(&TenantId::parse(tenant).unwrap())
    }

    #[test]
    fn a_tenant_leaves_a_ninth_of_what_it_holds() {
        let parts = Parts::default();
        let red = part(&parts, "red");
        assert_eq!((red.needed(90), red.free(100)), (90, 100), "it holds nothing");
        red.add(10, Holding::Standing);
        assert_eq!((red.needed(90), red.free(90)), (90, 90), "its runs wait");
        red.add(35, Holding::Working);
        assert_eq!((red.needed(45), red.free(55)), (55, 45));
        red.remove(35, Holding::Working);
        red.remove(10, Holding::Standing);
        assert_eq!(red.needed(90), 90);
    }

    #[test]
    fn the_equal_part_depends_on_who_holds_something() {
        let parts = Parts::default();
        let [red, blue] = ["red", "blue"].map(|tenant| part(&parts, tenant));
        assert!(red.is_within_equal_part(100, 100));
        blue.add(1, Holding::Working);
        blue.add(1, Holding::Working);
        assert!(red.is_within_equal_part(50, 100) && !red.is_within_equal_part(51, 100));
        red.add(30, Holding::Working);
        assert!(red.is_within_equal_part(20, 100) && !red.is_within_equal_part(21, 100));
        blue.remove(2, Holding::Working);
        assert!(red.is_within_equal_part(70, 100));
        red.remove(30, Holding::Working);
        drop(blue);
        assert!(
            Arc::ptr_eq(&red, &part(&parts, "red")) && part(&parts, "blue").is_within_equal_part(100, 100)
        );
    }
}
