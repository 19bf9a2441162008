//! Quotas on stored things: sessions, bytes, and the tokens and cost of a window. The store is asked, because it also has the
//! usage from before this process. An addition of this process counts from the moment at which it is allowed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentloop_core::id::{SessionId, TenantId};
use agentloop_core::time::{Millis, Timestamp};
use tokio::time::Instant;

use crate::auth::{Holder, Quota, QuotaBound, QuotaExceeded, QuotaUse, Quotas, Scope, UsePermit};
use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::store::{Store, StoreError, UsageQuery, UsageRow};
use crate::telemetry::metrics::QuotaReading;

/// A reading of the store counts for this many times the time that it took, so that asking takes at most a 50th of the time.
const VALID_TIMES: u32 = 50;
/// A reading of the store counts for this long at most.
const VALID_MAX: Duration = Duration::from_secs(60);
/// A reading that took this long is not asked for anew for each refused call.
const SLOW: Duration = Duration::from_millis(500);
/// A slow reading refuses calls for this many times the time that it took, so that whoever is refused and tries again and again
/// keeps the store busy a tenth of the time.
const SLOW_TIMES: u32 = 10;
/// The time after which a refused caller may look again if something must be deleted before there is room.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Holders that are kept before those that nothing is under way for are dropped.
const HOLDERS_MAX: usize = 4_096;

/// The quotas of an engine. Without any, nothing is counted.
#[derive(Debug, Default)]
pub(in crate::engine) struct EngineQuotas {
    quotas: Option<Quotas>,
    stored: Mutex<HashMap<(Source, Holder), Arc<Counter>>>,
}

/// A query to the store. Its result serves one or two quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    Sessions,
    Bytes,
    /// Tokens and cost, which one query returns.
    Usage,
}

impl Source {
    /// The source of a quota, and the place of its number in the result.
    fn of(quota: Quota) -> Option<(Self, usize)> {
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
struct Counter {
    /// Amounts of writes that are not done.
    under_way: AtomicU64,
    /// Amounts of writes that were done after the store was asked, or during that.
    added: AtomicU64,
    /// `None` before the first reading. Locked while the store is asked, so that it is asked once at a time.
    stored: tokio::sync::Mutex<Option<StoredUse>>,
}

#[derive(Debug, Clone, Copy)]
struct StoredUse {
    /// One number for each quota that its source serves.
    values: [u64; 2],
    /// The time just before the store was asked: writes that were done by then are in the reading.
    asked: Instant,
    /// The time that the store took.
    took: Duration,
    /// Start of the window that tokens and cost were added up for.
    window: Timestamp,
}

impl StoredUse {
    /// True if it counts at this age.
    fn counts_for(&self, age: Duration) -> bool {
        age < (self.took * VALID_TIMES).min(VALID_MAX)
    }

    /// True if at this age a call is refused by it, although something may have been deleted since.
    fn refuses_for(&self, age: Duration) -> bool {
        self.took >= SLOW && age < (self.took * SLOW_TIMES).min(VALID_MAX)
    }
}

/// Counts as added when it is dropped. A reading of the store that was asked for later has it, if it was stored.
#[derive(Debug)]
pub(crate) struct Adding(Vec<(Arc<Counter>, u64)>);

impl Drop for Adding {
    fn drop(&mut self) {
        for (counter, amount) in self.0.drain(..) {
            // In this order it is never missing.
            counter.added.fetch_add(amount, Ordering::Relaxed);
            counter.under_way.fetch_sub(amount, Ordering::Relaxed);
        }
    }
}

impl Adding {
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
    fn give_up(&mut self) {
        for (counter, amount) in self.0.drain(..) {
            counter.under_way.fetch_sub(amount, Ordering::Relaxed);
        }
    }
}

/// The caller whose use is compared with its quotas.
struct Asker<'a> {
    store: &'a dyn Store,
    tenant: &'a TenantId,
    /// `None` without authentication: then there are no quotas.
    name: Option<&'a str>,
    /// The window of tokens and cost is the one with this time.
    now: Timestamp,
}

/// A number of the store about one holder.
struct Figure<'a> {
    source: Source,
    /// The place of the number in the result of the source.
    place: usize,
    holder: &'a Holder,
    asker: &'a Asker<'a>,
}

