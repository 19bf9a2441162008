//! Quotas on stored things: sessions, bytes, and the tokens and cost of a window. The store is read, because it also
//! has the usage from before this process. An addition of this process counts from the moment at which it is allowed.

mod counter;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agentloop_core::id::{SessionId, TenantId};
use agentloop_core::time::{Millis, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::auth::{Holder, Quota, QuotaBound, QuotaExceeded, QuotaScope, QuotaUse, Quotas, UsePermit};
use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::quota::counter::{Counter, QuotaReservation, StoredUse, UseQuery, read_use};
use crate::store::{Store, StoreError};
use crate::telemetry::metrics::QuotaReading;

/// The time after which a refused caller may look again if something must be deleted first.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Holders that are kept before those that nothing is under way for are dropped.
const HOLDERS_MAX: usize = 4_096;

/// The quotas of an engine. Without any, nothing is counted.
#[derive(Debug, Default)]
pub(in crate::engine) struct EngineQuotas {
    quotas: Option<Quotas>,
    stored: Mutex<HashMap<(UseQuery, Holder), Arc<Counter>>>,
}

/// The caller whose use is compared with its quotas.
struct QuotaCaller<'a> {
    store: &'a dyn Store,
    tenant: &'a TenantId,
    /// `None` without authentication: then there are no quotas.
    name: Option<&'a str>,
    /// The window of tokens and cost is the one with this time.
    now: Timestamp,
}

