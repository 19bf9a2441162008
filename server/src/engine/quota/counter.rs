//! The use of a quota as the store has it, with the amounts that it cannot have yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agentloop_core::time::{Millis, Timestamp};
use tokio::time::Instant;

use crate::auth::{Holder, Quota};
use crate::store::{Store, StoreError, UsageQuery, UsageRow};

/// A reading of the store is used this many times as long as it took. So reading takes at most a 50th of the time.
const VALID_TIMES: u32 = 50;
/// The longest time for which a reading of the store is used.
const VALID_MAX: Duration = Duration::from_secs(60);
/// A reading that takes this long is slow: it is not repeated for each call that it refuses.
const SLOW: Duration = Duration::from_millis(500);
/// A slow reading refuses calls this many times as long as it took. So a caller that tries again and again keeps the
/// store busy a tenth of the time.
const SLOW_TIMES: u32 = 10;

/// A query to the store. Its result serves one or two quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::engine::quota) enum UseQuery {
    Sessions,
    Bytes,
    /// Tokens and cost, which one query returns.
    Usage,
}

impl UseQuery {
    /// The source of a quota, and the place of its number in the result.
    pub(in crate::engine::quota) fn of(quota: Quota) -> Option<(Self, usize)> {
        match quota {
            Quota::Sessions => Some((Self::Sessions, 0)),
            Quota::StoredBytes => Some((Self::Bytes, 0)),
            Quota::Tokens => Some((Self::Usage, 0)),
            Quota::CostMicros => Some((Self::Usage, 1)),
            Quota::RequestsPerSecond | Quota::LiveRuns | Quota::Streams | Quota::Hosts => None,
        }
    }
}

/// The last reading of the store about one holder, and the amounts that it cannot have yet.
#[derive(Debug, Default)]
pub(in crate::engine::quota) struct Counter {
    /// Amounts of writes that are not done.
    pub(in crate::engine::quota) under_way: AtomicU64,
    /// Amounts of writes that were done while the store was read, or after that.
    pub(in crate::engine::quota) added: AtomicU64,
    /// `None` before the first reading. Locked while the store is read, so that it is read once at a time.
    pub(in crate::engine::quota) stored: tokio::sync::Mutex<Option<StoredUse>>,
}

/// A reading of the store.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine::quota) struct StoredUse {
    /// One number for each quota that its source serves.
    pub(in crate::engine::quota) values: [u64; 2],
    /// The time just before the store was read: writes that were done by then are in the reading.
    pub(in crate::engine::quota) begun: Instant,
    /// The time that the store took.
    pub(in crate::engine::quota) took: Duration,
    /// Start of the window that tokens and cost were added up for.
    pub(in crate::engine::quota) window: Timestamp,
}

impl StoredUse {
    /// True if a reading of this age is used.
    pub(in crate::engine::quota) fn counts_for(&self, age: Duration) -> bool {
        age < (self.took * VALID_TIMES).min(VALID_MAX)
    }

    /// True if it may refuse a call at this age without a new reading, although something may have been deleted since.
    pub(in crate::engine::quota) fn refuses_for(&self, age: Duration) -> bool {
        self.took >= SLOW && age < (self.took * SLOW_TIMES).min(VALID_MAX)
    }
}

/// The quota reserved for something that is about to be stored. Counts as added when it is dropped. A reading of the store
/// that began later has it, if it was stored.
#[derive(Debug, Default)]
pub(crate) struct QuotaReservation(Vec<(Arc<Counter>, u64)>);

impl Drop for QuotaReservation {
    fn drop(&mut self) {
        for (counter, amount) in self.0.drain(..) {
            // In this order it is never missing.
            counter.added.fetch_add(amount, Ordering::Relaxed);
            counter.under_way.fetch_sub(amount, Ordering::Relaxed);
        }
    }
}

impl QuotaReservation {
    /// Adds an amount to this counter, whose readings are locked.
    pub(in crate::engine::quota) fn push(&mut self, counter: Arc<Counter>, amount: u64) {
        counter.under_way.fetch_add(amount, Ordering::Relaxed);
        self.0.push((counter, amount));
    }

    /// Adds the same as both. However often something is added to a counter, it takes the same memory.
    pub(crate) fn extend(&mut self, mut more: Self) {
        for (counter, amount) in more.0.drain(..) {
            match self.0.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &counter)) {
                Some((_, known)) => *known += amount,
                None => self.0.push((counter, amount)),
            }
        }
    }

    /// Nothing is added after all.
    pub(in crate::engine::quota) fn give_up(&mut self) {
        for (counter, amount) in self.0.drain(..) {
            counter.under_way.fetch_sub(amount, Ordering::Relaxed);
        }
    }
}

/// Reads from the store how much of a quota a holder has used.
pub(in crate::engine::quota) async fn read_use(
    store: &dyn Store,
    source: UseQuery,
    holder: &Holder,
    from: Timestamp,
    length: Millis,
) -> Result<[u64; 2], StoreError> {
    let (tenant, name) = (&holder.tenant, holder.name.as_deref());
    Ok(match source {
        UseQuery::Sessions => [store.session_count(tenant, name).await?, 0],
        UseQuery::Bytes => [store.stored_bytes(tenant, name).await?, 0],
        UseQuery::Usage => {
            let query = UsageQuery {
                from,
                before: Timestamp(from.0 + length.0),
                bucket: length,
                created_by: holder.name.clone(),
                rows_max: 1,
                ..UsageQuery::default()
            };
            let rows = store.usage(tenant, &query).await?;
            let tokens = |row: &UsageRow| row.usage.input_tokens.saturating_add(row.usage.output_tokens);
            [rows.iter().map(tokens).sum(), rows.iter().map(|row| row.usage.cost_micros).sum()]
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(milliseconds: u64) -> StoredUse {
        let took = Duration::from_millis(milliseconds);
        StoredUse { values: [0, 0], begun: Instant::now(), took, window: Timestamp(0) }
    }

    #[test]
    fn the_longer_an_answer_takes_the_longer_it_counts() {
        let age = Duration::from_millis;
        assert!(took(2).counts_for(age(99)) && !took(2).counts_for(age(100)));
        assert!(took(9_000).counts_for(age(59_999)) && !took(9_000).counts_for(age(60_000)));
    }

    #[test]
    fn however_often_something_is_added_to_a_counter_it_is_one() {
        let (one, other) = (Arc::<Counter>::default(), Arc::<Counter>::default());
        let mut reservation = QuotaReservation(vec![(one.clone(), 1)]);
        for _ in 0..3 {
            reservation.extend(QuotaReservation(vec![(one.clone(), 2), (other.clone(), 5)]));
        }
        assert_eq!(reservation.0.len(), 2);
        drop(reservation);
        let added = |counter: &Counter| counter.added.load(Ordering::Relaxed);
        assert_eq!((added(&one), added(&other)), (7, 15));
    }

    #[test]
    fn only_a_slow_answer_refuses_without_another_look() {
        let age = Duration::from_millis;
        assert!(!took(499).refuses_for(age(0)), "what was deleted is seen at once");
        assert!(took(500).refuses_for(age(4_999)) && !took(500).refuses_for(age(5_000)));
        assert!(took(9_000).refuses_for(age(59_999)) && !took(9_000).refuses_for(age(60_000)));
    }
}