impl EngineQuotas {
    pub(in crate::engine) fn new(quotas: Option<Quotas>) -> Self {
        Self { quotas, stored: Mutex::default() }
    }

    /// Counts a run as live, unless as many are as there may be.
    pub(in crate::engine) fn hold_run(
        &self,
        tenant: &TenantId,
        name: Option<&str>,
    ) -> Result<Option<UsePermit>, QuotaExceeded> {
        self.quotas.as_ref().map(|quotas| quotas.hold(Quota::LiveRuns, tenant, name)).transpose()
    }

    /// Counts a run as live that was started before.
    pub(in crate::engine) fn hold_run_anyway(
        &self,
        tenant: &TenantId,
        name: Option<&str>,
    ) -> Option<UsePermit> {
        self.quotas.as_ref().map(|quotas| quotas.hold_anyway(Quota::LiveRuns, tenant, name))
    }

    /// Checks that the window has tokens and money left.
    pub(in crate::engine) async fn check_usage(
        &self,
        store: &dyn Store,
        tenant: &TenantId,
        name: Option<&str>,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let asker = Asker { store, tenant, name, now };
        for quota in [Quota::Tokens, Quota::CostMicros] {
            // The amount of the next call is unknown: one that begins while something is left may go beyond it.
            drop(self.add(quota, 1, &asker, false).await?);
        }
        Ok(())
    }

    /// Makes room for something that is about to be stored.
    async fn add(
        &self,
        quota: Quota,
        amount: u64,
        asker: &Asker<'_>,
        counts: bool,
    ) -> Result<Adding, EngineError> {
        let mut adding = Adding(Vec::new());
        let (Some(quotas), Some((source, place))) = (&self.quotas, Source::of(quota)) else {
            return Ok(adding);
        };
        for QuotaBound { scope, holder, max } in quotas.bounds_of(quota, asker.tenant, asker.name) {
            let counter = self.counter(source, &holder);
            let began = Instant::now();
            let mut stored = counter.stored.lock().await;
            let figure = Figure { source, place, holder: &holder, asker };
            let mut used = self.used(&figure, &counter, &mut stored, None).await?;
            if used.saturating_add(amount) > max {
                // Something may have been deleted since.
                used = self.used(&figure, &counter, &mut stored, Some(began)).await?;
            }
            if used.saturating_add(amount) > max {
                adding.give_up();
                return Err(quotas.refuse(quota, scope, self.retry_after(quota, asker.now)).into());
            }
            if counts {
                counter.under_way.fetch_add(amount, Ordering::Relaxed);
                drop(stored);
                adding.0.push((counter, amount));
            }
        }
        Ok(adding)
    }

    /// The figure now, with what is being added. `counter` is its holder's, and `stored` its reading. The store is asked if
    /// its last reading is too old, or was asked for before `since`.
    async fn used(
        &self,
        figure: &Figure<'_>,
        counter: &Counter,
        stored: &mut Option<StoredUse>,
        since: Option<Instant>,
    ) -> Result<u64, StoreError> {
        let Figure { source, place, holder, asker } = *figure;
        let (window, length) = self.window(asker.now);
        let is_valid = |stored: &StoredUse| {
            let is_about_now = source != Source::Usage || stored.window == window;
            is_about_now
                && stored.counts_for(stored.asked.elapsed())
                && since
                    .is_none_or(|since| stored.asked >= since || stored.refuses_for(stored.asked.elapsed()))
        };
        let values = match stored.filter(is_valid) {
            Some(stored) => stored.values,
            None => {
                let asked = Instant::now();
                let added = counter.added.load(Ordering::Relaxed);
                let values = ask(asker.store, source, holder, window, length).await?;
                counter.added.fetch_sub(added, Ordering::Relaxed);
                *stored = Some(StoredUse { values, asked, took: asked.elapsed(), window });
                values
            }
        };
        // A run that ends in between is counted twice. In the other order it would not be counted at all.
        let under_way = counter.under_way.load(Ordering::Relaxed);
        Ok(values[place].saturating_add(counter.added.load(Ordering::Relaxed)).saturating_add(under_way))
    }