/// A number of the store about one holder.
struct Figure<'a> {
    source: UseQuery,
    /// The place of the number in the result of the source.
    place: usize,
    holder: &'a Holder,
    caller: &'a QuotaCaller<'a>,
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
        let caller = QuotaCaller { store, tenant, name, now };
        for quota in [Quota::Tokens, Quota::CostMicros] {
            // The amount of the next call is unknown: one that begins while something is left may go beyond it.
            drop(self.add(quota, 1, &caller, false).await?);
        }
        Ok(())
    }

    /// Reserves an amount of a quota for something that is about to be stored.
    async fn add(
        &self,
        quota: Quota,
        amount: u64,
        caller: &QuotaCaller<'_>,
        counts: bool,
    ) -> Result<QuotaReservation, EngineError> {
        let mut reservation = QuotaReservation::default();
        let (Some(quotas), Some((source, place))) = (&self.quotas, UseQuery::of(quota)) else {
            return Ok(reservation);
        };
        for QuotaBound { scope, holder, max } in quotas.bounds_of(quota, caller.tenant, caller.name) {
            let counter = self.counter(source, &holder);
            let began = Instant::now();
            let mut stored = counter.stored.lock().await;
            let figure = Figure { source, place, holder: &holder, caller };
            let mut used = self.used(&figure, &counter, &mut stored, None).await?;
            if used.saturating_add(amount) > max {
                // Something may have been deleted since.
                used = self.used(&figure, &counter, &mut stored, Some(began)).await?;
            }
            if used.saturating_add(amount) > max {
                reservation.give_up();
                return Err(quotas.refuse(quota, scope, self.retry_after(quota, caller.now)).into());
            }
            if counts {
                reservation.push(counter.clone(), amount);
            }
        }
        Ok(reservation)
    }

    /// The figure now, with what is being added. `counter` is its holder's, and `stored` its reading. The store is read
    /// if its last reading is too old, or began before `since`.
    async fn used(
        &self,
        figure: &Figure<'_>,
        counter: &Counter,
        stored: &mut Option<StoredUse>,
        since: Option<Instant>,
    ) -> Result<u64, StoreError> {
        let Figure { source, place, holder, caller } = *figure;
        let (window, length) = self.window(caller.now);
        let is_valid = |stored: &StoredUse| {
            let is_about_now = source != UseQuery::Usage || stored.window == window;
            is_about_now
                && stored.counts_for(stored.begun.elapsed())
                && since
                    .is_none_or(|since| stored.begun >= since || stored.refuses_for(stored.begun.elapsed()))
        };
        let values = match stored.filter(is_valid) {
            Some(stored) => stored.values,
            None => {
                let begun = Instant::now();
                let added = counter.added.load(Ordering::Relaxed);
                let values = read_use(caller.store, source, holder, window, length).await?;
                counter.added.fetch_sub(added, Ordering::Relaxed);
                *stored = Some(StoredUse { values, begun, took: begun.elapsed(), window });
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
        let stored = self.stored.lock();
        let mut parts = Vec::new();
        for ((source, holder), counter) in &*stored {
            // A reading that is under way is seen the next time.
            let Some(stored) = counter.stored.try_lock().ok().and_then(|stored| *stored) else { continue };
            let scope = if holder.name.is_some() { QuotaScope::Principal } else { QuotaScope::Tenant };
            for quota in Quota::ALL {
                if let Some((of, place)) = UseQuery::of(quota)
                    && of == *source
                    && let Some(bound) = quotas.limits().get(quota, scope)
                {
                    parts.push((quota.name(scope), stored.values[place] as f64 / bound as f64));
                }
            }
        }
        parts
    }

    fn counter(&self, source: UseQuery, holder: &Holder) -> Arc<Counter> {
        let mut stored = self.stored.lock();
        if stored.len() >= HOLDERS_MAX && !stored.contains_key(&(source, holder.clone())) {
            stored.retain(|_, counter| Arc::strong_count(counter) > 1);
        }
        stored.entry((source, holder.clone())).or_default().clone()
    }
}

impl Engine {
    /// The quotas, if there are any.
    #[must_use]
    pub fn quotas(&self) -> Option<&Quotas> {
        self.deps().quotas.quotas.as_ref()
    }

    /// Reserves a part of the quota for a session that this caller is about to create. One that is there already needs none.
    ///
    /// # Errors
    /// [`EngineError::QuotaExceeded`], or the store's.
    pub(crate) async fn reserve_session(
        &self,
        tenant: &TenantId,
        name: Option<&str>,
        session: &SessionId,
    ) -> Result<QuotaReservation, EngineError> {
        let caller = QuotaCaller { store: &**self.store(), tenant, name, now: self.now() };
        match self.deps().quotas.add(Quota::Sessions, 1, &caller, true).await {
            Err(EngineError::QuotaExceeded(exceeded)) => match self.store().session(tenant, session).await? {
                Some(_) => Ok(QuotaReservation::default()),
                None => Err(exceeded.into()),
            },
            made => made,
        }
    }

    /// Reserves a part of the quota for bytes that this caller is about to store.
    ///
    /// # Errors
    /// [`EngineError::QuotaExceeded`], or the store's.
    pub(crate) async fn reserve_bytes(
        &self,
        tenant: &TenantId,
        name: Option<&str>,
        bytes: u64,
    ) -> Result<QuotaReservation, EngineError> {
        let caller = QuotaCaller { store: &**self.store(), tenant, name, now: self.now() };
        self.deps().quotas.add(Quota::StoredBytes, bytes, &caller, true).await
    }

    /// Checks that the caller may have more work done: tokens, money and bytes are left.
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
        let caller = QuotaCaller { store: &**self.store(), tenant, name, now: self.now() };
        quotas.add(Quota::StoredBytes, 1, &caller, false).await.map(drop)
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
        let caller = QuotaCaller { store: &**self.store(), tenant, name, now: self.now() };
        let mut uses = Vec::new();
        for quota in Quota::ALL {
            for QuotaBound { scope, holder, max: limit } in quotas.bounds_of(quota, tenant, name) {
                let used = match UseQuery::of(quota) {
                    None => quotas.used(quota, &holder, limit, Instant::now()),
                    Some((source, place)) => {
                        let counter = deps.quotas.counter(source, &holder);
                        let mut stored = counter.stored.lock().await;
                        let figure = Figure { source, place, holder: &holder, caller: &caller };
                        deps.quotas.used(&figure, &counter, &mut stored, None).await?
                    }
                };
                uses.push(QuotaUse { quota, scope, limit, used });
            }
        }
        Ok(uses)
    }
}
