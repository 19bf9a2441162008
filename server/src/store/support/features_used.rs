//! Features that the database has used: steering, remembered rules and queues. Most servers use none of them, and a read
//! for an unused feature needs no query.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use agentloop_core::id::TenantId;
use parking_lot::Mutex;

use super::append::EncodedAppend;

/// The features that tables show.
pub(in crate::store) struct Features {
    pub(in crate::store) steers: bool,
    pub(in crate::store) rules: bool,
    pub(in crate::store) queues: bool,
}

/// A flag for each feature.
///
/// **Invariant:** while the flag of steering or rules is false, its table has no row. A flag is set before the first row is
/// written, and is never cleared.
///
/// The flag of queues is about sessions that this server owns. Earlier owners of its shards may have queued runs. So it counts as
/// set after each gain of a shard, until the database was seen to have no queued run.
#[derive(Debug)]
pub(in crate::store) struct FeaturesUsed {
    steers: AtomicBool,
    rules: AtomicBool,
    queues: AtomicBool,
    /// The number of shards that had been gained when no run was queued.
    gains_without_queues: AtomicU64,
    /// The same when it was last looked at, whatever there was.
    gains_looked_at: AtomicU64,
    /// Tenants that had rules for all sessions when that was last looked at.
    ruled: Mutex<HashSet<TenantId>>,
}

/// The most tenants with rules that are remembered. Beyond them, it is found out anew which have some.
const RULED_MAX: usize = 4_096;

/// A number of gains that no server reaches: nobody has looked yet.
const NEVER: u64 = u64::MAX;

impl FeaturesUsed {
    /// Flags as the tables are now.
    pub(in crate::store) fn of(Features { steers, rules, queues }: Features) -> Self {
        Self {
            steers: steers.into(),
            rules: rules.into(),
            queues: queues.into(),
            gains_without_queues: 0.into(),
            gains_looked_at: 0.into(),
            ruled: Mutex::default(),
        }
    }

    /// Flags of a server beside others, which may begin to use a feature at any time.
    pub(in crate::store) fn beside_others() -> Self {
        Self {
            steers: true.into(),
            rules: true.into(),
            queues: false.into(),
            gains_without_queues: NEVER.into(),
            gains_looked_at: NEVER.into(),
            ruled: Mutex::default(),
        }
    }

    /// True if a request may have handed its messages to a run.
    pub(in crate::store) fn steers(&self) -> bool {
        self.steers.load(Ordering::Acquire)
    }

    /// True if a rule may be remembered.
    pub(in crate::store) fn rules(&self) -> bool {
        self.rules.load(Ordering::Acquire)
    }

    /// True if the tenant had rules for all sessions when that was last looked at.
    pub(in crate::store) fn has_rules(&self, tenant: &TenantId) -> bool {
        self.ruled.lock().contains(tenant)
    }

    /// Notes if a tenant has rules for all sessions.
    pub(in crate::store) fn note_rules(&self, tenant: &TenantId, has_some: bool) {
        let mut ruled = self.ruled.lock();
        if !has_some {
            ruled.remove(tenant);
            return;
        }
        if ruled.len() >= RULED_MAX {
            ruled.clear();
        }
        ruled.insert(tenant.clone());
    }

    /// True if a run may wait in the queue of a session of this server, which has gained so many shards.
    pub(in crate::store) fn queues(&self, gains: u64) -> bool {
        self.queues.load(Ordering::Acquire) || self.gains_without_queues.load(Ordering::Acquire) != gains
    }

    /// Notes that a run was seen in a queue.
    pub(in crate::store) fn note_queue(&self) {
        if !self.queues.load(Ordering::Relaxed) {
            self.queues.store(true, Ordering::Release);
        }
    }

    /// True if it is worth a look whether any run is queued: once after each gain, unless this server has queued one.
    pub(in crate::store) fn may_look_at_queues(&self, gains: u64) -> bool {
        !self.queues.load(Ordering::Acquire) && self.gains_looked_at.swap(gains, Ordering::AcqRel) != gains
    }

    /// No run was queued in the database, at a time when this server had gained so many shards.
    pub(in crate::store) fn note_no_queues(&self, gains: u64) {
        self.gains_without_queues.store(gains, Ordering::Release);
    }

    /// Sets the flags of the features that an append uses. Called before it is written, so that a caller who learns of
    /// the append finds its rows.
    pub(in crate::store) fn mark(&self, append: &EncodedAppend) {
        let mark = |flag: &AtomicBool, is_used: bool| {
            if is_used && !flag.load(Ordering::Relaxed) {
                flag.store(true, Ordering::Release);
            }
        };
        mark(&self.steers, !append.steers.is_empty());
        mark(&self.rules, !append.remembered.is_empty());
        mark(&self.queues, append.create.is_some() && append.enter.is_none());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_looked_at_once_after_each_gain() {
        let used = FeaturesUsed::beside_others();
        for gains in [1, 2, 5] {
            assert!(used.queues(gains), "an earlier owner may have queued a run");
            assert!(used.may_look_at_queues(gains) && !used.may_look_at_queues(gains));
            assert!(used.queues(gains), "until it is known");
            used.note_no_queues(gains);
            assert!(!used.queues(gains));
        }
    }

    #[test]
    fn tenants_with_rules_are_remembered_and_their_number_is_bounded() {
        let used = FeaturesUsed::beside_others();
        let tenant = |number: usize| TenantId::parse(format!("t-{number}")).unwrap();
        for number in 0..=RULED_MAX {
            used.note_rules(&tenant(number), true);
        }
        assert!(used.has_rules(&tenant(RULED_MAX)) && !used.has_rules(&tenant(0)));
        used.note_rules(&tenant(RULED_MAX), false);
        assert!(!used.has_rules(&tenant(RULED_MAX)));
    }

    #[test]
    fn a_look_that_a_gain_overtakes_says_nothing() {
        let used = FeaturesUsed::beside_others();
        assert!(used.may_look_at_queues(1));
        used.note_no_queues(1);
        assert!(used.queues(2) && used.may_look_at_queues(2));
    }

    #[test]
    fn a_server_that_queues_a_run_looks_for_good() {
        let used = FeaturesUsed::beside_others();
        assert!(used.may_look_at_queues(1));
        used.note_queue();
        used.note_no_queues(1);
        assert!(used.queues(1) && !used.may_look_at_queues(2));
    }
}