    /// The start of the window, and its length.
    fn window(&self, now: Timestamp) -> (Timestamp, Millis) {
        let window = self.quotas.as_ref().map(|quotas| quotas.limits().window).unwrap_or_default();
        let length = window.0.max(1);
        (Timestamp(now.0 / length * length), Millis(length))
    }

    fn retry_after(&self, quota: Quota, now: Timestamp) -> Duration {
        if !quota.has_window() {
            return LOOK_AGAIN;
        }
        let (start, length) = self.window(now);
        Duration::from_millis((start.0 + length.0).saturating_sub(now.0))
    }

    /// The part that is used by the holder that uses most, by the names of the quotas, from the last readings of the store.
    fn highest_stored(&self, quotas: &Quotas) -> Vec<(&'static str, f64)> {
        let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parts = Vec::new();
        for ((source, holder), counter) in &*stored {
            // A reading that is being asked for is seen the next time.
            let Some(stored) = counter.stored.try_lock().ok().and_then(|stored| *stored) else { continue };
            let scope = if holder.name.is_some() { Scope::Principal } else { Scope::Tenant };
            for quota in Quota::ALL {
                if let Some((of, place)) = Source::of(quota)
                    && of == *source
                    && let Some(bound) = quotas.limits().get(quota, scope)
                {
                    parts.push((quota.name(scope), stored.values[place] as f64 / bound as f64));
                }
            }
        }
        parts
    }

    fn counter(&self, source: Source, holder: &Holder) -> Arc<Counter> {
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        if stored.len() >= HOLDERS_MAX && !stored.contains_key(&(source, holder.clone())) {
            stored.retain(|_, counter| Arc::strong_count(counter) > 1);
        }
        stored.entry((source, holder.clone())).or_default().clone()
    }
}

/// Asks the store.
async fn ask(
    store: &dyn Store,
    source: Source,
    holder: &Holder,
    from: Timestamp,
    length: Millis,
) -> Result<[u64; 2], StoreError> {
    let (tenant, name) = (&holder.tenant, holder.name.as_deref());
    Ok(match source {
        Source::Sessions => [store.session_count(tenant, name).await?, 0],
        Source::Bytes => [store.stored_bytes(tenant, name).await?, 0],
        Source::Usage => {
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

impl Engine {
    /// The quotas, if there are any.
    #[must_use]
    pub fn quotas(&self) -> Option<&Quotas> {
        self.deps().quotas.quotas.as_ref()
    }

    /// Makes room for a session that this caller is about to create. One that is there already needs none.
    ///
    /// # Errors
    /// [`EngineError::QuotaExceeded`], or the store's.
    pub(crate) async fn room_for_session(
        &self,
        tenant: &TenantId,
        name: Option<&str>,
        session: &SessionId,
    ) -> Result<Adding, EngineError> {
        let asker = Asker { store: &**self.store(), tenant, name, now: self.now() };
        match self.deps().quotas.add(Quota::Sessions, 1, &asker, true).await {
            Err(EngineError::QuotaExceeded(exceeded)) => match self.store().session(tenant, session).await? {
                Some(_) => Ok(Adding(Vec::new())),
                None => Err(exceeded.into()),
            },
            made => made,
        }
    }

    /// Makes room for bytes that this caller is about to store.
    ///
    /// # Errors
    /// [`EngineError::QuotaExceeded`], or the store's.
    pub(crate) async fn room_for_bytes(
        &self,
        tenant: &TenantId,
        name: Option<&str>,
        bytes: u64,
    ) -> Result<Adding, EngineError> {
        let asker = Asker { store: &**self.store(), tenant, name, now: self.now() };
        self.deps().quotas.add(Quota::StoredBytes, bytes, &asker, true).await
    }

    /// Checks that the caller may have more work done: tokens, money and room for bytes are left.
    ///
    /// # Errors
    /// [`EngineError::QuotaExceeded`], or the store's.
    pub(in crate::engine) async fn check_work(
        &self,
        tenant: &TenantId,
        name: Option<&str>,
    ) -> Result<(), EngineError> {
        let quotas = &self.deps().quotas;
        if quotas.quotas.is_none() {
            return Ok(());
        }
        quotas.check_usage(&**self.store(), tenant, name, self.now()).await?;
        let asker = Asker { store: &**self.store(), tenant, name, now: self.now() };
        quotas.add(Quota::StoredBytes, 1, &asker, false).await.map(drop)
    }

    /// The figures of each quota for the metrics.
    #[must_use]
    pub fn quota_readings(&self) -> Vec<QuotaReading> {
        let Some(quotas) = self.quotas() else { return Vec::new() };
        let mut highest = quotas.highest();
        for (name, part) in self.deps().quotas.highest_stored(quotas) {
            let known = highest.entry(name).or_insert(0.0);
            *known = known.max(part);
        }
        let refusals = quotas.refusals().into_iter();
        refusals
            .map(|(name, refused)| QuotaReading {
                name,
                refused,
                highest: highest.get(name).copied().unwrap_or(0.0),
            })
            .collect()
    }

    /// The quotas of a caller and its tenant, with what is used of them.
    ///
    /// # Errors
    /// The store's.
    pub async fn quota_uses(
        &self,
        tenant: &TenantId,
        name: Option<&str>,
    ) -> Result<Vec<QuotaUse>, EngineError> {
        let deps = self.deps();
        let Some(quotas) = self.quotas() else { return Ok(Vec::new()) };
        let asker = Asker { store: &**self.store(), tenant, name, now: self.now() };
        let mut uses = Vec::new();
        for quota in Quota::ALL {
            for QuotaBound { scope, holder, max: limit } in quotas.bounds_of(quota, tenant, name) {
                let used = match Source::of(quota) {
                    None => quotas.used(quota, &holder, limit, Instant::now()),
                    Some((source, place)) => {
                        let counter = deps.quotas.counter(source, &holder);
                        let mut stored = counter.stored.lock().await;
                        let figure = Figure { source, place, holder: &holder, asker: &asker };
                        deps.quotas.used(&figure, &counter, &mut stored, None).await?
                    }
                };
                uses.push(QuotaUse { quota, scope, limit, used });
            }
        }
        Ok(uses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(milliseconds: u64) -> StoredUse {
        let took = Duration::from_millis(milliseconds);
        StoredUse { values: [0, 0], asked: Instant::now(), took, window: Timestamp(0) }
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
        let mut adding = Adding(vec![(one.clone(), 1)]);
        for _ in 0..3 {
            adding.extend(Adding(vec![(one.clone(), 2), (other.clone(), 5)]));
        }
        assert_eq!(adding.0.len(), 2);
        drop(adding);
        let added = |counter: &Counter| counter.added.load(Ordering::Relaxed);
        assert_eq!((added(&one), added(&other)), (7, 15));
    }

    #[test]
    fn only_a_slow_answer_refuses_without_another_look() {
        let age = Duration::from_millis;
        assert!(!took(499).refuses_for(age(0)), "room that was made is seen at once");
        assert!(took(500).refuses_for(age(4_999)) && !took(500).refuses_for(age(5_000)));
        assert!(took(9_000).refuses_for(age(59_999)) && !took(9_000).refuses_for(age(60_000)));
    }
}
